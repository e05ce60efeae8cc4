"""The parsed form of a PTX module: kernels, instructions, operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Address",
    "Immediate",
    "Instruction",
    "KernelCode",
    "Label",
    "Negated",
    "Operand",
    "Parameter",
    "PredicatePair",
    "Register",
    "Sink",
    "Special",
    "Symbol",
    "TensorAddress",
    "Variable",
    "Vector",
]


@dataclass(frozen=True)
class Register:
    """A virtual register.

    Attributes
    ----------
    name
        As written.
    type
        Declared type without its dot, such as ``"b32"``.
    bank
        Storage class: ``"pred"``, ``"b8"``, ``"b16"``, ``"b32"``, ``"b64"`` or ``"b128"``.
    slot
        Index within the bank.
    """

    name: str
    type: str
    bank: str
    slot: int


@dataclass(frozen=True)
class Special:
    """A special register such as ``%tid.x``."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A literal.

    Attributes
    ----------
    bits
        The value; negative integers stay negative.
    kind
        ``"int"``, ``"f32"`` or ``"f64"``: for floats `bits` is the bit pattern.
    """

    bits: int
    kind: str = "int"


@dataclass(frozen=True)
class Symbol:
    """A variable, parameter or function by name, as a value: its address."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Label:
    """A branch target or target list."""

    name: str


@dataclass(frozen=True)
class Address:
    """``[base + offset]``."""

    base: Register | Symbol | Immediate
    offset: int = 0


@dataclass(frozen=True)
class TensorAddress:
    """``[map, {c0, c1, …}]`` of a tensor copy."""

    map: Address
    coordinates: tuple[Operand, ...]


@dataclass(frozen=True)
class Vector:
    """``{a, b, …}``."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True)
class Sink:
    """``_``: a result not wanted."""


@dataclass(frozen=True)
class PredicatePair:
    """``a|b``: two results."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Negated:
    """``!p``."""

    operand: Register


Operand: TypeAlias = (
    Register | Special | Immediate | Symbol | Label | Address | TensorAddress | Vector | Sink | PredicatePair | Negated
)


@dataclass(frozen=True, eq=False)
class Instruction:
    """One instruction.

    Attributes
    ----------
    opcode
        With all modifiers in source order, without blanks.
    parts
        `opcode` split at its dots.
    operands
        In source order.
    guard
        ``@p`` as (register, negated), or None.
    line
        Line of the PTX text, from 1.
    location
        (file, line) of the CUDA source, or None.
    index
        Position in the kernel.
    """

    opcode: str
    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[Register, bool] | None
    line: int
    location: tuple[str, int] | None
    index: int

    def has(self, modifier: str) -> bool:
        """Whether a modifier such as ``"multicast::cluster"`` is present."""
        return modifier in self.parts

    def first_of(self, *modifiers: str) -> str | None:
        """The first of these modifiers that is present, or None."""
        return next((modifier for modifier in modifiers if modifier in self.parts), None)

    def value_of(self, prefix: str) -> str | None:
        """What follows ``prefix::`` in a modifier such as ``cta_group::2``, or None."""
        start = prefix + "::"
        return next((part[len(start) :] for part in self.parts if part.startswith(start)), None)


@dataclass(frozen=True)
class Parameter:
    """A kernel parameter: name, byte offset in the parameter space, size and alignment in bytes."""

    name: str
    offset: int
    size: int
    alignment: int


@dataclass(frozen=True)
class Variable:
    """A module- or function-scope variable.

    Attributes
    ----------
    name, space
        ``"shared"``, ``"global"``, ``"const"`` or ``"local"``.
    size
        Bytes; 0 for an array whose size comes at launch.
    alignment
        Bytes.
    initial
        Initial bytes, empty for none.
    """

    name: str
    space: str
    size: int
    alignment: int
    initial: bytes = b""
    external: bool = False


@dataclass(frozen=True, eq=False)
class KernelCode:
    """One kernel.

    Attributes
    ----------
    name
        Entry name.
    parameters
        In order.
    instructions
        In order; labels are resolved.
    labels
        Label -> index of the instruction that follows it.
    banks
        Number of registers per storage class.
    variables
        Variables visible to it, by name.
    directives
        Performance directives such as ``"maxntid"``, with their integers.
    branch_targets
        Name of a ``.branchtargets`` list -> labels.
    """

    name: str
    parameters: tuple[Parameter, ...]
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]
    banks: Mapping[str, int]
    variables: Mapping[str, Variable]
    directives: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    branch_targets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
