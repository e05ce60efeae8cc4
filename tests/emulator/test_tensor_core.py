"""Arithmetic of the tensor core: exact widening, products, accumulation into tensor memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from umma_jit.emulator.tensor_core import accumulate, product, widen
from umma_jit.emulator.tensor_memory import TensorMemory, accumulator_pieces


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("bf16", ml_dtypes.bfloat16),
        ("f16", np.float16),
        ("e4m3", ml_dtypes.float8_e4m3fn),
        ("e5m2", ml_dtypes.float8_e5m2),
        ("s8", np.int8),
        ("u8", np.uint8),
    ],
)
def test_widening_is_exact(name: str, dtype) -> None:
    size = np.dtype(dtype).itemsize
    raw = np.arange(256, dtype=np.uint8) if size == 1 else np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
    raw = np.ascontiguousarray(raw.reshape(-1, 32))
    with np.errstate(invalid="ignore"):
        wanted = raw.view(dtype).astype(np.float32)
    np.testing.assert_array_equal(widen(raw, name), wanted)


def test_tf32_drops_13_bits() -> None:
    raw = np.array([[1 + 2**-10, 1 + 2**-11, -1 - 2**-23]], np.float32).view(np.uint8)
    assert widen(raw, "tf32").tolist() == [[1 + 2**-10, 1, -1]]


def test_a_product_is_transposed_and_may_be_negated() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = np.ones((4, 3), np.float32)
    assert (product(a, b) == (a @ b.T).T).all()
    assert (product(a, b, negate=True) == -(a @ b.T).T).all()
    assert product(a, b, double=True).dtype == np.float64


def _block(m: int, n: int) -> np.ndarray:
    return np.arange(n * m, dtype=np.float32).reshape(n, m)


def test_first_write_then_add_then_scale() -> None:
    memory, pieces, block = TensorMemory(), accumulator_pieces(128, 16, 1, False, 0), _block(128, 16)
    accumulate([memory], pieces, block, 8, "f32", add=False)
    accumulate([memory], pieces, block, 8, "f32", add=True)
    accumulate([memory], pieces, block, 8, "f32", add=True, scale=0.5)
    assert (memory.words[8:24].view(np.float32) == 2 * block).all()
    assert memory.written[8:24].all()
    assert not memory.written[24:].any()


def test_masked_lanes_are_kept() -> None:
    memory, pieces, block = TensorMemory(), accumulator_pieces(128, 8, 1, False, 0), _block(128, 8)
    keep = np.ones(128, bool)
    keep[5] = False
    accumulate([memory], pieces, block, 0, "f32", add=False, keep=[keep])
    assert not memory.written[:8, 5].any()
    assert (memory.words[:8, 6].view(np.float32) == block[:, 6]).all()


def test_half_precision_sits_in_the_low_half() -> None:
    memory, pieces, block = TensorMemory(), accumulator_pieces(64, 8, 1, False, 16), _block(64, 8)
    accumulate([memory], pieces, block, 0, "f16", add=False)
    accumulate([memory], pieces, block, 0, "f16", add=True)
    words = memory.words[:8, 16:32]
    assert (words >> 16 == 0).all()
    assert (words.astype(np.uint16).view(np.float16) == (2 * block[:, :16]).astype(np.float16)).all()


def test_integers_wrap_or_saturate() -> None:
    pieces, big = accumulator_pieces(128, 8, 1, False, 0), np.full((8, 128), 2.0**30, np.float32)
    for saturate, wanted in ((False, -(2**31)), (True, 2**31 - 1)):
        memory = TensorMemory()
        accumulate([memory], pieces, big, 0, "s32", add=False)
        accumulate([memory], pieces, big, 0, "s32", add=True, saturate=saturate)
        assert (memory.words[:8].view(np.int32) == wanted).all()


def test_a_pair_splits_the_rows() -> None:
    memories = [TensorMemory(), TensorMemory()]
    block = _block(256, 16)
    accumulate(memories, accumulator_pieces(256, 16, 2, False, 0), block, 0, "f32", add=False)
    assert (memories[1].words[:16].view(np.float32) == block[:, 128:]).all()
