"""Matrix products in Triton: by pointers, by tensor descriptors, warp-specialised, persistent, block-scaled."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def by_pointers(
    a,
    b,
    c,
    M,
    N,
    K,
    A_MAJOR_K: tl.constexpr,
    B_MAJOR_K: tl.constexpr,
    MASKED: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """C = A B; A is stored (M, K) or (K, M), B is stored (N, K) or (K, N)."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    accumulator = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + depth
        a_at = rows[:, None] * K + k[None, :] if A_MAJOR_K else k[None, :] * M + rows[:, None]
        b_at = columns[None, :] * K + k[:, None] if B_MAJOR_K else k[:, None] * N + columns[None, :]
        if MASKED:
            x = tl.load(a + a_at, mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
            y = tl.load(b + b_at, mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0)
        else:
            x = tl.load(a + a_at)
            y = tl.load(b + b_at)
        accumulator = tl.dot(x, y, accumulator)
    c_at = c + rows[:, None] * N + columns[None, :]
    value = accumulator.to(c.dtype.element_ty)
    if MASKED:
        tl.store(c_at, value, mask=(rows[:, None] < M) & (columns[None, :] < N))
    else:
        tl.store(c_at, value)


@triton.jit
def by_descriptors(
    a,
    b,
    c,
    M,
    N,
    K,
    A_MAJOR_K: tl.constexpr,
    B_MAJOR_K: tl.constexpr,
    SPECIALISED: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """The same through tensor descriptors that the kernel makes."""
    if A_MAJOR_K:
        a_tiles = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    else:
        a_tiles = tl.make_tensor_descriptor(a, [K, M], [M, 1], [BK, BM])
    if B_MAJOR_K:
        b_tiles = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    else:
        b_tiles = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    c_tiles = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    accumulator = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=SPECIALISED):
        x = a_tiles.load([row, k]) if A_MAJOR_K else a_tiles.load([k, row]).T
        y = b_tiles.load([column, k]).T if B_MAJOR_K else b_tiles.load([k, column])
        accumulator = tl.dot(x, y, accumulator)
    c_tiles.store([row, column], accumulator.to(c.dtype.element_ty))


@triton.jit
def by_host_descriptors(
    a_tiles, b_tiles, c_tiles, K, SPECIALISED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """C = A B^T through tensor descriptors that the host passes."""
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    accumulator = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=SPECIALISED):
        x = a_tiles.load([row, k])
        y = b_tiles.load([column, k])
        accumulator = tl.dot(x, y.T, accumulator)
    c_tiles.store([row, column], accumulator.to(c_tiles.dtype))


@triton.jit
def persistent(
    a_tiles,
    b_tiles,
    c_tiles,
    M,
    N,
    K,
    PROGRAMS: tl.constexpr,
    SPECIALISED: tl.constexpr,
    FLATTEN: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """C = A B^T, each program walking over several tiles."""
    across = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * across
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=FLATTEN, warp_specialize=SPECIALISED):
        row = tile // across * BM
        column = tile % across * BN
        accumulator = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            x = a_tiles.load([row, k])
            y = b_tiles.load([column, k])
            accumulator = tl.dot(x, y.T, accumulator)
        c_tiles.store([row, column], accumulator.to(c_tiles.dtype))


@triton.jit
def scaled(
    a,
    a_scale,
    b,
    b_scale,
    c,
    M,
    N,
    K,
    A_FORMAT: tl.constexpr,
    B_FORMAT: tl.constexpr,
    A_PACK: tl.constexpr,
    B_PACK: tl.constexpr,
    GROUP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """C = (A * scales) (B * scales)^T; one scale for GROUP elements of K, A_PACK and B_PACK elements in a byte."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    a_depth = tl.arange(0, BK // A_PACK)
    b_depth = tl.arange(0, BK // B_PACK)
    groups = tl.arange(0, BK // GROUP)
    accumulator = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + rows[:, None] * (K // A_PACK) + (start // A_PACK + a_depth)[None, :])
        y = tl.load(b + columns[None, :] * (K // B_PACK) + (start // B_PACK + b_depth)[:, None])
        group = (start // GROUP + groups)[None, :]
        x_scale = tl.load(a_scale + rows[:, None] * (K // GROUP) + group)
        y_scale = tl.load(b_scale + columns[:, None] * (K // GROUP) + group)
        accumulator = tl.dot_scaled(x, x_scale, A_FORMAT, y, y_scale, B_FORMAT, accumulator)
    tl.store(c + rows[:, None] * N + columns[None, :], accumulator)
