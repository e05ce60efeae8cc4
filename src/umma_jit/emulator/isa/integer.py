"""Integer arithmetic, logic and shifts (PTX ISA 9.7.1, 9.7.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umma_jit.emulator.isa.registry import Operation, Unsupported, operation
from umma_jit.emulator.nodes import Immediate, Instruction

if TYPE_CHECKING:
    from collections.abc import Callable

_INTEGERS = {f"{letter}{bits}" for letter in "us" for bits in (16, 32, 64)}
_BITS = {"b16", "b32", "b64"}
Array = NDArray[Any]


def width_of(kind: str) -> int:
    """Bits of a PTX type such as ``"u32"``."""
    return int(kind[1:])


def _integer_type(ins: Instruction, allowed: set[str] = _INTEGERS) -> str:
    kind = ins.parts[-1]
    if kind not in allowed:
        raise Unsupported(f"{ins.parts[0]} with {', '.join(sorted(allowed))}")
    return kind


def _only(ins: Instruction, *modifiers: str) -> None:
    """Refuse modifiers between opcode and type that are not among these."""
    unknown = set(ins.parts[1:-1]) - set(modifiers)
    if unknown:
        raise Unsupported(f"{ins.parts[0]} with the modifiers {', '.join(modifiers) or 'none'}")


def _binary(function: Any) -> Callable[[Instruction], Operation]:
    def resolve(ins: Instruction) -> Operation:
        kind = _integer_type(ins)
        _only(ins)
        return Operation(function, (kind, kind), (kind,), ufunc=True)

    return resolve


operation("add.s16", "add.s32", "add.s64", "add.u16", "add.u32", "add.u64")(_binary(np.add))
operation("sub.s16", "sub.s32", "sub.s64", "sub.u16", "sub.u32", "sub.u64")(_binary(np.subtract))
for _kind in sorted(_INTEGERS):
    operation(f"min.{_kind}")(_binary(np.minimum))
    operation(f"max.{_kind}")(_binary(np.maximum))


@operation("add.sat", "sub.sat")
def saturating(ins: Instruction) -> Operation:
    """``add.sat.s32``."""
    _integer_type(ins, {"s32"})
    wide = np.add if ins.parts[0] == "add" else np.subtract

    def run(a: Array, b: Array) -> Array:
        exact = wide(a, b, dtype=np.int64)
        return np.clip(exact, -(1 << 31), (1 << 31) - 1).astype(np.int32)

    return Operation(run, ("s32", "s32"), ("s32",))


@operation("min.relu", "max.relu")
def relu(ins: Instruction) -> Operation:
    """``min.relu.s32``: negative results become 0."""
    _integer_type(ins, {"s32"})
    pick = np.minimum if ins.parts[0] == "min" else np.maximum
    return Operation(lambda a, b: np.maximum(pick(a, b), np.int32(0)), ("s32", "s32"), ("s32",))


def _high(a: Array, b: Array) -> Array:
    """Upper half of a product."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        result: Array = (np.multiply(a, b, dtype=wide) >> wide(bits)).astype(a.dtype)
        return result
    exact = np.asarray(a).astype(object) * np.asarray(b).astype(object)
    return np.asarray(np.vectorize(lambda x: (x >> 64) & (1 << 64) - 1, otypes=[np.uint64])(exact)).view(a.dtype)


def _wide(kind: str) -> str:
    return kind[0] + str(2 * width_of(kind))


@operation("mul.lo", "mul.hi", "mul.wide", "mul24.lo")
def mul(ins: Instruction) -> Operation:
    """``mul.{lo,hi,wide}``."""
    kind = _integer_type(ins)
    form = ins.parts[1]
    if ins.parts[0] == "mul24":
        if kind not in ("u32", "s32"):
            raise Unsupported("mul24.lo with u32, s32")
        shift = np.array(8, kind.replace("u", "uint").replace("s", "int"))
        return Operation(lambda a, b: ((a << shift) >> shift) * ((b << shift) >> shift), (kind, kind), (kind,))
    if form == "lo":
        return Operation(np.multiply, (kind, kind), (kind,), ufunc=True)
    if form == "hi":
        return Operation(_high, (kind, kind), (kind,))
    if width_of(kind) == 64:
        raise Unsupported("mul.wide with 16- and 32-bit types")
    wide = _wide(kind)
    dtype = np.dtype(("int" if kind[0] == "s" else "uint") + wide[1:])
    return Operation(lambda a, b: np.multiply(a, b, dtype=dtype), (kind, kind), (wide,))


