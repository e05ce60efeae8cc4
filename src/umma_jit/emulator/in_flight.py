"""Per-thread and per-warp bookkeeping of asynchronous work: groups, fragments, who issued what.

None of it is visible to a kernel; it is what waits and end-of-block checks look at.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from umma_jit.emulator.nodes import Instruction, KernelCode, Negated, Operand, Register, Vector

if TYPE_CHECKING:
    from collections.abc import Hashable

    from umma_jit.emulator.async_engine import AsyncEngine, AsyncOperation
    from umma_jit.emulator.clocks import Flight

__all__ = ["Groups", "InFlight", "first_use_before_wait"]


@dataclass
class Groups:
    """Asynchronous operations of one thread (or warp) that a commit and a wait tell apart.

    Attributes
    ----------
    open
        Operations not committed yet: (source read, whole operation, flight).
    committed
        Committed groups, oldest first.
    reads_waited
        Of `committed`, how many from the oldest on had their source reads waited for.
    """

    open: list[tuple[AsyncOperation, AsyncOperation, Flight]] = field(default_factory=list)
    committed: deque[list[tuple[AsyncOperation, AsyncOperation, Flight]]] = field(default_factory=deque)
    reads_waited: int = 0

    def commit(self) -> None:
        """Close the open group."""
        self.committed.append(self.open)
        self.open = []

    def waited(self, newest: int, *, reads_only: bool) -> bool:
        """True if all but the `newest` groups are done, or have at least read their sources."""
        return all(
            read.done if reads_only else whole.done
            for index in range(max(0, len(self.committed) - newest))
            for read, whole, _ in self.committed[index]
        )

    def unread(self) -> list[tuple[AsyncOperation, AsyncOperation, Flight]]:
        """Operations whose source reads no wait covers."""
        groups = list(self.committed)[self.reads_waited :]
        return [entry for group in groups for entry in group] + self.open


class InFlight:
    """All bookkeeping of one launch; keys name a CTA object and a thread in it."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, Groups] = {}
        self._fragments: dict[Hashable, list[AsyncOperation]] = {}
        self._issued: dict[Hashable, dict[Hashable, int]] = {}
        self.fenced: set[Hashable] = set()
        """Warps that executed wgmma.fence."""
        self._waits: dict[tuple[int, int], Instruction | None] = {}

    def groups(self, key: Hashable) -> Groups:
        """The groups of a thread, made at first use."""
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = Groups()
        return found

    def groups_of_cta(self, cta: int) -> list[tuple[Hashable, Groups]]:
        """All (key, groups) of the CTA whose ``id()`` is `cta`."""
        return [(key, groups) for key, groups in self._groups.items() if isinstance(key, tuple) and key[0] == cta]

    def forget_cta(self, cta: int) -> None:
        """Drop what belongs to the CTA whose ``id()`` is `cta`; the id may be used again."""
        for table in (self._groups, self._fragments):
            for key in [key for key in table if isinstance(key, tuple) and key[0] == cta]:
                del table[key]
        self.fenced = {key for key in self.fenced if not (isinstance(key, tuple) and key[0] == cta)}

    def add_fragment(self, key: Hashable, operation: AsyncOperation) -> None:
        """Note a tensor-memory load or store of a warp that a wait has to finish."""
        self._fragments.setdefault(key, []).append(operation)

    def finish_fragments(self, key: Hashable, engine: AsyncEngine) -> None:
        """Complete what `add_fragment` noted, in order."""
        for operation in self._fragments.pop(key, ()):
            engine.complete_operation(operation)

    def note_issue(self, queue: Hashable, thread: Hashable) -> None:
        """A thread gave the tensor core of `queue` something that a commit tracks."""
        issued = self._issued.setdefault(queue, {})
        issued[thread] = issued.get(thread, 0) + 1

    def note_commit(self, queue: Hashable, thread: Hashable) -> bool:
        """A thread commits; False if only other threads have work on `queue` that is not committed."""
        issued = self._issued.setdefault(queue, {})
        alone = thread in issued or not issued
        issued.pop(thread, None)
        return alone

    def use_before_wait(self, code: KernelCode, load: Instruction) -> Instruction | None:
        """Cached `first_use_before_wait`."""
        key = (id(code), load.index)
        if key not in self._waits:
            self._waits[key] = first_use_before_wait(code, load)
        return self._waits[key]


def first_use_before_wait(code: KernelCode, load: Instruction) -> Instruction | None:
    """An instruction that touches the registers of a ``tcgen05.ld`` on a path with no ``tcgen05.wait::ld`` before it.

    Parameters
    ----------
    code
        The kernel.
    load
        The ``tcgen05.ld``.

    Returns
    -------
    Instruction or None
        None if every use follows a wait.
    """
    registers = {(r.bank, r.slot) for r in _registers(load.operands[0])}
    instructions = code.instructions
    seen: set[int] = set()
    stack = [load.index + 1]
    while stack:
        index = stack.pop()
        while index < len(instructions) and index not in seen:
            seen.add(index)
            ins = instructions[index]
            if ins.opcode.startswith("tcgen05.wait::ld") and ins.guard is None:
                break
            if ins.guard is not None and (ins.guard[0].bank, ins.guard[0].slot) in registers:
                return ins
            for operand in ins.operands:
                if any((r.bank, r.slot) in registers for r in _registers(operand)):
                    return ins
            head = ins.parts[0]
            if head in ("bra", "brx"):
                stack.extend(_targets(code, ins))
            if head in ("ret", "exit", "bra", "brx", "trap") and ins.guard is None:
                break
            index += 1
    return None


def _targets(code: KernelCode, ins: Instruction) -> list[int]:
    found: list[int] = []
    for operand in ins.operands:
        name = getattr(operand, "name", "")
        names = (name, *code.branch_targets.get(name, ()))
        found.extend(code.labels[label] for label in names if label in code.labels)
    return found


def _registers(operand: Operand) -> list[Register]:
    """Registers mentioned in an operand."""
    if isinstance(operand, Register):
        return [operand]
    if isinstance(operand, Negated):
        return [operand.operand]
    if isinstance(operand, Vector):
        return [r for element in operand.elements for r in _registers(element)]
    found: list[Register] = []
    for name in ("base", "map", "first", "second"):
        part = getattr(operand, name, None)
        if part is not None:
            found.extend(_registers(part))
    for part in getattr(operand, "coordinates", ()):
        found.extend(_registers(part))
    return found
