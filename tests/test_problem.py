from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umma_jit._arrays import ArrayLayout, view
from umma_jit._problem import MAX_SEQLEN, AttentionProblem, as_flag, as_scale, check_addresses
from umma_jit.errors import ArgumentTypeError, InvalidArgumentError, UnsupportedProblemError

BF16 = np.dtype(ml_dtypes.bfloat16)


def zeros(*shape: int, dtype=BF16) -> np.ndarray:
    return np.zeros(shape, dtype)


def problem(q, k, v, out=None, **options) -> AttentionProblem:
    views = {"q": view(q, "q"), "k": view(k, "k"), "v": view(v, "v")}
    if out is not None:
        views["out"] = view(out, "out")
    options = {"causal": False, "softmax_scale": None, "return_lse": False, **options}
    layouts = [views[name].layout if name in views else None for name in ("q", "k", "v", "out")]
    result = AttentionProblem.from_layouts(*layouts, **options)
    check_addresses(views)
    return result


def refused(argument: str, *needles: str):
    """The error names the argument and says each needle."""
    pattern = "".join(f"(?=.*{needle})" for needle in needles)
    return pytest.raises(UnsupportedProblemError, match=f"(?s)^{argument}: {pattern}")


def test_a_plain_call():
    p = problem(zeros(2, 5, 4, 64), zeros(2, 7, 2, 64), zeros(2, 7, 2, 64), causal=True, return_lse=True)
    assert (p.batch_size, p.seqlen_q, p.seqlen_k, p.num_heads, p.num_heads_kv, p.head_dim) == (2, 5, 7, 4, 2, 64)
    assert (p.dtype, p.out_dtype, p.causal, p.return_lse) == ("bfloat16", "bfloat16", True, True)
    assert p.softmax_scale == 0.125
    assert p.q_strides == (5 * 4 * 128, 4 * 128, 128)
    assert p.out_strides == p.q_strides
    assert (p.out_shape, p.lse_shape) == ((2, 5, 4, 64), (2, 4, 5))
    assert hash(p) == hash(problem(zeros(2, 5, 4, 64), *[zeros(2, 7, 2, 64)] * 2, causal=True, return_lse=True))


def test_a_transposed_array_passes_without_a_copy():
    bhsd = zeros(2, 4, 5, 64).transpose(0, 2, 1, 3)
    assert problem(bhsd, bhsd, bhsd).q_strides == (4 * 5 * 128, 128, 5 * 128)


def test_slices_of_a_packed_array_pass():
    qkv = zeros(2, 5, 3, 4, 64)
    p = problem(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2])
    assert p.k_strides == (5 * 3 * 4 * 128, 3 * 4 * 128, 128)


def test_float32_output_is_four_bytes_wide():
    q = zeros(1, 2, 3, 64)
    assert problem(q, q, q, out_dtype="float32").out_strides == (2 * 3 * 256, 3 * 256, 256)
    assert problem(q, q, q, zeros(1, 2, 3, 64, dtype=np.float32)).out_dtype == "float32"


@pytest.mark.parametrize("name", ["q", "k", "v"])
@pytest.mark.parametrize("shape", [(), (5,), (5, 4, 64), (1, 2, 5, 4, 64)])
def test_wrong_rank(name, shape):
    arrays = {n: zeros(2, 5, 4, 64) for n in "qkv"} | {name: zeros(*shape)}
    with refused(name, f"{len(shape)} axes", r"batch, seqlen, heads, head_dim"):
        problem(**arrays)


@pytest.mark.parametrize(
    ("k", "v", "argument", "needles"),
    [
        ((3, 7, 2, 64), (3, 7, 2, 64), "k", ["batch 3", "q, 2"]),
        ((2, 7, 2, 128), (2, 7, 2, 128), "k", ["head_dim 128", "q, 64"]),
        ((2, 7, 2, 64), (2, 7, 2, 128), "v", ["head_dim 128", "q, 64"]),
        ((2, 7, 2, 64), (2, 8, 2, 64), "v", [r"\(2, 8, 2, 64\)", r"k, \(2, 7, 2, 64\)"]),
        ((2, 7, 2, 64), (2, 7, 4, 64), "v", [r"\(2, 7, 4, 64\)"]),
        ((2, 7, 3, 64), (2, 7, 3, 64), "k", ["3 heads", "divides the 4"]),
        ((2, 7, 8, 64), (2, 7, 8, 64), "k", ["8 heads", "divides the 4"]),
        ((2, 7, 0, 64), (2, 7, 0, 64), "k", ["0 heads", "divides the 4"]),
    ],
)
def test_mismatched_shapes(k, v, argument, needles):
    with refused(argument, *needles):
        problem(zeros(2, 5, 4, 64), zeros(*k), zeros(*v))


@pytest.mark.parametrize(("shape", "axis"), [((2, 5, 0, 64), "heads"), ((2, 5, 4, 0), "head_dim")])
def test_no_heads_or_no_head_dim(shape, axis):
    with refused("q", axis):
        problem(zeros(*shape), zeros(*shape), zeros(*shape))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int8", "complex64", "bool", "U1", "S2", "O"])
