from __future__ import annotations

import threading
import time

import ml_dtypes
import numpy as np
import pytest

import umma_jit
from umma_jit import _attention, attention, reference, runtime
from umma_jit._settings import Settings
from umma_jit.errors import (
    ArgumentTypeError,
    CompileError,
    InvalidArgumentError,
    LaunchError,
    UnsupportedArchError,
    UnsupportedProblemError,
)
from umma_jit.runtime.emulated import EmulatedRuntime
from umma_jit.testing import make_inputs, relative_error

BF16 = np.dtype(ml_dtypes.bfloat16)


def arrays(**kwargs):
    inputs = make_inputs(**kwargs)
    return inputs.q, inputs.k, inputs.v


def test_a_call_walks_the_whole_line_once(fake_device):
    q, k, v = arrays(seqlen_q=17, seqlen_k=33, num_heads=4, num_heads_kv=2)
    out = attention(q, k, v)
    assert (out.shape, out.dtype) == (q.shape, BF16)
    assert relative_error(out, reference.attention(q, k, v)[0]) < 3.2e-3
    assert np.array_equal(attention(q, k, v), out)
    assert len(fake_device.cache.requests) == len(fake_device.images) == 1
    assert len(fake_device.launches) == 2
    source, kind, config, anew = fake_device.cache.requests[0]
    assert (source.arch, source.entry, kind, anew) == ("sm_100a", "umma_attention_fwd", "ptx", False)
    assert config["head_dim"] == 64
    assert 'extern "C"' in source.text


def test_another_length_needs_no_other_kernel(fake_device):
    attention(*arrays(seqlen_q=700))
    attention(*arrays(seqlen_q=800))
    assert len(fake_device.cache.requests) == 1
    assert len({launch[1] for launch in fake_device.launches}) == 2


def test_lse_is_float32_by_heads(fake_device):
    q, k, v = arrays(seqlen_q=5, num_heads=3)
    out, lse = attention(q, k, v, return_lse=True)
    assert (lse.shape, lse.dtype) == ((1, 3, 5), np.float32)
    assert np.allclose(lse, reference.attention(q, k, v)[1])
    assert np.array_equal(out, attention(q, k, v))


def test_out_is_written_and_returned(fake_device):
    q, k, v = arrays(seqlen_q=5)
    out = np.empty_like(q)
    assert attention(q, k, v, out=out) is out
    assert np.array_equal(out, attention(q, k, v))


def test_float32_output(fake_device):
    q, k, v = arrays(seqlen_q=5)
    out = attention(q, k, v, out_dtype=np.float32)
    assert out.dtype == np.float32
    assert relative_error(out, reference.attention(q, k, v)[0]) < 1e-6


@pytest.mark.parametrize("shape", [(0, 5), (1, 0), (0, 0)])
def test_no_query_means_no_compile_and_no_launch(fake_device, shape):
    q = np.zeros((*shape, 2, 64), BF16)
    out, lse = attention(q, q, q, return_lse=True)
    assert (out.shape, lse.shape) == (q.shape, (shape[0], 2, shape[1]))
    assert not fake_device.cache.requests
    assert not fake_device.launches


@pytest.mark.parametrize(
    ("change", "error", "argument"),
    [
        ({"q": [1.0]}, ArgumentTypeError, "q"),
        ({"v": None}, ArgumentTypeError, "v"),
        ({"q": np.zeros((2, 5, 64), BF16)}, UnsupportedProblemError, "q"),
        ({name: np.zeros((1, 5, 3, 64), BF16) for name in "kv"}, UnsupportedProblemError, "k"),
        ({name: np.zeros((1, 5, 2, 80), BF16) for name in "qkv"}, UnsupportedProblemError, "q"),
        ({name: np.zeros((1, 1, 65536, 64), BF16) for name in "qkv"}, UnsupportedProblemError, "q"),
        ({"causal": 1}, ArgumentTypeError, "causal"),
        ({"causal": "yes"}, ArgumentTypeError, "causal"),
        ({"return_lse": 0}, ArgumentTypeError, "return_lse"),
        ({"softmax_scale": float("nan")}, UnsupportedProblemError, "softmax_scale"),
        ({"softmax_scale": True}, ArgumentTypeError, "softmax_scale"),
        ({"out": np.zeros((1, 5, 2, 32), BF16)}, UnsupportedProblemError, "out"),
        ({"out": "here"}, ArgumentTypeError, "out"),
        ({"out_dtype": "float64"}, UnsupportedProblemError, "out_dtype"),
        ({"out_dtype": "no such type"}, ArgumentTypeError, "out_dtype"),
    ],
)
def test_bad_input_compiles_and_launches_nothing(fake_device, change, error, argument):
    arguments = {name: np.zeros((1, 5, 2, 64), BF16) for name in "qkv"} | change
    for _ in range(2):  # the second time must not find something half prepared
        with pytest.raises(error, match=f"^{argument}: ") as caught:
            attention(**arguments)
        assert caught.value.argument == argument
    assert not fake_device.cache.requests
    assert not fake_device.launches


def test_values_that_are_equal_but_not_the_same_are_told_apart(fake_device):
    a = np.zeros((1, 5, 2, 64), BF16)
    attention(a, a, a, causal=True, softmax_scale=1.0)
    with pytest.raises(ArgumentTypeError):
        attention(a, a, a, causal=1, softmax_scale=1.0)
    with pytest.raises(ArgumentTypeError):
        attention(a, a, a, causal=True, softmax_scale=True)


def test_addresses_are_checked_on_warm_calls_too(fake_device):
    a = np.zeros((1, 5, 2, 72), BF16)
    attention(*[a[..., :64]] * 3)
    with pytest.raises(UnsupportedProblemError, match="bytes past a multiple of 16"):
        attention(*[a[..., 1:65]] * 3)
    assert len(fake_device.launches) == 1


