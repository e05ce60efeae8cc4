"""Kernel parameters: Python values to the bytes of the parameter space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from umma_jit.emulator.errors import LaunchError
from umma_jit.emulator.tensor_map import TENSOR_MAP_BYTES, TensorMap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from umma_jit.emulator.memory import DeviceMemory
    from umma_jit.emulator.nodes import Parameter

__all__ = ["Parameters"]


class Parameters:
    """The parameters of one launch.

    Parameters
    ----------
    kernel
        Name, for errors.
    declared
        What the kernel declares.
    values
        One per parameter; see `Kernel.launch`.
    memory
        Arrays are uploaded to it.

    Raises
    ------
    LaunchError
        The number of values, a type or a size does not fit.

    Attributes
    ----------
    data
        uint8: the parameter space.
    """

    def __init__(self, kernel: str, declared: Sequence[Parameter], values: Sequence[Any], memory: DeviceMemory) -> None:
        if len(values) != len(declared):
            names = ", ".join(parameter.name for parameter in declared)
            raise LaunchError(f"{kernel} takes {len(declared)} parameters ({names}), {len(values)} were given")
        size = max((parameter.offset + parameter.size for parameter in declared), default=0)
        self.data: NDArray[np.uint8] = np.zeros(size, np.uint8)
        self._arrays: list[tuple[NDArray[Any], int]] = []
        for parameter, value in zip(declared, values, strict=True):
            raw = self._bytes(parameter, value, memory)
            if len(raw) != parameter.size:
                raise LaunchError(
                    f"{kernel}: parameter {parameter.name} has {parameter.size} bytes; "
                    f"{type(value).__name__} gives {len(raw)}"
                )
            self.data[parameter.offset : parameter.offset + parameter.size] = np.frombuffer(raw, np.uint8)

    def copy_back(self, memory: DeviceMemory) -> None:
        """Copy arrays that can be written to back from memory."""
        for array, address in self._arrays:
            if array.flags.writeable:
                array[...] = memory.download(address, array.shape, array.dtype)

    def _bytes(self, parameter: Parameter, value: Any, memory: DeviceMemory) -> bytes:
        if isinstance(value, np.ndarray):
            address = memory.upload(value)
            self._arrays.append((value, address))
            return address.to_bytes(8, "little")
        if isinstance(value, np.generic):
            return value.tobytes()
        if isinstance(value, TensorMap):
            if parameter.alignment < 64:
                raise LaunchError(
                    f"parameter {parameter.name} is aligned to {parameter.alignment} bytes; a tensor map needs 64"
                )
            return value.encode()
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise LaunchError(
            f"parameter {parameter.name}: {type(value).__name__} cannot be passed; use an ndarray, a NumPy scalar "
            f"such as np.int32(7), a TensorMap ({TENSOR_MAP_BYTES} bytes) or bytes"
        )
