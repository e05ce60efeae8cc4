"""A kernel's instructions to *steps*: generated Python functions, handlers, branches.

Straight runs of instructions without synchronisation become one generated function each, of NumPy calls on views of
the register file; it exists for all lanes active, and for some. Instructions that synchronise, wait or start
asynchronous work are steps of their own: the scheduler switches only between steps.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from umma_jit.emulator.context import (
    BANK_BYTES,
    NUMPY_TYPES,
    immediate_array,
    read_register,
    write_register,
)
from umma_jit.emulator.errors import UnsupportedInstructionError
from umma_jit.emulator.flow import is_control, leaders, post_dominators, targets
from umma_jit.emulator.isa import handlers
from umma_jit.emulator.isa.data_movement import is_plain_move
from umma_jit.emulator.isa.registry import Handler, Operation, Unsupported
from umma_jit.emulator.nodes import (
    Immediate,
    Instruction,
    KernelCode,
    Negated,
    Operand,
    PredicatePair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BranchStep", "CodeStep", "HandlerStep", "Program", "Step", "translate"]


@dataclass(eq=False)
class CodeStep:
    """Generated code for a straight run.

    Attributes
    ----------
    every, some
        The function for all lanes active and the one for a mask, each of (context, mask (n,) or None, mask (W, 32)).
    counts
        Instructions by opcode.
    first
        The run's first instruction, for reports.
    """

    every: Callable[..., None]
    some: Callable[..., None]
    counts: Counter[str]
    first: Instruction


@dataclass(eq=False)
class HandlerStep:
    """One instruction that acts on the machine.

    Attributes
    ----------
    acts
        Others may find something new after it: it is not just a fence or a hint.
    """

    handler: Handler
    ins: Instruction
    acts: bool


@dataclass(eq=False)
class BranchStep:
    """``bra``, ``brx.idx``, ``ret``, ``exit`` or ``trap``.

    Attributes
    ----------
    targets
        Steps it may go to; the number of steps stands for the end.
    meeting
        Step at which threads that part here meet again.
    simple
        Nothing between here and the meeting can suspend or go back.
    """

    ins: Instruction
    kind: str
    targets: list[int]
    meeting: int
    simple: bool


Step = CodeStep | HandlerStep | BranchStep
_PASSIVE = {"fence", "membar", "nanosleep", "call"}


@dataclass(eq=False)
class Program:
    """A translated kernel."""

    code: KernelCode
    steps: list[Step] = field(default_factory=list)
    step_of: dict[int, int] = field(default_factory=dict)  # instruction index -> step, for those that begin one

    def instruction(self, step: int) -> Instruction | None:
        """The (first) instruction of a step, None past the end."""
        if step >= len(self.steps):
            return None
        found = self.steps[step]
        return found.first if isinstance(found, CodeStep) else found.ins


def translate(code: KernelCode) -> Program:
    """Translate a kernel.

    Raises
    ------
    UnsupportedInstructionError
        Names line and opcode of the first instruction outside the supported subset.
    """
    program = Program(code)
    starts = leaders(code)
    run: list[tuple[Instruction, Operation | Handler]] = []
    branches: list[BranchStep] = []

    def flush() -> None:
        if run:
            program.step_of[run[0][0].index] = len(program.steps)
            program.steps.append(_generate(code.name, run))
            run.clear()

    for index, ins in enumerate(code.instructions):
        if index in starts:
            flush()
        if is_control(ins):
            flush()
            program.step_of[index] = len(program.steps)
            branch = BranchStep(ins, ins.parts[0], [], 0, simple=False)
            program.steps.append(branch)
            branches.append(branch)
            continue
        action = _resolve(ins)
        if isinstance(action, Operation) or action.inline:
            run.append((ins, action))
        else:
            flush()
            program.step_of[index] = len(program.steps)
            program.steps.append(HandlerStep(action, ins, ins.parts[0] not in _PASSIVE))
    flush()
    end = len(code.instructions)
    program.step_of[end] = len(program.steps)
    meetings = post_dominators(code)
    for branch in branches:
        if branch.kind in ("bra", "brx"):
            branch.targets = [program.step_of[index] for index in targets(code, branch.ins)]
        branch.meeting = program.step_of[meetings.get(branch.ins.index, end)]
    for branch in branches:
        branch.simple = _is_simple(program, branch)
    return program


def _is_simple(program: Program, branch: BranchStep) -> bool:
    """Whether the steps between a forward branch and its meeting are straight and cannot suspend."""
    here = program.step_of[branch.ins.index]
    if branch.kind != "bra" or not here < branch.targets[0] <= branch.meeting or branch.meeting - here > 64:
        return False
    for step in program.steps[here + 1 : branch.meeting]:
        if isinstance(step, HandlerStep) and step.handler.blocking:
            return False
        if isinstance(step, BranchStep):
            forward = step.kind == "bra" and step.ins.guard is None and here < step.targets[0] <= branch.meeting
            if not forward:
                return False
    return True


def _resolve(ins: Instruction) -> Operation | Handler:
    """What executes an instruction; refuses what nothing does."""
    try:
        resolver = handlers.find_operation(ins.parts)
        if resolver is not None:
            return resolver(ins)
        found = handlers.find_handler(ins.parts)
        if found is None:
            family = [name for name in handlers.supported_opcodes() if name.split(".")[0] == ins.parts[0]]
            known = ", ".join(family) if family else ", ".join(dict.fromkeys(
                name.split(".")[0] for name in handlers.supported_opcodes()))  # fmt: skip
            raise Unsupported(known)
        if found.check is not None:
            found.check(ins)
    except Unsupported as reason:
        raise UnsupportedInstructionError(ins.line, ins.opcode, str(reason)) from None
    except (IndexError, KeyError) as error:
        raise UnsupportedInstructionError(
            ins.line, ins.opcode, f"complete operands and modifiers ({type(error).__name__}: {error})"
        ) from None
    return found


# ---- code generation -------------------------------------------------------------------------------


class _Writer:
    """Collects the lines of one function and the objects that they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"copyto": np.copyto, "read": read_register, "write": write_register}
        self.lists: set[str] = set()
        self._known: dict[int, str] = {}

    def name(self, value: Any, prefix: str) -> str:
        """A name under which the generated code reaches an object."""
        key = id(value)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = f"{prefix}{len(self.names)}"
            self.names[found] = value
        return found

    def view(self, kind: str, slot: int) -> str:
        """The expression of a register's view."""
        self.lists.add(kind)
        return f"{kind}[{slot}]"


