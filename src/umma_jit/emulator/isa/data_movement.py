"""``mov``, address conversion, loads and stores, atomics (PTX ISA 9.7.9, 9.7.13.5 ff.)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umma_jit.emulator.context import BANK_BYTES, NUMPY_TYPES, Context
from umma_jit.emulator.errors import ExecutionError, MemoryFault
from umma_jit.emulator.isa.registry import YIELD, Operation, Result, Unsupported, handler, operation
from umma_jit.emulator.memory import GlobalMemoryMisuse
from umma_jit.emulator.misuse import Misuse
from umma_jit.emulator.nodes import Address, Instruction, Operand, Register, Sink, Symbol, Vector
from umma_jit.emulator.spaces import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

Array = NDArray[Any]
_MOVABLE = {f"{letter}{bits}" for letter in "bus" for bits in (16, 32, 64)} | {
    "f32",
    "f64",
    "pred",
    "f16",
    "bf16",
    "b128",
}


def _check_mov(ins: Instruction) -> None:
    if len(ins.parts) != 2 or ins.parts[1] not in _MOVABLE:
        raise Unsupported("mov of b, u, s 16 to 64, b128, f16, bf16, f32, f64, pred")


@handler("mov", check=_check_mov, inline=True)
def mov(ctx: Context, ins: Instruction) -> None:
    """``mov``, with vectors packed and unpacked; the plain register forms are translated."""
    target, source = ins.operands
    kind = ins.parts[1]
    if isinstance(target, Vector):
        _unpack(ctx, target, source, kind)
    elif isinstance(source, Vector):
        ctx.set(target, _pack(ctx, source, kind), kind)
    else:
        ctx.set(target, ctx.values(source, kind), kind)


def _pack(ctx: Context, source: Vector, kind: str) -> Array:
    total = 16 if kind == "b128" else NUMPY_TYPES[kind].itemsize
    width = total // len(source.elements)
    parts = [ctx.flat(element, f"b{8 * width}") for element in source.elements]
    joined = np.ascontiguousarray(np.stack(parts, axis=1))
    if kind == "b128":
        return joined.view(np.uint64).reshape(-1, 2)
    result: Array = joined.view(NUMPY_TYPES[kind]).reshape(-1)
    return result


def _unpack(ctx: Context, target: Vector, source: Operand, kind: str) -> None:
    total = 16 if kind == "b128" else NUMPY_TYPES[kind].itemsize
    width = total // len(target.elements)
    if kind == "b128" and isinstance(source, Register):
        values: Array = ctx.views.lists["b128"][source.slot]
    else:
        values = ctx.flat(source, kind)
    pieces = np.ascontiguousarray(values).view(f"uint{8 * width}").reshape(ctx.views.lanes, -1)
    # A copy, since a destination may be the source itself.
    for n, element in enumerate(target.elements):
        ctx.set(element, pieces[:, n].copy(), f"b{8 * width}")


# ---- addresses -------------------------------------------------------------------------------------

_WINDOWS = {"shared": SHARED_WINDOW, "shared::cta": SHARED_WINDOW, "shared::cluster": SHARED_WINDOW,
            "local": LOCAL_WINDOW, "param": PARAM_WINDOW, "param::entry": PARAM_WINDOW}  # fmt: skip


@operation("cvta")
def cvta(ins: Instruction) -> Operation:
    """``cvta{.to}.space.u64``: between an address in a window and the generic one."""
    space, kind = ins.parts[-2], ins.parts[-1]
    if space not in {*_WINDOWS, "global", "const"} or kind != "u64":
        raise Unsupported("cvta{.to}.{global,const,shared,local,param}.u64")
    base = np.uint64(_WINDOWS.get(space, 0))
    if ins.has("to"):
        return Operation(lambda a: a - base, ("u64",), ("u64",))
    return Operation(lambda a: a + base, ("u64",), ("u64",))


@operation("isspacep")
def isspacep(ins: Instruction) -> Operation:
    """``isspacep.space p, a``."""
    space = ins.parts[1]
    if space == "global":
        return Operation(lambda a: a < np.uint64(PARAM_WINDOW), ("u64",), ("pred",))
    if space not in _WINDOWS:
        raise Unsupported("isspacep.{global,shared,local,param}")
    base = np.uint64(_WINDOWS[space])
    return Operation(lambda a: (a >= base) & (a < base + np.uint64(WINDOW_SIZE)), ("u64",), ("pred",))


@handler("mapa", inline=True)
def mapa(ctx: Context, ins: Instruction) -> None:
    """``mapa{.shared::cluster}.{u32,u64} d, a, rank``: the same offset in another CTA of the cluster."""
    kind = ins.parts[-1]
    address = ctx.values(ins.operands[1], kind).astype(np.uint64)
    rank = ctx.u32(ins.operands[2]).astype(np.uint64)
    count = len(ctx.cta.cluster.ctas)
    if (rank[ctx.mask] >= count).any():
        raise ctx.error_at(
            ExecutionError, ins, ctx.w0, "mapa.rank",
            f"rank {int(rank[ctx.mask].max())} in a cluster of {count}", "use a rank below %cluster_nctarank",
        )  # fmt: skip
    mapped = (address & ~np.uint64(0xFF00_0000)) | (rank << np.uint64(24))
    ctx.set(ins.operands[0], mapped, kind)


@handler("getctarank", inline=True)
def getctarank(ctx: Context, ins: Instruction) -> None:
    """``getctarank{.shared::cluster}.{u32,u64} d, a``."""
    address = ctx.u64(ins.operands[1])
    ctx.set_u32(ins.operands[0], (address >> np.uint64(24) & np.uint64(0xFF)).astype(np.uint32))


# ---- loads and stores ------------------------------------------------------------------------------

_TYPES = {f"{letter}{bits}" for letter in "bus" for bits in (8, 16, 32, 64)} | {"b128", "f32", "f64", "f16", "bf16"}
_STRONG = {"volatile", "relaxed", "acquire", "release", "mmio"}
_CACHE = {
    "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "weak", "cta", "cluster", "gpu", "sys", "L1::no_allocate",
    "L1::evict_first", "L1::evict_last", "L1::evict_normal", "L1::evict_unchanged", "L2::cache_hint", "L2::64B",
    "L2::128B", "L2::256B", "L2::evict_first", "L2::evict_last", "L2::evict_normal", "generic",
}  # fmt: skip
_SPACES = {"global", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry", "const"}


def _space_of(ins: Instruction) -> str:
    for part in ins.parts[1:]:
        if part in _SPACES:
            return part.split("::")[0]
    return "generic"


def _space_at(ctx: Context, ins: Instruction, operand: Operand) -> str:
    """The space of an access; parameters that the body declares for a call are the thread's own memory."""
    space = _space_of(ins)
    base = operand.base if isinstance(operand, Address) else None
    own = space == "param" and isinstance(base, Symbol) and ctx.launch.layout.is_call_parameter(base.name)
    return "local" if own else space


