"""The 32-bit instruction descriptor of ``tcgen05.mma``: fields, and what is legal.

Sources: PTX ISA 9.7.16.4.2 (Tables 42 to 44) for the fields, 9.7.16.2.1 (Table 39) for the shapes.
The ``.kind`` qualifier decides how the format codes read: f16 and e4m3 give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from umma_jit.emulator.smem_descriptor import DescriptorProblem

__all__ = ["KINDS", "InstructionDescriptor", "MmaFormat"]

KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
"""Kinds of ``tcgen05.mma`` that can be executed."""

_FORMATS: dict[str, dict[int, str]] = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"},
    "mxf8f6f4": {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"},
    "mxf4": {1: "e2m1"},
    "mxf4nvf4": {1: "e2m1"},
    "i8": {0: "u8", 1: "s8"},
}
_SCALED = ("mxf8f6f4", "mxf4", "mxf4nvf4")
_ELEMENT_BYTES = {"f16": 2, "bf16": 2, "tf32": 4}
_SHARED_SHAPE = "see PTX ISA 9.7.16.2.1, Table 39"


@dataclass(frozen=True)
class MmaFormat:
    """Element format of one multiplicand.

    Attributes
    ----------
    name
        ``"bf16"``, ``"e4m3"``, ...
    element_bytes
        Bytes an element occupies in shared memory; 4- and 6-bit types sit in 8-bit containers.
    """

    name: str
    element_bytes: int


@dataclass(frozen=True)
class InstructionDescriptor:
    """The decoded descriptor.

    Attributes
    ----------
    bits, kind
        The value, and the ``.kind`` that gave it its meaning.
    m, n, k
        Shape over the CTA or the CTA pair.
    a, b
        Formats; None when the code is not defined for the kind.
    d
        ``"f16"``, ``"f32"`` or ``"s32"``; None when undefined for the kind.
    negate_a, negate_b
        Multiplicand is negated.
    transpose_a, transpose_b
        Operand is MN-major.
    sparse, saturate
        As named in the ISA.
    a_scale_id, b_scale_id
        Scale-factor data ids of the block-scaled kinds, else 0.
    scale
        ``"ue8m0"`` or ``"ue4m3"`` for the block-scaled kinds, else None.
    """

    bits: int
    kind: str
    m: int
    n: int
    k: int
    a: MmaFormat | None
    b: MmaFormat | None
    d: str | None
    negate_a: bool
    negate_b: bool
    transpose_a: bool
    transpose_b: bool
    sparse: bool
    saturate: bool
    a_scale_id: int = 0
    b_scale_id: int = 0
    scale: str | None = None

    @classmethod
    @lru_cache(maxsize=1024)
    def decode(cls, bits: int, kind: str) -> InstructionDescriptor:
        """Split `bits` as `kind` (one of `KINDS`) reads them."""
        block_scaled = kind in _SCALED
        a = _format(kind, (bits >> 7) & 7)
        b = _format(kind, (bits >> 10) & (3 if kind in ("mxf4", "mxf4nvf4") else 7))
        d_code = (bits >> 4) & 3
        d = {
            "f16": {0: "f16", 1: "f32"},
            "tf32": {1: "f32"},
            "f8f6f4": {0: "f16", 1: "f32"},
            "i8": {2: "s32"},
        }.get(kind, {}).get(d_code)
        return cls(
            bits=bits,
            kind=kind,
            m=((bits >> 27) & 3) << 7 if block_scaled else ((bits >> 24) & 31) << 4,
            n=((bits >> 17) & 63) << 3,
            k={"f16": 16, "tf32": 8, "mxf4": 64, "mxf4nvf4": 64}.get(kind, 32),
            a=a,
            b=b,
            d="f32" if block_scaled else d,
            negate_a=bool(bits >> 13 & 1),
            negate_b=bool(bits >> 14 & 1),
            transpose_a=bool(bits >> 15 & 1),
            transpose_b=bool(bits >> 16 & 1),
            sparse=bool(bits >> 2 & 1),
            saturate=bool(bits >> 3 & 1) and kind == "i8",
            a_scale_id=(bits >> 29) & 3 if block_scaled else 0,
            b_scale_id=d_code if block_scaled else 0,
            scale=("ue8m0" if bits >> 23 & 1 else "ue4m3") if block_scaled else None,
        )

    @staticmethod
    def encode(
        m: int,
        n: int,
        a: int,
        b: int,
        d: int = 1,
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
        negate_a: bool = False,
        negate_b: bool = False,
    ) -> int:
        """Build the descriptor of a kind without block scales from shape and format codes."""
        flags = negate_a << 13 | negate_b << 14 | transpose_a << 15 | transpose_b << 16
        return d << 4 | a << 7 | b << 10 | flags | (n >> 3) << 17 | (m >> 4) << 24

    def problems(
        self, cta_group: int, *, warp_specialised: bool = False, a_in_tmem: bool = False
    ) -> tuple[DescriptorProblem, ...]:
        """Whatever makes the descriptor illegal for the instruction that carries it.

        Parameters
        ----------
        cta_group
            1 or 2.
        warp_specialised
            The ``.ws`` form.
        a_in_tmem
            A comes from tensor memory.
        """
        return _problems(self, cta_group, warp_specialised, a_in_tmem)


def _format(kind: str, code: int) -> MmaFormat | None:
    name = _FORMATS[kind].get(code)
    return None if name is None else MmaFormat(name, _ELEMENT_BYTES.get(name, 1))


@lru_cache(maxsize=1024)
def _problems(idesc: InstructionDescriptor, cta_group: int, ws: bool, a_in_tmem: bool) -> tuple[DescriptorProblem, ...]:
    found: list[DescriptorProblem] = []
    label = f"instruction descriptor {idesc.bits:#010x} (.kind::{idesc.kind}, .cta_group::{cta_group})"

    def bad(rule: str, what: str, remedy: str, severity: str = "error") -> None:
        found.append(DescriptorProblem(f"idesc.{rule}", f"{label}: {what}", remedy, severity))

    for side, fmt, shift in (("A", idesc.a, 7), ("B", idesc.b, 10)):
        if fmt is None:
            code = (idesc.bits >> shift) & 7
            allowed = ", ".join(f"{c} ({name})" for c, name in _FORMATS[idesc.kind].items())
            bad("type", f"format code {code} of {side} is not defined", f"use one of {allowed}")
    if idesc.d is None:
        bad("type", f"D format code {(idesc.bits >> 4) & 3} is not defined", "use 1 (F32), or 2 (S32) for i8")
    if idesc.kind == "f16" and idesc.d == "f16" and idesc.a and idesc.b and "bf16" in (idesc.a.name, idesc.b.name):
        bad("type", "bf16 operands with an F16 accumulator", "set the D format to 1 (F32)")
    if idesc.sparse:
        bad("sparse", "bit 2 asks for a sparse A, which the opcode does not", "clear bit 2 (`.sp` is not supported)")
    block_scaled = idesc.kind in _SCALED
    if block_scaled and (idesc.bits & (0b1001011 | 7 << 24) or (idesc.kind == "mxf8f6f4" and idesc.bits >> 31)):
        bad("reserved", "bits 0, 1, 3, 6, 24 to 26 (and 31 for mxf8f6f4) must be zero", "see PTX ISA, Tables 43 and 44")
    elif block_scaled and idesc.bits >> 31:
        bad("shape", "bit 31 asks for K = 96, which exists on sm_103a only", "clear bit 31")
    if idesc.scale == "ue4m3" and idesc.kind != "mxf4nvf4":
        bad("scale", "scale factors of type UE4M3", "set bit 23 (UE8M0): UE4M3 is for mxf4nvf4")
    if idesc.kind in ("mxf4", "mxf4nvf4") and (idesc.transpose_a or idesc.transpose_b):
        bad("transpose", "4-bit operands cannot be MN-major", "clear bits 15 and 16")
    if a_in_tmem and idesc.a and idesc.a.name in ("e2m3", "e3m2", "e2m1") and idesc.kind not in ("mxf4", "mxf4nvf4"):
        bad("type", f"A of type {idesc.a.name} in tensor memory cannot be executed here", "use an 8-bit type")
    reserved = 1 << 6 | 1 << 23 | 1 << 29
    if not block_scaled and idesc.bits & reserved:
        bad("reserved", "bits 6, 23 and 29 must be zero", "N is shifted right by 3 into bit 17, M by 4 into bit 24")
    if a_in_tmem and idesc.transpose_a:
        bad("transpose", "A in tensor memory cannot be transposed", "clear bit 15")
    if idesc.kind == "i8" and (idesc.negate_a or idesc.negate_b):
        bad("negate", "integer operands cannot be negated", "clear bits 13 and 14")
    for side, fmt, transposed in (("A", idesc.a, idesc.transpose_a), ("B", idesc.b, idesc.transpose_b)):
        if transposed and fmt is not None and fmt.name in ("e2m3", "e3m2", "e2m1"):
            bad("transpose", f"{side} of type {fmt.name} cannot be MN-major", "store it K-major")

    m, n = idesc.m, idesc.n
    if ws:
        if cta_group != 1:
            bad("shape", "`.ws` exists for .cta_group::1 only", "drop `.ws` or use one CTA")
        if m not in (32, 64, 128):
            bad("shape", f"M = {m} with `.ws`", "use 32, 64 or 128; " + _SHARED_SHAPE)
        if n not in (64, 128, 256):
            bad("shape", f"N = {n} with `.ws`", "use 64, 128 or 256; " + _SHARED_SHAPE)
        return tuple(found)
    legal_m: tuple[int, ...] = {1: (64, 128), 2: (128, 256)}[cta_group]
    if block_scaled and cta_group == 1:
        legal_m = (128,)
    if m not in legal_m:
        bad("shape", f"M = {m}", f"use {' or '.join(map(str, legal_m))}; " + _SHARED_SHAPE)
    step = 8 * cta_group
    legal_n = n % step == 0 and step <= n <= 256
    if idesc.kind == "i8":
        legal_n = n in (8, 16, 24, 32) or (n % 16 == 0 and 32 < n <= 256)
        if cta_group == 2:
            legal_n = n % 32 == 0 and 32 <= n <= 256
    if not legal_n:
        bad("shape", f"N = {n}", f"use a multiple of {step} up to 256; " + _SHARED_SHAPE)
    elif a_in_tmem and n % (16 * cta_group) and m == 128 * cta_group:
        bad(
            "shape-unverified",
            f"N = {n} with A in tensor memory and M = {m}: the ISA's table allows it, CUTLASS refuses it",
            f"use a multiple of {16 * cta_group}",
            "warning",
        )
    return tuple(found)
