"""What `attention` costs on the host beside the launch: import, cold call, warm call. No GPU needed.

The launch is replaced by nothing, so what is left is this library's own Python: reading arrays, checking addresses, one
dictionary look-up, allocating the result.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import numpy as np

from umma_jit import _attention, attention, runtime
from umma_jit.testing import make_inputs

CALLS = 2000
ROUNDS = 7
MAX_CALL_MICROSECONDS = 50
MAX_IMPORT_MILLISECONDS = 150


class NoDevice:
    """A device on which every launch takes no time."""

    arch = "sm_100a"
    image_kind = "ptx"
    evidence = "emulated"

    def load(self, image: object) -> object:
        """Take any image."""
        return image

    def launch(self, *_: object) -> None:
        """Do nothing."""


def import_milliseconds() -> float:
    """Return the best of a few imports in new processes."""
    script = "import time; t = time.perf_counter(); import umma_jit; print((time.perf_counter() - t) * 1e3)"
    runs = [subprocess.run([sys.executable, "-c", script], check=True, capture_output=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs)


def call_microseconds(**options: object) -> float:
    """Return the median over rounds of the mean time of a warm call."""
    inputs = make_inputs(seqlen_q=128, num_heads=8, head_dim=128)
    attention(inputs.q, inputs.k, inputs.v, **options)
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            attention(inputs.q, inputs.k, inputs.v, **options)
        rounds.append((time.perf_counter() - start) / CALLS * 1e6)
    return statistics.median(rounds)


def main() -> int:
    """Print the table; exit code 1 if a limit is missed."""
    device = NoDevice()
    runtime.for_device = lambda ordinal: device
    imported = import_milliseconds()
    print(f"import umma_jit                    {imported:7.1f} ms   (limit {MAX_IMPORT_MILLISECONDS})")
    image = _attention.prepare(*vars(make_inputs(head_dim=128)).values()).image
    print(f"compile to PTX, head_dim 128       {image.compile_seconds * 1e3:7.1f} ms   ({image.origin})")
    out = np.empty_like(make_inputs(seqlen_q=128, num_heads=8, head_dim=128).q)
    worst = 0.0
    for title, options in (("", {}), (", with lse", {"return_lse": True}), (", with out", {"out": out})):
        cost = call_microseconds(**options)
        worst = max(worst, cost)
        print(f"warm call beside the launch{title:<10} {cost:6.1f} µs   (limit {MAX_CALL_MICROSECONDS})")
    return int(worst > MAX_CALL_MICROSECONDS or imported > MAX_IMPORT_MILLISECONDS)


if __name__ == "__main__":
    sys.exit(main())
