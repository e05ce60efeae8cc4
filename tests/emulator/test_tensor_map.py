"""Tensor maps: limits, encoding, and boxes against a plain loop over elements."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from umma_jit.emulator.tensor_map import TENSOR_MAP_BYTES, Box, TensorMap, TensorMapError, swizzled_chunks

ADDRESS = 0x10000


def _map(**changes) -> TensorMap:
    fields = {
        "address": ADDRESS,
        "dtype": "bfloat16",
        "dims": (100, 50),
        "strides_bytes": (256,),
        "box": (64, 32),
        "swizzle": "128B",
    }
    fields.update(changes)
    return TensorMap(**fields)


@pytest.mark.parametrize(
    "tensor_map",
    [
        _map(),
        _map(dtype="float32", box=(32, 8), oob_fill="nan", l2_promotion="256B"),
        _map(dims=(1 << 32,), strides_bytes=(), box=(64,), swizzle="none"),
        _map(dims=(8, 2, 3, 4, 5), strides_bytes=(16, 32, 96, 384), box=(8, 2, 1, 1, 2), swizzle="32B"),
        _map(element_strides=(1, 3)),
    ],
)
def test_encode_round_trips(tensor_map: TensorMap) -> None:
    raw = tensor_map.encode()
    assert len(raw) == TENSOR_MAP_BYTES
    assert TensorMap.decode(raw) == tensor_map


def test_other_bytes_are_refused() -> None:
    with pytest.raises(TensorMapError, match="not a tensor map"):
        TensorMap.decode(bytes(128))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"address": ADDRESS + 8}, "16-byte aligned"),
        ({"dtype": "complex64"}, "dtype"),
        ({"dims": (0, 50)}, r"dims\[0\] = 0"),
        ({"dims": ((1 << 32) + 1, 50)}, r"dims\[0\]"),
        ({"strides_bytes": (250,)}, r"strides_bytes\[0\] = 250"),
        ({"strides_bytes": (1 << 40,)}, "2\\*\\*40"),
        ({"strides_bytes": ()}, "has 0 entries"),
        ({"box": (64, 257)}, r"box\[1\] = 257"),
        ({"box": (4, 8)}, "multiple of 16 bytes"),
        ({"box": (128, 8)}, "wider than the 128B swizzle"),
        ({"swizzle": "256B"}, "swizzle '256B'"),
        ({"element_strides": (1, 9)}, r"element_strides\[1\] = 9"),
        ({"dtype": "uint16", "oob_fill": "nan"}, "floating-point"),
        ({"interleave": "32B"}, "needs swizzle 32B"),
        ({"dims": (1,) * 6, "strides_bytes": (16,) * 5, "box": (8,) * 6}, "rank 6"),
    ],
)
def test_limits_of_the_driver_api(changes, message: str) -> None:
    with pytest.raises(TensorMapError, match=message):
        _map(**changes)


def _expected(array: np.ndarray, tensor_map: TensorMap, coordinates: tuple[int, ...], fill: int) -> np.ndarray:
    """Element by element; `array` has the innermost dimension last."""
    shape = tensor_map.box_shape
    steps = (1, *tensor_map.element_strides[1:])
    image = np.full(shape[::-1], fill, array.dtype)
    for index in itertools.product(*(range(extent) for extent in shape)):
        at = tuple(c + i * s for c, i, s in zip(coordinates, index, steps, strict=True))
        if all(0 <= a < extent for a, extent in zip(at, tensor_map.dims, strict=True)):
            image[index[::-1]] = array[at[::-1]]
    return image


CASES = [(0, 0), (-3, -2), (64, 30), (90, 48), (200, 0), (-64, 0), (0, -40), (37, 49)]


@pytest.mark.parametrize("coordinates", CASES)
@pytest.mark.parametrize("steps", [None, (1, 3)])
def test_gather_and_scatter_agree_with_a_loop(coordinates: tuple[int, ...], steps) -> None:
    array = np.arange(50 * 128, dtype=np.uint16).reshape(50, 128)
    tensor_map = _map(element_strides=steps)
    memory = array.copy().view(np.uint8).reshape(-1)
    box = Box.at(tensor_map, coordinates)
    assert box.empty or box.first - ADDRESS + box.span <= memory.size
    region = memory[box.first - ADDRESS :][: box.span]
    image = box.gather(region)
    wanted = _expected(array, tensor_map, coordinates, 0)
    assert (image.view(np.uint16).reshape(wanted.shape) == wanted).all()
    assert image.size == tensor_map.box_bytes
    # Storing the complement back changes exactly the elements of the box that exist.
    box.scatter(region, (~image.view(np.uint16)).view(np.uint8))
    after = memory.view(np.uint16).reshape(array.shape)
    changed = after != array
    if steps is None:
        x, y = coordinates
        inside = np.zeros_like(changed)
        inside[max(0, y) : max(0, y + 32), max(0, x) : min(100, max(0, x + 64))] = True
        assert (changed == inside).all()
    assert (after[changed] == ~array[changed]).all()


def test_four_dimensions_with_permuted_strides() -> None:
    # (batch, head, seq, dim) stored as (batch, seq, head, dim), box of 8 dims, 4 sequence positions.
    batch, seq, heads, dim = 2, 10, 3, 16
    array = np.arange(batch * seq * heads * dim, dtype=np.uint16).reshape(batch, seq, heads, dim)
    tensor_map = TensorMap(
        ADDRESS,
        "bfloat16",
        (dim, seq, heads, batch),
        (heads * dim * 2, dim * 2, seq * heads * dim * 2),
        (8, 4, 1, 1),
        swizzle="none",
    )
    memory = array.view(np.uint8).reshape(-1)
    for coordinates in ((0, 0, 0, 0), (8, 8, 2, 1), (8, 3, 1, 0)):
        box = Box.at(tensor_map, coordinates)
        got = box.gather(memory[box.first - ADDRESS :]).view(np.uint16).reshape(1, 1, 4, 8)
        wanted = _expected(array.transpose(0, 2, 1, 3), tensor_map, coordinates, 0)
        assert (got == wanted).all()


def test_nan_fill() -> None:
    tensor_map = _map(dtype="float32", dims=(4, 1), strides_bytes=(16,), box=(4, 2), swizzle="none", oob_fill="nan")
    box = Box.at(tensor_map, (0, 0))
    image = box.gather(np.zeros(16, np.uint8)).view(np.float32).reshape(2, 4)
    assert (image[0] == 0).all()
    assert np.isnan(image[1]).all()


def test_reduction_touches_only_existing_elements() -> None:
    array = np.ones((3, 4), np.float32)
    tensor_map = _map(dtype="float32", dims=(4, 3), strides_bytes=(16,), box=(4, 2), swizzle="none")
    box = Box.at(tensor_map, (0, 2))
    raw = array.view(np.uint8).reshape(-1)
    image = np.full(8, 2, np.float32).view(np.uint8)
    box.reduce(raw[box.first - ADDRESS :], image, np.dtype(np.float32), np.add)
    assert array.tolist() == [[1] * 4, [1] * 4, [3] * 4]


def test_rank_must_match_the_coordinates() -> None:
    with pytest.raises(TensorMapError, match="3 coordinates"):
        Box.at(_map(), (0, 0, 0))


def test_the_swizzled_image_starts_where_the_tile_does() -> None:
    chunks = swizzled_chunks(_map(), 2048)
    assert len(chunks) == 64 * 32 * 2 // 16
    assert chunks[:9].tolist() == [*range(128, 136), 137]
    assert sorted(chunks.tolist()) == list(range(128, 128 + 256))
