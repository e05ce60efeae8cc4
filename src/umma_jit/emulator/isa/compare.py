"""Comparison and selection (PTX ISA 9.7.6, 9.7.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umma_jit.emulator.isa.registry import Operation, Unsupported, operation
from umma_jit.emulator.nodes import Instruction, PredicatePair
from umma_jit.emulator.rounding import as_float, flush

if TYPE_CHECKING:
    from collections.abc import Callable

Array = NDArray[Any]

_ORDERED: dict[str, Any] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_BOOLEAN: dict[str, Any] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
_INTEGERS = {f"{letter}{bits}" for letter in "bus" for bits in (16, 32, 64)}
_FLOATS = {"f32", "f64", "f16", "bf16", "f16x2", "bf16x2"}


def _comparison(ins: Instruction, name: str, kind: str) -> Any:
    if kind in _INTEGERS:
        if name not in _ORDERED:
            raise Unsupported(f"integer comparisons {', '.join(_ORDERED)}")
        return _ORDERED[name]
    nan_or: Callable[[Array, Array], Array] = lambda a, b: np.isnan(a) | np.isnan(b)  # noqa: E731
    if name == "num":
        return lambda a, b: ~nan_or(a, b)
    if name == "nan":
        return nan_or
    if name in ("eq", "lt", "le", "gt", "ge"):
        return _ORDERED[name]
    if name == "ne":  # ordered: false if either is NaN, unlike NumPy's
        return lambda a, b: (a != b) & ~nan_or(a, b)
    if name == "neu":
        return np.not_equal
    if name in ("equ", "ltu", "leu", "gtu", "geu"):
        base = _ORDERED[name[:2]]
        return lambda a, b: base(a, b) | nan_or(a, b)
    raise Unsupported("the float comparisons eq ne lt le gt ge equ neu ltu leu gtu geu num nan")


def _typed(ins: Instruction, name: str, kind: str) -> Callable[[Array, Array], Array]:
    """The comparison on arrays as the translator hands them over."""
    compare = _comparison(ins, name, kind)
    if kind in ("f16", "bf16"):
        return lambda a, b: compare(as_float(a, kind), as_float(b, kind))
    if kind == "f32" and ins.has("ftz"):
        return lambda a, b: compare(flush(a), flush(b))
    return compare  # type: ignore[no-any-return]


@operation("setp")
def setp(ins: Instruction) -> Operation:
    """``setp.cmp{.bool}{.ftz}.type p{|q}, a, b {, {!}c}``."""
    name, kind = ins.parts[1], ins.parts[-1]
    combine = _BOOLEAN.get(ins.parts[2])
    unknown = set(ins.parts[2:-1]) - {*_BOOLEAN, "ftz"}
    if kind not in _INTEGERS | _FLOATS or unknown:
        raise Unsupported("setp.cmp{.and,.or,.xor}{.ftz} on b, u, s 16 to 64, f16, bf16, f16x2, bf16x2, f32, f64")
    pair = isinstance(ins.operands[0], PredicatePair)
    sources: tuple[str, ...] = (kind, kind) if combine is None else (kind, kind, "pred")
    if kind.endswith("x2"):
        element = kind.removesuffix("x2")
        compare = _comparison(ins, name, "f32")
        if combine is not None or not pair:
            raise Unsupported("setp on packed pairs with two destinations and no boolean")

        def halves(a: Array, b: Array) -> tuple[Array, Array]:
            x, y = (
                as_float(np.ascontiguousarray(v).view(np.uint16), element).reshape(-1, 2)
                for v in np.broadcast_arrays(a, b)
            )
            result = compare(x, y)
            return result[:, 0], result[:, 1]

        return Operation(halves, sources, ("pred", "pred"))
    compare_typed = _typed(ins, name, kind)
    if combine is None and not pair:
        return Operation(compare_typed, sources, ("pred",), ufunc=isinstance(compare_typed, np.ufunc))
    if combine is not None and not pair:
        return Operation(lambda a, b, c: combine(compare_typed(a, b), c), sources, ("pred",))
    if combine is None:
        return Operation(lambda a, b: _both(compare_typed(a, b)), sources, ("pred", "pred"))

    def combined(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
        yes, no = _both(compare_typed(a, b))
        return combine(yes, c), combine(no, c)

    return Operation(combined, sources, ("pred", "pred"))


def _both(result: Array) -> tuple[Array, Array]:
    """A predicate and its complement."""
    return result, ~result


@operation("set")
def set_(ins: Instruction) -> Operation:
    """``set.cmp{.bool}{.ftz}.dtype.stype``: all ones or 1.0 where it holds."""
    name, target, kind = ins.parts[1], ins.parts[-2], ins.parts[-1]
    if target not in ("u32", "s32", "f32") or kind not in _INTEGERS | {"f32", "f64", "f16", "bf16"}:
        raise Unsupported("set.cmp to u32, s32, f32 from integers, f16, bf16, f32, f64")
    combine = _BOOLEAN.get(ins.parts[2])
    compare = _typed(ins, name, kind)
    yes: Any = np.float32(1) if target == "f32" else np.int32(-1) if target == "s32" else np.uint32(0xFFFFFFFF)

    def run(a: Array, b: Array, *c: Array) -> Array:
        result = compare(a, b)
        if combine is not None:
            result = combine(result, c[0])
        found: Array = np.where(result, yes, yes.dtype.type(0))
        return found

    return Operation(run, (kind, kind) if combine is None else (kind, kind, "pred"), (target,))


@operation("selp")
def selp(ins: Instruction) -> Operation:
    """``selp.type d, a, b, p``."""
    kind = ins.parts[-1]
    if len(ins.parts) != 2 or kind not in _INTEGERS | {"f32", "f64", "f16", "bf16"}:
        raise Unsupported("selp of b, u, s 16 to 64, f32, f64")
    return Operation(lambda a, b, p: np.where(p, a, b), (kind, kind, "pred"), (kind,))


@operation("slct")
def slct(ins: Instruction) -> Operation:
    """``slct{.ftz}.dtype.{s32,f32} d, a, b, c``: a where c >= 0."""
    kind, selector = ins.parts[-2], ins.parts[-1]
    if kind not in _INTEGERS | {"f32", "f64"} or selector not in ("s32", "f32"):
        raise Unsupported("slct by s32 or f32")
    return Operation(lambda a, b, c: np.where(c >= 0, a, b), (kind, kind, selector), (kind,))
