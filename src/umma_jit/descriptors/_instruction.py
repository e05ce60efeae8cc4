"""The instruction descriptor: formats, shape and options of one ``tcgen05.mma``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, NoReturn

from ._fields import Bits, DescriptorFieldError, Row, field_table

__all__ = ["InstructionDescriptor", "MatrixFormat", "MmaKind"]


class MmaKind(Enum):
    """The ``.kind`` qualifier, which gives the type codes of an instruction descriptor their meaning."""

    F16 = "f16"
    TF32 = "tf32"
    F8F6F4 = "f8f6f4"
    I8 = "i8"


class MatrixFormat(Enum):
    """Element type of a matrix."""

    F16 = "f16"
    BF16 = "bf16"
    TF32 = "tf32"
    E4M3 = "e4m3"
    E5M2 = "e5m2"
    E2M3 = "e2m3"
    E3M2 = "e3m2"
    E2M1 = "e2m1"
    U8 = "u8"
    S8 = "s8"
    F32 = "f32"
    S32 = "s32"


class _KindRules(NamedTuple):
    """What Table 42 allows for one kind; `k` is the depth of a dense instruction (32 bytes of K)."""

    operands: dict[MatrixFormat, int]
    accumulators: dict[MatrixFormat, int]
    k: int


_F = MatrixFormat
_KINDS = {
    MmaKind.F16: _KindRules({_F.F16: 0, _F.BF16: 1}, {_F.F16: 0, _F.F32: 1}, 16),
    MmaKind.TF32: _KindRules({_F.TF32: 2}, {_F.F32: 1}, 8),
    # Table 42 lists only F32 as D; the list of kinds (9.7.16.2) has F16 as well, and it is used.
    MmaKind.F8F6F4: _KindRules(
        {_F.E4M3: 0, _F.E5M2: 1, _F.E2M3: 3, _F.E3M2: 4, _F.E2M1: 5}, {_F.F16: 0, _F.F32: 1}, 32
    ),
    MmaKind.I8: _KindRules({_F.U8: 0, _F.S8: 1}, {_F.S32: 2}, 32),
}
_K_MAJOR_ONLY = (_F.E2M3, _F.E3M2, _F.E2M1)  # 4- and 6-bit elements cannot be transposed
_MAX_SHIFTS = {0: 0, 8: 1, 16: 2, 32: 3}

_SELECTOR = Bits(0, 2)
_SPARSE = Bits(2, 1)
_SATURATE = Bits(3, 1)
_D = Bits(4, 2)
_A = Bits(7, 3)
_B = Bits(10, 3)
_NEGATE_A = Bits(13, 1)
_NEGATE_B = Bits(14, 1)
_TRANSPOSE_A = Bits(15, 1)
_TRANSPOSE_B = Bits(16, 1)
_N = Bits(17, 6)
_M = Bits(24, 5)
_SHIFT = Bits(30, 2)
_RESERVED = Bits(6, 1).put(1) | Bits(23, 1).put(1) | Bits(29, 1).put(1)


@dataclass(frozen=True, kw_only=True)
class InstructionDescriptor:
    """The 32-bit instruction descriptor of ``tcgen05.mma`` (PTX ISA 9.7.16.4.2, Table 42).

    Attributes
    ----------
    a_format, b_format
        Element types of the operands, as the kind allows. They may differ for ``f8f6f4`` and ``i8`` only.
    m, n
        Shape of D, over the pair of CTAs with ``cta_group::2``. M 32 (``.ws``), 64, 128 or 256 (pair); N 8 to
        256 in steps of 8. Whether a form of the instruction takes the shape is what :meth:`check_form` says.
    kind
        The ``.kind`` of the instruction.
    d_format
        Element type of the accumulator.
    negate_a, negate_b
        Float kinds only.
    transpose_a, transpose_b
        False: K-major, True: MN-major. A cannot be transposed when it is taken from tensor memory.
    sparse, sparsity_selector
        2:4 structured A with metadata in tensor memory.
    saturate
        Integer kind only.
    max_shift
        0, 8, 16 or 32; for the reuse of B by ``.ws`` instructions.
    """

    a_format: MatrixFormat
    b_format: MatrixFormat
    m: int
    n: int
    kind: MmaKind = MmaKind.F16
    d_format: MatrixFormat = MatrixFormat.F32
    negate_a: bool = False
    negate_b: bool = False
    transpose_a: bool = False
    transpose_b: bool = False
    sparse: bool = False
    sparsity_selector: int = 0
    saturate: bool = False
    max_shift: int = 0

    def __post_init__(self) -> None:
        rules = _KINDS[self.kind]
        for field, allowed in (
            ("a_format", rules.operands),
            ("b_format", rules.operands),
            ("d_format", rules.accumulators),
        ):
            if getattr(self, field) not in allowed:
                names = " or ".join(choice.name for choice in allowed)
                self._refuse(field, getattr(self, field), f"{names} with kind {self.kind.value}")
        self._check_16_bit_formats()
        if self.m not in (32, 64, 128, 256):
            self._refuse("m", self.m, "32 (.ws only), 64, 128 or 256 (cta_group::2 only)")
        if not 8 <= self.n <= 256 or self.n % 8:
            self._refuse("n", self.n, "a multiple of 8 from 8 to 256")
        for side in ("a", "b"):
            if self.kind is MmaKind.I8 and getattr(self, f"negate_{side}"):
                self._refuse(f"negate_{side}", True, "False with kind i8")
            if getattr(self, f"{side}_format") in _K_MAJOR_ONLY and getattr(self, f"transpose_{side}"):
                self._refuse(f"transpose_{side}", True, "False: 4- and 6-bit elements are K-major only")
        if self.saturate and self.kind is not MmaKind.I8:
            self._refuse("saturate", True, "False but for kind i8")
        if not 0 <= self.sparsity_selector < 4 or (self.sparsity_selector and not self.sparse):
            self._refuse("sparsity_selector", self.sparsity_selector, "0 to 3, and 0 if not sparse")
        if self.max_shift not in _MAX_SHIFTS:
            self._refuse("max_shift", self.max_shift, "0, 8, 16 or 32")

    def _check_16_bit_formats(self) -> None:
        if self.kind is not MmaKind.F16:
            return
        if self.a_format is not self.b_format:
            self._refuse("b_format", self.b_format, f"{self.a_format.name}, the format of A, with kind f16")
        if self.a_format is MatrixFormat.BF16 and self.d_format is not MatrixFormat.F32:
            self._refuse("d_format", self.d_format, "F32 with BF16 operands")

    @property
    def k(self) -> int:
        """K of one instruction, in elements: 32 bytes' worth, twice that if sparse (Table 39)."""
        return _KINDS[self.kind].k * (2 if self.sparse else 1)

    def check_form(
        self, *, cta_group: int = 1, weight_stationary: bool = False, a_in_tensor_memory: bool = False
    ) -> InstructionDescriptor:
        """Refuse what the given form of ``tcgen05.mma`` does not take (Table 39); return self.

        Parameters
        ----------
        cta_group
            1 or 2.
        weight_stationary
            ``tcgen05.mma.ws``.
        a_in_tensor_memory
            A is a bracketed tensor-memory address.

        Raises
        ------
        DescriptorFieldError
            If M, N, the transpose bit of A or the shift does not go with the form.
        """
        if cta_group not in (1, 2) or (weight_stationary and cta_group == 2):
            self._refuse("cta_group", cta_group, "1 or 2, and 1 with .ws")
        if weight_stationary:
            rows: tuple[int, ...] = (32, 64, 128)
            columns: tuple[int, ...] = (64, 128) if self.sparse else (64, 128, 256)
        else:
            rows = (64, 128) if cta_group == 1 else (128, 256)
            columns = self._columns(cta_group)
        form = f"cta_group::{cta_group}{' .ws' if weight_stationary else ''} kind::{self.kind.value}"
        if self.m not in rows:
            self._refuse("m", self.m, f"one of {rows} for {form}")
        if self.n not in columns:
            self._refuse("n", self.n, f"one of {columns} for {form}")
        if a_in_tensor_memory and self.transpose_a:
            self._refuse("transpose_a", True, "False when A is in tensor memory")
        if self.max_shift and not weight_stationary:
            self._refuse("max_shift", self.max_shift, "0 but for .ws")
        return self

    def _columns(self, cta_group: int) -> tuple[int, ...]:
        if self.kind is not MmaKind.I8:
            return tuple(range(8 * cta_group, 257, 8 * cta_group))
        if cta_group == 2:
            return tuple(range(32, 257, 32))
        return (8, 16, 24, *range(32, 257, 16))

    def encode(self) -> int:
        """Return the 32-bit value."""
        rules = _KINDS[self.kind]
        return (
            _SELECTOR.put(self.sparsity_selector)
            | _SPARSE.put(self.sparse)
            | _SATURATE.put(self.saturate)
            | _D.put(rules.accumulators[self.d_format])
            | _A.put(rules.operands[self.a_format])
            | _B.put(rules.operands[self.b_format])
            | _NEGATE_A.put(self.negate_a)
            | _NEGATE_B.put(self.negate_b)
            | _TRANSPOSE_A.put(self.transpose_a)
            | _TRANSPOSE_B.put(self.transpose_b)
            | _N.put(self.n >> 3)
            | _M.put(self.m >> 4)
            | _SHIFT.put(_MAX_SHIFTS[self.max_shift])
        )

    @classmethod
    def decode(cls, value: int, kind: MmaKind = MmaKind.F16) -> InstructionDescriptor:
        """Return the descriptor that encodes to `value` under `kind`.

        Raises
        ------
        DescriptorFieldError
            If a reserved bit is set, a code has no meaning for the kind, the fields contradict each other, or
            `value` is not 32 bits.
        """
        if not 0 <= value < 1 << 32:
            raise DescriptorFieldError(cls.__name__, "value", value, "an unsigned 32-bit integer")
        if value & _RESERVED:
            raise DescriptorFieldError(cls.__name__, "reserved", value & _RESERVED, "0 in bits 6, 23 and 29")

        def format_of(field: str, bits: Bits, codes: dict[MatrixFormat, int]) -> MatrixFormat:
            code = bits.get(value)
            for choice, number in codes.items():
                if number == code:
                    return choice
            raise DescriptorFieldError(
                cls.__name__, field, code, f"a code out of {sorted(codes.values())} with kind {kind.value}"
            )

        rules = _KINDS[kind]
        shifts = {code: shift for shift, code in _MAX_SHIFTS.items()}
        return cls(
            a_format=format_of("a_format", _A, rules.operands),
            b_format=format_of("b_format", _B, rules.operands),
            m=_M.get(value) << 4,
            n=_N.get(value) << 3,
            kind=kind,
            d_format=format_of("d_format", _D, rules.accumulators),
            negate_a=bool(_NEGATE_A.get(value)),
            negate_b=bool(_NEGATE_B.get(value)),
            transpose_a=bool(_TRANSPOSE_A.get(value)),
            transpose_b=bool(_TRANSPOSE_B.get(value)),
            sparse=bool(_SPARSE.get(value)),
            sparsity_selector=_SELECTOR.get(value),
            saturate=bool(_SATURATE.get(value)),
            max_shift=shifts[_SHIFT.get(value)],
        )

    def summary(self) -> str:
        """One line, for a comment."""
        a = f"{'-' if self.negate_a else ''}{self.a_format.value} {'MN' if self.transpose_a else 'K'}-major"
        b = f"{'-' if self.negate_b else ''}{self.b_format.value} {'MN' if self.transpose_b else 'K'}-major"
        return f"kind::{self.kind.value} {self.m}x{self.n}x{self.k}, A {a}, B {b}, D {self.d_format.value}"

    def __str__(self) -> str:
        raw = self.encode()

        def row(name: str, bits: Bits, meaning: str) -> Row:
            return Row(name, bits, bits.get(raw), meaning)

        def flag(value: bool) -> str:
            return "yes" if value else "no"

        def major(transposed: bool) -> str:
            return "MN-major" if transposed else "K-major"

        return field_table(
            f"InstructionDescriptor {raw:#010x} (kind::{self.kind.value})",
            [
                row("sparsity selector", _SELECTOR, str(self.sparsity_selector)),
                row("sparse", _SPARSE, flag(self.sparse)),
                row("saturate", _SATURATE, flag(self.saturate)),
                row("D format", _D, self.d_format.value),
                row("A format", _A, self.a_format.value),
                row("B format", _B, self.b_format.value),
                row("negate A", _NEGATE_A, flag(self.negate_a)),
                row("negate B", _NEGATE_B, flag(self.negate_b)),
                row("transpose A", _TRANSPOSE_A, major(self.transpose_a)),
                row("transpose B", _TRANSPOSE_B, major(self.transpose_b)),
                row("N >> 3", _N, f"N = {self.n}"),
                row("M >> 4", _M, f"M = {self.m}"),
                row("maximum shift", _SHIFT, str(self.max_shift)),
            ],
        )

    def _refuse(self, field: str, value: object, expected: str) -> NoReturn:
        raise DescriptorFieldError(type(self).__name__, field, value, expected)
