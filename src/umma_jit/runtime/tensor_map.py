"""A plan's `TensorMapLayout` plus an address → the argument that each runtime passes for it."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from umma_jit.errors import LaunchError

if TYPE_CHECKING:
    from umma_jit._plan import TensorMapLayout
    from umma_jit.emulator import TensorMap

__all__ = ["DriverTensorMap", "driver_encoder", "emulated_tensor_map", "encode_for_driver"]


def emulated_tensor_map(layout: TensorMapLayout, address: int) -> TensorMap:
    """Return the emulator's tensor map."""
    from umma_jit.emulator import TensorMap

    return TensorMap(
        address,
        dtype=layout.dtype,
        dims=layout.dims,
        strides_bytes=layout.strides_bytes,
        box=layout.box,
        swizzle=layout.swizzle,
    )


@dataclass(frozen=True, eq=False)
class DriverTensorMap:
    """A ``CUtensorMap`` in host memory.

    Attributes
    ----------
    address : int
        Where it is; a multiple of 128.
    memory : ctypes array
        Keeps it alive.
    """

    address: int
    memory: Any


_BYTES = 128
_ALIGNMENT = 128  # of CUtensorMap: 64 in the headers of CUDA 12, 128 in those of CUDA 13

# Codes of the driver API: CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion (cuda.h).
_DATA_TYPES = {"float16": 6, "float32": 7, "bfloat16": 9}
_SWIZZLES = {"none": 0, "32B": 1, "64B": 2, "128B": 3}
_INTERLEAVE_NONE = 0
_L2_PROMOTION_256B = 3
_OOB_FILL_ZERO = 0

_ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int,  # CUresult
    ctypes.c_void_p,  # tensorMap
    ctypes.c_int,  # tensorDataType
    ctypes.c_uint32,  # tensorRank
    ctypes.c_void_p,  # globalAddress
    ctypes.POINTER(ctypes.c_uint64),  # globalDim
    ctypes.POINTER(ctypes.c_uint64),  # globalStrides
    ctypes.POINTER(ctypes.c_uint32),  # boxDim
    ctypes.POINTER(ctypes.c_uint32),  # elementStrides
    ctypes.c_int,  # interleave
    ctypes.c_int,  # swizzle
    ctypes.c_int,  # l2Promotion
    ctypes.c_int,  # oobFill
)


@functools.cache
def driver_encoder() -> Any:
    """Return ``cuTensorMapEncodeTiled`` of the driver, as a ctypes function.

    The binding of that name makes the map in an object of its own, at whatever address Python's allocator gives; the
    driver demands a multiple of 64.

    Raises
    ------
    LaunchError
        The driver is older than CUDA 12.0, where tensor maps came in.
    """
    from cuda.bindings import driver

    result, pointer, *_ = driver.cuGetProcAddress(b"cuTensorMapEncodeTiled", 12000, 0)
    if result != driver.CUresult.CUDA_SUCCESS or not int(pointer):
        raise LaunchError(f"the CUDA driver has no tensor maps ({result.name}); CUDA 12.0 or later is needed")
    return _ENCODE(int(pointer))


# The arrays of a training step or of a server's buffers come again at the same addresses.
@functools.lru_cache(maxsize=1024)
def encode_for_driver(layout: TensorMapLayout, address: int) -> DriverTensorMap:
    """Return a ``CUtensorMap`` made by the driver.

    Raises
    ------
    LaunchError
        The driver refuses it; says what was asked.
    """
    rank = len(layout.dims)
    memory = ctypes.create_string_buffer(_BYTES + _ALIGNMENT)
    start = -(-ctypes.addressof(memory) // _ALIGNMENT) * _ALIGNMENT
    result = driver_encoder()(
        start,
        _DATA_TYPES[layout.dtype],
        rank,
        address,
        (ctypes.c_uint64 * rank)(*layout.dims),
        (ctypes.c_uint64 * rank)(*layout.strides_bytes),
        (ctypes.c_uint32 * rank)(*layout.box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        _INTERLEAVE_NONE,
        _SWIZZLES[layout.swizzle],
        _L2_PROMOTION_256B,
        _OOB_FILL_ZERO,
    )
    if result:
        raise LaunchError(f"cuTensorMapEncodeTiled: CUDA error {result} for {layout} at address {address:#x}")
    return DriverTensorMap(start, memory)
