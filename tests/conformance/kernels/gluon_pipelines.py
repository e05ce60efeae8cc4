"""Gluon kernels with several parts: roles by warp, scale factors copied to tensor memory, Hopper's warpgroup MMA."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma,
    tcgen05_mma_scaled,
    tma,
)
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_init, warpgroup_mma_wait


@gluon.jit
def _load(a_tiles, b_tiles, a_ring, b_ring, full, empty, STEPS: gl.constexpr, STAGES: gl.constexpr, BK: gl.constexpr):
    for step in range(STEPS):
        stage = step % STAGES
        mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(stage), a_tiles.nbytes_per_cta + b_tiles.nbytes_per_cta)
        tma.async_load(a_tiles, [0, step * BK], full.index(stage), a_ring.index(stage))
        tma.async_load(b_tiles, [0, step * BK], full.index(stage), b_ring.index(stage))


@gluon.jit
def _multiply(a_ring, b_ring, d_tile, full, empty, done, STEPS: gl.constexpr, STAGES: gl.constexpr):
    for step in range(STEPS):
        stage = step % STAGES
        mbarrier.wait(full.index(stage), step // STAGES & 1)
        tcgen05_mma(a_ring.index(stage), b_ring.index(stage).permute((1, 0)), d_tile, use_acc=step > 0)
        tcgen05_commit(empty.index(stage))
    tcgen05_commit(done)


@gluon.jit
def _finish(c, d_tile, done, M: gl.constexpr, N: gl.constexpr):
    mbarrier.wait(done, 0)
    out: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, M, gl.SliceLayout(1, out))[:, None]
    columns = gl.arange(0, N, gl.SliceLayout(0, out))[None, :]
    gl.store(c + rows * N + columns, gl.convert_layout(d_tile.load(), out))


@gluon.jit
def specialised_mma(
    a_tiles, b_tiles, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr
):
    """C = A B^T: one warp loads, one multiplies, four store."""
    a_ring = gl.allocate_shared_memory(a_tiles.dtype, [STAGES] + a_tiles.block_type.shape, a_tiles.layout)  # noqa: RUF005
    b_ring = gl.allocate_shared_memory(b_tiles.dtype, [STAGES] + b_tiles.block_type.shape, b_tiles.layout)  # noqa: RUF005
    d_tile = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    done = mbarrier.allocate_mbarrier()
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    mbarrier.init(done, count=1)
    STEPS: gl.constexpr = K // BK
    gl.warp_specialize(
        [
            (_finish, (c, d_tile, done, M, N)),
            (_load, (a_tiles, b_tiles, a_ring, b_ring, full, empty, STEPS, STAGES, BK)),
            (_multiply, (a_ring, b_ring, d_tile, full, empty, done, STEPS, STAGES)),
        ],
        [1, 1],
        [24, 24],
    )


@gluon.jit
def scaled_by_copy(a, a_scale, b, b_scale, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    """C = (A * scales) (B * scales)^T for mxfp8, K = 128; scales are stored as tensor memory wants them."""
    warps: gl.constexpr = gl.num_warps()
    plain: gl.constexpr = gl.BlockedLayout([1, 16], [4, 8], [warps, 1], [1, 0])
    rows = gl.arange(0, M, gl.SliceLayout(1, plain))[:, None]
    columns = gl.arange(0, N, gl.SliceLayout(1, plain))[:, None]
    depth = gl.arange(0, K, gl.SliceLayout(0, plain))[None, :]
    dtype: gl.constexpr = a.dtype.element_ty
    a_tile = gl.allocate_shared_memory(
        dtype, [M, K], gl.NVMMASharedLayout.get_default_for([M, K], dtype), gl.load(a + rows * K + depth)
    )
    b_tile = gl.allocate_shared_memory(
        dtype, [N, K], gl.NVMMASharedLayout.get_default_for([N, K], dtype), gl.load(b + columns * K + depth)
    )
    flat: gl.constexpr = gl.BlockedLayout([4], [32], [warps], [0])
    at = gl.arange(0, M * K // 32, flat)
    packed: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=8, rank=3)
    a_raw = gl.allocate_shared_memory(
        gl.uint8, [32, 4, K // 32], packed, gl.load(a_scale + at).reshape([32, 4, K // 32])
    )
    b_raw = gl.allocate_shared_memory(
        gl.uint8, [32, 4, K // 32], packed, gl.load(b_scale + at).reshape([32, 4, K // 32])
    )
    a_factors = allocate_tensor_memory(gl.uint8, [M, K // 32], TensorMemoryScalesLayout())
    b_factors = allocate_tensor_memory(gl.uint8, [N, K // 32], TensorMemoryScalesLayout())
    d_tile = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    fence_async_shared()
    gl.barrier()
    tcgen05_copy(a_raw.permute((1, 0, 2)).reshape((M, K // 32)), a_factors)
    tcgen05_copy(b_raw.permute((1, 0, 2)).reshape((N, K // 32)), b_factors)
    tcgen05_mma_scaled(a_tile, b_tile.permute((1, 0)), d_tile, a_factors, b_factors, "e4m3", "e4m3", use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    mbarrier.invalidate(done)
    out: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [warps, 1], [1, 0])
    out_rows = gl.arange(0, M, gl.SliceLayout(1, out))[:, None]
    out_columns = gl.arange(0, N, gl.SliceLayout(0, out))[None, :]
    gl.store(c + out_rows * N + out_columns, gl.convert_layout(d_tile.load(), out))


@gluon.jit
def warpgroup(
    a,
    b,
    c,
    M: gl.constexpr,
    N: gl.constexpr,
    K: gl.constexpr,
    DEPTH: gl.constexpr,
    A_MAJOR_K: gl.constexpr,
    B_MAJOR_K: gl.constexpr,
    A_IN_REGISTERS: gl.constexpr,
):
    """C = A B^T by wgmma; DEPTH is K of one instruction."""
    warps: gl.constexpr = gl.num_warps()
    plain: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [warps, 1], [1, 0])
    rows = gl.arange(0, M, gl.SliceLayout(1, plain))[:, None]
    columns = gl.arange(0, N, gl.SliceLayout(1, plain))[:, None]
    depth = gl.arange(0, K, gl.SliceLayout(0, plain))[None, :]
    x = gl.load(a + (rows * K + depth if A_MAJOR_K else depth * M + rows))
    y = gl.load(b + (columns * K + depth if B_MAJOR_K else depth * N + columns))
    dtype: gl.constexpr = a.dtype.element_ty
    b_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([N, K], dtype, transposed=not B_MAJOR_K)
    b_tile = gl.allocate_shared_memory(dtype, [N, K], b_layout, y)
    fragment: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [warps, 1], [16, N, DEPTH])
    if A_IN_REGISTERS:
        operand: gl.constexpr = gl.DotOperandLayout(0, fragment, 32 // dtype.primitive_bitwidth)
        a_tile = gl.convert_layout(x, operand)
    else:
        a_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([M, K], dtype, transposed=not A_MAJOR_K)
        a_tile = gl.allocate_shared_memory(dtype, [M, K], a_layout, x)
    fence_async_shared()
    gl.barrier()
    accumulator = warpgroup_mma_init(gl.zeros([M, N], gl.float32, fragment))
    accumulator = warpgroup_mma(a_tile, b_tile.permute((1, 0)), accumulator, is_async=True)
    value = warpgroup_mma_wait(0, deps=[accumulator])
    out: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [warps, 1], [1, 0])
    out_rows = gl.arange(0, M, gl.SliceLayout(1, out))[:, None]
    out_columns = gl.arange(0, N, gl.SliceLayout(0, out))[None, :]
    gl.store(c + out_rows * N + out_columns, gl.convert_layout(value, out))