def _vector_of(ins: Instruction) -> int:
    return next((int(part[1:]) for part in ins.parts if part in ("v2", "v4", "v8")), 1)


def _check_access(ins: Instruction) -> None:
    known = _STRONG | _CACHE | _SPACES | {"v2", "v4", "v8"}
    unknown = set(ins.parts[1:-1]) - known
    if ins.parts[-1] not in _TYPES or unknown:
        raise Unsupported(f"{ins.parts[0]} with {', '.join(sorted(known))} on {', '.join(sorted(_TYPES))}")


def _elements(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


@handler("ld", "ldu", check=_check_access, inline=True)
def ld(ctx: Context, ins: Instruction) -> Result:
    """``ld{.sem}{.space}{.cache}{.vec}.type d, [a]``."""
    kind = ins.parts[-1]
    width = 16 if kind == "b128" else NUMPY_TYPES[kind].itemsize
    targets = _elements(ins.operands[0])
    total = width * len(targets)
    source = ins.operands[1]
    strong = not _STRONG.isdisjoint(ins.parts)
    data = load_bytes(ctx, ctx.address(source), total, _space_at(ctx, ins, source), strong)
    flat = np.ascontiguousarray(data).reshape(ctx.views.lanes, total)
    for n, target in enumerate(targets):
        piece = np.ascontiguousarray(flat[:, n * width : (n + 1) * width])
        if kind == "b128":
            ctx.set(target, piece.view(np.uint64).reshape(-1, 2), "b128")
        else:
            ctx.set(target, piece.view(NUMPY_TYPES[kind]).reshape(-1), kind)
    return None


@handler("ld.volatile", "ld.relaxed", "ld.acquire", "ld.mmio", check=_check_access, blocking=False)
def ld_strong(ctx: Context, ins: Instruction) -> Result:
    """A load that may be polling: others get a turn after it."""
    ld(ctx, ins)
    return YIELD


@handler("st", check=_check_access, inline=True)
def st(ctx: Context, ins: Instruction) -> None:
    """``st{.sem}{.space}{.cache}{.vec}.type [a], b``."""
    kind = ins.parts[-1]
    width = 16 if kind == "b128" else NUMPY_TYPES[kind].itemsize
    sources = _elements(ins.operands[1])
    pieces = []
    for source in sources:
        if kind == "b128":
            assert isinstance(source, Register)
            values: Array = ctx.views.lists["b128"][source.slot]
        else:
            values = ctx.flat(source, kind)
        pieces.append(np.ascontiguousarray(values).view(np.uint8).reshape(ctx.views.lanes, width))
    data = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)
    store_bytes(
        ctx,
        ctx.address(ins.operands[0]),
        data.reshape(ctx.num_warps, 32, -1),
        _space_at(ctx, ins, ins.operands[0]),
        not _STRONG.isdisjoint(ins.parts),
    )
    ctx.launch.progress += 1