def test_unsupported_dtypes(dtype):
    a = zeros(1, 2, 3, 64, dtype=dtype)
    with refused("q", "dtype", "bfloat16"):
        problem(a, a, a)


def test_foreign_byte_order():
    a = zeros(1, 2, 3, 64, dtype=">f2")
    with refused("q", "byte order"):
        problem(a, a, a)


@pytest.mark.parametrize("name", ["k", "v"])
def test_mixed_dtypes(name):
    arrays = {n: zeros(1, 2, 3, 64) for n in "qkv"} | {name: zeros(1, 2, 3, 64, dtype=np.float16)}
    with refused(name, "float16", "q, bfloat16"):
        problem(**arrays)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_last_axis_not_contiguous(name):
    arrays = {n: zeros(1, 8, 2, 64) for n in "qkv"} | {name: zeros(1, 8, 64, 2).transpose(0, 1, 3, 2)}
    with refused(name, "4 bytes between", "contiguous"):
        problem(**arrays)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_misaligned_stride(name):
    arrays = {n: zeros(1, 8, 2, 64) for n in "qkv"} | {name: zeros(1, 8, 2, 65)[..., :64]}
    with refused(name, "260 bytes along seqlen", "multiple of 16"):
        problem(**arrays)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_misaligned_address(name):
    arrays = {n: zeros(1, 8, 2, 64) for n in "qkv"} | {name: zeros(1, 8, 2, 72)[..., 1:65]}
    with refused(name, "2 bytes past", "multiple of 16"):
        problem(**arrays)


def test_backwards_stride():
    a = zeros(1, 8, 2, 64)
    with refused("k", "backwards along seqlen"):
        problem(a, a[:, ::-1], a)


def test_broadcast():
    a = zeros(1, 8, 2, 64)
    with refused("v", "broadcast along heads", "no broadcast"):
        problem(a, a, np.broadcast_to(zeros(1, 8, 1, 64), (1, 8, 2, 64)))


def test_strides_of_extents_of_one_do_not_matter():
    a = np.lib.stride_tricks.as_strided(zeros(1, 8, 1, 64), strides=(7, 128, -3, 2))
    problem(a, a, a)


def test_absurd_strides_and_sizes():
    def layout(shape, strides):
        return ArrayLayout(shape, strides, BF16, -1, writable=True)

    options = {"causal": False, "softmax_scale": None, "return_lse": False}
    good = layout((1, 8, 2, 64), (2048, 256, 128, 2))
    wide = layout((1, 8, 2, 64), (2048, 1 << 40, 128, 2))
    with refused("k", f"{1 << 40} bytes", r"2\^40"):
        AttentionProblem.from_layouts(good, wide, good, None, **options)
    long = layout((1, MAX_SEQLEN + 1, 2, 64), (1 << 39, 256, 128, 2))
    with refused("k", str(MAX_SEQLEN + 1), r"2\^30"):
        AttentionProblem.from_layouts(good, long, long, None, **options)
    with refused("q", str(MAX_SEQLEN + 1), r"2\^30"):
        AttentionProblem.from_layouts(long, good, good, None, **options)


def test_mixed_devices():
    q = view(zeros(1, 8, 2, 64), "q").layout
    with refused("v", "CUDA device 1", "emulated"):
        AttentionProblem.from_layouts(
            q, q, q._replace(device=1), None, causal=False, softmax_scale=None, return_lse=False
        )


@pytest.mark.parametrize(
    ("out", "needles"),
    [
        (zeros(1, 8, 2), ["3 axes"]),
        (zeros(1, 8, 3, 64), [r"\(1, 8, 3, 64\)", r"q, \(1, 8, 2, 64\)"]),
        (zeros(1, 8, 2, 64, dtype=np.float16), ["float16", "bfloat16", "float32"]),
        (zeros(1, 8, 2, 64, dtype=">f4"), ["byte order"]),
        (zeros(1, 8, 2, 65)[..., :64], ["260 bytes"]),
        (zeros(1, 8, 64, 2).transpose(0, 1, 3, 2), ["contiguous"]),
    ],
)
def test_wrong_out(out, needles):
    a = zeros(1, 8, 2, 64)
    with refused("out", *needles):
        problem(a, a, a, out)


def test_read_only_out():
    a, out = zeros(1, 8, 2, 64), zeros(1, 8, 2, 64)
    out.flags.writeable = False
    with refused("out", "read-only"):
        problem(a, a, a, out)


def test_read_only_inputs_are_fine():
    a = zeros(1, 8, 2, 64)
    a.flags.writeable = False
    problem(a, a, a)


def test_out_that_overlaps_itself():
    a = zeros(1, 8, 2, 64)
    out = np.lib.stride_tricks.as_strided(zeros(1, 16, 2, 64), (1, 8, 2, 64), (0, 64, 1024, 2))
    with refused("out", "overlap"):
        problem(a, a, a, out)


