"""Which kernels become fixtures, with which problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton.language as tl
from kernels import gluon_clusters, gluon_pipelines, gluon_tensor_memory, triton_attention, triton_matmul, triton_other
from kernels.spec import Const, Scalar, Spec, Tiles
from triton.experimental.gluon import language as gl

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


def _other(arch: int) -> Iterator[Spec]:
    for spec in _without_mma():
        spec.name = f"{'hopper' if arch == 90 else 'blackwell'}_{spec.name}"
        spec.arch = arch
        yield spec


def _without_mma() -> Iterator[Spec]:
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


_VARIANTS = ("32x32b", "16x64b", "16x128b", "16x256b")


def _gluon_tmem() -> Iterator[Spec]:
    memory = gluon_tensor_memory
    trips = [
        (128, 64, "fp32", store, load) for store, load in zip(_VARIANTS, (*_VARIANTS[1:], _VARIANTS[0]), strict=True)
    ]
    trips += [(128, 32, "fp32", "32x32b_splitn", "32x32b"), (64, 64, "fp32", "32x32b", "16x256b")]
    trips += [(128, 128, "fp16", "32x32b", "16x256b"), (128, 64, "i8", "32x32b", "32x32b")]
    for m, n, dtype, store, load in trips:
        yield Spec(
            f"gluon_round_trip_{m}x{n}_{dtype}_{store}_{load}", memory.round_trip, "copy",
            {"rows": m, "columns": n, "dtype": dtype},
            {"x": f"*{dtype}", "y": f"*{dtype}", "M": Const(m), "N": Const(n), "STORE": Const(store),
             "LOAD": Const(load), "UNPACKED": Const(False)},
        )  # fmt: skip
    yield Spec(
        "gluon_round_trip_unpacked", memory.round_trip, "copy", {"rows": 128, "columns": 64, "dtype": "fp16"},
        {"x": "*fp16", "y": "*fp16", "M": Const(128), "N": Const(64), "STORE": Const("32x32b"),
         "LOAD": Const("32x32b"), "UNPACKED": Const(True)},
    )  # fmt: skip
    shapes = [(m, n, 64, "bf16", "KK") for m in (64, 128) for n in (8, 16, 64, 256)]
    shapes += [(128, 64, 64, "fp16", majors) for majors in ("MK", "KN", "MN")]
    shapes += [(64, 32, 64, "bf16", "MN"), (128, 32, 32, "fp32", "KK"), (64, 64, 64, "fp8e5", "KK")]
    shapes += [(128, 128, 128, "fp8e4nv", "KK"), (128, 16, 16, "bf16", "KK")]
    for m, n, k, dtype, majors in shapes:
        for in_tmem in (False, True) if majors[0] == "K" else (False,):
            problem = {"m": m, "n": n, "k": k, "a": dtype, "b": dtype, "c": "fp32", "majors": majors}
            yield Spec(
                f"gluon_mma_{'ts' if in_tmem else 'ss'}_{m}x{n}x{k}_{dtype}_{majors}", memory.mma, "matmul", problem,
                {"a": f"*{dtype}", "b": f"*{dtype}", "c": "*fp32", "M": Const(m), "N": Const(n), "K": Const(k),
                 "A_MAJOR_K": Const(majors[0] == "K"), "B_MAJOR_K": Const(majors[1] == "K"),
                 "A_IN_TMEM": Const(in_tmem)},
            )  # fmt: skip
    for n, swizzle in ((64, 128), (16, 64), (8, 32)):
        yield Spec(
            f"gluon_copy_{n}_{swizzle}", memory.copy, "copy", {"rows": 128, "columns": n, "dtype": "fp32"},
            {"x": "*fp32", "y": "*fp32", "M": Const(128), "N": Const(n), "SWIZZLE": Const(swizzle)},
        )  # fmt: skip
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    for arch, prefix in ((100, "gluon"), (90, "gluon_hopper")):
        yield Spec(
            f"{prefix}_tma_ring", memory.tma_copy, "copy", {"rows": 160, "columns": 64, "dtype": "fp16"},
            {"x_tiles": Tiles("x", "fp16", (160, 64), (32, 64), layout),
             "y_tiles": Tiles("y", "fp16", (160, 64), (32, 64), layout), "ROWS": Const(32), "STAGES": Const(3),
             "COUNT": Const(5)}, arch=arch,
        )  # fmt: skip


def _gluon_clusters() -> Iterator[Spec]:
    clusters = gluon_clusters
    for m, n, k in ((256, 64, 128), (128, 64, 64), (256, 256, 64)):
        a_layout = gl.NVMMASharedLayout.get_default_for([m, 64], gl.bfloat16, cga_layout=[[1, 0]])
        b_layout = gl.NVMMASharedLayout.get_default_for([64, n], gl.bfloat16, cga_layout=[[0, 1]])
        yield Spec(
            f"gluon_pair_mma_{m}x{n}", clusters.pair_mma, "matmul",
            {"m": m, "n": n, "k": k, "a": "bf16", "b": "bf16", "c": "fp32", "majors": "KN"},
            {"a_tiles": Tiles("a", "bf16", (m, k), (m, 64), a_layout),
             "b_tiles": Tiles("b", "bf16", (k, n), (64, n), b_layout), "c": "*fp32", "M": Const(m), "N": Const(n),
             "K": Const(k), "BK": Const(64)}, options={"num_ctas": 2},
        )  # fmt: skip
    for arch, prefix in ((100, "gluon"), (90, "gluon_hopper")):
        layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16, cga_layout=[[0, 0]])
        yield Spec(
            f"{prefix}_multicast", clusters.multicast, "copy", {"rows": 64, "columns": 64, "dtype": "fp16"},
            {"x_tiles": Tiles("x", "fp16", (64, 64), (64, 64), layout), "y": "*fp16", "ROWS": Const(64),
             "COLUMNS": Const(64)}, options={"num_ctas": 2}, arch=arch,
        )  # fmt: skip
        yield Spec(
            f"{prefix}_exchange", clusters.exchange, "copy", {"rows": 64, "columns": 64, "dtype": "fp32"},
            {"x": "*fp32", "y": "*fp32", "ROWS": Const(64), "COLUMNS": Const(64)}, options={"num_ctas": 2}, arch=arch,
        )  # fmt: skip
    yield Spec(
        "gluon_dynamic", clusters.dynamic, "double", {"n": 128 * 6}, {"x": "*fp32", "y": "*fp32", "BLOCK": Const(128)},
        (6,),
    )  # fmt: skip


def _gluon_pipelines() -> Iterator[Spec]:
    pipelines = gluon_pipelines
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    yield Spec(
        "gluon_specialised_mma", pipelines.specialised_mma, "matmul",
        {"m": 128, "n": 64, "k": 320, "a": "fp16", "b": "fp16", "c": "fp32", "majors": "KK"},
        {"a_tiles": Tiles("a", "fp16", (128, 320), (128, 64), layout),
         "b_tiles": Tiles("b", "fp16", (64, 320), (64, 64), layout), "c": "*fp32", "M": Const(128), "N": Const(64),
         "K": Const(320), "BK": Const(64), "STAGES": Const(2)},
    )  # fmt: skip
    yield Spec(
        "gluon_scaled_by_copy", pipelines.scaled_by_copy, "scaled",
        {"m": 128, "n": 128, "k": 128, "a": "e4m3", "b": "e4m3", "group": 32, "tiled_scales": True},
        {"a": "*fp8e4nv", "a_scale": "*u8", "b": "*fp8e4nv", "b_scale": "*u8", "c": "*fp32", "M": Const(128),
         "N": Const(128), "K": Const(128)},
    )  # fmt: skip
    shapes = [(64, n, 64, "bf16", "KK") for n in (8, 16, 64, 256)]
    shapes += [(128, 32, 64, "fp16", "KN"), (64, 64, 64, "fp16", "MK"), (64, 64, 64, "bf16", "MN")]
    shapes += [(64, 32, 32, "fp32", "KK"), (64, 64, 64, "fp8e4nv", "KK"), (64, 32, 64, "fp8e5", "KK")]
    for m, n, k, dtype, majors in shapes:
        for in_registers in (False, True) if majors[0] == "K" else (False,):
            problem = {"m": m, "n": n, "k": k, "a": dtype, "b": dtype, "c": "fp32", "majors": majors}
            yield Spec(
                f"gluon_hopper_mma_{'rs' if in_registers else 'ss'}_{m}x{n}x{k}_{dtype}_{majors}",
                pipelines.warpgroup, "matmul", problem,
                {"a": f"*{dtype}", "b": f"*{dtype}", "c": "*fp32", "M": Const(m), "N": Const(n), "K": Const(k),
                 "DEPTH": Const(32 // _BYTES[dtype]), "A_MAJOR_K": Const(majors[0] == "K"),
                 "B_MAJOR_K": Const(majors[1] == "K"), "A_IN_REGISTERS": Const(in_registers)},
                options={"num_warps": 4 if m == 64 else 8}, arch=90,
            )  # fmt: skip


def everything() -> Iterator[Spec]:
    """All fixtures."""
    yield from _blackwell_matmul()
    yield from _scaled()
    yield from _attention(100)
    yield from _hopper_matmul()
    yield from _attention(90)
    yield from _gluon_tmem()
    yield from _gluon_clusters()
    yield from _gluon_pipelines()
    yield from _other(100)
    yield from _other(90)
