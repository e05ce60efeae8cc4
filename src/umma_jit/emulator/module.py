"""Modules and kernels: PTX text in, launches out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from umma_jit.emulator.async_engine import SCHEDULES
from umma_jit.emulator.errors import LaunchError, UnsupportedInstructionError
from umma_jit.emulator.launch import Dim3, Launch
from umma_jit.emulator.layout import static_shared_bytes
from umma_jit.emulator.memory import DeviceMemory
from umma_jit.emulator.nodes import Instruction, Special
from umma_jit.emulator.parameters import Parameters
from umma_jit.emulator.parser import parse
from umma_jit.emulator.special_registers import NAMES
from umma_jit.emulator.translate import translate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from umma_jit.emulator.nodes import KernelCode, Parameter
    from umma_jit.emulator.registers import RegisterFile
    from umma_jit.emulator.report import Report

__all__ = ["Kernel", "Module"]

MAX_SHARED_BYTES = 227 * 1024
"""Shared memory that one CTA can have (CUDA C++ Programming Guide, compute capability 9.0 and 10.0)."""
_MAX_THREADS = 1024
_MAX_GRID: Dim3 = ((1 << 31) - 1, 65535, 65535)
_MAX_CLUSTER = 16


class Kernel:
    """One kernel of a module, translated.

    Attributes
    ----------
    name
        Its entry name.
    """

    def __init__(self, code: KernelCode) -> None:
        for ins in code.instructions:
            _check_special(ins)
        self.name = code.name
        self._program = translate(code)
        # Register files, with their views, outlive a launch. Taking and giving back is atomic: threads may share them.
        self._spare_registers: list[RegisterFile] = []

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Name, offset, size and alignment of each parameter, in order."""
        return self._program.code.parameters

    def __repr__(self) -> str:
        return f"<Kernel {self.name}, {len(self._program.code.instructions)} instructions>"

    def launch(
        self,
        *,
        grid: Dim3,
        block: Dim3,
        params: Sequence[Any],
        cluster: Dim3 = (1, 1, 1),
        shared_bytes: int = 0,
        memory: DeviceMemory | None = None,
        schedule: str = "program",
        seed: int = 0,
        strict: bool = False,
        double: bool = False,
        issue_order: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Report:
        """Run the kernel to its end.

        Parameters
        ----------
        grid, block, cluster
            Shapes (x, y, z): CTAs of the grid, threads of a CTA, CTAs of a cluster.
        params
            One per parameter, in order: an ndarray (uploaded, passed as its address, copied back after the launch), a
            NumPy scalar, a `TensorMap`, or bytes (the raw parameter).
        shared_bytes
            Dynamic shared memory of each CTA.
        memory
            Global memory; a fresh one if None.
        schedule
            When asynchronous work completes: ``"program"``, ``"eager"``, ``"lazy"`` or ``"random"``.
        seed
            Of ``"random"``.
        strict
            Raise on warnings and hazards too.
        double
            Accumulate matrix products in float64 within an instruction.
        issue_order
            Warn where an MMA overwrites what an earlier one of the same thread reads, with another accumulator: the ISA
            promises their order for one accumulator only, production kernels rely on it.
        progress
            Called with (CTAs that have ended, CTAs in all).

        Returns
        -------
        Report
            Instruction counts and findings.

        Raises
        ------
        LaunchError
            The launch does not fit the kernel or the machine.
        EmulatorError
            The kernel did something on which hardware traps or hangs, or in strict mode anything wrong at all.
        """
        code = self._program.code
        grid, block, cluster = _shape("grid", grid), _shape("block", block), _shape("cluster", cluster)
        _check_shapes(grid, block, cluster, code)
        _check_shared(shared_bytes, code)
        if schedule not in SCHEDULES:
            raise LaunchError(f"schedule {schedule!r}: use one of {', '.join(SCHEDULES)}")
        memory = DeviceMemory() if memory is None else memory
        parameters = Parameters(self.name, code.parameters, params, memory)
        launch = Launch(
            self._program,
            memory,
            parameters.data,
            grid=grid,
            block=block,
            cluster=cluster,
            shared_bytes=shared_bytes,
            schedule=schedule,
            seed=seed,
            strict=strict,
            double=double,
            issue_order=issue_order,
            spare_registers=self._spare_registers,
        )
        report = launch.run(progress)
        parameters.copy_back(memory)
        return report


class Module:
    """A PTX module.

    Parameters
    ----------
    text
        PTX.

    Raises
    ------
    PtxSyntaxError
        The text cannot be parsed.
    UnsupportedInstructionError
        A kernel uses an instruction outside the emulated subset; names line, opcode and what is supported.
    """

    def __init__(self, text: str) -> None:
        code = parse(text)
        self.target = code.target
        self.version = code.version
        self._kernels = {name: Kernel(kernel) for name, kernel in code.kernels.items()}

    def __getitem__(self, name: str) -> Kernel:
        """The kernel of that name; KeyError names those that there are."""
        try:
            return self._kernels[name]
        except KeyError:
            known = ", ".join(self._kernels) or "none"
            raise KeyError(f"no kernel {name!r} in the module; there are: {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def __repr__(self) -> str:
        return f"<Module for {self.target} with kernels {', '.join(self._kernels)}>"


def _check_special(ins: Instruction) -> None:
    for operand in ins.operands:
        if isinstance(operand, Special) and operand.name not in NAMES:
            raise UnsupportedInstructionError(
                ins.line, f"{ins.opcode} of {operand.name}", "the special registers " + ", ".join(sorted(NAMES))
            )


def _shape(name: str, value: Dim3) -> Dim3:
    try:
        x, y, z = (int(n) for n in value)
    except (TypeError, ValueError):
        raise LaunchError(f"{name}={value!r}: three integers (x, y, z) are expected") from None
    if min(x, y, z) < 1:
        raise LaunchError(f"{name}={value!r}: every extent must be at least 1")
    return x, y, z


def _check_shapes(grid: Dim3, block: Dim3, cluster: Dim3, code: KernelCode) -> None:
    if any(n > most for n, most in zip(grid, _MAX_GRID, strict=True)):
        raise LaunchError(f"grid={grid}: at most {_MAX_GRID}")
    threads = block[0] * block[1] * block[2]
    if threads > _MAX_THREADS:
        raise LaunchError(f"block={block}: {threads} threads, at most {_MAX_THREADS}")
    if any(n % each for n, each in zip(grid, cluster, strict=True)):
        raise LaunchError(f"grid={grid} is no multiple of cluster={cluster}")
    if cluster[0] * cluster[1] * cluster[2] > _MAX_CLUSTER:
        raise LaunchError(f"cluster={cluster}: at most {_MAX_CLUSTER} CTAs")
    required = code.directives.get("reqntid")
    if required is not None and block != _padded(required):
        raise LaunchError(f"block={block}: {code.name} requires {_padded(required)} (.reqntid)")
    most = code.directives.get("maxntid")
    if most is not None and threads > int(np.prod(most)):
        raise LaunchError(f"block={block}: {code.name} allows {int(np.prod(most))} threads (.maxntid)")
    ctas = code.directives.get("reqnctapercluster")
    if ctas is not None and cluster != _padded(ctas):
        raise LaunchError(f"cluster={cluster}: {code.name} requires {_padded(ctas)} (.reqnctapercluster)")


def _padded(shape: tuple[int, ...]) -> Dim3:
    x, y, z = (*shape, 1, 1)[:3]
    return x, y, z


def _check_shared(shared_bytes: int, code: KernelCode) -> None:
    static = static_shared_bytes(code)
    if shared_bytes < 0 or shared_bytes + static > MAX_SHARED_BYTES:
        raise LaunchError(
            f"shared_bytes={shared_bytes}: with {static} bytes of static shared memory a CTA has "
            f"{shared_bytes + static}, of at most {MAX_SHARED_BYTES}"
        )