def test_out_that_shares_memory_with_an_input():
    a, k = zeros(1, 8, 2, 64), zeros(1, 8, 2, 64)
    with refused("out", "shares memory with q"):
        problem(a, k, k, a)
    with refused("out", "shares memory with k"):
        problem(a, k, zeros(1, 8, 2, 64), k)


def test_out_beside_its_inputs_in_one_packed_array_is_fine():
    packed = zeros(1, 8, 4, 2, 64)
    problem(packed[:, :, 0], packed[:, :, 1], packed[:, :, 2], packed[:, :, 3])


def test_out_dtype_must_agree_with_out():
    a = zeros(1, 8, 2, 64)
    with refused("out", "bfloat16", "float32"):
        problem(a, a, a, zeros(1, 8, 2, 64), out_dtype="float32")
    with refused("out_dtype", "float64", "float32"):
        problem(a, a, a, out_dtype="float64")


@pytest.mark.parametrize("batch_size", [0, 1])
@pytest.mark.parametrize("seqlen_q", [0, 1])
@pytest.mark.parametrize("seqlen_k", [0, 1])
def test_empty_extents(batch_size, seqlen_q, seqlen_k):
    kv = zeros(batch_size, seqlen_k, 2, 64)
    p = problem(zeros(batch_size, seqlen_q, 2, 64), kv, kv)
    assert p.is_empty == (batch_size == 0 or seqlen_q == 0)


@pytest.mark.parametrize("value", [1, 0, "True", None, 1.0, [True], np.array([True])])
def test_flags_are_bools(value):
    with pytest.raises(ArgumentTypeError, match=r"causal: .*expected True or False"):
        as_flag(value, "causal")


def test_numpys_bools_are_bools():
    assert as_flag(np.True_, "causal") is True


@pytest.mark.parametrize("value", [True, np.True_, "0.5", 1j, [0.5], np.array([0.5, 1.0]), object()])
def test_a_scale_is_a_number(value):
    with pytest.raises(ArgumentTypeError, match="softmax_scale"):
        as_scale(value)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, 1e39, 1e-39, 10**400, 3.0e38, np.float32(np.nan)]
)
def test_a_scale_is_positive_and_within_float32(value):
    with pytest.raises(UnsupportedProblemError, match="softmax_scale"):
        as_scale(value)


@pytest.mark.parametrize("value", [0.5, 1, np.float16(0.5), np.float32(2), np.int64(3), Fraction(1, 8), 1e38, 1e-37])
def test_numbers_of_all_kinds_are_scales(value):
    scale = as_scale(value)
    assert type(scale) is float
    assert scale == float(value)


@pytest.mark.parametrize("array", [[[1.0]], 1.0, None, "q", object(), {"q": 1}, memoryview(b"12")])
def test_what_is_no_array(array):
    with pytest.raises(ArgumentTypeError, match=r"^q: is of type .*expected a NumPy array"):
        view(array, "q")


def test_masked_arrays_are_refused():
    with pytest.raises(ArgumentTypeError, match="masks"):
        view(np.ma.masked_array([1.0]), "q")


class HostTensor:
    """An array of another library in host memory."""

    def __dlpack_device__(self):
        return (1, 0)


def test_host_memory_of_other_libraries_is_refused_with_a_way_out():
    with pytest.raises(ArgumentTypeError, match=r"(?s)not a CUDA device.*numpy\.asarray"):
        view(HostTensor(), "q")


extents = st.integers(0, 5)
shapes = st.lists(st.integers(0, 5), min_size=0, max_size=5).map(tuple)


@given(shapes, shapes, shapes, st.sampled_from([BF16, np.dtype(np.float16), np.dtype(np.float32)]))
def test_any_three_shapes_either_make_a_problem_or_a_typed_error(q, k, v, dtype):
    arrays = [np.zeros(shape, dtype) for shape in (q, k, v)]
    try:
        p = problem(*arrays)
    except InvalidArgumentError as error:
        facts = (error.argument, error.have, error.expected)
    else:
        facts = ("q", p.out_shape == q, p.num_heads % p.num_heads_kv == 0)
    assert facts[0] in ("q", "k", "v")
    assert all(facts)


@given(st.data())
def test_any_strided_view_is_either_aligned_or_refused(data):
    base = zeros(2, 9, 4, 96)
    slices = tuple(
        slice(data.draw(st.integers(0, 2)), data.draw(st.integers(3, n)), data.draw(st.sampled_from([1, 2, -1])))
        for n in base.shape[1:]
    )
    a = base[(slice(None), *slices)]
    try:
        p = problem(a, a, a)
    except UnsupportedProblemError:
        return
    assert view(a, "a").address % 16 == 0 or a.size == 0
    assert a.size == 0 or all(s % 16 == 0 for n, s in zip(a.shape, p.q_strides, strict=False) if n > 1)