def load_bytes(ctx: Context, addresses: NDArray[np.uint64], nbytes: int, space: str, strong: bool = False) -> Array:
    """uint8 (W, 32, nbytes) from a state space or generic addresses."""
    try:
        if space == "generic":
            return _by_window(
                ctx, addresses, lambda part, where, mask: _load(ctx, where, nbytes, part, mask, strong), nbytes
            )
        return _load(ctx, addresses, nbytes, space, ctx.mask, strong)
    except Misuse as misuse:
        raise _fault(ctx, misuse) from None


def _load(
    ctx: Context, addresses: NDArray[np.uint64], nbytes: int, space: str, mask: NDArray[np.bool_], strong: bool
) -> Array:
    if space == "shared":
        if nbytes > 16:
            halves = [
                ctx.cta.shared.load(ctx, addresses + np.uint64(n), 16, mask, strong=strong)
                for n in range(0, nbytes, 16)
            ]
            return np.concatenate(halves, axis=2)
        return ctx.cta.shared.load(ctx, addresses, nbytes, None if mask.all() else mask, strong=strong)
    if space in ("param", "const"):
        memory = ctx.launch.parameter_bytes if space == "param" else ctx.launch.constant_bytes
        return _small(ctx, memory, addresses, nbytes, mask, space)
    if space == "local":
        return ctx.cta.local.load(ctx.w0, ctx.w1, addresses, nbytes, mask)
    memory_ = ctx.launch.memory
    offsets = memory_.offsets(addresses, nbytes, mask, ctx.ins.opcode)
    where = offsets[..., None] + np.arange(nbytes)
    known = memory_.initialised[where].all(axis=-1) | ~mask
    if not known.all():
        address = int(addresses[~known][0])
        ctx.finding(
            rule="global.uninitialised",
            message=f"load of global memory at {address:#x} that nothing has written",
            remedy="write or upload it first",
        )
    result: Array = memory_.data[where]
    return result


def _small(
    ctx: Context, memory: Array, addresses: NDArray[np.uint64], nbytes: int, mask: NDArray[np.bool_], space: str
) -> Array:
    """From parameters or constants: usually one address for all."""
    offsets = np.where(mask, addresses.astype(np.int64), int(addresses[mask][0]) if mask.any() else 0)
    low, high = int(offsets.min()), int(offsets.max())
    if low < 0 or high + nbytes > memory.size:
        raise GlobalMemoryMisuse(
            f"{space}.out-of-bounds",
            f"{ctx.ins.opcode} at {space} offset {high if low >= 0 else low} of {memory.size} bytes",
            "stay within the declared parameters or constants",
        )
    if low == high:
        return np.broadcast_to(memory[low : low + nbytes], (*addresses.shape, nbytes))
    return memory[offsets[..., None] + np.arange(nbytes)]


def store_bytes(ctx: Context, addresses: NDArray[np.uint64], data: Array, space: str, strong: bool = False) -> None:
    """Store uint8 (W, 32, nbytes)."""

    def store(part: str, where: NDArray[np.uint64], mask: NDArray[np.bool_]) -> None:
        if part == "shared":
            for n in range(0, data.shape[2], 16):
                ctx.cta.shared.store(
                    ctx, where + np.uint64(n), data[..., n : n + 16], None if mask.all() else mask, strong=strong
                )
        elif part == "local":
            ctx.cta.local.store(ctx.w0, ctx.w1, where, data, mask)
        elif part == "global":
            memory = ctx.launch.memory
            offsets = memory.offsets(where, data.shape[2], mask, ctx.ins.opcode)[mask]
            index = offsets[:, None] + np.arange(data.shape[2])
            memory.data[index] = data[mask]
            memory.initialised[index] = True
        else:
            raise GlobalMemoryMisuse(f"{part}.store", f"{ctx.ins.opcode} to {part} memory", "it is read-only")

    try:
        if space == "generic":
            _by_window(ctx, addresses, store)
        else:
            store(space, addresses, ctx.mask)
    except Misuse as misuse:
        raise _fault(ctx, misuse) from None


