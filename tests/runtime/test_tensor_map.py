from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from umma_jit._plan import TensorMapLayout
from umma_jit.errors import LaunchError
from umma_jit.runtime import tensor_map
from umma_jit.runtime.tensor_map import emulated_tensor_map, encode_for_driver

LAYOUT = TensorMapLayout(
    dtype="bfloat16", dims=(64, 300, 4, 2), strides_bytes=(512, 128, 153600), box=(64, 128, 1, 1), swizzle="128B"
)


def test_the_emulators_map_says_the_same():
    if not hasattr(pytest.importorskip("umma_jit.emulator"), "TensorMap"):
        pytest.skip("the emulator is not there")
    made = emulated_tensor_map(LAYOUT, 0x1000)
    assert (made.address, made.dtype, made.swizzle) == (0x1000, "bfloat16", "128B")
    assert tuple(made.dims) == LAYOUT.dims
    assert tuple(made.strides_bytes) == LAYOUT.strides_bytes
    assert tuple(made.box) == LAYOUT.box


@pytest.fixture
def encoder(monkeypatch):
    """An encoder that notes what it is asked, called through the real C signature."""
    asked = SimpleNamespace(calls=[], result=0)

    def encode(target, dtype, rank, address, dims, strides, box, steps, *codes):
        lists = (dims[:rank], strides[: rank - 1], box[:rank], steps[:rank])
        asked.calls.append((target, dtype, rank, address, *lists, codes))
        ctypes.memset(target, 0xAB, 128)
        return asked.result

    asked.function = tensor_map._ENCODE(encode)
    monkeypatch.setattr(tensor_map, "driver_encoder", lambda: asked.function)
    encode_for_driver.cache_clear()
    yield asked
    encode_for_driver.cache_clear()


def test_the_driver_is_asked_for_the_same(encoder):
    made = encode_for_driver(LAYOUT, 0x1000)
    (call,) = encoder.calls
    lists = ([64, 300, 4, 2], [512, 128, 153600], [64, 128, 1, 1], [1] * 4)
    assert call == (made.address, 9, 4, 0x1000, *lists, (0, 3, 3, 0))
    assert made.address % 128 == 0
    assert ctypes.string_at(made.address, 128) == b"\xab" * 128


def test_the_codes_are_the_drivers():
    driver = pytest.importorskip("cuda.bindings.driver")
    types, swizzles = driver.CUtensorMapDataType, driver.CUtensorMapSwizzle
    for name, code in tensor_map._DATA_TYPES.items():
        assert getattr(types, f"CU_TENSOR_MAP_DATA_TYPE_{name.upper()}") == code
    for name, code in tensor_map._SWIZZLES.items():
        assert getattr(swizzles, f"CU_TENSOR_MAP_SWIZZLE_{name.upper()}") == code
    assert driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B == tensor_map._L2_PROMOTION_256B
    assert driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE == tensor_map._INTERLEAVE_NONE
    assert driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE == tensor_map._OOB_FILL_ZERO


def test_a_map_is_encoded_once_per_address(encoder):
    assert encode_for_driver(LAYOUT, 0x1000) is encode_for_driver(LAYOUT, 0x1000)
    encode_for_driver(LAYOUT, 0x2000)
    assert len(encoder.calls) == 2


def test_a_refusal_says_what_was_asked(encoder):
    encoder.result = 1
    with pytest.raises(LaunchError, match=r"(?s)CUDA error 1.*153600"):
        encode_for_driver(LAYOUT, 0x1000)


@pytest.mark.parametrize("answer", [(0, 0), (500, 7)])
def test_a_driver_without_tensor_maps_is_a_typed_error(monkeypatch, answer):
    driver = pytest.importorskip("cuda.bindings.driver")
    result, pointer = answer
    monkeypatch.setattr(driver, "cuGetProcAddress", lambda *_: (driver.CUresult(result), pointer, None))
    tensor_map.driver_encoder.cache_clear()
    with pytest.raises(LaunchError, match=r"12\.0"):
        tensor_map.driver_encoder()
    tensor_map.driver_encoder.cache_clear()
