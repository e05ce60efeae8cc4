"""The report of a launch in which nothing can go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umma_jit.emulator.errors import DeadlockError

if TYPE_CHECKING:
    from umma_jit.emulator.errors import EmulatorError
    from umma_jit.emulator.fragment import Fragment
    from umma_jit.emulator.launch import Launch

__all__ = ["deadlock"]

_REMEDY = (
    "compare what each barrier still misses with who should have arrived: counts at initialisation, the parity that is "
    "waited for, expected transaction bytes, and warps that have exited or wait elsewhere"
)


def deadlock(launch: Launch, fragments: list[Fragment]) -> EmulatorError:
    """The error, which lists every warp, its place and what it waits for."""
    lines = [_describe(launch, fragment) for fragment in fragments]
    flying = launch.engine.describe()
    if flying:
        lines += ["in flight:", *flying]
    first = next((f for f in fragments if f.wait is not None), fragments[0])
    ins = launch.program.instruction(first.pc) or launch.program.code.instructions[-1]
    return first.ctx.error_at(
        DeadlockError,
        ins,
        first.w0,
        "deadlock",
        "no thread can go on and nothing is in flight:\n  " + "\n  ".join(lines) + "\n",
        _REMEDY,
    )


def _describe(launch: Launch, fragment: Fragment) -> str:
    ins = launch.program.instruction(fragment.pc)
    where = "at its end" if ins is None else f"at PTX line {ins.line}: {ins.opcode}"
    if ins is not None and ins.location is not None:
        where += f" ({ins.location[0]}:{ins.location[1]})"
    warps = f"warp {fragment.w0}" if fragment.w1 == fragment.w0 + 1 else f"warps {fragment.w0} to {fragment.w1 - 1}"
    threads = int(fragment.threads.sum())
    if threads < 32 * (fragment.w1 - fragment.w0):
        warps += f" ({threads} threads)"
    doing = "polling" if fragment.wait is None else f"waiting for {fragment.wait.describe()}"
    return f"CTA {fragment.cta.ctaid} {warps} {where}, {doing}"
