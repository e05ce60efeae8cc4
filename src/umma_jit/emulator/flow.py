"""Control flow of a kernel: where branches lead, and where diverged threads meet again."""

from __future__ import annotations

from umma_jit.emulator.errors import PtxSyntaxError, UnsupportedInstructionError
from umma_jit.emulator.nodes import Instruction, KernelCode, Label

__all__ = ["is_control", "leaders", "post_dominators", "successors"]

_CONTROL = {"bra", "brx", "ret", "exit", "trap"}


def is_control(ins: Instruction) -> bool:
    """Whether an instruction can go elsewhere than to the next one."""
    return ins.parts[0] in _CONTROL


def targets(code: KernelCode, ins: Instruction) -> list[int]:
    """Indices of the instructions that a ``bra`` or ``brx.idx`` may go to."""
    name = ins.operands[-1]
    if not isinstance(name, Label):
        raise PtxSyntaxError(ins.line, f"{ins.opcode} needs a label")
    if ins.parts[0] == "bra":
        return [code.labels[name.name]]
    labels = code.branch_targets.get(name.name)
    if labels is None:
        raise UnsupportedInstructionError(ins.line, ins.opcode, "brx.idx with a .branchtargets list")
    return [code.labels[label] for label in labels]


def successors(code: KernelCode, index: int) -> list[int]:
    """Instructions that may follow one; ``len(instructions)`` stands for the end of the kernel."""
    ins = code.instructions[index]
    end = len(code.instructions)
    kind = ins.parts[0]
    following: list[int] = []
    if kind in ("ret", "exit", "trap"):
        following = [end]
    elif kind in ("bra", "brx"):
        following = targets(code, ins)
    if ins.guard is not None or not following:
        following = [*following, index + 1]
    return list(dict.fromkeys(following))


def leaders(code: KernelCode) -> set[int]:
    """Instructions that begin a basic block."""
    starts = {0, *code.labels.values()}
    for index, ins in enumerate(code.instructions):
        if is_control(ins):
            starts.add(index + 1)
    return starts


def post_dominators(code: KernelCode) -> dict[int, int]:
    """Immediate post-dominator of every basic block that branches, by the index of its last instruction.

    Iterative data flow over basic blocks in reverse post-order (Cooper, Harvey and Kennedy, 2001), on the reversed
    graph. A block from which no path leads to the end (an endless loop) gets the end.
    """
    end = len(code.instructions)
    starts = sorted(start for start in leaders(code) if start < end)
    block_of = {start: number for number, start in enumerate(starts)}
    exit_block = len(starts)
    block_of[end] = exit_block
    following: list[list[int]] = []
    lasts: list[int] = []
    for number, _ in enumerate(starts):
        last = (starts[number + 1] if number + 1 < len(starts) else end) - 1
        lasts.append(last)
        following.append([block_of[index] for index in successors(code, last)])
    following.append([])
    preceding: list[list[int]] = [[] for _ in following]
    for number, nexts in enumerate(following):
        for following_number in nexts:
            preceding[following_number].append(number)

    order = _post_order(exit_block, preceding)
    position = {number: place for place, number in enumerate(order)}
    immediate: dict[int, int] = {exit_block: exit_block}
    changed = True
    while changed:
        changed = False
        for number in reversed(order):
            if number == exit_block:
                continue
            known = [candidate for candidate in following[number] if candidate in immediate]
            if not known:
                continue
            meet = known[0]
            for other in known[1:]:
                meet = _meet(meet, other, immediate, position)
            if immediate.get(number) != meet:
                immediate[number] = meet
                changed = True
    return {
        lasts[number]: (starts[meet] if meet != exit_block else end)
        for number in range(exit_block)
        for meet in [immediate.get(number, exit_block)]
    }


def _post_order(root: int, edges: list[list[int]]) -> list[int]:
    seen = {root}
    order: list[int] = []
    stack = [(root, iter(edges[root]))]
    while stack:
        node, children = stack[-1]
        for child in children:
            if child not in seen:
                seen.add(child)
                stack.append((child, iter(edges[child])))
                break
        else:
            order.append(node)
            stack.pop()
    return order


def _meet(a: int, b: int, immediate: dict[int, int], position: dict[int, int]) -> int:
    while a != b:
        while position[a] < position[b]:
            a = immediate[a]
        while position[b] < position[a]:
            b = immediate[b]
    return a