def test_an_arch_without_templates_is_a_typed_error(fake_device):
    fake_device.arch = "sm_90a"
    a = np.zeros((1, 5, 2, 64), BF16)
    with pytest.raises(UnsupportedArchError, match="sm_90a") as caught:
        attention(a, a, a)
    assert "sm_100a" in caught.value.supported
    assert not fake_device.cache.requests


def test_the_environment_chooses_the_emulated_arch():
    device = EmulatedRuntime.from_settings(Settings(arch="sm_103a", emulator_schedule="lazy", emulator_seed=3))
    assert (device.arch, device.schedule, device.seed) == ("sm_103a", "lazy", 3)


def test_a_failed_compile_leaves_nothing_behind(fake_device, monkeypatch):
    def fail(*args, **kwargs):
        raise CompileError("NVRTC_ERROR_COMPILATION", "log", "", "source", "sm_100a", [])

    a = np.zeros((1, 5, 2, 64), BF16)
    with monkeypatch.context() as patch:
        patch.setattr(fake_device.cache, "get_or_compile", fail)
        for _ in range(2):
            with pytest.raises(CompileError):
                attention(a, a, a)
    attention(a, a, a)
    assert len(fake_device.launches) == 1


@pytest.mark.parametrize("origin", ["disk", "compiled"])
def test_an_image_from_disk_that_does_not_load_is_compiled_anew_once(fake_device, monkeypatch, origin):
    get, load = fake_device.cache.get_or_compile, fake_device.load

    def from_disk(source, kind, config=None, *, anew=False):
        image = get(source, kind, config, anew=anew)
        object.__setattr__(image, "origin", "compiled" if anew else origin)
        return image

    def picky(image):
        if image is fake_device_first[0]:
            raise LaunchError("does not load")
        return load(image)

    fake_device_first = []

    def remember_first(*args, **kwargs):
        image = from_disk(*args, **kwargs)
        fake_device_first.append(image)
        return image

    monkeypatch.setattr(fake_device.cache, "get_or_compile", remember_first)
    monkeypatch.setattr(fake_device, "load", picky)
    a = np.zeros((1, 5, 2, 64), BF16)
    if origin == "compiled":
        with pytest.raises(LaunchError):
            attention(a, a, a)
        assert len(fake_device.cache.requests) == 1
    else:
        attention(a, a, a)
        assert [request[3] for request in fake_device.cache.requests] == [False, True]


def test_prepared_calls_do_not_pile_up(fake_device, monkeypatch):
    monkeypatch.setattr(_attention, "_MOST_PREPARED_CALLS", 3)
    for seqlen in range(1, 8):
        a = np.zeros((1, seqlen, 2, 64), BF16)
        attention(a, a, a)
    assert len(_attention._prepared_calls) == 3


def test_threads_may_call_at_once(fake_device):
    q, k, v = arrays(seqlen_q=9)
    expected = attention(q, k, v)
    _attention._prepared_calls.clear()
    results = []
    threads = [threading.Thread(target=lambda: results.append(attention(q, k, v))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(np.array_equal(result, expected) for result in results)


def test_a_warm_call_is_one_look_up(fake_device, monkeypatch):
    a = np.zeros((1, 5, 2, 64), BF16)
    attention(a, a, a)
    monkeypatch.setattr(_attention, "_prepare", None)
    monkeypatch.setattr(runtime, "for_device", None)
    attention(a, a, a)


def test_a_warm_call_costs_little_beside_the_launch(fake_device, monkeypatch):
    monkeypatch.setattr(fake_device, "launch", lambda *_: None)
    q, k, v = arrays(seqlen_q=128, num_heads=8, head_dim=128)
    out = np.empty_like(q)
    attention(q, k, v, return_lse=True, out=out)

    def microseconds() -> float:
        start = time.perf_counter()
        for _ in range(200):
            attention(q, k, v, return_lse=True, out=out)
        return (time.perf_counter() - start) / 200 * 1e6

    # The best of many rounds: other work on the machine only ever adds.
    assert min(microseconds() for _ in range(20)) <= 50


def test_the_docstring_names_every_parameter():
    code = attention.__code__
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        assert name in umma_jit.attention.__doc__


@pytest.mark.parametrize("fault", ["misaligned q", "misaligned v", "overlapping out"])
def test_nothing_is_compiled_for_an_address_that_cannot_be_served(fault, monkeypatch):
    from umma_jit import _attention
    from umma_jit.testing import make_inputs

    monkeypatch.setattr(_attention, "_kernel", lambda *_: pytest.fail("compiled"))
    arrays = dict(vars(make_inputs(seqlen_q=33, seqlen_k=35, num_heads=3, dtype="float16")))
    if fault == "overlapping out":
        arrays["out"] = arrays["q"]
    else:
        name = fault[-1]
        whole = np.zeros(arrays[name].size + 8, np.float16)
        start = (1 + (whole.ctypes.data // 2)) % 8  # any element that is not 16-byte aligned
        start = start if (whole.ctypes.data + 2 * start) % 16 else start + 1
        arrays[name] = whole[start : start + arrays[name].size].reshape(arrays[name].shape)
    with pytest.raises(InvalidArgumentError):
        attention(**arrays)


def test_no_memory_for_the_result_is_a_typed_error(fake_device, monkeypatch):
    from umma_jit import OutOfMemoryError, _attention
    from umma_jit.testing import make_inputs

    def fail(*_):
        raise MemoryError("512 GiB")

    monkeypatch.setattr(_attention, "empty_like", fail)
    with pytest.raises(OutOfMemoryError, match="512 GiB"):
        attention(**vars(make_inputs()))
