"""Gluon kernels for tensor memory: round trips in every register layout, MMA from shared and tensor memory, copies."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma,
    tma,
)


@gluon.jit
def round_trip(x, y, M: gl.constexpr, N: gl.constexpr, STORE: gl.constexpr, LOAD: gl.constexpr, UNPACKED: gl.constexpr):
    """Into tensor memory in one register layout and out of it in another."""
    warps: gl.constexpr = gl.num_warps()
    plain: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [warps, 1], [1, 0])
    rows = gl.arange(0, M, gl.SliceLayout(1, plain))
    columns = gl.arange(0, N, gl.SliceLayout(0, plain))
    at = rows[:, None] * N + columns[None, :]
    block: gl.constexpr = TensorMemoryLayout([64 if M == 64 else 128, N], col_stride=2 if UNPACKED else 1)
    memory = allocate_tensor_memory(x.dtype.element_ty, [M, N], block)
    store_layout: gl.constexpr = memory.get_reg_layout(instr_variant=STORE)
    load_layout: gl.constexpr = memory.get_reg_layout(instr_variant=LOAD)
    memory.store(gl.convert_layout(gl.load(x + at), store_layout))
    gl.store(y + at, gl.convert_layout(memory.load(load_layout), plain))


@gluon.jit
def mma(
    a,
    b,
    c,
    M: gl.constexpr,
    N: gl.constexpr,
    K: gl.constexpr,
    A_MAJOR_K: gl.constexpr,
    B_MAJOR_K: gl.constexpr,
    A_IN_TMEM: gl.constexpr,
):
    """One chain of MMAs, C = A B^T; operands through registers into shared or tensor memory."""
    warps: gl.constexpr = gl.num_warps()
    plain: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [warps, 1], [1, 0])
    rows = gl.arange(0, M, gl.SliceLayout(1, plain))[:, None]
    columns = gl.arange(0, N, gl.SliceLayout(1, plain))[:, None]
    depth = gl.arange(0, K, gl.SliceLayout(0, plain))[None, :]
    x = gl.load(a + (rows * K + depth if A_MAJOR_K else depth * M + rows))
    y = gl.load(b + (columns * K + depth if B_MAJOR_K else depth * N + columns))
    dtype: gl.constexpr = a.dtype.element_ty
    a_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([M, K], dtype, transposed=not A_MAJOR_K)
    b_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([N, K], dtype, transposed=not B_MAJOR_K)
    if A_IN_TMEM:
        a_block: gl.constexpr = TensorMemoryLayout([64 if M == 64 else 128, K], col_stride=1)
        a_tile = allocate_tensor_memory(dtype, [M, K], a_block)
        a_tile.store(gl.convert_layout(x, a_tile.get_reg_layout()))
    else:
        a_tile = gl.allocate_shared_memory(dtype, [M, K], a_layout, x)
    b_tile = gl.allocate_shared_memory(dtype, [N, K], b_layout, y)
    fence_async_shared()
    d_block: gl.constexpr = TensorMemoryLayout([64 if M == 64 else 128, N], col_stride=1)
    d_tile = allocate_tensor_memory(gl.float32, [M, N], d_block)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    gl.barrier()
    tcgen05_mma(a_tile, b_tile.permute((1, 0)), d_tile, use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    mbarrier.invalidate(done)
    out: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [warps, 1], [1, 0])
    out_rows = gl.arange(0, M, gl.SliceLayout(1, out))[:, None]
    out_columns = gl.arange(0, N, gl.SliceLayout(0, out))[None, :]
    gl.store(c + out_rows * N + out_columns, gl.convert_layout(d_tile.load(d_tile.get_reg_layout()), out))


@gluon.jit
def copy(x, y, M: gl.constexpr, N: gl.constexpr, SWIZZLE: gl.constexpr):
    """Shared memory to tensor memory by tcgen05.cp."""
    warps: gl.constexpr = gl.num_warps()
    plain: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [warps, 1], [1, 0])
    rows = gl.arange(0, M, gl.SliceLayout(1, plain))[:, None]
    columns = gl.arange(0, N, gl.SliceLayout(0, plain))[None, :]
    layout: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=SWIZZLE, element_bitwidth=32, rank=2)
    tile = gl.allocate_shared_memory(gl.float32, [M, N], layout, gl.load(x + rows * N + columns))
    fence_async_shared()
    memory = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([128, N], col_stride=1))
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    gl.barrier()
    tcgen05_copy(tile, memory)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    mbarrier.invalidate(done)
    gl.store(y + rows * N + columns, gl.convert_layout(memory.load(memory.get_reg_layout()), plain))


@gluon.jit
def tma_copy(x_tiles, y_tiles, ROWS: gl.constexpr, STAGES: gl.constexpr, COUNT: gl.constexpr):
    """A ring of TMA loads and stores with its own barriers."""
    tiles = gl.allocate_shared_memory(x_tiles.dtype, [STAGES] + x_tiles.block_type.shape, x_tiles.layout)  # noqa: RUF005 - Gluon does not unpack
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    for tile in gl.static_range(STAGES - 1):
        mbarrier.expect(full.index(tile), x_tiles.nbytes_per_cta)
        tma.async_load(x_tiles, [tile * ROWS, 0], full.index(tile), tiles.index(tile))
    for tile in range(COUNT):
        ahead = tile + STAGES - 1
        if ahead < COUNT:
            free = ahead % STAGES
            tma.store_wait(0)
            mbarrier.expect(full.index(free), x_tiles.nbytes_per_cta)
            tma.async_load(x_tiles, [ahead * ROWS, 0], full.index(free), tiles.index(free))
        now = tile % STAGES
        mbarrier.wait(full.index(now), tile // STAGES & 1)
        tma.async_store(y_tiles, [tile * ROWS, 0], tiles.index(now))
    tma.store_wait(0)
