"""Which kernels become fixtures, with which problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton.language as tl

from kernels import triton_attention, triton_matmul, triton_other
from kernels.spec import Const, Scalar, Spec, Tiles

if TYPE_CHECKING:
    from collections.abc import Iterator

_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8e4nv": 1, "fp8e5": 1}


def _matmul(
    name: str,
    kernel: Any,
    m: int,
    n: int,
    k: int,
    tile: tuple[int, int, int],
    dtype: str = "bf16",
    out: str = "fp32",
    majors: str = "KK",
    arch: int = 100,
    slow: bool = False,
    extra: dict[str, Any] | None = None,
    **options: Any,
) -> Spec:
    """A product of `m` by `n` by `k`; `majors` says which dimension of A and of B is contiguous."""
    bm, bn, bk = tile
    problem = {"m": m, "n": n, "k": k, "a": dtype, "b": dtype, "c": out, "majors": majors}
    sizes = {"M": Scalar("i32", m), "N": Scalar("i32", n), "K": Scalar("i32", k)}
    blocks = {"BM": Const(bm), "BN": Const(bn), "BK": Const(bk)}
    tiles = {
        "a_tiles": Tiles("a", dtype, (m, k), (bm, bk)),
        "b_tiles": Tiles("b", dtype, (n, k), (bn, bk)),
        "c_tiles": Tiles("c", out, (m, n), (bm, bn)),
    }
    grid: tuple[int, ...] = (-(-m // bm), -(-n // bn))
    arrays = {"a": f"*{dtype}", "b": f"*{dtype}", "c": f"*{out}"}
    major = {"A_MAJOR_K": Const(majors[0] == "K"), "B_MAJOR_K": Const(majors[1] == "K")}
    more = {key: Const(value) for key, value in (extra or {}).items()}
    if kernel is triton_matmul.by_host_descriptors:
        arguments = {**tiles, "K": sizes["K"], **more, **blocks}
    elif kernel is triton_matmul.persistent:
        arguments = {**tiles, **sizes, **more, **blocks}
        grid = (more["PROGRAMS"].value,)
    else:
        arguments = {**arrays, **sizes, **major, **more, **blocks}
    prefix = "hopper" if arch == 90 else "blackwell"
    return Spec(f"{prefix}_{name}", kernel, "matmul", problem, arguments, grid, options, arch, slow=slow)


def _blackwell_matmul() -> Iterator[Spec]:
    pointers, descriptors = triton_matmul.by_pointers, triton_matmul.by_descriptors
    plain = {"MASKED": False}
    for dtype in ("bf16", "fp16", "fp32", "fp8e4nv", "fp8e5"):
        depth = 128 // _BYTES[dtype]
        yield _matmul(
            f"matmul_pointers_{dtype}", pointers, 128, 64, 2 * depth, (128, 64, depth), dtype, extra=plain, num_stages=2
        )
    for majors in ("MK", "KN", "MN"):
        yield _matmul(
            f"matmul_pointers_bf16_{majors}", pointers, 128, 128, 96, (128, 64, 32), majors=majors, extra=plain
        )
    for m, n in ((64, 16), (64, 32), (64, 128), (128, 16), (128, 256), (64, 256)):
        yield _matmul(f"matmul_pointers_{m}x{n}", pointers, m, n, 64, (m, n, 32), extra=plain, num_stages=1)
    yield _matmul(
        "matmul_pointers_masked", pointers, 100, 72, 80, (64, 64, 32), out="bf16", extra={"MASKED": True}, num_warps=8
    )
    yield _matmul("matmul_pointers_k16", pointers, 64, 64, 64, (64, 64, 16), "fp16", "fp16", extra=plain)
    for majors in ("KK", "MN"):
        for specialised in (False, True):
            name = f"matmul_descriptors_{majors}" + ("_specialised" if specialised else "")
            yield _matmul(
                name, descriptors, 128, 128, 192, (128, 64, 64), majors=majors, extra={"SPECIALISED": specialised}
            )
    yield _matmul(
        "matmul_descriptors_fp8", descriptors, 128, 64, 256, (128, 64, 128), "fp8e4nv", "fp16",
        extra={"SPECIALISED": False},
    )  # fmt: skip
    for specialised in (False, True):
        name = "matmul_host_descriptors" + ("_specialised" if specialised else "")
        yield _matmul(
            name, triton_matmul.by_host_descriptors, 128, 128, 192, (128, 64, 64), out="bf16",
            extra={"SPECIALISED": specialised},
        )  # fmt: skip
    for specialised, flatten in ((False, False), (False, True), (True, False)):
        name = "matmul_persistent" + ("_flat" if flatten else "") + ("_specialised" if specialised else "")
        yield _matmul(
            name, triton_matmul.persistent, 256, 192, 128, (128, 64, 64), out="bf16",
            extra={"PROGRAMS": 2, "SPECIALISED": specialised, "FLATTEN": flatten},
        )  # fmt: skip
    yield _matmul(
        "matmul_tf32_transposed", pointers, 128, 64, 64, (128, 64, 32), "fp32", majors="MN", extra=plain, num_stages=1
    )


def _scaled() -> Iterator[Spec]:
    for name, a, b, group in (
        ("mxfp8", "e4m3", "e4m3", 32),
        ("mxfp8_e5m2", "e5m2", "e4m3", 32),
        ("mxfp4", "e2m1", "e2m1", 32),
        ("mxfp8_mxfp4", "e4m3", "e2m1", 32),
        ("nvfp4", "e2m1", "e2m1", 16),
    ):
        m, n, k = 128, 128, 256
        problem = {"m": m, "n": n, "k": k, "a": a, "b": b, "group": group}
        scale = "*u8" if group == 32 else "*fp8e4nv"
        types = {"e4m3": "*fp8e4nv", "e5m2": "*fp8e5", "e2m1": "*u8"}
        arguments = {
            "a": types[a],
            "a_scale": scale,
            "b": types[b],
            "b_scale": scale,
            "c": "*fp32",
            "M": Scalar("i32", m),
            "N": Scalar("i32", n),
            "K": Scalar("i32", k),
            "A_FORMAT": Const(a),
            "B_FORMAT": Const(b),
            "A_PACK": Const(2 if a == "e2m1" else 1),
            "B_PACK": Const(2 if b == "e2m1" else 1),
            "GROUP": Const(group),
            "BM": Const(128),
            "BN": Const(128),
            "BK": Const(128),
        }
        yield Spec(
            f"blackwell_scaled_{name}",
            triton_matmul.scaled,
            "scaled",
            problem,
            arguments,
            options={"num_stages": 1},
        )


def _attention(arch: int) -> Iterator[Spec]:
    prefix = "hopper" if arch == 90 else "blackwell"
    for d in (64, 128):
        for causal in (False, True):
            for specialised in (False, True):
                s = 256
                if arch == 90 and specialised and causal:
                    continue  # see below: the mask is wrong
                # Triton 3.9 splits the tile between two consumers on Hopper and gives the second's row indices, which
                # the mask and the log-sum-exp use, twice the offset they need: wrong results, stores out of bounds.
                with_lse = not (arch == 90 and specialised)
                dtype = "bf16" if causal else "fp16"
                problem = {"heads": 1, "s": s, "d": d, "causal": causal, "dtype": dtype, "lse": with_lse}
                pointer = f"*{dtype}"
                arguments = {
                    **dict.fromkeys("qkv", pointer),
                    "out": pointer,
                    "lse": "*fp32",
                    "S": Scalar("i32", s),
                    "scale_log2": Scalar("fp32", 1.4426950408889634 / d**0.5),
                    "CAUSAL": Const(causal),
                    "SPECIALISED": Const(specialised),
                    "WITH_LSE": Const(with_lse),
                    "D": Const(d),
                    "BM": Const(128),
                    "BN": Const(64),
                }
                name = f"{prefix}_attention_d{d}" + ("_causal" if causal else "")
                yield Spec(
                    name + ("_specialised" if specialised else ""),
                    triton_attention.attention,
                    "attention",
                    problem,
                    arguments,
                    (s // 128, 1),
                    {"num_warps": 4, "num_stages": 2},
                    arch,
                )


def _hopper_matmul() -> Iterator[Spec]:
    pointers, descriptors = triton_matmul.by_pointers, triton_matmul.by_descriptors
    plain = {"MASKED": False}
    for dtype in ("bf16", "fp16", "fp32", "fp8e4nv", "fp8e5"):
        depth = 128 // _BYTES[dtype]
        yield _matmul(
            f"matmul_pointers_{dtype}", pointers, 128, 64, 2 * depth, (64, 64, depth), dtype, extra=plain, arch=90,
            num_stages=2,
        )  # fmt: skip
    for majors in ("MK", "KN", "MN"):
        yield _matmul(
            f"matmul_pointers_bf16_{majors}", pointers, 128, 128, 96, (128, 64, 32), majors=majors, extra=plain, arch=90
        )
    for m, n, warps in ((64, 16, 4), (64, 256, 4), (128, 128, 8), (128, 256, 8)):
        yield _matmul(
            f"matmul_pointers_{m}x{n}", pointers, m, n, 64, (m, n, 32), extra=plain, arch=90, num_stages=1,
            num_warps=warps,
        )  # fmt: skip
    yield _matmul(
        "matmul_pointers_masked", pointers, 100, 72, 80, (64, 64, 32), out="bf16", extra={"MASKED": True}, arch=90
    )
    for majors in ("KK", "MN"):
        for specialised in (False, True):
            name = f"matmul_descriptors_{majors}" + ("_specialised" if specialised else "")
            yield _matmul(
                name, descriptors, 128, 128, 192, (128, 64, 64), majors=majors, extra={"SPECIALISED": specialised},
                arch=90,
            )  # fmt: skip
    for specialised in (False, True):
        name = "matmul_host_descriptors" + ("_specialised" if specialised else "")
        yield _matmul(
            name, triton_matmul.by_host_descriptors, 128, 128, 192, (128, 128, 64), out="bf16",
            extra={"SPECIALISED": specialised}, arch=90, num_warps=8,
        )  # fmt: skip
    for flatten in (False, True):
        yield _matmul(
            "matmul_persistent" + ("_flat" if flatten else ""), triton_matmul.persistent, 256, 192, 128, (128, 64, 64),
            out="bf16", extra={"PROGRAMS": 2, "SPECIALISED": False, "FLATTEN": flatten}, arch=90,
        )  # fmt: skip


def _other() -> Iterator[Spec]:
    other = triton_other
    yield Spec(
        "softmax", other.softmax, "softmax", {"rows": 4, "columns": 900},
        {"x": "*fp32", "y": "*fp32", "columns": Scalar("i32", 900), "BLOCK": Const(1024)}, (4,),
    )  # fmt: skip
    yield Spec(
        "layer_norm", other.layer_norm, "layer_norm", {"rows": 4, "columns": 500},
        {"x": "*fp16", "weight": "*fp32", "bias": "*fp32", "y": "*fp16", "columns": Scalar("i32", 500),
         "epsilon": Scalar("fp32", 1e-5), "BLOCK": Const(512)}, (4,),
    )  # fmt: skip
    shape = {"ROWS": Const(16), "COLUMNS": Const(128)}
    arrays = {"x": "*fp32", "y": "*fp32"}
    yield Spec("scan", other.scan, "scan", {"rows": 16, "columns": 128}, {**arrays, **shape})
    yield Spec("sort", other.sort, "sort", {"rows": 16, "columns": 128}, {**arrays, **shape})
    yield Spec(
        "best", other.best, "best", {"rows": 3, "columns": 700},
        {"x": "*fp32", "values": "*fp32", "places": "*i32", "columns": Scalar("i32", 700), "BLOCK": Const(1024)}, (3,),
    )  # fmt: skip
    yield Spec(
        "gather", other.gather, "gather", {"n": 50, "width": 60, "table": 40},
        {"table": "*bf16", "index": "*i32", "y": "*bf16", "n": Scalar("i32", 50), "width": Scalar("i32", 60),
         "BLOCK": Const(32), "WIDTH": Const(64)}, (2,),
    )  # fmt: skip
    yield Spec(
        "atomics", other.atomics, "atomics", {"n": 300, "buckets": 16},
        {"index": "*i32", "weight": "*fp32", "counts": "*i32", "sums": "*fp32", "largest": "*i32", "lock": "*i32",
         "n": Scalar("i32", 300), "BLOCK": Const(128)}, (3,),
    )  # fmt: skip
    for dtype in ("fp32", "fp16", "i8"):
        yield Spec(
            f"transpose_{dtype}", other.transpose, "transpose", {"rows": 64, "columns": 32, "dtype": dtype},
            {"x": f"*{dtype}", "y": f"*{dtype}", "ROWS": Const(64), "COLUMNS": Const(32)},
        )  # fmt: skip
    yield Spec(
        "integers", other.integers, "integers", {"n": 256},
        {"x": "*i32", "y": "*i32", "z": "*i32", "BLOCK": Const(256)},
    )  # fmt: skip
    for name, dtype in (
        ("bf16", tl.bfloat16), ("fp16", tl.float16), ("e4m3", tl.float8e4nv), ("e5m2", tl.float8e5), ("i32", tl.int32),
        ("i8", tl.int8),
    ):  # fmt: skip
        yield Spec(
            f"conversions_{name}", other.conversions, "conversions", {"n": 512, "dtype": name},
            {**arrays, "DTYPE": Const(dtype), "BLOCK": Const(512)},
        )  # fmt: skip
    yield Spec("functions", other.functions, "functions", {"n": 256}, {**arrays, "BLOCK": Const(256)})


def everything() -> Iterator[Spec]:
    """All fixtures."""
    yield from _blackwell_matmul()
    yield from _scaled()
    yield from _attention(100)
    yield from _hopper_matmul()
    yield from _attention(90)
    yield from _other()
