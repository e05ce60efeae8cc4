from __future__ import annotations

import contextlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umma_jit import _arrays
from umma_jit._arrays import (
    EMULATED,
    ArrayLayout,
    ArrayView,
    current_stream,
    dense_strides,
    empty_like,
    overlap,
    span_bytes,
    view,
)
from umma_jit.errors import ArgumentTypeError, UnsupportedProblemError


def test_a_numpy_array_is_read_as_it_is():
    array = np.zeros((2, 3, 4), np.float16)[:, ::2]
    seen = view(array, "q")
    assert seen.layout == ArrayLayout((2, 2, 4), (24, 16, 2), np.dtype(np.float16), EMULATED, writable=True)
    assert seen.address == array.ctypes.data
    assert seen.array is array


def test_layouts_of_equal_arrays_are_one_key():
    a, b = (view(np.zeros((2, 3), np.float16), "q").layout for _ in range(2))
    assert {a: 1}[b] == 1
    assert a != view(np.zeros((2, 3), np.float32), "q").layout


class FakeCupy(ModuleType):
    """As much of CuPy as is used, on host memory."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.used = []

        class ndarray:  # noqa: N801
            __module__ = "cupy"

            def __init__(self, host, device=3):
                self.shape, self.strides, self.dtype = host.shape, host.strides, host.dtype
                self.data = SimpleNamespace(ptr=host.ctypes.data)
                self.device = SimpleNamespace(id=device)
                self.host = host

        self.ndarray = ndarray
        self.cuda = SimpleNamespace(
            get_current_stream=lambda: SimpleNamespace(ptr=42),
            Device=lambda ordinal: contextlib.nullcontext(self.used.append(ordinal)),
        )

    def empty(self, shape, dtype):
        return self.ndarray(np.empty(shape, dtype))


@pytest.fixture
def cupy(monkeypatch):
    module = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_a_cupy_array_is_read_by_its_own_attributes(cupy):
    host = np.zeros((2, 3), np.float16)
    array = cupy.ndarray(host)
    assert view(array, "q") == ArrayView(
        ArrayLayout((2, 3), (6, 2), np.dtype(np.float16), 3, writable=True), host.ctypes.data, array
    )
    assert current_stream(array) == 42


def test_results_are_of_the_callers_library_on_the_arrays_device(cupy):
    array = cupy.ndarray(np.zeros((2, 3), np.float16))
    made = empty_like(array, (4, 5), np.dtype(np.float32), 3)
    assert type(made) is cupy.ndarray
    assert (made.shape, made.dtype, cupy.used) == ((4, 5), np.float32, [3])
    assert isinstance(empty_like(np.zeros(1), (4,), np.dtype(np.float32), EMULATED), np.ndarray)


def test_a_library_that_cannot_be_written_to_needs_out():
    class Array:
        pass

    with pytest.raises(UnsupportedProblemError, match="Pass out="):
        empty_like(Array(), (1,), np.dtype(np.float32), 0)
    assert current_stream(Array()) == 0


class Interface:
    """An array known only by ``__cuda_array_interface__``."""

    def __init__(self, host, readonly=False):
        self.host = host
        self.__class__.__cuda_array_interface__ = {
            "shape": host.shape,
            "strides": host.strides,
            "typestr": host.dtype.str,
            "data": (host.ctypes.data, readonly),
            "version": 3,
        }


def test_without_cuda_core_other_arrays_are_refused_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core.utils", None)
    with pytest.raises(ArgumentTypeError, match=r"^k: .*cuda\.core is not installed.*pip install"):
        view(Interface(np.zeros(3, np.float16)), "k")


def test_an_array_that_cannot_be_read_is_a_typed_error():
    pytest.importorskip("cuda.core")
    with pytest.raises(ArgumentTypeError, match=r"^v: is of type "):
        view(Interface(np.zeros(3, np.float16)), "v")  # host memory: the driver, or its absence, says no


strided = st.tuples(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=3), st.integers(0, 40)
)


def made(spec) -> ArrayView:
    axes, address = spec
    layout = ArrayLayout(tuple(n for n, _ in axes), tuple(s for _, s in axes), np.dtype(np.uint8), 0, writable=True)
    return ArrayView(layout, 1000 + address, None)


def elements(seen: ArrayView) -> set[int]:
    return {seen.address + int(np.dot(index, seen.layout.strides)) for index in np.ndindex(seen.layout.shape)}


@given(strided, strided)
def test_overlap_is_a_shared_element(a, b):
    a, b = made(a), made(b)
    assert overlap(a, b) == overlap(b, a) == bool(elements(a) & elements(b))


@given(strided)
def test_a_span_reaches_to_the_last_element(spec):
    seen = made(spec)
    addresses = elements(seen)
    assert span_bytes(seen.layout) == (max(addresses) - seen.address + 1 if addresses else 0)


def test_arrays_of_different_devices_do_not_overlap():
    a = made(([(4, 1)], 0))
    assert not overlap(a, a._replace(layout=a.layout._replace(device=1)))


@given(st.lists(st.integers(0, 5), max_size=5).map(tuple), st.sampled_from([2, 4]))
def test_dense_strides_are_numpys_where_they_matter(shape, itemsize):
    expected = np.empty(shape, f"V{itemsize}").strides
    assert all(
        n == 0 or m == e or 0 in shape for n, m, e in zip(shape, dense_strides(shape, itemsize), expected, strict=False)
    )


def test_an_overlap_too_hard_to_decide_counts_as_one(monkeypatch):
    def too_hard(*_, **__):
        raise np.exceptions.TooHardError

    monkeypatch.setattr(_arrays.np, "shares_memory", too_hard)
    a = made(([(4, 2)], 0))
    assert overlap(a, a._replace(address=a.address + 1))


def _fails(*_: object) -> None:
    raise KeyError("nothing")


@pytest.mark.parametrize(
    "members",
    [
        {"__dlpack_device__": lambda self: None},
        {"__dlpack_device__": lambda self: ("a", "b")},
        {"__dlpack_device__": _fails},
        {"__dlpack_device__": 3},
        {"__cuda_array_interface__": None},
        {"__cuda_array_interface__": {}},
        {"__cuda_array_interface__": {"shape": (2**70,), "typestr": "<f2", "data": (1, False), "version": 3}},
    ],
)
def test_what_only_looks_like_an_array_is_a_typed_error(members):
    array = type("Pretender", (), members)()
    with pytest.raises(ArgumentTypeError, match=r"^q: "):
        view(array, "q")


def test_a_class_is_no_array():
    with pytest.raises(ArgumentTypeError, match="class"):
        view(np.ndarray, "q")