def _by_window(
    ctx: Context,
    addresses: NDArray[np.uint64],
    access: Callable[[str, NDArray[np.uint64], NDArray[np.bool_]], Any],
    nbytes: int = 0,
) -> Array:
    """Do an access once per state space that the generic addresses fall into."""
    result = np.zeros((*addresses.shape, nbytes), np.uint8)
    remaining = ctx.mask
    for part, base in (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW), ("param", PARAM_WINDOW)):
        inside = remaining & (addresses >= np.uint64(base)) & (addresses < np.uint64(base + WINDOW_SIZE))
        if inside.any():
            where = np.where(inside, addresses - np.uint64(base), addresses[inside][0] - np.uint64(base))
            got = access(part, where, inside)
            if nbytes:
                result[inside] = got[inside]
            remaining = remaining & ~inside
    if remaining.any():
        got = access("global", addresses, remaining)
        if nbytes:
            result[remaining] = got[remaining]
    return result


def _fault(ctx: Context, misuse: Misuse) -> Exception:
    return ctx.error_at(MemoryFault, ctx.ins, ctx.w0, misuse.rule, str(misuse), misuse.remedy)


# ---- atomics ---------------------------------------------------------------------------------------

_ATOMIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda old, b: old + b,
    "and": lambda old, b: old & b,
    "or": lambda old, b: old | b,
    "xor": lambda old, b: old ^ b,
    "exch": lambda _, b: b,
    "min": min,
    "max": max,
    "inc": lambda old, b: old.dtype.type(0) if old >= b else old + old.dtype.type(1),
    "dec": lambda old, b: b if old == 0 or old > b else old - old.dtype.type(1),
}


def _check_atomic(ins: Instruction) -> None:
    kind = ins.parts[-1]
    if kind not in {"b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64"} or not ({*_ATOMIC, "cas"} & set(ins.parts)):
        raise Unsupported(f"{ins.parts[0]} with {', '.join(_ATOMIC)}, cas on 32- and 64-bit types")


@handler("atom", "red", check=_check_atomic, blocking=False)
def atom(ctx: Context, ins: Instruction) -> Result:
    """``atom{.sem}{.scope}{.space}.op.type d, [a], b {, c}`` and ``red``: lanes one after another."""
    kind = ins.parts[-1]
    dtype = NUMPY_TYPES[kind]
    operands = ins.operands if ins.parts[0] == "atom" else (Sink(), *ins.operands)
    addresses = ctx.address(operands[1])
    b = ctx.values(operands[2], kind)
    name = next(part for part in ins.parts if part in _ATOMIC or part == "cas")
    c = ctx.values(operands[3], kind) if name == "cas" else b
    space = _space_of(ins)
    result = np.zeros((ctx.num_warps, 32), dtype)
    whole, full = ctx.mask, ctx.full
    try:
        for row, lane in zip(*np.nonzero(whole), strict=True):
            only = np.zeros_like(whole)
            only[row, lane] = True
            ctx.mask, ctx.full = only, False
            raw = load_bytes(ctx, addresses, dtype.itemsize, space, True)
            old = np.ascontiguousarray(raw[row, lane]).view(dtype)[0]
            new = (c[row, lane] if old == b[row, lane] else old) if name == "cas" else _ATOMIC[name](old, b[row, lane])
            result[row, lane] = old
            data = np.broadcast_to(np.array([new], dtype).view(np.uint8), (*whole.shape, dtype.itemsize))
            store_bytes(ctx, addresses, data, space, True)
    finally:
        ctx.mask, ctx.full = whole, full
    ctx.set(operands[0], result, kind)
    ctx.launch.progress += 1
    return YIELD


# ---- hints -----------------------------------------------------------------------------------------


@handler("prefetch", "prefetchu", "discard", "applypriority", inline=True)
def hint(ctx: Context, ins: Instruction) -> None:
    """Cache hints change no result."""


@handler("createpolicy", inline=True)
def createpolicy(ctx: Context, ins: Instruction) -> None:
    """``createpolicy``: an opaque 64-bit cache policy."""
    ctx.set_u64(ins.operands[0], np.zeros((ctx.num_warps, 32), np.uint64))


def is_plain_move(ins: Instruction) -> bool:
    """A ``mov`` between registers or from a literal, which the translator writes out itself."""
    target, source = ins.operands
    return not isinstance(target, Vector) and not isinstance(source, (Vector, Symbol))


def bytes_of(register: Register) -> int:
    """Width of a register's storage."""
    return BANK_BYTES[register.bank]
