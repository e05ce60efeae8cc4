"""Break the kernels' synchronisation one instruction at a time, and see whether the emulated device tells.

    python benchmarks/mutation.py [--sample N] [--workers 2] [--out docs/mutation.md]

A mutant is the kernel's own PTX with one synchronising instruction removed or weakened. It is *killed* if, under any of
the schedules, the emulator raises, reports a finding, or the result's bits differ. Survivors are either *equivalent* by
one of the reasons below, which the table gives, or missed. Exits with 1 if the score is below the limit.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import re
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from umma_jit import emulator
from umma_jit._arrays import view
from umma_jit._attention import PreparedCall, prepare
from umma_jit._compile import compiler_identity
from umma_jit.errors import EmulationError
from umma_jit.runtime.emulated import EmulatedKernel, EmulatedRuntime
from umma_jit.testing import make_inputs, poisoned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIN_SCORE = 0.95
SCHEDULES = (("program", 0), ("lazy", 0), ("eager", 0), *(("random", seed) for seed in range(12)))

PROBLEMS = {
    "head_dim 64, one key tile": {"head_dim": 64, "seqlen_q": 200, "seqlen_k": 100},
    "head_dim 64": {"head_dim": 64, "seqlen_q": 200, "seqlen_k": 1100},
    "head_dim 128, causal": {"head_dim": 128, "seqlen_q": 300, "seqlen_k": 600, "causal": True},
    "head_dim 256": {"head_dim": 256, "seqlen_q": 130, "seqlen_k": 600},
}
"""Kernels under test: with enough key tiles for every ring stage to be used again, and an odd number of them, so that a
barrier which completes half as often does not come out even."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes
    ----------
    problem
        Key of `PROBLEMS`.
    operator
        What was done.
    line
        Index of the line that it was done to.
    text
        That line, before.
    replacement
        What stands there instead: one string, lines separated by newlines.
    also
        A further line removed, or None.
    """

    problem: str
    operator: str
    line: int
    text: str
    replacement: str
    also: int | None = None

    def apply(self, lines: list[str]) -> str:
        """Return the mutated PTX."""
        changed = list(lines)
        changed[self.line] = self.replacement
        if self.also is not None:
            changed[self.also] = ""
        return "\n".join(changed)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of a mutant: how it was told, or why it cannot be, or neither."""

    mutant: Mutant
    killed_by: str | None
    equivalent: str | None


# ---- operators --------------------------------------------------------------------------------------

_REMOVED = re.compile(
    r"^\s*(?:@!?%?\w+\s+)?(fence|membar|mbarrier\.(?:init|arrive)|bar\.|barrier|tcgen05\.(?:wait|commit|fence|dealloc"
    r"|relinquish)|cp\.async\.bulk\.(?:commit_group|wait_group))"
)
_WAIT = re.compile(r"^\s*mbarrier\.try_wait\.parity\S*\s+(\w+), \[[^\]]+\], ([^;]+);")
_EXPECT = re.compile(r"^\s*(mbarrier\.arrive\.expect_tx\S*)\s+_, (\[[^\]]+\]), ([^;]+);")
_INIT = re.compile(r"^\s*(mbarrier\.init\S*)\s+(\[[^\]]+\]), ([^;]+);")
_GROUP = re.compile(r"^\s*(cp\.async\.bulk\.wait_group\S*)\s+(\d+);")
_NAMED = re.compile(r"^\s*(?:mbarrier\.(?:arrive|try_wait)|tcgen05\.commit)")


