"""Run the whole matrix of problems on the emulated device, under every schedule, against float64.

    python benchmarks/matrix.py [--sample N] [--random 20] [--workers 2] [--out docs/accuracy.md]

Evidence of the kind "emulated". A case passes if the relative error of O and the absolute error of its log-sum-exp are
within the limits, every schedule gives the same bits, and the emulator reports no finding. Inputs are fresh for each
case and outputs are poisoned before each launch. Exits with 1 if a case fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import itertools
import math
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# One process per core: BLAS in each of them must not take all cores again.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import umma_jit
from umma_jit._arrays import view
from umma_jit._attention import prepare
from umma_jit._compile import compiler_identity
from umma_jit._settings import settings
from umma_jit.errors import EmulationError
from umma_jit.reference import attention as reference_attention
from umma_jit.runtime.emulated import EmulatedRuntime
from umma_jit.testing import cosine, make_inputs, poisoned, relative_error

HEAD_DIMS = (64, 128, 256)
DTYPES = ("bfloat16", "float16")
SEQLENS = (1, 17, 127, 128, 129, 300)
GQA_RATIOS = (1, 4, 8)
MAX_RELATIVE_ERROR = {"bfloat16": 3.2e-3, "float16": 4.5e-4}
MAX_LSE_ERROR = 1e-4
RANDOM_SCHEDULES = 20


@dataclasses.dataclass(frozen=True)
class Case:
    """One problem of the matrix."""

    head_dim: int
    dtype: str
    causal: bool
    seqlen_q: int
    seqlen_k: int
    gqa_ratio: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a case; `problems` is empty if it passed."""

    case: Case
    relative_error: float
    cosine: float
    lse_error: float
    problems: tuple[str, ...]


def all_cases(seed: int = 0) -> list[Case]:
    """Return the whole matrix."""
    shapes = itertools.product(HEAD_DIMS, DTYPES, (False, True), SEQLENS, SEQLENS, GQA_RATIOS)
    return [Case(*shape, seed=seed + number) for number, shape in enumerate(shapes)]


def schedules(random_count: int) -> list[tuple[str, int]]:
    """Return the schedules with their seeds."""
    return [("program", 0), ("eager", 0), ("lazy", 0), *(("random", seed) for seed in range(random_count))]


def run_case(case: Case, random_count: int = RANDOM_SCHEDULES) -> Outcome:
    """Run one case under all schedules."""
    several = 2 if case.gqa_ratio == 1 else 1  # heads and batch entries are walked too, where it is cheap
    inputs = make_inputs(
        batch_size=several,
        seqlen_q=case.seqlen_q,
        seqlen_k=case.seqlen_k,
        num_heads=case.gqa_ratio * several,
        num_heads_kv=several,
        head_dim=case.head_dim,
        dtype=case.dtype,
        seed=case.seed,
    )
    arrays = {"q": inputs.q, "k": inputs.k, "v": inputs.v}
    expected, expected_lse = reference_attention(**arrays, causal=case.causal)
    call = prepare(**arrays, causal=case.causal, return_lse=True)
    problems: list[str] = []
    first = None
    for schedule, seed in schedules(random_count):
        out = poisoned(call.out_layout.shape, case.dtype)
        lse = poisoned(call.lse_layout.shape, "float32")
        views = {name: view(array, name) for name, array in {**arrays, "out": out, "lse": lse}.items()}
        device = EmulatedRuntime(call.image.arch, schedule=schedule, seed=seed, progress=False)
        try:
            device.launch(call.kernel, call.plan, views)
        except EmulationError as error:
            problems.append(f"{schedule} {seed}: {error}")
            continue
        problems += [f"{schedule} {seed}: {finding}" for finding in device.last_report.findings]
        if first is None:
            first = out, lse
        elif not (np.array_equal(_bits(out), _bits(first[0])) and np.array_equal(_bits(lse), _bits(first[1]))):
            problems.append(f"{schedule} {seed}: not the bits of {schedules(0)[0][0]}")
    if first is None:
        return Outcome(case, math.inf, 0.0, math.inf, tuple(problems))
    out, lse = first
    error = relative_error(out, expected)
    lse_error = _lse_error(lse, expected_lse)
    if not error <= MAX_RELATIVE_ERROR[case.dtype]:
        problems.append(f"relative error {error:.3e} above {MAX_RELATIVE_ERROR[case.dtype]:.1e}")
    if not lse_error <= MAX_LSE_ERROR:
        problems.append(f"LSE error {lse_error:.3e} above {MAX_LSE_ERROR:.0e}")
    return Outcome(case, error, cosine(out, expected), lse_error, tuple(problems))


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8)