# The list of views that holds a PTX type as it is computed on.
_LIST = {
    "b8": "u8", "b16": "u16", "b32": "u32", "b64": "u64", "f16": "u16", "bf16": "u16", "f16x2": "u32",
    "bf16x2": "u32", "tf32": "f32",
}  # fmt: skip


def _list_of(kind: str) -> str:
    return _LIST.get(kind, kind)


def _fits(register: Register, kind: str) -> bool:
    if kind == "pred" or register.bank == "pred":
        return register.bank == "pred"
    if kind in ("f32x2", "b128"):
        return True
    result: bool = BANK_BYTES[register.bank] == NUMPY_TYPES[kind].itemsize
    return result


def _source(writer: _Writer, operand: Operand, kind: str) -> str:
    if isinstance(operand, Register):
        if _fits(operand, kind):
            return writer.view(_list_of(kind), operand.slot)
        return f"read(V, {writer.name(operand, 'R')}, {kind!r})"
    if isinstance(operand, Negated):
        return f"~{_source(writer, operand.operand, kind)}"
    if isinstance(operand, Immediate):
        constant = immediate_array(operand, kind)
        constant.flags.writeable = False
        writer.names[name := f"K{len(writer.names)}"] = constant
        return name
    if isinstance(operand, (Special, Symbol)):
        return f"C.flat({writer.name(operand, 'S')}, {kind!r})"
    raise Unsupported("registers, literals, special registers and symbols as operands")


def _destinations(ins: Instruction, count: int) -> tuple[list[Operand], list[Operand]]:
    """The operands that are written, and those that are read."""
    first = ins.operands[0]
    if count == 2:
        if not isinstance(first, PredicatePair):
            raise Unsupported("two destinations a|b")
        return [first.first, first.second], list(ins.operands[1:])
    return [first], list(ins.operands[1:])


def _emit(writer: _Writer, ins: Instruction, action: Operation | Handler, masked: bool) -> None:
    where = "M" if masked else ""
    if ins.guard is not None:
        register, negated = ins.guard
        guard = f"{'~' if negated else ''}{writer.view('pred', register.slot)}"
        if isinstance(action, Operation):
            writer.lines.append(f"G = {guard}" + (" & M" if masked else ""))
            where = "G"
    if isinstance(action, Handler):
        if _emit_move(writer, ins, masked):
            return
        call = f"{writer.name(action.run, 'H')}(C, {writer.name(ins, 'I')})"
        writer.lines.append(f"if C.begin({writer.name(ins, 'I')}, {'L' if masked else 'None'}): {call}")
        return
    _emit_operation(writer, ins, action, where)


