"""Special registers (PTX ISA, chapter 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from umma_jit.emulator.registers import LANES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from umma_jit.emulator.launch import Cta

__all__ = ["NAMES", "read_special"]

Dim3 = tuple[int, int, int]
_AXES = {"x": 0, "y": 1, "z": 2, "w": 3}
_LANE = np.arange(LANES, dtype=np.uint32)
_ONE = np.uint64(1)
_LANE_MASKS = {
    "%lanemask_eq": lambda lane: _ONE << lane,
    "%lanemask_lt": lambda lane: (_ONE << lane) - _ONE,
    "%lanemask_le": lambda lane: (_ONE << (lane + _ONE)) - _ONE,
    "%lanemask_gt": lambda lane: np.uint64(0xFFFFFFFF) & ~((_ONE << (lane + _ONE)) - _ONE),
    "%lanemask_ge": lambda lane: np.uint64(0xFFFFFFFF) & ~((_ONE << lane) - _ONE),
}
_CLOCKS = {"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"}
_PER_CTA = {
    "%ntid", "%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid",
}  # fmt: skip
_SCALARS = {
    "%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster", "%nwarpid", "%smid", "%nsmid", "%gridid",
    "%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size", "%reserved_smem_offset_begin",
    "%reserved_smem_offset_end", "%reserved_smem_offset_cap",
}  # fmt: skip

NAMES = frozenset(
    {*_LANE_MASKS, *_CLOCKS, *_SCALARS, "%laneid", "%warpid"}
    | {f"{name}.{axis}" for name in (*_PER_CTA, "%tid") for axis in "xyzw"}
)
"""All special registers that can be read."""


def read_special(cta: Cta, name: str, w0: int, w1: int) -> tuple[NDArray[Any], bool]:
    """A special register in warps `w0` to ``w1 - 1``.

    Returns
    -------
    numpy.ndarray
        uint32 or uint64 (lanes,).
    bool
        Whether it never changes.
    """
    count = (w1 - w0) * LANES
    if name in _CLOCKS:
        # Cycles are not modelled: a counter that moves, by one for each thing that happened.
        ticks = cta.launch.progress + cta.launch.engine.completed
        wide = name in ("%clock64", "%globaltimer")
        high = name.endswith("_hi")
        return np.full(count, ticks >> 32 if high else ticks, np.uint64 if wide else np.uint32), False
    if name == "%laneid":
        return np.tile(_LANE, w1 - w0), True
    if name == "%warpid":
        return np.repeat(np.arange(w0, w1, dtype=np.uint32), LANES), True
    if name in _LANE_MASKS:
        masks = _LANE_MASKS[name](_LANE.astype(np.uint64))
        return np.tile(masks.astype(np.uint32), w1 - w0), True
    if name.startswith("%tid."):
        return _thread_index(cta, name[-1], w0, w1), True
    if name[:-2] in _PER_CTA:
        return np.full(count, _component(cta, name[:-2], _AXES[name[-1]]), np.uint32), True
    return np.full(count, _scalar(cta, name), np.uint64 if name == "%gridid" else np.uint32), True


def _thread_index(cta: Cta, axis: str, w0: int, w1: int) -> NDArray[np.uint32]:
    x, y, _ = cta.launch.block
    thread = np.arange(w0 * LANES, w1 * LANES, dtype=np.uint32)
    found = {"x": thread % x, "y": thread // x % y, "z": thread // (x * y)}.get(axis, np.zeros_like(thread))
    return found.astype(np.uint32)


def _component(cta: Cta, name: str, axis: int) -> int:
    launch, cluster = cta.launch, cta.cluster
    shape: Dim3 = {
        "%ntid": launch.block,
        "%ctaid": cta.ctaid,
        "%nctaid": launch.grid,
        "%clusterid": cluster.index,
        "%nclusterid": _quotient(launch.grid, launch.cluster),
        "%cluster_ctaid": _remainder(cta.ctaid, launch.cluster),
        "%cluster_nctaid": launch.cluster,
    }[name]
    return shape[axis] if axis < 3 else 0


def _quotient(a: Dim3, b: Dim3) -> Dim3:
    return a[0] // b[0], a[1] // b[1], a[2] // b[2]


def _remainder(a: Dim3, b: Dim3) -> Dim3:
    return a[0] % b[0], a[1] % b[1], a[2] % b[2]


def _scalar(cta: Cta, name: str) -> int:
    shared = cta.shared
    return {
        "%cluster_ctarank": cta.rank,
        "%cluster_nctarank": len(cta.cluster.ctas),
        "%is_explicit_cluster": int(len(cta.cluster.ctas) > 1),
        "%nwarpid": 64,
        "%smid": cta.rank,
        "%nsmid": 1 << 10,
        "%gridid": 1,
        "%dynamic_smem_size": cta.launch.shared_bytes,
        "%total_smem_size": shared.end,
        "%aggr_smem_size": shared.end,
        "%reserved_smem_offset_begin": 0,
        "%reserved_smem_offset_end": 1024,
        "%reserved_smem_offset_cap": 1024,
    }[name]
