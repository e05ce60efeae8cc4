"""What a handler sees of the threads that execute its instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from umma_jit.emulator.errors import EmulatorError, ExecutionError, HazardError
from umma_jit.emulator.isa.registry import YIELD, Split, Wait
from umma_jit.emulator.nodes import Address, Immediate, Instruction, Negated, Operand, Register, Sink, Special, Symbol
from umma_jit.emulator.registers import LANES, RegisterViews
from umma_jit.emulator.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from umma_jit.emulator.launch import Cta, Launch

__all__ = ["YIELD", "Context", "Split", "Wait"]

_ALL: dict[int, NDArray[np.bool_]] = {}


def all_lanes(warps: int) -> NDArray[np.bool_]:
    """A shared, read-only (warps, 32) array of True."""
    found = _ALL.get(warps)
    if found is None:
        found = np.ones((warps, LANES), bool)
        found.flags.writeable = False
        _ALL[warps] = found
    return found


class Context:
    """The warps w0 to w1-1 of a CTA, executing one instruction after another together.

    Attributes
    ----------
    launch, cta
        Where.
    w0, w1, num_warps
        Which warps.
    ins
        The instruction being executed.
    mask
        bool (num_warps, 32): active lanes, the guard predicate applied. Not to be written to.
    full
        Whether all lanes are active.
    timed_out
        The instruction runs again because nothing else could, not because what it waited for happened.
    """

    __slots__ = (
        "_special",
        "cta",
        "full",
        "ins",
        "launch",
        "mask",
        "num_warps",
        "timed_out",
        "views",
        "w0",
        "w1",
    )

    def __init__(self, launch: Launch, cta: Cta, w0: int, w1: int) -> None:
        self.launch = launch
        self.cta = cta
        self.w0 = w0
        self.w1 = w1
        self.num_warps = w1 - w0
        self.views: RegisterViews = cta.registers.views(w0, w1)
        self.mask = all_lanes(self.num_warps)
        self.full = True
        self.timed_out = False
        self.ins: Instruction = _NOTHING
        self._special: dict[str, NDArray[Any]] = {}

    def begin(self, ins: Instruction, lanes: NDArray[np.bool_] | None) -> bool:
        """Take up an instruction with the fragment's `lanes`, (num_warps, 32) or None for all.

        Returns
        -------
        bool
            False if the guard leaves no lane to execute it.
        """
        self.ins = ins
        guard = ins.guard
        if guard is None:
            if lanes is None:
                self.mask = all_lanes(self.num_warps)
                self.full = True
            else:
                self.mask = lanes
                self.full = bool(lanes.all())
            return True
        register, negated = guard
        active = self.views.lists["pred"][register.slot].reshape(-1, LANES)
        active = ~active if negated else active.copy()
        if lanes is not None:
            active &= lanes
        self.mask = active
        count = np.count_nonzero(active)
        self.full = count == active.size
        return bool(count)

    # ---- operands ------------------------------------------------------------------------------------

    def values(self, operand: Operand, kind: str) -> NDArray[Any]:
        """An operand as (num_warps, 32) array of a PTX type; for registers a view, not to be written to."""
        array = self.flat(operand, kind)
        return array.reshape(self.num_warps, LANES)

    def flat(self, operand: Operand, kind: str) -> NDArray[Any]:
        """The same as a 1-D array."""
        if isinstance(operand, Register):
            return read_register(self.views, operand, kind)
        dtype = NUMPY_TYPES[kind]
        if isinstance(operand, Immediate):
            return np.full(self.views.lanes, immediate_array(operand, kind))
        if isinstance(operand, Special):
            return self.special(operand.name).astype(dtype, copy=False)
        if isinstance(operand, Symbol):
            return np.full(self.views.lanes, self.symbol(operand), np.uint64).astype(dtype)
        raise ExecutionError(f"PTX line {self.ins.line}: {operand} is no value")

    def u32(self, operand: Operand) -> NDArray[np.uint32]:
        """uint32 (num_warps, 32)."""
        return self.values(operand, "u32")

    def s32(self, operand: Operand) -> NDArray[np.int32]:
        """int32 (num_warps, 32)."""
        return self.values(operand, "s32")

    def u64(self, operand: Operand) -> NDArray[np.uint64]:
        """uint64 (num_warps, 32); 32-bit registers are zero-extended."""
        return self.values(operand, "u64")

    def pred(self, operand: Operand) -> NDArray[np.bool_]:
        """Bool (num_warps, 32); a literal counts too."""
        if isinstance(operand, Negated):
            return ~self.pred(operand.operand)
        if isinstance(operand, Immediate):
            return np.full((self.num_warps, LANES), operand.bits != 0)
        return self.values(operand, "pred")

    def immediate(self, operand: Operand) -> int:
        """The integer value of a literal operand.

        Raises
        ------
        ExecutionError
            It is no literal.
        """
        if isinstance(operand, Immediate):
            return operand.bits
        raise ExecutionError(f"PTX line {self.ins.line}: {self.ins.opcode} needs a literal operand here")

    def address(self, operand: Operand) -> NDArray[np.uint64]:
        """uint64 (num_warps, 32): the address of ``[register + offset]`` or ``[symbol + offset]``."""
        if not isinstance(operand, Address):
            return self.u64(operand)
        base = operand.base
        if isinstance(base, Register):
            wide = base.bank == "b64"
            raw = self.views.lists["u64" if wide else "u32"][base.slot].reshape(self.num_warps, LANES)
            total = raw.astype(np.uint64)
            if operand.offset:
                total += np.uint64(operand.offset & (1 << 64) - 1)
                if not wide:
                    total &= np.uint64(0xFFFFFFFF)
            return total
        value = base.bits + operand.offset if isinstance(base, Immediate) else self.symbol(base) + operand.offset
        return np.full((self.num_warps, LANES), value & (1 << 64) - 1, np.uint64)

    def symbol(self, symbol: Symbol) -> int:
        """The address of a variable: within its window for shared, local and parameter space."""
        return self.cta.symbol_address(symbol.name) + symbol.offset

    def special(self, name: str) -> NDArray[Any]:
        """A special register as a 1-D array over lanes."""
        found = self._special.get(name)
        if found is None:
            found, constant = self.cta.special_register(name, self.w0, self.w1)
            if constant:
                self._special[name] = found
        return found

    # ---- results -------------------------------------------------------------------------------------

    def set(self, operand: Operand, values: NDArray[Any], kind: str) -> None:
        """Write (num_warps, 32) values of a PTX type to a register, in active lanes only."""
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Register):
            raise ExecutionError(f"PTX line {self.ins.line}: {operand} cannot be written to")
        flat = values.reshape(-1, 2) if kind in ("f32x2", "b128") else values.reshape(-1)
        write_register(self.views, operand, kind, flat, None if self.full else self.mask.reshape(-1))

    def set_u32(self, operand: Operand, values: NDArray[Any]) -> None:
        """Write uint32 (num_warps, 32)."""
        self.set(operand, values, "u32")

    def set_u64(self, operand: Operand, values: NDArray[Any]) -> None:
        """Write uint64 (num_warps, 32)."""
        self.set(operand, values, "u64")

    def set_pred(self, operand: Operand, values: NDArray[np.bool_]) -> None:
        """Write bool (num_warps, 32)."""
        self.set(operand, values, "pred")

    def register_array(self, operand: Operand) -> NDArray[np.uint32]:
        """The storage of a 32-bit register as uint32 (num_warps, 32), writable."""
        if not isinstance(operand, Register) or operand.bank != "b32":
            raise ExecutionError(f"PTX line {self.ins.line}: {operand} is no 32-bit register")
        return self.views.lists["u32"][operand.slot].reshape(self.num_warps, LANES)

    # ---- threads -------------------------------------------------------------------------------------

    def active_lanes(self) -> Iterator[tuple[int, int]]:
        """(warp in the CTA, lane) of each active thread."""
        rows, lanes = np.nonzero(self.mask)
        yield from zip((rows + self.w0).tolist(), lanes.tolist(), strict=True)

    def uniform_u32(self, operand: Operand) -> int:
        """A value that must be equal in all active lanes.

        Raises
        ------
        ExecutionError
            It differs.
        """
        active = self.u32(operand)[self.mask]
        if (active != active[0]).any():
            raise self.error_at(
                ExecutionError,
                self.ins,
                self.w0,
                "operand.divergent",
                f"an operand of {self.ins.opcode} differs between lanes",
                "give all active threads of the warp the same value",
            )
        return int(active[0])

    # ---- findings ------------------------------------------------------------------------------------

    def finding(
        self,
        *,
        rule: str,
        message: str,
        remedy: str,
        severity: str = "error",
        conflict: Instruction | None = None,
    ) -> None:
        """Record a finding at the current instruction."""
        if conflict is not None:
            message += f" (conflicts with PTX line {conflict.line}: {conflict.opcode})"
        rows = np.flatnonzero(self.mask.any(axis=1))
        warp = self.w0 + (int(rows[0]) if rows.size else 0)
        self.finding_at(self.ins, warp, rule=rule, message=message, remedy=remedy, severity=severity)

    def finding_at(
        self, ins: Instruction, warp: int | None, *, rule: str, message: str, remedy: str, severity: str = "error"
    ) -> None:
        """Record a finding at an instruction of this CTA.

        Raises
        ------
        HazardError
            In strict mode.
        """
        finding = self.make_finding(ins, warp, rule, message, remedy, severity)
        if self.launch.report.add(finding) and self.launch.strict:
            raise HazardError(str(finding), finding)

    def error_at(
        self,
        kind: type[EmulatorError],
        ins: Instruction,
        warp: int | None,
        rule: str,
        message: str,
        remedy: str,
    ) -> EmulatorError:
        """An error, to be raised, that carries a finding; the finding is in the report as well."""
        finding = self.make_finding(ins, warp, rule, message, remedy, "error")
        self.launch.report.add(finding)
        return kind(str(finding), finding)

    def make_finding(
        self, ins: Instruction, warp: int | None, rule: str, message: str, remedy: str, severity: str
    ) -> Finding:
        """A finding placed at an instruction of this CTA."""
        return Finding(
            rule=rule,
            severity=severity,
            message=message,
            remedy=remedy,
            line=ins.line,
            opcode=ins.opcode,
            source=None if ins.location is None else f"{ins.location[0]}:{ins.location[1]}",
            cta=self.cta.ctaid,
            warp=warp,
        )


NUMPY_TYPES: dict[str, Any] = {
    "pred": np.bool_,
    **{f"{letter}{bits}": np.dtype(f"uint{bits}") for letter in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    "f16": np.dtype(np.uint16),
    "bf16": np.dtype(np.uint16),
    "f16x2": np.dtype(np.uint32),
    "bf16x2": np.dtype(np.uint32),
    "tf32": np.dtype(np.float32),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
"""NumPy type of each PTX type; 16-bit floats are handled as their bits."""

BANK_BYTES = {"pred": 1, "b8": 1, "b16": 2, "b32": 4, "b64": 8, "b128": 16}
_UNSIGNED = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}


def read_register(views: RegisterViews, register: Register, kind: str) -> NDArray[Any]:
    """A register as a 1-D array of a PTX type; wider registers give their low bits, narrower ones are extended."""
    if kind == "pred" or register.bank == "pred":
        return views.lists["pred"][register.slot]
    if kind in ("f32x2", "b128"):
        return views.lists[kind][register.slot]
    dtype = NUMPY_TYPES[kind]
    have = BANK_BYTES[register.bank]
    raw = views.lists[_UNSIGNED[have]][register.slot]
    if have == dtype.itemsize:
        return raw.view(dtype)
    unsigned = np.dtype(f"uint{dtype.itemsize * 8}")
    return raw.astype(unsigned).view(dtype)


def write_register(
    views: RegisterViews, register: Register, kind: str, values: NDArray[Any], mask: NDArray[np.bool_] | None
) -> None:
    """Write a 1-D array of a PTX type; wider registers get it extended by its sign or with zeros."""
    if kind == "pred" or register.bank == "pred":
        target = views.lists["pred"][register.slot]
    elif kind in ("f32x2", "b128"):
        target = views.lists[kind][register.slot]
        if mask is not None:
            mask = mask[:, None]
    else:
        dtype = NUMPY_TYPES[kind]
        values = values.astype(dtype, copy=False)
        have = BANK_BYTES[register.bank]
        target = views.lists[_UNSIGNED[have]][register.slot]
        if have == dtype.itemsize:
            values = values.view(target.dtype)
        elif dtype.kind == "i":
            values = values.astype(np.dtype(f"int{have * 8}")).view(target.dtype)
        else:
            values = values.view(np.dtype(f"uint{dtype.itemsize * 8}")).astype(target.dtype)
    if mask is None:
        target[...] = values
    else:
        np.copyto(target, values, where=mask)


def immediate_array(operand: Immediate, kind: str) -> NDArray[Any]:
    """A literal as a 0-d array of a PTX type."""
    if kind == "pred":
        return np.array(operand.bits != 0)
    if kind == "f32x2":
        return np.array([operand.bits & 0xFFFFFFFF, operand.bits >> 32 & 0xFFFFFFFF], np.uint32).view(np.float32)
    dtype = NUMPY_TYPES[kind]
    bits = operand.bits
    if operand.kind == "f64" and dtype.itemsize == 4:
        return np.array(np.array(bits, np.uint64).view(np.float64), np.float32).view(dtype)
    if operand.kind == "f32" and kind == "f64":
        return np.array(np.array(bits, np.uint32).view(np.float32), np.float64)
    if operand.kind == "int" and kind in ("f32", "f64"):
        return np.array(float(bits), dtype)
    unsigned = np.dtype(f"uint{dtype.itemsize * 8}")
    return np.array(bits & (1 << dtype.itemsize * 8) - 1, unsigned).view(dtype)


_NOTHING = Instruction("", ("",), (), None, 0, None, -1)
