"""Gluon kernels for clusters: MMA by a pair of CTAs, multicast, remote stores, work taken over from later clusters."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    clc,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tma,
)


@gluon.jit
def pair_mma(a_tiles, b_tiles, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, BK: gl.constexpr):
    """C = A B by one pair: each CTA loads half of the rows of A and half of the columns of B."""
    warps: gl.constexpr = gl.num_warps()
    a_tile = gl.allocate_shared_memory(a_tiles.dtype, a_tiles.block_type.shape, a_tiles.layout)
    b_tile = gl.allocate_shared_memory(b_tiles.dtype, b_tiles.block_type.shape, b_tiles.layout)
    block: gl.constexpr = TensorMemoryLayout([M // 2, N], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)
    d_tile = allocate_tensor_memory(gl.float32, [M, N], block)
    full = mbarrier.allocate_mbarrier(two_ctas=True)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    gl.barrier(cluster=True)
    for step in range(K // BK):
        mbarrier.expect(full, a_tiles.nbytes_per_cta + b_tiles.nbytes_per_cta)
        tma.async_load(a_tiles, [0, step * BK], full, a_tile)
        tma.async_load(b_tiles, [step * BK, 0], full, b_tile)
        mbarrier.wait(full, step & 1, deps=[a_tile, b_tile])
        tcgen05_mma(a_tile, b_tile, d_tile, use_acc=step != 0)
        tcgen05_commit(done)
        mbarrier.wait(done, step & 1, deps=[a_tile, b_tile])
    mbarrier.invalidate(full)
    mbarrier.invalidate(done)
    out: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [warps, 1], [1, 0], cga_layout=[[1, 0]])
    rows = gl.arange(0, M, gl.SliceLayout(1, out))[:, None]
    columns = gl.arange(0, N, gl.SliceLayout(0, out))[None, :]
    gl.store(c + rows * N + columns, gl.convert_layout(d_tile.load(d_tile.get_reg_layout()), out))


@gluon.jit
def multicast(x_tiles, y, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """One load fills both CTAs; each writes its copy, plus its rank."""
    warps: gl.constexpr = gl.num_warps()
    tile = gl.allocate_shared_memory(x_tiles.dtype, x_tiles.block_type.shape, x_tiles.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    gl.barrier(cluster=True)
    mbarrier.expect(full, x_tiles.nbytes_per_cta)
    tma.async_load(x_tiles, [0, 0], full, tile, multicast=True)
    mbarrier.wait(full, 0, deps=[tile])
    mbarrier.invalidate(full)
    out: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [warps, 1], [1, 0], cga_layout=[[0, 0]])
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, out))[:, None]
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, out))[None, :]
    gl.store(y + rows * COLUMNS + columns, tile.load(out))


@gluon.jit
def exchange(x, y, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """A change of layout that moves everything to the other CTA, through its shared memory."""
    warps: gl.constexpr = gl.num_warps()
    by_row: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [warps, 1], [1, 0], cga_layout=[[1, 0]])
    by_column: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [warps, 1], [1, 0], cga_layout=[[0, 1]])
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, by_row))[:, None]
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, by_row))[None, :]
    value = gl.convert_layout(gl.load(x + rows * COLUMNS + columns), by_column)
    out_rows = gl.arange(0, ROWS, gl.SliceLayout(1, by_column))[:, None]
    out_columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, by_column))[None, :]
    gl.store(y + out_rows * COLUMNS + out_columns, value)


@gluon.jit
def dynamic(x, y, BLOCK: gl.constexpr):
    """Double one block for each program; a running program takes over programs not yet started."""
    warps: gl.constexpr = gl.num_warps()
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [warps], [0])
    answer = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    gl.barrier()
    block = gl.program_id(0)
    phase = 0
    more = True
    while more:
        mbarrier.expect(ready, 16)
        clc.try_cancel(answer, ready)
        at = block * BLOCK + gl.arange(0, BLOCK, layout)
        gl.store(y + at, gl.load(x + at) * 2)
        mbarrier.wait(ready, phase)
        result = clc.load_result(answer)
        more = result.is_canceled()
        block = result.program_id(0)
        phase ^= 1
        gl.barrier()
    mbarrier.invalidate(ready)
