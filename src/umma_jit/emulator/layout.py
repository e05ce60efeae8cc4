"""Where a kernel's variables and parameters lie in their state spaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from umma_jit.emulator.shared_memory import BASE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from umma_jit.emulator.memory import DeviceMemory
    from umma_jit.emulator.nodes import KernelCode, Variable

__all__ = ["VariableLayout", "static_shared_bytes"]


class VariableLayout:
    """Addresses by name.

    Static shared memory comes first, dynamic shared memory after it: variables of no stated size all begin there.

    Parameters
    ----------
    code
        The kernel.
    dynamic_bytes
        Dynamic shared memory of the launch.
    memory
        Global variables are allocated and initialised in it.

    Attributes
    ----------
    shared_bytes
        Shared memory in all.
    local_bytes
        Local memory of each thread.
    constant_bytes
        Contents of constant memory.
    """

    def __init__(self, code: KernelCode, dynamic_bytes: int, memory: DeviceMemory) -> None:
        self._addresses = {parameter.name: parameter.offset for parameter in code.parameters}
        self._shared: set[str] = set()
        shared, dynamic = _place_shared(code)
        self._addresses.update(shared)
        self._shared.update(shared)
        self.shared_bytes = dynamic - BASE + dynamic_bytes
        # What a call passes lies in parameter variables of the body: memory of the thread's own.
        self._call_parameters = {variable.name for variable in _of(code, "param")}
        self.local_bytes = self._place(("local", "param"), code)
        constants = self._place(("const",), code)
        self.constant_bytes: NDArray[np.uint8] = np.zeros(constants, np.uint8)
        for variable in _of(code, "const"):
            start = self._addresses[variable.name]
            self.constant_bytes[start : start + len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
        for variable in _of(code, "global"):
            initial = np.frombuffer(variable.initial.ljust(variable.size, b"\0"), np.uint8)
            self._addresses[variable.name] = memory.upload(initial)

    def address(self, name: str) -> int:
        """The address of a name in its state space.

        Raises
        ------
        KeyError
            There is no such variable or parameter.
        """
        return self._addresses[name]

    def is_shared(self, name: str) -> bool:
        """Whether the name is a variable in shared memory."""
        return name in self._shared

    def is_call_parameter(self, name: str) -> bool:
        """Whether the name is a parameter variable that the body declares for a call."""
        return name in self._call_parameters

    def _place(self, spaces: tuple[str, ...], code: KernelCode) -> int:
        """Lay out the variables of some spaces from 0 on; returns their size."""
        end = 0
        for variable in (each for space in spaces for each in _of(code, space)):
            end = _align(end, variable.alignment)
            self._addresses[variable.name] = end
            end += variable.size
        return end


def static_shared_bytes(code: KernelCode) -> int:
    """Shared memory that the kernel declares with a size, padding included."""
    return _place_shared(code)[1] - BASE


def _place_shared(code: KernelCode) -> tuple[dict[str, int], int]:
    """Addresses in shared memory, and where dynamic shared memory begins."""
    end = BASE
    found: dict[str, int] = {}
    for variable in _of(code, "shared"):
        if variable.size:
            end = _align(end, variable.alignment)
            found[variable.name] = end
            end += variable.size
    open_ended = [variable for variable in _of(code, "shared") if not variable.size]
    for variable in open_ended:
        end = _align(end, variable.alignment)
    for variable in open_ended:
        found[variable.name] = end
    return found, end


def _of(code: KernelCode, space: str) -> list[Variable]:
    return [variable for variable in code.variables.values() if variable.space == space]


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
