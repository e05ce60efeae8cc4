"""Extended-precision integer arithmetic (PTX ISA 9.7.2): a carry from one instruction to the next, per thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from umma_jit.emulator.isa.registry import Unsupported, handler

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from umma_jit.emulator.context import Context
    from umma_jit.emulator.nodes import Instruction


def check(ins: Instruction) -> None:
    """``{add,sub}.cc``, ``{add,sub}c{.cc}``, ``{mad,madc}.{lo,hi}{.cc}`` on 32 and 64 bits."""
    product = ins.parts[0] in ("mad", "madc")
    expected = 1 + product + ins.has("cc") + 1
    if len(ins.parts) != expected or ins.parts[-1] not in ("u32", "s32", "u64", "s64"):
        raise Unsupported("add.cc, addc, sub.cc, subc, mad.{lo,hi}.cc, madc.{lo,hi} with u32, s32, u64, s64")


@handler("add.cc", "addc", "sub.cc", "subc", "mad.lo.cc", "mad.hi.cc", "madc", check=check, inline=True)
def extended(ctx: Context, ins: Instruction) -> None:
    """Add, subtract or multiply-add with the carry flag CC.CF in (``c``) and out (``.cc``); a borrow is a carry."""
    kind = ins.parts[-1]
    bits = int(kind[1:])
    name = ins.parts[0]
    terms = [ctx.values(operand, kind) for operand in ins.operands[1:]]
    flags = ctx.cta.carry[ctx.w0 : ctx.w1]
    carry_in = flags if name.endswith("c") else np.zeros_like(flags)
    if name.startswith("mad"):
        terms = [_half(terms[0], terms[1], high=ins.has("hi")), terms[2]]
    unsigned = np.dtype(f"uint{bits}")
    a, b = (np.ascontiguousarray(term).view(unsigned) for term in terms)
    extra = carry_in.astype(unsigned)
    if name.startswith("sub"):
        result = a - b - extra
        carry_out = (a < b) | ((a == b) & carry_in)
    else:
        result = a + b + extra
        carry_out = (result < a) | ((result == a) & carry_in)
    if ins.has("cc"):
        np.copyto(flags, carry_out, where=ctx.mask)
    ctx.set(ins.operands[0], result, f"u{bits}")


def _half(a: NDArray[np.generic], b: NDArray[np.generic], *, high: bool) -> NDArray[np.generic]:
    """The low or high half of a product, as unsigned bits."""
    bits = a.dtype.itemsize * 8
    unsigned = np.dtype(f"uint{bits}")
    exact = a.astype(object) * b.astype(object)
    shift = bits if high else 0
    return np.array([(x >> shift) & (1 << bits) - 1 for x in exact.reshape(-1)], unsigned).reshape(a.shape)
