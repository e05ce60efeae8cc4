"""Attention forward in Triton, by the online softmax."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def attention(
    q,
    k,
    v,
    out,
    lse,
    S,
    scale_log2,
    CAUSAL: tl.constexpr,
    SPECIALISED: tl.constexpr,
    WITH_LSE: tl.constexpr,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """One tile of queries of one head; q, k, v, out are (heads, S, D)."""
    tile = tl.program_id(0)
    head = tl.program_id(1)
    rows = tl.program_id(1) * S
    q_tiles = tl.make_tensor_descriptor(q + rows * D, [S, D], [D, 1], [BM, D])
    k_tiles = tl.make_tensor_descriptor(k + rows * D, [S, D], [D, 1], [BN, D])
    v_tiles = tl.make_tensor_descriptor(v + rows * D, [S, D], [D, 1], [BN, D])
    out_tiles = tl.make_tensor_descriptor(out + rows * D, [S, D], [D, 1], [BM, D])
    at = tile * BM + tl.arange(0, BM)
    keys = tl.arange(0, BN)
    largest = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    value = tl.zeros([BM, D], tl.float32)
    queries = q_tiles.load([tile * BM, 0])
    last = (tile + 1) * BM if CAUSAL else S
    for start in tl.range(0, last, BN, warp_specialize=SPECIALISED):
        scores = tl.dot(queries, k_tiles.load([start, 0]).T) * scale_log2
        if CAUSAL:
            scores = tl.where(at[:, None] >= start + keys[None, :], scores, -1.0e6)
        row_largest = tl.maximum(largest, tl.max(scores, 1))
        p = tl.math.exp2(scores - row_largest[:, None])
        correction = tl.math.exp2(largest - row_largest)
        total = total * correction + tl.sum(p, 1)
        value = value * correction[:, None]
        value = tl.dot(p.to(v.dtype.element_ty), v_tiles.load([start, 0]), value)
        largest = row_largest
    out_tiles.store([tile * BM, 0], (value / total[:, None]).to(out.dtype.element_ty))
    if WITH_LSE:
        tl.store(lse + head * S + at, largest + tl.math.log2(total))