def mutants(problem: str, lines: list[str]) -> Iterator[Mutant]:
    """Yield every mutant of a kernel's PTX."""
    for index, text in enumerate(lines):
        if _REMOVED.match(text):
            yield Mutant(problem, "removed", index, text, "")
        wait = _WAIT.match(text)
        if wait:
            done, parity = wait.groups()
            loop = next(n for n in range(index, index + 4) if "bra" in lines[n] and done in lines[n])
            yield Mutant(problem, "wait removed", index, text, _label_of(text), also=loop)
            yield Mutant(problem, "wait not repeated", loop, lines[loop], "")
            yield Mutant(
                problem, "parity flipped", index, text, _with(parity, f"xor.b32 changed, {parity}, 1;", text, "changed")
            )
        expect = _EXPECT.match(text)
        if expect:
            count = expect.group(3)
            for operator, change in (("more bytes expected", 16), ("fewer bytes expected", -16)):
                yield Mutant(
                    problem,
                    operator,
                    index,
                    text,
                    _with(count, f"add.s32 changed, {count}, {change};", text, "changed"),
                )
        init = _INIT.match(text)
        if init:
            count = init.group(3)
            yield Mutant(
                problem, "count raised", index, text, _with(count, f"add.s32 changed, {count}, 1;", text, "changed")
            )
        group = _GROUP.match(text)
        if group:
            newest = int(group.group(2)) + 1
            yield Mutant(problem, "waits for fewer groups", index, text, f"{group.group(1)} {newest};")
        if _NAMED.match(text):
            yield Mutant(problem, "neighbour's barrier", index, text, re.sub(r"\[(%\w+)\]", r"[\1+8]", text, count=1))


def _label_of(text: str) -> str:
    return text.split(":", maxsplit=1)[0] + ":" if re.match(r"^\s*\w+:", text) else ""


def _with(operand: str, instruction: str, text: str, name: str) -> str:
    """Put an instruction that makes register `changed` before `text`, where it takes the last operand's place."""
    head, _, tail = text.rpartition(operand)
    return "{\n.reg .b32 changed;\n" + instruction + "\n" + head + name + tail + "\n}"


# ---- what no run can tell ---------------------------------------------------------------------------

FENCE = "tcgen05.fence: ptxas makes no instruction of it, it keeps the compiler from moving accesses"
RELINQUISH = (
    "relinquish_alloc_permit: it lets other CTAs allocate sooner, and none shares an SM with one that holds all"
)
INIT_FENCE = "one of two fences after mbarrier.init, either of which makes the barriers known to the async proxy"
WARP_SYNC = (
    "bar.warp.sync before an arrival that hands over tensor memory only: tcgen05.wait::st.sync.aligned has converged "
    "the warp and finished the stores of all its lanes"
)
GROUP = "commit_group: the next one of the same thread takes the copies into its group"
NEIGHBOUR = (
    "a wait for the neighbour: the thread waits for both barriers of the two query tiles all the same, the later first"
)
AGAIN = "a wait for a phase that the thread has waited for before, or that precedes the first use of a ring slot"


def equivalent(mutant: Mutant, lines: list[str]) -> str | None:
    """Why a mutant that survives cannot be told; None if it should have been."""
    text, operator = mutant.text, mutant.operator
    waits = operator in ("wait removed", "wait not repeated") or (
        operator == "neighbour's barrier" and "try_wait" in text
    )
    if waits and _wait_line(mutant, lines) not in _needed_waits(mutant.problem):
        return AGAIN
    if operator == "neighbour's barrier" and "try_wait" in text:
        return NEIGHBOUR
    if operator != "removed":
        return None
    for part, reason in (("tcgen05.fence", FENCE), ("relinquish", RELINQUISH)):
        if part in text:
            return reason
    if "fence" in text and any("mbarrier.init" in line for line in lines[mutant.line - 10 : mutant.line]):
        return INIT_FENCE
    if "bar.warp.sync" in text and any("mbarrier.arrive" in line for line in lines[mutant.line : mutant.line + 30]):
        return WARP_SYNC
    if "commit_group" in text and any("commit_group" in line for line in lines[mutant.line + 1 :]):
        return GROUP
    return None


def _wait_line(mutant: Mutant, lines: list[str]) -> int:
    """The PTX line, from 1, of the wait that a mutant is about."""
    return next(n for n in range(mutant.line, mutant.line - 4, -1) if "try_wait" in lines[n]) + 1


