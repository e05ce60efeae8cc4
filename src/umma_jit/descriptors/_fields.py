"""Bit fields, the printed table of them, and the error that names one."""

from __future__ import annotations

from typing import NamedTuple

from umma_jit.errors import UmmaJitError

__all__ = ["Bits", "DescriptorFieldError", "Row", "field_table"]


class DescriptorFieldError(UmmaJitError, ValueError):
    """A field, or a bit pattern, that no descriptor may have.

    Attributes
    ----------
    descriptor
        Name of the descriptor's class.
    field
        Name of the field.
    value
        What it was.
    expected
        What it may be, in words.
    """

    def __init__(self, descriptor: str, field: str, value: object, expected: str) -> None:
        self.descriptor = descriptor
        number = isinstance(value, int) and not isinstance(value, bool)
        shown = f"{value} ({value:#x})" if number else str(value)
        super().__init__(f"{descriptor}.{field} is {shown}: expected {expected}")
        self.field = field
        self.value = value
        self.expected = expected

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.descriptor, self.field, self.value, self.expected))


class Bits(NamedTuple):
    """Where a field lies: its lowest bit and its width."""

    low: int
    width: int

    def put(self, value: int) -> int:
        return value << self.low

    def get(self, word: int) -> int:
        return (word >> self.low) & ((1 << self.width) - 1)

    def __str__(self) -> str:
        last = self.low + self.width - 1
        return f"{self.low}" if self.width == 1 else f"{self.low}-{last}"


class Row(NamedTuple):
    """One line of the printed form: name, place, raw value, and what that value means."""

    name: str
    bits: Bits
    raw: int
    meaning: str


def field_table(title: str, rows: list[Row]) -> str:
    lines = [title]
    for name, bits, raw, meaning in rows:
        lines.append(f"  {name:<22} bits {bits!s:<5}  {raw:#8x}  {meaning}")
    return "\n".join(lines)
