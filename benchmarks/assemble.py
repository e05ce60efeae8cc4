"""Compile every kernel for every architecture, and print what ptxas says: registers, spills, shared memory, seconds.

    python benchmarks/assemble.py [--arch sm_100a] [--out docs/resources.md]

Evidence of the kind "assembled": the code has been accepted by ptxas, and has not run. Each compile is cold: NVRTC
starts from the source, and no cache is asked. Exits with 1 if any kernel spills, uses local memory, or takes longer
than the limit.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from umma_jit._compile import compile_image, compiler_identity
from umma_jit._config import TMEM_COLUMNS, AttentionFwdConfig
from umma_jit._source import render
from umma_jit.backends import for_arch

if TYPE_CHECKING:
    from collections.abc import Iterator

ARCHITECTURES = ("sm_100a", "sm_103a")
LIMIT_SECONDS = 0.8

HEADER = (
    "| arch | head_dim | dtype | out | causal | key tiles | threads | registers | softmax / correction / other "
    "| spills | stack | shared | TMEM columns | cubin | seconds |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def rows(architectures: tuple[str, ...]) -> Iterator[tuple[str, float, bool]]:
    """Yield a table row, the seconds and whether the kernel keeps to registers, for each kernel."""
    for arch in architectures:
        for config in for_arch(arch).configs():
            image = compile_image(render(config, arch), "cubin")
            usage = image.resources
            if usage is None:
                raise RuntimeError(f"ptxas said nothing of {config}")
            spills = usage.spill_store_bytes + usage.spill_load_bytes
            yield (
                "| "
                + " | ".join(
                    map(
                        str,
                        (
                            arch,
                            config.head_dim,
                            config.dtype,
                            config.out_dtype,
                            "yes" if config.causal else "no",
                            config.kv_tiles or "any",
                            config.threads,
                            usage.registers,
                            _budget(config),
                            f"{spills} B",
                            f"{usage.stack_bytes} B",
                            f"{config.shared_bytes:,} B",
                            TMEM_COLUMNS,
                            f"{len(image.payload) / 1024:.0f} KB",
                            f"{image.compile_seconds:.2f}",
                        ),
                    )
                )
                + " |",
                image.compile_seconds,
                spills == 0 and usage.stack_bytes == 0,
            )


def _budget(config: AttentionFwdConfig) -> str:
    return f"{config.softmax_registers} / {config.correction_registers} / {config.other_registers}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", action="append", choices=ARCHITECTURES, help="default: both")
    parser.add_argument("--out", help="also write the table to this Markdown file")
    arguments = parser.parse_args()

    compiler_identity()  # loads NVRTC, which is not what is timed
    lines = [HEADER]
    print(HEADER)
    seconds = []
    clean = True
    for line, elapsed, in_registers in rows(tuple(arguments.arch or ARCHITECTURES)):
        print(line, flush=True)
        lines.append(line)
        seconds.append(elapsed)
        clean &= in_registers
    seconds.sort()
    summary = (
        f"{len(seconds)} kernels, NVRTC {compiler_identity()}, {dt.date.today().isoformat()}, "
        f"{platform.machine()} with {os.cpu_count()} cores: cold compile {seconds[0]:.2f} to {seconds[-1]:.2f} s, "
        f"median {seconds[len(seconds) // 2]:.2f} s; {'no spills, no local memory' if clean else 'SPILLS'}."
    )
    print("\n" + summary)
    if arguments.out:
        Path(arguments.out).write_text(
            "# What the kernels need\n\nAssembled: ptxas accepted each of them; the figures are its own. "
            "Printed by `python benchmarks/assemble.py`.\n\n" + summary + "\n\n" + "\n".join(lines) + "\n",
            encoding="utf-8",
        )
    return 0 if clean and seconds[-1] <= LIMIT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