@cache
def _needed_waits(problem: str) -> frozenset[int]:
    """PTX lines of waits that, under some schedule, are the first of their thread for that phase of that barrier."""
    call, _, lines = _call(problem)
    kernel = emulator.Module("\n".join(lines))[call.image.entry]
    needed: set[int] = set()
    seen: set[tuple[object, ...]] = set()

    def watched(run: Callable[..., Any]) -> Callable[..., Any]:
        def handler(ctx: Any, ins: Any) -> Any:
            result = run(ctx, ins)
            if result is None:
                _note(ctx, ins)
            return result

        return handler

    def _note(ctx: Any, ins: Any) -> None:
        passed = ctx.pred(ins.operands[0]) & ctx.mask
        for row, lane in zip(*(axis.tolist() for axis in np.nonzero(passed)), strict=True):
            offset = int(ctx.address(ins.operands[1])[row, lane]) & 0xFFFFFF
            parity = int(ctx.u32(ins.operands[2])[row, lane])
            phase = ctx.cta.shared.barriers[offset].phase
            fresh = phase == 0 and parity == 1
            key = (id(ctx.cta), ctx.w0 + row, lane, offset, phase - 1 - ((phase - 1 - parity) & 1))
            if not fresh and key not in seen:
                needed.add(ins.line)
            seen.add(key)

    for step in kernel._program.steps:
        if getattr(step, "ins", None) is not None and step.ins.parts[:2] == ("mbarrier", "try_wait"):
            step.handler = dataclasses.replace(step.handler, run=watched(step.handler.run))
    for schedule, seed in SCHEDULES:
        seen.clear()
        _run(problem, EmulatedKernel(call.image.entry, kernel), schedule, seed)
    return frozenset(needed)


# ---- running ----------------------------------------------------------------------------------------


@cache
def _call(problem: str) -> tuple[PreparedCall, dict[str, np.ndarray], list[str]]:
    options = dict(PROBLEMS[problem])
    causal = bool(options.pop("causal", False))
    arrays = vars(make_inputs(**options, seed=len(problem)))
    call = prepare(**arrays, causal=causal, return_lse=True)
    return call, arrays, call.image.text.split("\n")


@cache
def _expected(problem: str) -> tuple[bytes, ...]:
    call, _, _ = _call(problem)
    return _run(problem, call.kernel, "program", 0)


def _run(problem: str, kernel: EmulatedKernel, schedule: str, seed: int) -> tuple[bytes, ...]:
    call, arrays, _ = _call(problem)
    results = {
        "out": poisoned(call.out_layout.shape, call.out_layout.dtype),
        "lse": poisoned(call.lse_layout.shape, "float32"),
    }
    views = {name: view(array, name) for name, array in {**arrays, **results}.items()}
    device = EmulatedRuntime("sm_100a", schedule=schedule, seed=seed, progress=False)
    device.launch(kernel, call.plan, views)
    if device.last_report.findings:
        raise EmulationError("finding", device.last_report.findings)
    return tuple(array.tobytes() for array in results.values())


def judge(mutant: Mutant) -> Verdict:
    """Run one mutant until a schedule tells."""
    call, _, lines = _call(mutant.problem)
    try:
        kernel = EmulatedKernel(call.image.entry, emulator.Module(mutant.apply(lines))[call.image.entry])
    except emulator.EmulatorError as error:
        return Verdict(mutant, f"load: {type(error).__name__}", None)
    # A wait that is not repeated shows only where it gives up: that takes luck.
    more = [("random", seed) for seed in range(12, 60)] if mutant.operator == "wait not repeated" else []
    for schedule, seed in (*SCHEDULES, *more):
        try:
            got = _run(mutant.problem, kernel, schedule, seed)
        except EmulationError as error:
            return Verdict(mutant, f"{schedule}: {error.findings[0].rule if error.findings else error}", None)
        if got != _expected(mutant.problem):
            return Verdict(mutant, f"{schedule}: wrong result", None)
    return Verdict(mutant, None, equivalent(mutant, lines))


