"""Which function executes which instruction.

Two kinds of function register here, by the longest dotted prefix of an opcode:

- *operations* (`operation`) compute values from values: the translator turns runs of them into generated code;
- *handlers* (`handler`) act on the machine: memory, barriers, asynchronous work. They get a
  `umma_jit.emulator.context.Context` and may return a `Wait`.

What is registered under no prefix of an opcode is refused at load, with its line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from umma_jit.emulator.context import Context
    from umma_jit.emulator.nodes import Instruction

__all__ = [
    "YIELD",
    "Handler",
    "Operation",
    "Split",
    "Unsupported",
    "Wait",
    "find_handler",
    "find_operation",
    "handler",
    "operation",
    "supported_opcodes",
]


class Unsupported(Exception):  # noqa: N818 - turned into an error by whoever knows the line
    """Raised by a check: what is supported in place of what was found."""


@dataclass(frozen=True, eq=False)
class Wait:
    """The instruction cannot complete now; it runs again when `ready` holds.

    Attributes
    ----------
    ready
        Whether it is worth running again.
    description
        What is waited for, for a deadlock report; a function if the text is worth making only then.
    """

    ready: Callable[[], bool]
    description: str | Callable[[], str]

    def describe(self) -> str:
        """The description's text."""
        return self.description if isinstance(self.description, str) else self.description()


@dataclass(frozen=True, eq=False)
class Split:
    """The fragment's warps cannot go on together.

    Attributes
    ----------
    groups
        (W,) array; runs of warps with equal values stay together, and each runs the instruction again.
    """

    groups: NDArray[Any]


class _Yield:
    """Done, but others should run now: the thread is polling."""


YIELD = _Yield()

Result = Wait | Split | _Yield | None


@dataclass(frozen=True, eq=False)
class Operation:
    """A pure instruction, resolved.

    Attributes
    ----------
    function
        Takes one array per source, returns the value (or a tuple of them) for the destinations. Arrays are 1-D over
        lanes, of the sources' types; immediates are 0-d.
    sources, destinations
        PTX types without their dots.
    ufunc
        `function` is a NumPy ufunc of the destination's type, so that it can write in place.
    """

    function: Callable[..., Any]
    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    ufunc: bool = False


@dataclass(frozen=True, eq=False)
class Handler:
    """A function that executes an instruction on the machine.

    Attributes
    ----------
    run
        Executes.
    check
        Called at load; raises `Unsupported`.
    blocking
        May suspend. Branches around code that cannot suspend are executed without splitting fragments.
    inline
        Runs in the middle of generated code: others need not get a turn before or after it.
    """

    run: Callable[[Context, Instruction], Result]
    check: Callable[[Instruction], None] | None
    blocking: bool
    inline: bool


T = TypeVar("T")

_HANDLERS: dict[str, Handler] = {}
_OPERATIONS: dict[str, Callable[[Instruction], Operation]] = {}


def handler(
    *prefixes: str,
    check: Callable[[Instruction], None] | None = None,
    blocking: bool = True,
    inline: bool = False,
) -> Callable[[Callable[[Context, Instruction], Result]], Callable[[Context, Instruction], Result]]:
    """Register a function as the handler of all opcodes that begin with one of `prefixes`."""

    def register(function: Callable[[Context, Instruction], Result]) -> Callable[[Context, Instruction], Result]:
        for prefix in prefixes:
            _HANDLERS[prefix] = Handler(function, check, blocking and not inline, inline)
        return function

    return register


def operation(*prefixes: str) -> Callable[[Callable[[Instruction], Operation]], Callable[[Instruction], Operation]]:
    """Register a function that resolves an instruction to an `Operation`, or raises `Unsupported`."""

    def register(function: Callable[[Instruction], Operation]) -> Callable[[Instruction], Operation]:
        for prefix in prefixes:
            _OPERATIONS[prefix] = function
        return function

    return register


def find_handler(parts: tuple[str, ...]) -> Handler | None:
    """The handler of the longest registered prefix."""
    return _longest(_HANDLERS, parts)[1]


def find_operation(parts: tuple[str, ...]) -> Callable[[Instruction], Operation] | None:
    """The resolver of the longest registered prefix, None if a handler has a longer one."""
    length, found = _longest(_OPERATIONS, parts)
    return found if length >= _longest(_HANDLERS, parts)[0] else None


def supported_opcodes() -> list[str]:
    """All registered prefixes, sorted."""
    return sorted({*_HANDLERS, *_OPERATIONS, "bra", "brx.idx", "ret", "exit", "trap"})


def _longest(table: Mapping[str, T], parts: tuple[str, ...]) -> tuple[int, T | None]:
    for length in range(len(parts), 0, -1):
        found = table.get(".".join(parts[:length]))
        if found is not None:
            return length, found
    return 0, None
