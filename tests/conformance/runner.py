"""Run a fixture on the emulator: its launch as the manifest describes it, its results against the reference."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.cases import FAMILIES
from umma_jit.emulator import DeviceMemory, Module, TensorMap

if TYPE_CHECKING:
    from umma_jit.emulator import Kernel, Report

__all__ = ["MANIFEST", "Outcome", "load", "run"]

FIXTURES = Path(__file__).resolve().parent / "fixtures"
MANIFEST: dict[str, dict[str, Any]] = {
    entry["name"]: entry for entry in json.loads((FIXTURES / "manifest.json").read_text(encoding="utf-8"))
}
_SWIZZLES = ("none", "32B", "64B", "128B")
_SCALARS = {"i32": np.int32, "i64": np.int64, "fp32": np.float32}
_MAP_TYPES = {
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float32": "float32",
    "float8_e4m3fn": "uint8",
    "float8_e5m2": "uint8",
    "uint8": "uint8",
    "int32": "int32",
}


@dataclass
class Outcome:
    """What a run gave.

    Attributes
    ----------
    errors
        By output: the largest error relative to the largest expected magnitude, and what is allowed.
    outputs
        By output, the array.
    """

    errors: dict[str, tuple[float, float]]
    outputs: dict[str, np.ndarray]
    report: Report

    @property
    def right(self) -> bool:
        """Whether all outputs are within their tolerance."""
        return all(error <= allowed for error, allowed in self.errors.values())

    @property
    def worst(self) -> float:
        """The largest relative error."""
        return max(error for error, _ in self.errors.values())


@cache
def load(name: str) -> Kernel:
    """The fixture's kernel, translated once."""
    entry = MANIFEST[name]
    return Module((FIXTURES / entry["file"]).read_text(encoding="utf-8"))[entry["entry"]]


def run(name: str, schedule: str = "program", seed: int = 0, **options: Any) -> Outcome:
    """Launch the fixture and compare."""
    entry = MANIFEST[name]
    case = FAMILIES[entry["family"]](entry["problem"])
    memory = DeviceMemory()
    addresses = {key: memory.upload(array) for key, array in case.arrays.items()}
    parameters = [_parameter(each, case.arrays, addresses, memory, entry) for each in entry["parameters"]]
    report = load(name).launch(
        grid=tuple(entry["grid"]),
        block=tuple(entry["block"]),
        cluster=tuple(entry["cluster"]),
        shared_bytes=entry["shared_bytes"],
        memory=memory,
        params=parameters,
        schedule=schedule,
        seed=seed,
        **options,
    )
    errors: dict[str, tuple[float, float]] = {}
    outputs: dict[str, np.ndarray] = {}
    for key, expected in case.expected.items():
        array = case.arrays[key]
        got = outputs[key] = memory.download(addresses[key], array.shape, array.dtype)
        wrong = np.abs(got.astype(np.float64) - expected).max() / max(np.abs(expected).max(), 1e-30)
        errors[key] = (float("inf") if np.isnan(wrong) else float(wrong), case.tolerance[key])
    return Outcome(errors, outputs, report)


def _parameter(
    each: dict[str, Any],
    arrays: dict[str, np.ndarray],
    addresses: dict[str, int],
    memory: DeviceMemory,
    entry: dict[str, Any],
) -> Any:
    if "array" in each:
        return np.uint64(addresses[each["array"]])
    if "scalar" in each:
        return _SCALARS[each["type"]](each["scalar"])
    if "scratch" in each:
        size = each["scratch"] * int(np.prod(entry["grid"]))
        return np.uint64(memory.upload(np.zeros(size, np.uint8)) if size else 0)
    array = arrays[each["tiles"]]
    return TensorMap(
        addresses[each["tiles"]],
        _MAP_TYPES[array.dtype.name],
        dims=array.shape[::-1],
        strides_bytes=array.strides[:-1][::-1],
        box=tuple(each["box"])[::-1],
        swizzle=_SWIZZLES[each["swizzle"]],
    )