def report(verdicts: list[Verdict]) -> tuple[list[str], float]:
    """Return the tables as Markdown lines, and the score."""
    lines = ["| kernel | mutants | killed | equivalent | missed |", "|---|---|---|---|---|"]
    for problem in PROBLEMS:
        group = [v for v in verdicts if v.mutant.problem == problem]
        killed = sum(v.killed_by is not None for v in group)
        equal = sum(v.killed_by is None and v.equivalent is not None for v in group)
        lines.append(f"| {problem} | {len(group)} | {killed} | {equal} | {len(group) - killed - equal} |")
    lines += ["", "| change | mutants | killed | equivalent | missed |", "|---|---|---|---|---|"]
    for operator in dict.fromkeys(v.mutant.operator for v in verdicts):
        group = [v for v in verdicts if v.mutant.operator == operator]
        killed = sum(v.killed_by is not None for v in group)
        equal = sum(v.killed_by is None and v.equivalent is not None for v in group)
        lines.append(f"| {operator} | {len(group)} | {killed} | {equal} | {len(group) - killed - equal} |")
    lines += ["", "Told by:", ""]
    told = Counter(v.killed_by.partition(": ")[2] for v in verdicts if v.killed_by is not None)
    lines += [f"- {count} × {how}" for how, count in told.most_common()]
    survivors = [v for v in verdicts if v.killed_by is None]
    lines += ["", "Survivors:", ""]
    reasons = Counter(v.equivalent for v in survivors if v.equivalent is not None)
    lines += [f"- {count} equivalent: {reason}" for reason, count in reasons.items()]
    missed = [v for v in survivors if v.equivalent is None]
    for mutant in (v.mutant for v in missed):
        lines.append(
            f"- **missed**: {mutant.problem}, line {mutant.line + 1}, {mutant.operator}: `{mutant.text.strip()}`"
        )
    killed = len(verdicts) - len(survivors)
    return lines, killed / max(killed + len(missed), 1)


def main() -> int:
    """Run the mutants and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sample", type=int, help="run this many mutants, chosen at random, instead of all")
    parser.add_argument("--kernel", choices=PROBLEMS, action="append", help="only this kernel; may be repeated")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--out", help="write the tables to this file too")
    arguments = parser.parse_args()

    start = time.monotonic()
    everything = [m for problem in arguments.kernel or PROBLEMS for m in mutants(problem, _call(problem)[2])]
    if arguments.sample is not None:
        everything = random.Random(0).sample(everything, min(arguments.sample, len(everything)))  # noqa: S311
    verdicts: list[Verdict] = []
    with ProcessPoolExecutor(arguments.workers) as pool:
        for verdict in pool.map(judge, everything, chunksize=4):
            verdicts.append(verdict)
            if verdict.killed_by is None and verdict.equivalent is None:
                print(f"missed: {verdict.mutant}", flush=True)
            if len(verdicts) % 50 == 0:
                print(f"{len(verdicts)} of {len(everything)}, {time.monotonic() - start:.0f} s", flush=True)
    lines, score = report(verdicts)
    described = (
        f"Mutation score {100 * score:.1f} % of {len(verdicts)} mutants, less the equivalent ones; emulated sm_100a, "
        f"NVRTC {compiler_identity()}, {time.strftime('%Y-%m-%d')}; {time.monotonic() - start:.0f} s on "
        f"{arguments.workers} processes."
    )
    print("\n".join(["", described, "", *lines]))
    if arguments.out:
        Path(arguments.out).write_text(
            "# Mutants\n\nEvery synchronising instruction of the kernels, removed or weakened, one at a time, and "
            "whether the emulated device tells. Printed by `python benchmarks/mutation.py`.\n\n"
            + "\n".join([described, "", *lines, ""]),
            encoding="utf-8",
        )
    return int(score < MIN_SCORE)


if __name__ == "__main__":
    sys.exit(main())
