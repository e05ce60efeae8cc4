"""sm_100a and sm_103a: UMMA with tensor memory. Tiling rules, budgets and the launch plan."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from umma_jit._config import (
    MAX_SHARED_BYTES,
    SLOT_COLUMNS,
    TILE_KEYS,
    TILE_ROWS,
    TMEM_COLUMNS,
    AttentionFwdConfig,
    shared_bytes,
)
from umma_jit._plan import ArrayName, LaunchPlan, PointerArgument, ScalarArgument, TensorMapArgument, TensorMapLayout
from umma_jit.errors import UnsupportedProblemError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from umma_jit._problem import AttentionProblem

HEAD_DIMS = (64, 128, 256)
DTYPES = ("bfloat16", "float16")

MAX_GRID_YZ = 65_535
"""Limit of the grid's second and third extents (CUDA programming guide, compute capabilities)."""

MOST_STATIC_KV_TILES = {64: 2, 128: 1, 256: 1}
"""By head_dim: up to this many key tiles the loops are laid out. Each tile laid out is code compiled again, which must
stay within what a cold compile may take."""

RESCALE_SLACK = 8
"""P may reach 2^8 before O is rescaled: exact in float32 sums, and far from the 65504 of float16."""

ELEMENT_BYTES = 2
BOX = (64, 128, 1, 1)  # 64 16-bit columns are the 128 bytes of the swizzle's row


@dataclass(frozen=True)
class _Registers:
    """Registers per thread by role. A CTA's even share times its warpgroups bounds their sum."""

    softmax: int
    correction: int
    other: int


# Two query tiles: 4 warpgroups of 128, so 2 * softmax + correction + other = 512. The softmax holds 128 scores and does
# not spill at 176; the MMA thread spills below 64. One query tile: 3 warpgroups of 168, 504 in all.
_REGISTERS = {2: _Registers(176, 96, 64), 1: _Registers(240, 168, 96)}


