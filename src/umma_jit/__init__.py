"""umma_jit: attention on the tensor cores of Hopper and Blackwell, compiled when it is called.

>>> from umma_jit import attention                                             # doctest: +SKIP
>>> out = attention(q, k, v, causal=True)       # q, k, v: (batch, seqlen, heads, head_dim)   # doctest: +SKIP

CuPy arrays, and whatever offers ``__cuda_array_interface__`` or DLPack, run on their CUDA device. NumPy arrays run on
an emulated device, which executes the very PTX that NVRTC makes for the GPU; see `umma_jit.emulator`.

Importing this package loads neither CUDA nor a compiler.
"""

from __future__ import annotations

from ._attention import attention
from .errors import (
    ArchMismatchError,
    ArgumentTypeError,
    CacheWarning,
    CompileError,
    CompilerNotFoundError,
    DeviceNotFoundError,
    EmulationError,
    InvalidArgumentError,
    LaunchError,
    OutOfMemoryError,
    SettingsError,
    TemplateError,
    UmmaJitError,
    UnsupportedArchError,
    UnsupportedProblemError,
)

__version__ = "0.1.0"

__all__ = [
    "ArchMismatchError",
    "ArgumentTypeError",
    "CacheWarning",
    "CompileError",
    "CompilerNotFoundError",
    "DeviceNotFoundError",
    "EmulationError",
    "InvalidArgumentError",
    "LaunchError",
    "OutOfMemoryError",
    "SettingsError",
    "TemplateError",
    "UmmaJitError",
    "UnsupportedArchError",
    "UnsupportedProblemError",
    "attention",
]
