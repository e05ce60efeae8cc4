"""What the emulator raises.

::

    EmulatorError
    ├── PtxSyntaxError                  the text is no PTX this parser knows
    ├── UnsupportedInstructionError     PTX, but outside the emulated subset; refused at load
    ├── LaunchError                     grid, block, shared memory or parameters don't fit the kernel
    ├── MemoryFault                     global, shared, local or parameter memory: bounds, alignment
    ├── TensorMemoryFault               tensor memory: allocation, lanes, columns
    ├── DescriptorError                 a matrix or instruction descriptor, or a tensor map
    ├── MbarrierError                   an mbarrier used against its rules
    ├── ExecutionError                  anything else on which hardware would trap or hang undefined
    ├── DeadlockError                   nothing can go on
    └── HazardError                     strict mode: a finding that alone would not stop the launch

Errors of a running kernel carry a :class:`~umma_jit.emulator.report.Finding`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umma_jit.emulator.report import Finding

__all__ = [
    "DeadlockError",
    "DescriptorError",
    "EmulatorError",
    "ExecutionError",
    "HazardError",
    "LaunchError",
    "MbarrierError",
    "MemoryFault",
    "PtxSyntaxError",
    "TensorMemoryFault",
    "UnsupportedInstructionError",
]


class EmulatorError(RuntimeError):
    """Root of all errors here.

    Attributes
    ----------
    finding
        What happened where, None outside a launch.
    """

    def __init__(self, message: str, finding: Finding | None = None) -> None:
        super().__init__(message)
        self.finding = finding


class PtxSyntaxError(EmulatorError, ValueError):
    """The text cannot be parsed.

    Attributes
    ----------
    line
        Line of the PTX text, from 1.
    """

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"PTX line {line}: {message}")
        self.line = line


class UnsupportedInstructionError(EmulatorError, NotImplementedError):
    """An opcode, modifier or operand form outside the emulated subset.

    Attributes
    ----------
    line
        Line of the PTX text, from 1.
    opcode
        The instruction as written, with its modifiers.
    supported
        What is supported in its place.
    """

    def __init__(self, line: int, opcode: str, supported: str) -> None:
        super().__init__(f"PTX line {line}: {opcode} is not supported; supported: {supported}")
        self.line = line
        self.opcode = opcode
        self.supported = supported


class LaunchError(EmulatorError, ValueError):
    """The launch does not fit the kernel or the machine."""


class MemoryFault(EmulatorError):  # noqa: N818 - what it is called on hardware
    """An access outside an allocation, misaligned, or in the wrong space."""


class TensorMemoryFault(EmulatorError):  # noqa: N818 - as above
    """A tensor-memory access or allocation on which hardware traps."""


class DescriptorError(EmulatorError):
    """A matrix descriptor, instruction descriptor or tensor map that is not legal where it is used."""


class MbarrierError(EmulatorError):
    """An mbarrier used against its rules."""


class ExecutionError(EmulatorError):
    """A trap, a divergent warp where it must be converged, or another undefined use."""


class DeadlockError(EmulatorError):
    """No thread can go on and nothing is in flight; the message lists every warp and what it waits for."""


class HazardError(EmulatorError):
    """Strict mode: a hazard was found."""
