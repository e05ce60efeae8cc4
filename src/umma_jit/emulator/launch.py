"""One launch: its grid of clusters of CTAs, and what they share."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from umma_jit.emulator.async_engine import AsyncEngine
from umma_jit.emulator.clocks import Clocks
from umma_jit.emulator.isa.barrier import BARRIERS, ClusterBarrier, NamedBarrier
from umma_jit.emulator.layout import VariableLayout
from umma_jit.emulator.local_memory import LocalMemory
from umma_jit.emulator.registers import RegisterFile
from umma_jit.emulator.report import Report
from umma_jit.emulator.scheduler import Scheduler
from umma_jit.emulator.shared_memory import RANK_SHIFT, SharedMemory
from umma_jit.emulator.special_registers import read_special
from umma_jit.emulator.tensor_memory import TensorMemory
from umma_jit.emulator.translate import CodeStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from umma_jit.emulator.memory import DeviceMemory
    from umma_jit.emulator.nodes import KernelCode
    from umma_jit.emulator.translate import Program

__all__ = ["Cluster", "Cta", "Dim3", "Launch"]

Dim3 = tuple[int, int, int]

_TIMEOUT_RATE = 0.5
"""Chance under ``random`` that a wait with a time limit gives up at once."""


class Cta:
    """One CTA (thread block).

    Attributes
    ----------
    ctaid
        Its index in the grid.
    rank
        Its rank in the cluster.
    num_threads
        Threads it began with.
    live
        int (warps,): threads of each warp that have not exited.
    registers, carry, local, shared, tmem, barriers
        Its storage.
    """

    def __init__(self, cluster: Cluster, ctaid: Dim3, rank: int) -> None:
        launch = cluster.launch
        self.launch = launch
        self.cluster = cluster
        self.ctaid = ctaid
        self.rank = rank
        self.num_threads = launch.threads
        self.shared = SharedMemory(rank, launch.layout.shared_bytes, cluster.clocks)
        self.tmem: TensorMemory = TensorMemory()
        self.registers: RegisterFile = launch.take_registers()
        self.local = LocalMemory(launch.warps, launch.layout.local_bytes)
        self.carry: NDArray[np.bool_] = np.zeros((launch.warps, 32), bool)
        self.barriers = [NamedBarrier() for _ in range(BARRIERS)]
        threads = np.arange(launch.warps * 32).reshape(-1, 32)
        self.live: NDArray[np.int64] = (threads < self.num_threads).sum(axis=1)

    def live_threads(self) -> int:
        """Threads that have not exited."""
        return int(self.live.sum())

    def live_threads_rounded(self) -> int:
        """The same in whole warps, as barriers count."""
        return 32 * int((self.live > 0).sum())

    def symbol_address(self, name: str) -> int:
        """The address of a variable or parameter in its own state space."""
        address = self.launch.layout.address(name)
        return address | self.rank << RANK_SHIFT if self.launch.layout.is_shared(name) else address

    def special_register(self, name: str, w0: int, w1: int) -> tuple[NDArray[Any], bool]:
        """See `umma_jit.emulator.special_registers.read_special`."""
        return read_special(self, name, w0, w1)


class Cluster:
    """The CTAs that run together, in order of rank."""

    def __init__(self, launch: Launch, index: Dim3) -> None:
        self.launch = launch
        self.index = index
        self.barrier = ClusterBarrier()
        nx, ny, nz = launch.cluster
        self.clocks = Clocks(nx * ny * nz, launch.warps)
        self.ctas: list[Cta] = []
        for rank in range(nx * ny * nz):
            x, y, z = rank % nx, rank // nx % ny, rank // (nx * ny)
            self.ctas.append(Cta(self, (index[0] * nx + x, index[1] * ny + y, index[2] * nz + z), rank))
        memories = [cta.shared for cta in self.ctas]
        for memory in memories:
            memory.connect(memories)


class Launch:
    """One launch of a kernel.

    Attributes
    ----------
    memory, engine, report
        Global memory, work in flight, and what is reported.
    parameter_bytes, constant_bytes
        uint8: kernel parameters and constant memory.
    rng
        Makes the choices of the schedule ``random``.
    progress
        Counts what a waiting thread might notice.
    """

    def __init__(
        self,
        program: Program,
        memory: DeviceMemory,
        parameter_bytes: NDArray[np.uint8],
        *,
        grid: Dim3,
        block: Dim3,
        cluster: Dim3,
        shared_bytes: int,
        schedule: str,
        seed: int,
        strict: bool,
        double: bool,
        issue_order: bool,
        spare_registers: list[RegisterFile],
    ) -> None:
        self.program = program
        self.memory = memory
        self.parameter_bytes = parameter_bytes
        self.grid = grid
        self.block = block
        self.cluster = cluster
        self.threads = block[0] * block[1] * block[2]
        self.warps = -(-self.threads // 32)
        self.shared_bytes = shared_bytes
        self.schedule = schedule
        self.seed = seed
        self.strict = strict
        self.issue_order = issue_order
        self.rng = Random(seed)  # noqa: S311 - reproducible on purpose
        self.engine = AsyncEngine(schedule, double=double)
        self.report = Report()
        self.progress = 0
        self.layout = VariableLayout(program.code, shared_bytes, memory)
        self.constant_bytes = self.layout.constant_bytes
        self._spare_registers = spare_registers
        nx, ny, nz = (size // each for size, each in zip(grid, cluster, strict=True))
        self._waiting = ((x, y, z) for z in range(nz) for y in range(ny) for x in range(nx))
        self._finished: Callable[[int], None] = lambda _: None

    @property
    def code(self) -> KernelCode:
        """The kernel."""
        return self.program.code

    def times_out(self) -> bool:
        """Whether a wait with a time limit gives up at once."""
        return self.schedule == "random" and self.rng.random() < _TIMEOUT_RATE

    def take_registers(self) -> RegisterFile:
        """A poisoned register file for a CTA; those of CTAs that have ended are used again."""
        try:
            registers = self._spare_registers.pop()
        except IndexError:
            return RegisterFile(self.code.banks, self.warps)
        if registers.warps != self.warps:
            return RegisterFile(self.code.banks, self.warps)
        registers.poison()
        return registers

    def release(self, cluster: Cluster) -> None:
        """A cluster has ended."""
        self._spare_registers.extend(cta.registers for cta in cluster.ctas)

    def run(self, progress: Callable[[int, int], None] | None) -> Report:
        """Run to the end and return the report.

        Raises
        ------
        EmulatorError
            See `Scheduler.run`.
        """
        total = self.grid[0] * self.grid[1] * self.grid[2]
        done = 0

        def finished(ctas: int) -> None:
            nonlocal done
            done += ctas
            if progress is not None:
                progress(done, total)

        self._finished = finished
        scheduler = Scheduler(self, self._clusters(), finished)
        with np.errstate(all="ignore"):
            scheduler.run()
        self._count(scheduler.executed)
        return self.report

    def _clusters(self) -> Iterator[Cluster]:
        for index in self._waiting:
            yield Cluster(self, index)

    def cancel_cluster(self) -> Dim3 | None:
        """Take a cluster that has not started off the grid: the index of its first CTA, None if all have started."""
        index = next(self._waiting, None)
        if index is None:
            return None
        x, y, z = index
        nx, ny, nz = self.cluster
        self._finished(nx * ny * nz)
        return x * nx, y * ny, z * nz

    def _count(self, executed: list[int]) -> None:
        counts: Counter[str] = Counter()
        for step, times in zip(self.program.steps, executed, strict=True):
            if isinstance(step, CodeStep):
                for opcode, number in step.counts.items():
                    counts[opcode] += number * times
            else:
                counts[step.ins.opcode] += times
        self.report.instructions = +counts
