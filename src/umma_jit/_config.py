"""The configuration of a kernel: all that its source depends on, and nothing else.

It is the template's only context, so there is no second list of fields to keep in step; and the cache key is made from
what it renders to.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from .descriptors import (
    InstructionDescriptor,
    MatrixFormat,
    SharedMemoryDescriptor,
    SwizzleMode,
)

TILE_ROWS = 128
"""Query rows of one tile: the M of a single-CTA UMMA, and the lanes of tensor memory."""

TILE_KEYS = 128
"""Keys of one tile: the N of Q·Kᵀ."""

SLOT_COLUMNS = 128
"""Columns of K or V that a ring slot holds at most: a wider tile takes several."""

TMEM_COLUMNS = 512
"""Columns of tensor memory per SM, all of which a CTA of these kernels allocates (PTX ISA, "Tensor Memory")."""

MAX_SHARED_BYTES = 232_448
"""Shared memory one CTA may use on sm_90, sm_100 and sm_103: 227 KB (CUDA programming guide, compute capabilities)."""


@dataclass(frozen=True, kw_only=True)
class AttentionFwdConfig:
    """One kernel of ``templates/sm100a/attention_fwd.cu.jinja``.

    Attributes
    ----------
    head_dim
        64, 128 or 256.
    dtype
        Element type of q, k and v: ``"bfloat16"`` or ``"float16"``.
    out_dtype
        ``dtype``, or ``"float32"`` for the accumulator without its last rounding.
    causal
        Whether query i sees keys up to i + seqlen_k - seqlen_q only.
    q_tiles
        Query tiles of 128 rows per CTA: 2 in ping-pong, or 1 where two do not fit tensor memory.
    kv_tiles
        The number of key tiles, if it is known and small: the loops are then laid out, and one tile needs no online
        softmax. 0: a running loop for any number.
    kv_stages
        Slots of the shared-memory ring that K and V go through.
    rescale_slack
        log2 of the factor by which P may exceed 1 before the output is rescaled to the new row maximum.
    exp2_on_fma
        How many of the 16 pairs of exponentials in a chunk are computed on the FMA pipe instead of the special-function
        unit (in the two middle chunks of four).
    softmax_registers, correction_registers, other_registers
        Registers per thread of each role's warpgroups (``setmaxnreg``).
    """

    template: ClassVar[str] = "sm100a/attention_fwd.cu.jinja"
    entry: ClassVar[str] = "umma_attention_fwd"

    head_dim: int
    dtype: str
    out_dtype: str
    causal: bool
    q_tiles: int
    kv_tiles: int
    kv_stages: int
    rescale_slack: int
    exp2_on_fma: int
    softmax_registers: int
    correction_registers: int
    other_registers: int

    # ---- what the template asks for ------------------------------------------------------------------------------

    @property
    def element_type(self) -> str:
        """The template's C++ type for ``dtype``."""
        return {"bfloat16": "Bfloat16", "float16": "Float16"}[self.dtype]

    @property
    def float32_output(self) -> bool:
        return self.out_dtype == "float32"

    @property
    def qk_instruction_descriptor(self) -> InstructionDescriptor:
        """S = Q·Kᵀ: both operands K-major, 128 x 128, float32 accumulator."""
        return InstructionDescriptor(a_format=self._format, b_format=self._format, m=TILE_ROWS, n=TILE_KEYS)

    @property
    def pv_instruction_descriptor(self) -> InstructionDescriptor:
        """O += P·V: P from tensor memory, V with its columns fastest (MN-major), at most 128 columns at a time."""
        return InstructionDescriptor(
            a_format=self._format,
            b_format=self._format,
            m=TILE_ROWS,
            n=self.slot_columns,
            transpose_b=True,
        )

    @property
    def operand_descriptor(self) -> SharedMemoryDescriptor:
        """Q, K and V tiles as TMA writes them. Eight rows of 128 bytes further is 1024 bytes, in either major-ness."""
        return SharedMemoryDescriptor(
            start_address=0, leading_byte_offset=0, stride_byte_offset=1024, swizzle=SwizzleMode.B128
        )

    @property
    def qk_instruction(self) -> str:
        """:attr:`qk_instruction_descriptor` as a C++ literal."""
        return _literal(self.qk_instruction_descriptor.encode())

    @property
    def pv_instruction(self) -> str:
        """:attr:`pv_instruction_descriptor` as a C++ literal."""
        return _literal(self.pv_instruction_descriptor.encode())

    @property
    def descriptor_high(self) -> str:
        """The upper word of :attr:`operand_descriptor` as a C++ literal; kernels make the lower word."""
        return _literal(self.operand_descriptor.high_word)

    # ---- sizes ---------------------------------------------------------------------------------------------------

    @property
    def slot_columns(self) -> int:
        """Columns of K or V that one ring slot holds."""
        return min(self.head_dim, SLOT_COLUMNS)

    @property
    def threads(self) -> int:
        """Threads per CTA: a warpgroup per query tile, one for the correction, one for the single-thread roles."""
        return 128 * (self.q_tiles + 2)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory per CTA in bytes; the template asserts that its layout fits."""
        return shared_bytes(self.head_dim, self.q_tiles, self.kv_stages)

    @property
    def _format(self) -> MatrixFormat:
        return {"bfloat16": MatrixFormat.BF16, "float16": MatrixFormat.F16}[self.dtype]

    # ---- as data -------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The fields, JSON-ready."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> AttentionFwdConfig:
        """The inverse of :meth:`to_dict`.

        Raises
        ------
        TypeError
            If a field is missing or unknown.
        """
        return cls(**data)


def _literal(word: int) -> str:
    return f"0x{word:08x}u"


def shared_bytes(head_dim: int, q_tiles: int, kv_stages: int) -> int:
    """Shared memory of one CTA in bytes: Q, the K/V ring, row statistics, barriers, and room to align all that."""
    alignment = 1024 - 16  # dynamic shared memory starts at a multiple of 16 at least
    q = q_tiles * TILE_ROWS * head_dim * 2
    ring = kv_stages * TILE_KEYS * min(head_dim, SLOT_COLUMNS) * 2
    statistics = 2 * TILE_ROWS * 4
    barriers = 8 * (3 * q_tiles + 3 * 2 + 2 * 4 + 2 * kv_stages)
    tmem_address = 8
    return alignment + q + ring + statistics + barriers + tmem_address