@operation("mad.lo", "mad.hi", "mad.wide", "mad24.lo")
def mad(ins: Instruction) -> Operation:
    """``mad.{lo,hi,wide}``."""
    kind = _integer_type(ins)
    form = ins.parts[1]
    if ins.parts[0] == "mad24" or "sat" in ins.parts:
        raise Unsupported("mad.lo, mad.hi and mad.wide without .sat")
    if form == "lo":
        return Operation(lambda a, b, c: a * b + c, (kind,) * 3, (kind,))
    if form == "hi":
        return Operation(lambda a, b, c: _high(a, b) + c, (kind,) * 3, (kind,))
    if width_of(kind) == 64:
        raise Unsupported("mad.wide with 16- and 32-bit types")
    wide = _wide(kind)
    dtype = np.dtype(("int" if kind[0] == "s" else "uint") + wide[1:])
    return Operation(lambda a, b, c: np.multiply(a, b, dtype=dtype) + c, (kind, kind, wide), (wide,))


def _divide(a: Array, b: Array) -> Array:
    """Truncated quotient; division by zero gives all ones (what hardware returns; the ISA leaves it open)."""
    a, b = np.broadcast_arrays(a, b)
    zero = b == 0
    safe = np.where(zero, np.ones_like(b), b)
    if a.dtype.kind == "u":
        quotient = a // safe
    else:
        quotient = a // safe
        quotient = quotient + ((a % safe != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(zero, np.array(-1).astype(a.dtype), quotient)


@operation("div")
def div(ins: Instruction) -> Operation:
    """``div.{u,s}{16,32,64}``."""
    kind = _integer_type(ins)
    _only(ins)
    return Operation(_divide, (kind, kind), (kind,))


@operation("rem")
def rem(ins: Instruction) -> Operation:
    """``rem``: the sign of the dividend."""
    kind = _integer_type(ins)
    _only(ins)
    return Operation(lambda a, b: np.where(b == 0, a, a - _divide(a, b) * b).astype(a.dtype), (kind, kind), (kind,))


for _kind in ("s16", "s32", "s64"):
    operation(f"neg.{_kind}")(lambda ins: Operation(np.negative, (ins.parts[-1],), (ins.parts[-1],), ufunc=True))
    operation(f"abs.{_kind}")(lambda ins: Operation(np.abs, (ins.parts[-1],), (ins.parts[-1],)))


@operation("sad")
def sad(ins: Instruction) -> Operation:
    """``sad``: c + |a - b|."""
    kind = _integer_type(ins)
    return Operation(lambda a, b, c: c + np.where(a < b, b - a, a - b), (kind,) * 3, (kind,))


# ---- bits ------------------------------------------------------------------------------------------------------------


def _logic(function: Any) -> Callable[[Instruction], Operation]:
    def resolve(ins: Instruction) -> Operation:
        kind = ins.parts[-1]
        if len(ins.parts) != 2 or kind not in _BITS | {"pred"}:
            raise Unsupported(f"{ins.parts[0]} with b16, b32, b64, pred")
        return Operation(function, (kind, kind), (kind,), ufunc=True)

    return resolve


operation("and")(_logic(np.bitwise_and))
operation("or")(_logic(np.bitwise_or))
operation("xor")(_logic(np.bitwise_xor))


@operation("not")
def not_(ins: Instruction) -> Operation:
    """``not``."""
    kind = ins.parts[-1]
    if len(ins.parts) != 2 or kind not in _BITS | {"pred"}:
        raise Unsupported("not with b16, b32, b64, pred")
    return Operation(np.invert, (kind,), (kind,), ufunc=True)


@operation("cnot")
def cnot(ins: Instruction) -> Operation:
    """``cnot``: 1 where the operand is 0."""
    kind = _integer_type(ins, _BITS)
    return Operation(lambda a: (a == 0).astype(a.dtype), (kind,), (kind,))


@operation("shl", "shr")
def shift(ins: Instruction) -> Operation:
    """``shl``, ``shr``: amounts past the width act as the width."""
    kind = _integer_type(ins, _BITS | _INTEGERS if ins.parts[0] == "shr" else _BITS)
    bits = width_of(kind)
    last = np.uint32(bits - 1)
    ufunc = np.left_shift if ins.parts[0] == "shl" else np.right_shift
    signed = kind[0] == "s" and ufunc is np.right_shift
    dtype = np.dtype(("int" if kind[0] == "s" else "uint") + str(bits))
    amount = ins.operands[2]
    if isinstance(amount, Immediate) and 0 <= amount.bits < bits:
        return Operation(ufunc, (kind, kind), (kind,), ufunc=True)

    def run(a: Array, b: Array) -> Array:
        over = b > last
        result = ufunc(a, np.minimum(b, last).astype(dtype))
        if over.any():
            fill = ufunc(a, np.array(bits - 1, dtype)) if signed else np.zeros_like(a)
            return np.where(over, fill, result)
        found: Array = result
        return found

    return Operation(run, (kind, "u32"), (kind,))


@operation("shf")
def shf(ins: Instruction) -> Operation:
    """``shf.{l,r}.{wrap,clamp}.b32``: a funnel shift of {b:a}."""
    if ins.parts[-1] != "b32" or ins.parts[1] not in ("l", "r") or ins.parts[2] not in ("wrap", "clamp"):
        raise Unsupported("shf.{l,r}.{wrap,clamp}.b32")
    left, wrap = ins.parts[1] == "l", ins.parts[2] == "wrap"

    def run(a: Array, b: Array, c: Array) -> Array:
        n = (c & np.uint32(31) if wrap else np.minimum(c, np.uint32(32))).astype(np.uint64)
        joined = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
        # At n = 32 the shift of 64 bits is still in range.
        joined = (joined << n) >> np.uint64(32) if left else joined >> n
        result: Array = joined.astype(np.uint32)
        return result

    return Operation(run, ("u32",) * 3, ("b32",))


@operation("bfe")
def bfe(ins: Instruction) -> Operation:
    """``bfe``: extract a bit field, extended by its sign for signed types."""
    kind = _integer_type(ins, {"u32", "s32", "u64", "s64"})
    bits = width_of(kind)

    def run(a: Array, b: Array, c: Array) -> Array:
        a, b, c = np.broadcast_arrays(a, b, c)
        start = (b & np.uint32(0xFF)).astype(np.int64)
        length = (c & np.uint32(0xFF)).astype(np.int64)
        unsigned = a.view(f"uint{bits}")
        in_range = start < bits
        value: Array = unsigned >> np.minimum(start, bits - 1).astype(unsigned.dtype)
        value = np.where(in_range, value, np.zeros_like(value))
        full = length >= bits
        keep = (np.ones_like(value) << np.minimum(length, bits - 1).astype(value.dtype)) - np.ones_like(value)
        value = np.where(full, value, value & keep)
        if kind[0] == "u":
            return value
        # the sign is the field's last bit, or the operand's if the field ends beyond it
        last = np.clip(np.minimum(start + length - 1, bits - 1), 0, bits - 1).astype(unsigned.dtype)
        sign = ((unsigned >> last) & np.ones_like(unsigned)) != 0
        sign &= length > 0
        signed: Array = np.where(sign & ~full, value | ~keep, value).view(f"int{bits}")
        return signed

    return Operation(run, (kind, "u32", "u32"), (kind,))


@operation("bfi")
def bfi(ins: Instruction) -> Operation:
    """``bfi``: insert a bit field."""
    kind = _integer_type(ins, {"b32", "b64"})
    bits = width_of(kind)

    def run(a: Array, b: Array, c: Array, d: Array) -> Array:
        start = (c & np.uint32(0xFF)).astype(np.int64)
        length = (d & np.uint32(0xFF)).astype(np.int64)
        one = np.array(1, f"uint{bits}")
        keep = np.where(
            length >= bits, ~np.zeros_like(one), (one << np.minimum(length, bits - 1).astype(one.dtype)) - one
        )
        shifted = np.minimum(start, bits - 1).astype(one.dtype)
        field = np.where(start < bits, keep << shifted, np.zeros_like(one))
        value = np.where(start < bits, a << shifted, np.zeros_like(one))
        return (b & ~field) | (value & field)

    return Operation(run, (kind, kind, "u32", "u32"), (kind,))


@operation("popc")
def popc(ins: Instruction) -> Operation:
    """``popc``."""
    kind = _integer_type(ins, {"b32", "b64"})
    return Operation(lambda a: np.bitwise_count(a).astype(np.uint32), (kind,), ("u32",))


def _leading_zeros(a: Array) -> Array:
    bits = a.dtype.itemsize * 8
    count = np.full(np.shape(a), bits, np.uint32)
    value = np.array(a)
    for step in (32, 16, 8, 4, 2, 1):
        if step >= bits:
            continue
        high = value >> np.array(step, a.dtype)
        there = high != 0
        count = np.where(there, count - np.uint32(step), count)
        value = np.where(there, high, value)
    return np.where(value != 0, count - np.uint32(1), count)


@operation("clz")
def clz(ins: Instruction) -> Operation:
    """``clz``."""
    kind = _integer_type(ins, {"b32", "b64"})
    return Operation(_leading_zeros, (kind,), ("u32",))


@operation("bfind")
def bfind(ins: Instruction) -> Operation:
    """``bfind{.shiftamt}``: position of the highest bit that is not the sign."""
    kind = _integer_type(ins)
    bits = width_of(kind)
    amount = ins.has("shiftamt")

    def run(a: Array) -> Array:
        value = np.where(a < 0, ~a, a).view(f"uint{bits}") if kind[0] == "s" else a
        zeros = _leading_zeros(value)
        found = zeros if amount else np.uint32(bits - 1) - zeros
        return np.where(value == 0, np.uint32(0xFFFFFFFF), found)

    return Operation(run, (kind,), ("u32",))


@operation("brev")
def brev(ins: Instruction) -> Operation:
    """``brev``: bits in reverse order."""
    kind = _integer_type(ins, {"b32", "b64"})
    bits = width_of(kind)

    def run(a: Array) -> Array:
        unpacked = np.unpackbits(
            np.ascontiguousarray(a).view(np.uint8).reshape(-1, bits // 8), axis=1, bitorder="little"
        )
        return np.packbits(unpacked[:, ::-1], axis=1, bitorder="little").reshape(-1).view(f"uint{bits}")

    return Operation(run, (kind,), (kind,))


@operation("lop3")
def lop3(ins: Instruction) -> Operation:
    """``lop3.b32 d, a, b, c, lut``."""
    if ins.opcode != "lop3.b32":
        raise Unsupported("lop3.b32")

    def run(a: Array, b: Array, c: Array, table: Array) -> Array:
        lut = int(np.asarray(table).flat[0])
        result = np.zeros_like(a)
        for index in range(8):
            if lut >> index & 1:
                term = (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
                result = result | term
        return result

    return Operation(run, ("u32",) * 4, ("b32",))


@operation("prmt")
def prmt(ins: Instruction) -> Operation:
    """``prmt.b32{.mode}``: bytes of {b:a} by selector nibbles."""
    mode = ins.parts[2] if len(ins.parts) > 2 else ""
    if ins.parts[1] != "b32" or mode not in ("", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        raise Unsupported("prmt.b32 and its modes f4e, b4e, rc8, ecl, ecr, rc16")

    def run(a: Array, b: Array, c: Array) -> Array:
        a, b, c = np.broadcast_arrays(a, b, c)
        source = np.stack([a >> np.uint32(8 * n) & np.uint32(0xFF) for n in range(4)]
                          + [b >> np.uint32(8 * n) & np.uint32(0xFF) for n in range(4)])  # fmt: skip
        lanes = np.arange(a.size)
        result = np.zeros_like(a)
        for position in range(4):
            if mode == "":
                nibble = c >> np.uint32(4 * position) & np.uint32(0xF)
            else:
                nibble = _prmt_mode(mode, c & np.uint32(3), position)
            value = source[(nibble & np.uint32(7)).astype(np.int64), lanes]
            sign = np.where(value & np.uint32(0x80), np.uint32(0xFF), np.uint32(0))
            value = np.where(nibble & np.uint32(8), sign, value)
            result |= value << np.uint32(8 * position)
        return result

    return Operation(run, ("u32",) * 3, ("b32",))


def _prmt_mode(mode: str, c: Array, position: int) -> Array:
    """The byte that each mode selects for one position of the result."""
    p = np.uint32(position)
    byte: Array = {
        "f4e": c + p,
        "b4e": (c - p) & np.uint32(7),
        "rc8": c,
        "ecl": np.maximum(c, p),
        "ecr": np.minimum(c, p),
        "rc16": (c & np.uint32(1)) * np.uint32(2) + (p & np.uint32(1)),
    }[mode]
    return byte


@operation("dp4a")
def dp4a(ins: Instruction) -> Operation:
    """``dp4a.{u32,s32}.{u32,s32}``: four 8-bit products added to c."""
    signs = ins.parts[1:]
    if len(signs) != 2 or not set(signs) <= {"u32", "s32"}:
        raise Unsupported("dp4a.{u32,s32}.{u32,s32}")
    kinds = [np.int8 if sign == "s32" else np.uint8 for sign in signs]

    def run(a: Array, b: Array, c: Array) -> Array:
        a, b = (np.ascontiguousarray(np.broadcast_to(x, c.shape)) for x in (a, b))
        x = a.view(kinds[0]).reshape(-1, 4).astype(np.int64)
        y = b.view(kinds[1]).reshape(-1, 4).astype(np.int64)
        result: Array = (c.astype(np.int64) + (x * y).sum(axis=1)).astype(np.uint32)
        return result

    return Operation(run, ("u32",) * 3, ("u32",))
