"""Run the conformance fixtures of the card's architecture on the card, beside the emulator and NumPy.

    python benchmarks/conformance_gpu.py [--out tests/conformance/fixtures/gpu.json] [NAME ...]

Needs ``cuda-bindings``, a driver and a Hopper or Blackwell card. The driver compiles the PTX, whose version is lowered
to what the driver knows. For each output: the card's error against float64, the emulator's, and the largest difference
between the two, all relative to the largest expected magnitude.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver as cuda

from conformance import runner
from conformance.cases import FAMILIES

_SWIZZLES = ("NONE", "32B", "64B", "128B")
_MAP_TYPES = {
    "bfloat16": "BFLOAT16",
    "float16": "FLOAT16",
    "float32": "FLOAT32",
    "float8_e4m3fn": "UINT8",
    "float8_e5m2": "UINT8",
    "uint8": "UINT8",
}


def check(result: tuple[Any, ...]) -> Any:
    """The values of a driver call; raises on failure."""
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(f"{status}")
    return values[0] if len(values) == 1 else values


class Card:
    """The first card, with a context."""

    def __init__(self) -> None:
        check(cuda.cuInit(0))
        device = check(cuda.cuDeviceGet(0))
        self.name = check(cuda.cuDeviceGetName(128, device)).decode().strip("\0 ")
        attributes = cuda.CUdevice_attribute
        major = check(cuda.cuDeviceGetAttribute(attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
        minor = check(cuda.cuDeviceGetAttribute(attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
        self.arch = f"sm_{major}{minor}a"
        self.version = int(check(cuda.cuDriverGetVersion()))
        check(cuda.cuCtxSetCurrent(check(cuda.cuDevicePrimaryCtxRetain(device))))

    def upload(self, array: np.ndarray) -> int:
        """Copy an array to the card."""
        address = check(cuda.cuMemAlloc(max(array.nbytes, 256)))
        check(cuda.cuMemcpyHtoD(address, np.ascontiguousarray(array).ctypes.data, array.nbytes))
        return int(address)

    def download(self, address: int, like: np.ndarray) -> np.ndarray:
        """Copy an array back."""
        out = np.empty_like(like)
        check(cuda.cuMemcpyDtoH(out.ctypes.data, address, out.nbytes))
        return out

    def load(self, entry: dict[str, Any]) -> Any:
        """The kernel of a fixture."""
        text = (runner.FIXTURES / entry["file"]).read_text(encoding="utf-8")
        major, minor = self.version // 1000, self.version % 1000 // 10
        newest = f"{major - 4}.{minor}" if major >= 13 else "8.0"
        text = re.sub(r"^\.version \S+", f".version {newest}", text, flags=re.MULTILINE)
        module = check(cuda.cuModuleLoadData(text.encode() + b"\0"))
        function = check(cuda.cuModuleGetFunction(module, entry["entry"].encode()))
        attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(cuda.cuFuncSetAttribute(function, attribute, entry["shared_bytes"]))
        return function

    def tensor_map(self, address: int, array: np.ndarray, each: dict[str, Any]) -> bytes:
        """A tensor map by the driver, its 128 bytes."""
        rank = array.ndim
        encoded = check(
            cuda.cuTensorMapEncodeTiled(
                getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_MAP_TYPES[array.dtype.name]}"),
                rank,
                address,
                [cuda.cuuint64_t(n) for n in array.shape[::-1]],
                [cuda.cuuint64_t(n) for n in array.strides[:-1][::-1]],
                [cuda.cuuint32_t(n) for n in each["box"][::-1]],
                [cuda.cuuint32_t(1)] * rank,
                cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
                getattr(cuda.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[each['swizzle']]}"),
                cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
                cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        )
        return ctypes.string_at(encoded.getPtr(), 128)

    def run(self, entry: dict[str, Any]) -> dict[str, np.ndarray]:
        """Launch a fixture; its outputs by name."""
        case = FAMILIES[entry["family"]](entry["problem"])
        addresses = {name: self.upload(array) for name, array in case.arrays.items()}
        held = []
        for each in entry["parameters"]:
            if "array" in each:
                raw = np.uint64(addresses[each["array"]]).tobytes()
            elif "scalar" in each:
                raw = {"i32": np.int32, "i64": np.int64, "fp32": np.float32}[each["type"]](each["scalar"]).tobytes()
            elif "scratch" in each:
                size = each["scratch"] * int(np.prod(entry["grid"]))
                raw = np.uint64(self.upload(np.zeros(size, np.uint8)) if size else 0).tobytes()
            else:
                raw = self.tensor_map(addresses[each["tiles"]], case.arrays[each["tiles"]], each)
            buffer = np.zeros(len(raw) + 128, np.uint8)
            start = -buffer.ctypes.data % 128
            buffer[start : start + len(raw)] = np.frombuffer(raw, np.uint8)
            held.append((buffer, buffer.ctypes.data + start))
        pointers = np.array([address for _, address in held], np.uint64)
        config = cuda.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = entry["grid"]
        config.blockDimX, config.blockDimY, config.blockDimZ = entry["block"]
        config.sharedMemBytes = entry["shared_bytes"]
        if entry["cluster"] != [1, 1, 1]:
            attribute = cuda.CUlaunchAttribute()
            attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            value = attribute.value
            value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = entry["cluster"]
            attribute.value = value
            config.attrs, config.numAttrs = [attribute], 1
        function = self.load(entry)
        check(cuda.cuLaunchKernelEx(config, function, pointers.ctypes.data, 0))
        check(cuda.cuCtxSynchronize())
        return {name: self.download(addresses[name], case.arrays[name]) for name in case.expected}


def compare(entry: dict[str, Any], on_card: dict[str, np.ndarray]) -> dict[str, Any]:
    """Errors of the card and of the emulator, and their difference."""
    case = FAMILIES[entry["family"]](entry["problem"])
    emulated = runner.run(entry["name"])
    row: dict[str, Any] = {"name": entry["name"], "gpu_error": 0.0, "emulator_error": 0.0, "difference": 0.0}
    row["bitwise"] = True
    for name, expected in case.expected.items():
        largest = max(np.abs(expected).max(), 1e-30)
        card, mine = on_card[name], emulated.outputs[name]
        wide, mine_wide = card.astype(np.float64), mine.astype(np.float64)
        row["gpu_error"] = max(row["gpu_error"], float(np.abs(wide - expected).max() / largest))
        row["emulator_error"] = max(row["emulator_error"], float(np.abs(mine_wide - expected).max() / largest))
        row["difference"] = max(row["difference"], float(np.abs(wide - mine_wide).max() / largest))
        row["bitwise"] &= bool(np.array_equal(card.view(np.uint8), mine.view(np.uint8)))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only fixtures that begin so")
    parser.add_argument("--out", type=Path, help="keep the results as JSON")
    arguments = parser.parse_args()
    card = Card()
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    print(f"{card.name}, {card.arch}, driver for CUDA {card.version // 1000}.{card.version % 1000 // 10}, {today}")
    rows = []
    for name, entry in sorted(runner.MANIFEST.items()):
        if entry["arch"] != card.arch or (arguments.names and not name.startswith(tuple(arguments.names))):
            continue
        row = compare(entry, card.run(entry))
        rows.append(row)
        same = "same bits" if row["bitwise"] else f"differ by {row['difference']:.1e}"
        print(f"{name:48} GPU {row['gpu_error']:.1e}  emulator {row['emulator_error']:.1e}  {same}", flush=True)
    if arguments.out:
        header = {"card": card.name, "arch": card.arch, "driver": card.version, "date": today}
        arguments.out.write_text(json.dumps({**header, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
