"""A plan's `TensorMapLayout` plus an address → the argument that each runtime passes for it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from umma_jit.errors import LaunchError

if TYPE_CHECKING:
    from umma_jit._plan import TensorMapLayout
    from umma_jit.emulator import TensorMap

__all__ = ["emulated_tensor_map", "encode_for_driver"]


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


# The driver takes a microsecond or two for one, its Python binding several times that; the arrays of a training step
# or of a server's buffers come again at the same addresses.
@functools.lru_cache(maxsize=1024)
def encode_for_driver(layout: TensorMapLayout, address: int) -> Any:
    """Return a ``CUtensorMap`` made by the driver.

    Raises
    ------
    LaunchError
        The driver refuses it; says what was asked.
    """
    from cuda.bindings import driver

    rank = len(layout.dims)
    data_type = driver.CUtensorMapDataType
    swizzle = driver.CUtensorMapSwizzle
    result, tensor_map = driver.cuTensorMapEncodeTiled(
        {
            "bfloat16": data_type.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            "float16": data_type.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            "float32": data_type.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        }[layout.dtype],
        rank,
        address,
        [driver.cuuint64_t(extent) for extent in layout.dims],
        [driver.cuuint64_t(stride) for stride in layout.strides_bytes],
        [driver.cuuint32_t(extent) for extent in layout.box],
        [driver.cuuint32_t(1)] * rank,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        {
            "none": swizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
            "32B": swizzle.CU_TENSOR_MAP_SWIZZLE_32B,
            "64B": swizzle.CU_TENSOR_MAP_SWIZZLE_64B,
            "128B": swizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        }[layout.swizzle],
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if result != driver.CUresult.CUDA_SUCCESS:
        raise LaunchError(f"cuTensorMapEncodeTiled: {result.name} for {layout} at address {address:#x}")
    return tensor_map