@dataclass(frozen=True)
class Sm100aBackend:
    """The kernels in ``templates/sm100a``."""

    architectures: ClassVar[tuple[str, ...]] = ("sm_100a", "sm_103a")
    arch: str

    def check(self, problem: AttentionProblem) -> None:
        """Raise UnsupportedProblemError if the problem is outside what these kernels cover."""
        if problem.head_dim not in HEAD_DIMS:
            raise UnsupportedProblemError(
                "q", f"head_dim {problem.head_dim}", f"one of {', '.join(map(str, HEAD_DIMS))} on {self.arch}"
            )
        for name, value in (("num_heads", problem.num_heads), ("batch_size", problem.batch_size)):
            if value > MAX_GRID_YZ:
                raise UnsupportedProblemError(
                    "q", f"{name} {value}", f"at most {MAX_GRID_YZ} in one launch", "Split the call along that axis"
                )

    def choose_config(self, problem: AttentionProblem) -> AttentionFwdConfig:
        """The configuration for a problem that passed :meth:`check`."""
        return self._config(
            problem.head_dim,
            problem.dtype,
            problem.out_dtype,
            causal=problem.causal,
            kv_tiles=_static_kv_tiles(problem.head_dim, problem.seqlen_k, causal=problem.causal),
        )

    def configs(self) -> Iterator[AttentionFwdConfig]:
        """Every configuration that :meth:`choose_config` can return."""
        for head_dim, dtype, causal in itertools.product(HEAD_DIMS, DTYPES, (False, True)):
            for out_dtype in (dtype, "float32"):
                for kv_tiles in range(_most_static_kv_tiles(head_dim, causal=causal) + 1):
                    yield self._config(head_dim, dtype, out_dtype, causal=causal, kv_tiles=kv_tiles)

    def _config(self, head_dim: int, dtype: str, out_dtype: str, *, causal: bool, kv_tiles: int) -> AttentionFwdConfig:
        """Two query tiles where tensor memory holds two scores and two outputs; K/V stages as fit and are used."""
        q_tiles = 2 if 2 * TILE_KEYS + 2 * head_dim <= TMEM_COLUMNS else 1
        registers = _REGISTERS[q_tiles]
        return AttentionFwdConfig(
            head_dim=head_dim,
            dtype=dtype,
            out_dtype=out_dtype,
            causal=causal,
            q_tiles=q_tiles,
            kv_tiles=kv_tiles,
            kv_stages=_stages(head_dim, q_tiles, kv_tiles),
            rescale_slack=RESCALE_SLACK,
            exp2_on_fma=self._exp2_on_fma(head_dim, causal=causal),
            softmax_registers=registers.softmax,
            correction_registers=registers.correction,
            other_registers=registers.other,
        )

    def launch_plan(self, problem: AttentionProblem, config: AttentionFwdConfig) -> LaunchPlan:
        """One CTA per group of query tiles, head and batch entry."""
        float32_out = config.float32_output
        out_strides = problem.out_strides if float32_out else (0, 0, 0)
        batch_stride, row_stride, head_stride = (stride // 4 for stride in out_strides)
        scale_log2 = problem.softmax_scale * math.log2(math.e)
        kv_shape = (problem.seqlen_k, problem.num_heads_kv, problem.batch_size)
        q_map = _tensor_map(problem, "q", (problem.seqlen_q, problem.num_heads, problem.batch_size), problem.q_strides)
        if problem.seqlen_k == 0:
            # Nothing of K and V is ever loaded, but a tensor map must describe some memory.
            k_map = v_map = q_map
        else:
            k_map = _tensor_map(problem, "k", kv_shape, problem.k_strides)
            v_map = _tensor_map(problem, "v", kv_shape, problem.v_strides)
        out_map = (
            q_map  # not used
            if float32_out
            else _tensor_map(
                problem, "out", (problem.seqlen_q, problem.num_heads, problem.batch_size), problem.out_strides
            )
        )
        return LaunchPlan(
            grid=(-(-problem.seqlen_q // (TILE_ROWS * config.q_tiles)), problem.num_heads, problem.batch_size),
            cluster=(1, 1, 1),
            block=(config.threads, 1, 1),
            shared_bytes=config.shared_bytes,
            arguments=(
                q_map,
                k_map,
                v_map,
                out_map,
                PointerArgument("lse" if problem.return_lse else None),
                PointerArgument("out" if float32_out else None),
                ScalarArgument(np.int64(row_stride)),
                ScalarArgument(np.int64(head_stride)),
                ScalarArgument(np.int64(batch_stride)),
                ScalarArgument(np.int32(problem.seqlen_q)),
                ScalarArgument(np.int32(problem.seqlen_k)),
                ScalarArgument(np.int32(problem.num_heads // problem.num_heads_kv)),
                ScalarArgument(np.float32(scale_log2)),
            ),
        )

    def _exp2_on_fma(self, head_dim: int, *, causal: bool) -> int:
        """Pairs of 16 in the two middle chunks of four, so 4 is 12.5 % of all exponentials and 6 is 18.75 %.

        sm_103 computes exponentials at twice the rate, where the FMA pipe would be the slower one. These shares follow
        what the fastest public kernels use; they have not been tuned on hardware here.
        """
        if self.arch == "sm_103a":
            return 0
        if head_dim == 256:
            return 8
        return 6 if head_dim == 128 and not causal else 4


def _most_static_kv_tiles(head_dim: int, *, causal: bool) -> int:
    # Under a causal mask query tiles see different numbers of key tiles, unless there is only one.
    return 1 if causal else MOST_STATIC_KV_TILES[head_dim]


def _static_kv_tiles(head_dim: int, seqlen_k: int, *, causal: bool) -> int:
    """The number of key tiles if the loops are to be laid out for it, else 0."""
    tiles = -(-seqlen_k // TILE_KEYS)
    return tiles if tiles <= _most_static_kv_tiles(head_dim, causal=causal) else 0


def _stages(head_dim: int, q_tiles: int, kv_tiles: int) -> int:
    """As many ring slots as shared memory has room for; not more than K and V fill if their tiles are known."""
    stages = 2
    while shared_bytes(head_dim, q_tiles, stages + 1) <= MAX_SHARED_BYTES:
        stages += 1
    slots = 2 * kv_tiles * -(-head_dim // SLOT_COLUMNS)
    return min(stages, slots) if kv_tiles else stages


def _tensor_map(
    problem: AttentionProblem, array: ArrayName, shape: tuple[int, int, int], strides: tuple[int, int, int]
) -> TensorMapArgument:
    """A map over (head_dim, seqlen, heads, batch); ``strides`` are (batch, seqlen, heads) in bytes."""
    batch_stride, row_stride, head_stride = strides
    # The stride of an extent of 1 is never used, yet must be valid; arrays carry any number there.
    dense = problem.head_dim * ELEMENT_BYTES
    used = tuple(
        stride if extent > 1 else dense
        for extent, stride in zip(shape, (row_stride, head_stride, batch_stride), strict=True)
    )
    return TensorMapArgument(
        array,
        TensorMapLayout(
            dtype=problem.dtype,
            dims=(problem.head_dim, *shape),
            strides_bytes=used,
            box=BOX,
            swizzle="128B",
        ),
    )
