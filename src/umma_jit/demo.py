"""``python -m umma_jit.demo``: attention at head_dim 64, 128 and 256, compared with float64.

On a CUDA device whose architecture there are kernels for it runs there, else on the emulated device; the last column
says which. Exits with 1 if an error is above its limit.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _attention, backends, reference
from ._arrays import EMULATED
from .errors import UmmaJitError
from .runtime import for_device
from .testing import AttentionInputs, cosine, make_inputs, relative_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .runtime import Runtime

__all__ = ["main"]

HEAD_DIMS = (64, 128, 256)
MAX_ERROR = {"bfloat16": 3.2e-3, "float16": 4.5e-4}
"""Rounding P and the output alone costs about 2.2e-3 and 2.8e-4."""

_ROW = "{:>8}  {:<8}  {:<9}  {:>10}  {:>11}  {:>10}  {:>9}  {:>9}  {}"


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes
    ----------
    head_dim : int
        Of the problem.
    arch : str
        What the kernel was compiled for.
    error, cosine, lse_error : float
        Against float64: relative, of the angle, and the largest absolute one of the log-sum-exp.
    compile_seconds : float
        Wall time of the kernel's compile.
    cached : bool
        Whether that was in an earlier process, and the kernel came from the disk cache.
    run_seconds : float
        Wall time of a warm call.
    evidence : str
        ``"emulated"`` or ``"measured"``.
    """

    head_dim: int
    arch: str
    error: float
    cosine: float
    lse_error: float
    compile_seconds: float
    cached: bool
    run_seconds: float
    evidence: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m umma_jit.demo", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seqlen", type=_count, default=256, help="queries and keys (default %(default)s)")
    parser.add_argument("--heads", type=_count, default=2, help="query heads, on one key head (default %(default)s)")
    parser.add_argument("--dtype", choices=sorted(MAX_ERROR), default="bfloat16")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--emulate", action="store_true", help="use the emulated device even if there is a GPU")
    options = parser.parse_args(arguments)
    try:
        return _demo(options)
    except UmmaJitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _count(text: str) -> int:
    """Read an argument that counts something: 1 to 65,535, more than which no demonstration needs."""
    value = int(text)
    if not 1 <= value <= 65_535:
        raise argparse.ArgumentTypeError(f"{value} is not within 1 to 65535")
    return value


def _demo(options: argparse.Namespace) -> int:
    device, why = (EMULATED, "asked for") if options.emulate else _choose_device()
    runtime = for_device(device)
    print(
        f"attention, {options.dtype}, batch 1, {options.heads} query heads on 1 key head, seqlen {options.seqlen}, "
        f"{'causal' if options.causal else 'full'}\non {runtime!r} ({why})\n"
    )
    print(_ROW.format("head_dim", "arch", "dtype", "rel. error", "cosine", "lse error", "compile", "call", "evidence"))
    limit = MAX_ERROR[options.dtype]
    good = True
    for head_dim in HEAD_DIMS:
        line = _measure(head_dim, device, runtime, options)
        # Written this way round, a NaN fails.
        good &= line.error <= limit and line.lse_error <= 1e-4
        print(
            _ROW.format(
                line.head_dim,
                line.arch,
                options.dtype,
                f"{line.error:.2e}",
                f"{line.cosine:.8f}",
                f"{line.lse_error:.1e}",
                f"{line.compile_seconds:.2f} s" + ("*" if line.cached else ""),
                f"{line.run_seconds:.3f} s",
                line.evidence,
            ),
            flush=True,
        )
    print(f"\nerrors are against float64 on the same inputs; limits {limit:.1e} relative, 1e-4 for the log-sum-exp")
    print("* compiled by an earlier run, loaded from the disk cache now")
    if not good:
        print("FAILED: an error is above its limit", file=sys.stderr)
    return 0 if good else 1


def _choose_device() -> tuple[int, str]:
    """Return the first CUDA device that there are kernels for, else the emulated one; and why."""
    from .runtime.cuda import device_count

    count = device_count()
    if not count:
        return EMULATED, "no CUDA device here"
    reason = ""
    for ordinal in range(count):
        try:
            backends.for_arch(for_device(ordinal).arch)
        except UmmaJitError as error:
            reason = str(error)
            continue
        try:
            import cupy  # noqa: F401 - only to see that it is there
        except ImportError:
            return EMULATED, "a supported GPU is here, but CuPy is not: pip install 'umma-jit[cu12]'"
        return ordinal, "a supported CUDA device"
    return EMULATED, reason


def _measure(head_dim: int, device: int, runtime: Runtime, options: argparse.Namespace) -> Line:
    inputs = make_inputs(
        seqlen_q=options.seqlen,
        num_heads=options.heads,
        num_heads_kv=1,
        head_dim=head_dim,
        dtype=options.dtype,
        seed=head_dim,
    )
    expected, expected_lse = reference.attention(inputs.q, inputs.k, inputs.v, causal=options.causal)
    q, k, v = _to_device(inputs, device)
    _attention.attention(q, k, v, causal=options.causal, return_lse=True)
    start = time.perf_counter()
    out, lse = _attention.attention(q, k, v, causal=options.causal, return_lse=True)
    out, lse = _to_host(out, device), _to_host(lse, device)
    seconds = time.perf_counter() - start
    image = _attention.prepare(q, k, v, causal=options.causal, return_lse=True).image
    with np.errstate(invalid="ignore"):
        lse_error = float(np.max(np.abs(lse - expected_lse), initial=0.0, where=np.isfinite(expected_lse)))
    return Line(
        head_dim=head_dim,
        arch=runtime.arch,
        error=relative_error(out, expected),
        cosine=cosine(out, expected),
        lse_error=lse_error,
        compile_seconds=image.compile_seconds,
        cached=image.origin == "disk",
        run_seconds=seconds,
        evidence=runtime.evidence,
    )


def _to_device(inputs: AttentionInputs, device: int) -> tuple[Any, Any, Any]:
    arrays = (inputs.q, inputs.k, inputs.v)
    if device == EMULATED:
        return arrays
    import cupy

    with cupy.cuda.Device(device):
        q, k, v = (cupy.asarray(array) for array in arrays)
    return q, k, v


def _to_host(array: Any, device: int) -> Any:
    if device == EMULATED:
        return array
    import cupy

    return cupy.asnumpy(array)  # waits for the kernel


if __name__ == "__main__":
    sys.exit(main())