def _lse_error(lse: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest absolute error; rows that see no key must have -inf in both."""
    blank = np.isneginf(expected)
    if not np.array_equal(blank, np.isneginf(lse)):
        return float("inf")
    return float(np.abs(lse[~blank] - expected[~blank]).max(initial=0.0))


def summary(outcomes: list[Outcome]) -> list[str]:
    """Return a Markdown table: the worst of each head_dim, dtype and mask."""
    lines = [
        "| head_dim | dtype | mask | cases | worst relative error | limit | worst cosine | worst LSE error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    groups = itertools.groupby(outcomes, key=lambda o: (o.case.head_dim, o.case.dtype, o.case.causal))
    for (head_dim, dtype, causal), members in groups:
        group = list(members)
        lines.append(
            f"| {head_dim} | {dtype} | {'causal' if causal else 'full'} | {len(group)} "
            f"| {max(o.relative_error for o in group):.2e} | {MAX_RELATIVE_ERROR[dtype]:.1e} "
            f"| {min(o.cosine for o in group):.7f} | {max(o.lse_error for o in group):.1e} |"
        )
    return lines


def main() -> int:
    """Run the matrix and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sample", type=int, help="run this many cases, chosen at random, instead of all")
    parser.add_argument("--random", type=int, default=RANDOM_SCHEDULES, help="random schedules of each case")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs and of the sample")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--out", help="write the table to this file too")
    arguments = parser.parse_args()

    cases = all_cases(arguments.seed)
    if arguments.sample is not None:
        chosen = random.Random(arguments.seed).sample(range(len(cases)), min(arguments.sample, len(cases)))  # noqa: S311
        cases = [cases[index] for index in sorted(chosen)]
    start = time.monotonic()
    outcomes: list[Outcome] = []
    failed = 0
    with ProcessPoolExecutor(arguments.workers) as pool:
        for outcome in pool.map(run_case, cases, itertools.repeat(arguments.random), chunksize=4):
            outcomes.append(outcome)
            if outcome.problems:
                failed += 1
                print(outcome.case, *outcome.problems, sep="\n  ", flush=True)
            if len(outcomes) % 50 == 0:
                print(f"{len(outcomes)} of {len(cases)}, {time.monotonic() - start:.0f} s", flush=True)
    described = (
        f"{len(outcomes)} cases × {len(schedules(arguments.random))} schedules, {failed} failed; emulated "
        f"{settings().arch}, umma-jit {umma_jit.__version__}, NVRTC {compiler_identity()}, NumPy {np.__version__}, "
        f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}; {time.monotonic() - start:.0f} s on "
        f"{arguments.workers} processes."
    )
    table = summary(outcomes)
    print("\n".join(["", described, "", *table]))
    if arguments.out:
        Path(arguments.out).write_text(
            "# Accuracy\n\nEmulated: the kernels' own PTX, run in NumPy, against float64 on the same rounded inputs. "
            f"Seqlens of queries and keys {', '.join(map(str, SEQLENS))}; {', '.join(map(str, GQA_RATIOS))} query "
            "heads per key head. Every schedule gave the same bits, and the emulator reported nothing. Printed by "
            "`python benchmarks/matrix.py`.\n\n" + "\n".join([described, "", *table, ""]),
            encoding="utf-8",
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
