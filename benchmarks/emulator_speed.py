"""How fast the emulated device is on this machine: seconds and warp instructions per second.

    python benchmarks/emulator_speed.py

One process on one core; the second launch of each kernel, so that compiling and translating don't count. Exits with 1
if head_dim 64 at 512 x 512 takes more than its limit.
"""

from __future__ import annotations

import os
import platform
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from umma_jit._arrays import view
from umma_jit._attention import prepare
from umma_jit.runtime.emulated import EmulatedRuntime
from umma_jit.testing import make_inputs

MAX_SECONDS = 5.0
PROBLEMS = (  # head_dim, seqlen, causal
    (64, 512, False),
    (128, 512, False),
    (256, 512, False),
    (128, 1024, True),
)


def measure(head_dim: int, seqlen: int, causal: bool) -> tuple[float, float, int]:
    """Return seconds to load, seconds to run and warp instructions of one launch, one head."""
    inputs = vars(make_inputs(seqlen_q=seqlen, head_dim=head_dim))
    out = np.empty_like(inputs["q"])
    call = prepare(**inputs, causal=causal, out=out)
    device = EmulatedRuntime("sm_100a", progress=False)
    start = time.perf_counter()
    kernel = device.load(call.image)
    loaded = time.perf_counter() - start
    views = {name: view(array, name) for name, array in {**inputs, "out": out}.items()}
    seconds = []
    for _ in range(3):
        start = time.process_time()
        device.launch(kernel, call.plan, views)
        seconds.append(time.process_time() - start)
    return loaded, min(seconds[1:]), device.last_report.total_instructions


def main() -> int:
    """Print the table."""
    print("| head_dim | seqlen | mask | parse and translate | run | warp instructions | per second |")
    print("|---|---|---|---|---|---|---|")
    first = None
    for head_dim, seqlen, causal in PROBLEMS:
        loaded, seconds, count = measure(head_dim, seqlen, causal)
        first = seconds if first is None else first
        print(
            f"| {head_dim} | {seqlen} × {seqlen} | {'causal' if causal else 'full'} | {loaded:.2f} s | {seconds:.2f} s "
            f"| {count:,} | {count / seconds:,.0f} |",
            flush=True,
        )
    print(
        f"\none head, one core of {os.cpu_count()} ({platform.machine()}), Python {platform.python_version()}, "
        f"NumPy {np.__version__}, {time.strftime('%Y-%m-%d')}"
    )
    return int(first is None or first > MAX_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