def _emit_operation(writer: _Writer, ins: Instruction, action: Operation, where: str) -> None:
    written, read = _destinations(ins, len(action.destinations))
    if len(read) < len(action.sources):
        raise Unsupported(f"{len(action.sources)} source operands")
    arguments = [_source(writer, operand, kind) for operand, kind in zip(read, action.sources, strict=False)]
    function = writer.name(action.function, "F")
    first, kind = written[0], action.destinations[0]
    direct = len(written) == 1 and isinstance(first, Register) and _fits(first, kind)
    if direct and action.ufunc and isinstance(first, Register):
        target = writer.view(_list_of(kind), first.slot)
        suffix = f", where={where}" if where else ""
        writer.lines.append(f"{function}({', '.join(arguments)}, out={target}{suffix})")
        return
    value = f"{function}({', '.join(arguments)})"
    if direct and isinstance(first, Register):
        writer.lines.append(_assignment(writer, first, kind, value, where))
        return
    if len(written) == 1:
        if isinstance(first, Sink):
            return
        if not isinstance(first, Register):
            raise Unsupported("a register as destination")
        writer.lines.append(f"write(V, {writer.name(first, 'R')}, {kind!r}, {value}, {where or None})")
        return
    writer.lines.append(f"T = {value}")
    for number, (operand, each) in enumerate(zip(written, action.destinations, strict=True)):
        if isinstance(operand, Register):
            writer.lines.append(_assignment(writer, operand, each, f"T[{number}]", where))
        elif not isinstance(operand, Sink):
            raise Unsupported("registers as destinations")


def _assignment(writer: _Writer, register: Register, kind: str, value: str, where: str) -> str:
    target = writer.view(_list_of(kind), register.slot)
    if not where:
        return f"{target}[...] = {value}"
    mask = f"{where}[:, None]" if kind in ("f32x2", "b128") else where
    return f"copyto({target}, {value}, where={mask})"


def _emit_move(writer: _Writer, ins: Instruction, masked: bool) -> bool:
    """Write out the moves that make up a large share of real kernels; False for the rest."""
    if ins.parts[0] != "mov" or ins.guard is not None:
        return False
    where = "M" if masked else ""
    kind = ins.parts[1]
    target, source = ins.operands
    if kind in ("b64",) and isinstance(target, Vector) and isinstance(source, Register):
        if not _all_registers(target, "b32") or len(target.elements) != 2:
            return False
        pair = writer.view("f32x2", source.slot)
        for number, element in enumerate(target.elements):
            if isinstance(element, Register):
                writer.lines.append(_assignment(writer, element, "f32", f"{pair}[:, {number}]", where))
        return True
    if kind in ("b64",) and isinstance(source, Vector) and isinstance(target, Register):
        if not _all_registers(source, "b32") or len(source.elements) != 2 or target.bank != "b64":
            return False
        pair = writer.view("f32x2", target.slot)
        if not all(isinstance(element, Register) for element in source.elements):
            return False
        for number, element in enumerate(source.elements):
            assert isinstance(element, Register)
            value = writer.view("f32", element.slot)
            line = f"copyto({pair}[:, {number}], {value}, where=M)" if masked else f"{pair}[:, {number}] = {value}"
            writer.lines.append(line)
        return True
    if not is_plain_move(ins) or not isinstance(target, Register) or kind == "b128":
        return False
    value = _source(writer, source, kind)
    if _fits(target, kind):
        writer.lines.append(_assignment(writer, target, kind, value, where))
    else:
        writer.lines.append(f"write(V, {writer.name(target, 'R')}, {kind!r}, {value}, {where or None})")
    return True


def _all_registers(vector: Vector, bank: str) -> bool:
    return all(isinstance(e, Sink) or (isinstance(e, Register) and e.bank == bank) for e in vector.elements)


def _generate(kernel: str, run: list[tuple[Instruction, Operation | Handler]]) -> CodeStep:
    functions = []
    for masked in (False, True):
        writer = _Writer()
        for ins, action in run:
            try:
                _emit(writer, ins, action, masked)
            except Unsupported as reason:  # noqa: PERF203 - once per kernel
                raise UnsupportedInstructionError(ins.line, ins.opcode, str(reason)) from None
            except (IndexError, KeyError, TypeError, ValueError) as error:
                raise UnsupportedInstructionError(
                    ins.line, ins.opcode, f"operands that fit the opcode ({type(error).__name__}: {error})"
                ) from None
        prologue = [f"{name} = V.lists[{name!r}]" for name in sorted(writer.lists)]
        body = "\n    ".join(["V = C.views", *prologue, *writer.lines])
        first = run[0][0].line
        source = f"def segment(C, M, L):\n    {body}\n"
        exec(compile(source, f"<{kernel}, PTX lines {first} to {run[-1][0].line}>", "exec"), writer.names)  # noqa: S102
        functions.append(writer.names["segment"])
    return CodeStep(functions[0], functions[1], Counter(ins.opcode for ins, _ in run), run[0][0])
