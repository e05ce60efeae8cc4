"""Run every conformance fixture under every schedule, and print the table.

PYTHONPATH=src:tests python benchmarks/conformance.py [--out docs/conformance.md]
"""

from __future__ import annotations

import argparse
import collections
import datetime as dt
import json
import sys
from pathlib import Path
from typing import Any

# In place of this directory, whose conformance.py would hide the package of that name.
sys.path[0] = str(Path(__file__).resolve().parent.parent / "tests")

from conformance.runner import FIXTURES, MANIFEST, run  # noqa: E402
from umma_jit.emulator import SCHEDULES  # noqa: E402

_CARD = FIXTURES / "gpu.json"


def measure(name: str) -> dict[str, Any]:
    """One row: size of the kernel, largest error under each schedule, findings."""
    entry = MANIFEST[name]
    errors, rules, opcodes, executed, right = [], set(), set(), 0, True
    for schedule in SCHEDULES:
        outcome = run(name, schedule, seed=1)
        errors.append(outcome.worst)
        right &= outcome.right
        rules |= {f"{finding.rule} ({finding.severity})" for finding in outcome.report.findings}
        opcodes |= set(outcome.report.instructions)
        executed = sum(outcome.report.instructions.values())
    return {
        "name": name,
        "compiler": entry["compiler"].split()[0],
        "arch": entry["arch"],
        "executed": executed,
        "opcodes": opcodes,
        "errors": errors,
        "right": right,
        "rules": sorted(rules),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """All fixtures as Markdown."""
    lines = [
        "| fixture | compiler | arch | instructions run | opcodes | " + " | ".join(SCHEDULES) + " | findings |",
        "|---|---|---|--:|--:|" + "--:|" * len(SCHEDULES) + "---|",
    ]
    for row in rows:
        cells = [row["name"], row["compiler"], row["arch"], row["executed"], len(row["opcodes"])]
        cells += [f"{error:.1e}" for error in row["errors"]]
        cells.append(", ".join(row["rules"]) or "none")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def card_table() -> str:
    """What a card gave, from the file that benchmarks/conformance_gpu.py keeps."""
    if not _CARD.exists():
        return ""
    kept = json.loads(_CARD.read_text(encoding="utf-8"))
    driver = f"{kept['driver'] // 1000}.{kept['driver'] % 1000 // 10}"
    same = sum(row["bitwise"] for row in kept["rows"])
    lines = [
        f"""## On an {kept["card"]}

The fixtures for {kept["arch"]} on the card, beside the emulator and NumPy (`benchmarks/conformance_gpu.py`, driver for
CUDA {driver}, {kept["date"]}). {same} of {len(kept["rows"])} give the same bits. The others differ where the ISA leaves
the last bits open: the order of sums inside `wgmma`, approximate functions, and for 8-bit floats the few bits that
Hopper's tensor cores keep of a sum, where the emulator keeps all of float32.

| fixture | card against float64 | emulator against float64 | card against emulator |
|---|--:|--:|--:|"""
    ]
    for row in kept["rows"]:
        difference = "same bits" if row["bitwise"] else f"{row['difference']:.1e}"
        lines.append(f"| {row['name']} | {row['gpu_error']:.1e} | {row['emulator_error']:.1e} | {difference} |")
    return "\n".join(lines)


def document(rows: list[dict[str, Any]]) -> str:
    """docs/conformance.md."""
    versions = sorted({entry["compiler"].split()[1] for entry in MANIFEST.values()})
    by_opcode = collections.Counter(opcode for row in rows for opcode in row["opcodes"])
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    right = sum(row["right"] for row in rows)
    return f"""# Conformance of the emulator

Evidence: emulated, and measured where a card is named. Kernels of our own, compiled by Triton {", ".join(versions)} and
its Gluon dialect, run on the [emulated device](emulator.md) under all four schedules, and what comes out is held
against NumPy in float64. The compiler knows nothing of this emulator: a misreading of the PTX ISA that our kernels and
our emulator shared would show here.

{len(rows)} fixtures, {right} right under every schedule, with {len(by_opcode)} different opcodes. Printed on {today} by

    python benchmarks/conformance.py --out docs/conformance.md

* `tests/conformance/kernels/` has the kernels, `tests/conformance/generate.py` compiles them (it needs `triton`, no
  GPU), `tests/conformance/fixtures/` keeps the PTX with a manifest of its launches, `tests/conformance/cases.py` has
  the references, `tests/conformance/test_fixtures.py` runs all.
* Errors are the largest of an output, relative to the largest expected magnitude: about 1e-7 for float32 outputs, the
  rounding of the type for 16-bit ones, 0 where the result is exact.
* Findings: `tests/conformance/expected_warnings.py` says which warnings are right for which fixtures, and why. There is
  no error among them.

## What it found

In the compiler: on Hopper, Triton 3.9's automatic warp specialisation of a loop splits a tile of rows between two
consumers and gives the second one row indices with twice the offset they need. A causal mask made from them is wrong,
and a store through them leaves its array. The emulator reported the store, and gave the mask's wrong result bit for bit
as an H200 did. Those kernels are left out of the fixtures.

On cards: a wait for phase parity -1, which the ISA does not allow, acts on bit 0 (Triton's Hopper kernels rely on it).

## Fixtures

{table(rows)}

{card_table()}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the document here instead of printing the table")
    arguments = parser.parse_args()
    rows = [measure(name) for name in sorted(MANIFEST)]
    if arguments.out:
        arguments.out.write_text(document(rows).rstrip() + "\n", encoding="utf-8")
        print(f"{len(rows)} fixtures, {sum(row['right'] for row in rows)} right: {arguments.out}")
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
