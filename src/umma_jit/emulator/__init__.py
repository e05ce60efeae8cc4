"""The emulated device: PTX for sm_90a and sm_100a run in NumPy, with the machine's rules enforced.

::

    memory = DeviceMemory()
    kernel = Module(ptx_text)["kernel_name"]
    report = kernel.launch(grid=(1, 1, 1), block=(128, 1, 1), memory=memory, params=[array, np.int32(7)])

A functional model: results, asynchrony and hazards, but no time. It imports nothing of the package around it.
"""

from __future__ import annotations

from umma_jit.emulator.async_engine import SCHEDULES
from umma_jit.emulator.errors import (
    DeadlockError,
    DescriptorError,
    EmulatorError,
    ExecutionError,
    HazardError,
    LaunchError,
    MbarrierError,
    MemoryFault,
    PtxSyntaxError,
    TensorMemoryFault,
    UnsupportedInstructionError,
)
from umma_jit.emulator.memory import DeviceMemory
from umma_jit.emulator.module import Kernel, Module
from umma_jit.emulator.report import Finding, Report
from umma_jit.emulator.tensor_map import TensorMap, TensorMapError

__all__ = [
    "SCHEDULES",
    "DeadlockError",
    "DescriptorError",
    "DeviceMemory",
    "EmulatorError",
    "ExecutionError",
    "Finding",
    "HazardError",
    "Kernel",
    "LaunchError",
    "MbarrierError",
    "MemoryFault",
    "Module",
    "PtxSyntaxError",
    "Report",
    "TensorMap",
    "TensorMapError",
    "TensorMemoryFault",
    "UnsupportedInstructionError",
]
