"""Tensor memory: allocator, fragment maps, accumulator layouts."""

from __future__ import annotations

import numpy as np
import pytest

from umma_jit.emulator.tensor_memory import (
    TensorMemory,
    TensorMemoryMisuse,
    accumulator_pieces,
    fragment_cells,
    granules,
)


def test_allocations_are_first_fit_and_return_addresses_in_lane_0() -> None:
    memory = TensorMemory()
    assert [memory.allocate(n) for n in (256, 128, 128)] == [0, 256, 384]
    assert memory.allocate(32) is None
    assert not memory.has_room(32)
    memory.deallocate(256, 128)
    assert memory.has_room(64)
    assert memory.allocate(64) == 256


@pytest.mark.parametrize("columns", [0, 16, 48, 96, 1024])
def test_sizes_are_powers_of_two_from_32(columns: int) -> None:
    with pytest.raises(TensorMemoryMisuse) as caught:
        TensorMemory().allocate(columns)
    assert caught.value.rule == "allocation_granularity_invalid"


def test_no_allocation_after_giving_up_the_permit() -> None:
    memory = TensorMemory()
    memory.relinquished = True
    with pytest.raises(TensorMemoryMisuse) as caught:
        memory.allocate(32)
    assert caught.value.rule == "phase_invalid_during_alloc"


@pytest.mark.parametrize(
    ("address", "columns", "rule"),
    [
        (256, 128, "unallocated_columns_being_dealloced"),
        (0, 128, "col_being_dealloced_not_returned_by_alloc"),
        (64, 64, "col_being_dealloced_not_returned_by_alloc"),
    ],
)
def test_only_whole_allocations_are_freed(address: int, columns: int, rule: str) -> None:
    memory = TensorMemory()
    memory.allocate(256)
    with pytest.raises(TensorMemoryMisuse) as caught:
        memory.deallocate(address, columns)
    assert caught.value.rule == rule
    memory.deallocate(0, 256)
    with pytest.raises(TensorMemoryMisuse):
        memory.deallocate(0, 256)


def test_columns_must_exist_and_be_allocated() -> None:
    memory = TensorMemory()
    memory.allocate(64)
    memory.check_columns(0, 64, "ld")
    with pytest.raises(TensorMemoryMisuse, match="column 64, which is not allocated") as caught:
        memory.check_columns(60, 8, "ld")
    assert caught.value.rule == "unallocated_columns_access"
    with pytest.raises(TensorMemoryMisuse) as caught:
        memory.check_columns(508, 8, "ld")
    assert caught.value.rule == "access_out_of_physical_bounds"


@pytest.mark.parametrize(
    ("shape", "count", "lanes", "columns"),
    [
        ("32x32b", 8, 32, 8),
        ("16x64b", 4, 16, 8),
        ("16x128b", 2, 16, 8),
        ("16x256b", 1, 16, 8),
        ("16x256b", 4, 16, 32),
    ],
)
def test_fragments_cover_each_cell_once(shape: str, count: int, lanes: int, columns: int) -> None:
    lane, column, spanned = fragment_cells(shape, count)
    assert spanned == columns
    cells = set(zip(lane.reshape(-1).tolist(), column.reshape(-1).tolist(), strict=True))
    assert cells == {(i, j) for i in range(lanes) for j in range(columns)}
    assert lane.size == lanes * columns


def test_16x256b_is_the_accumulator_fragment_of_mma() -> None:
    lane, column, _ = fragment_cells("16x256b", 1)
    # Thread 5 is row group 1, column pair 1: (1, 2), (1, 3), (9, 2), (9, 3).
    assert list(zip(lane[:, 5].tolist(), column[:, 5].tolist(), strict=True)) == [(1, 2), (1, 3), (9, 2), (9, 3)]


def test_16x32bx2_splits_the_warp() -> None:
    lane, column, spanned = fragment_cells("16x32bx2", 2, 64)
    assert (lane[1, 3], column[1, 3]) == (3, 1)
    assert (lane[1, 19], column[1, 19]) == (3, 65)
    assert spanned == 66


def _where(m: int, n: int, group: int, ws: bool, lane: int) -> dict[tuple[int, int], tuple[int, int, int]]:
    found = {}
    for piece in accumulator_pieces(m, n, group, ws, lane):
        lanes = np.arange(128)[piece.lanes] if isinstance(piece.lanes, slice) else piece.lanes
        for i, row in enumerate(range(piece.rows.start, piece.rows.stop)):
            for j, column in enumerate(range(piece.columns.start, piece.columns.stop)):
                assert (row, column) not in found
                found[row, column] = (piece.cta, int(lanes[i]), piece.offset + j)
    assert len(found) == m * n
    return found


@pytest.mark.parametrize(
    ("m", "n", "group", "ws", "lane", "cell"),
    [
        (128, 32, 1, False, 0, lambda r, c: (0, r, c)),
        (64, 32, 1, False, 0, lambda r, c: (0, 32 * (r // 16) + r % 16, c)),
        (64, 32, 1, False, 16, lambda r, c: (0, 32 * (r // 16) + r % 16 + 16, c)),
        (64, 64, 1, True, 0, lambda r, c: (0, r + 64 * (c // 32), c % 32)),
        (32, 64, 1, True, 0, lambda r, c: (0, r + 32 * (c // 16), c % 16)),
        (256, 32, 2, False, 0, lambda r, c: (r // 128, r % 128, c)),
        (128, 32, 2, False, 0, lambda r, c: (r // 64, r % 64 + 64 * (c // 16), c % 16)),
    ],
)
def test_accumulator_layouts(m: int, n: int, group: int, ws: bool, lane: int, cell) -> None:
    for (row, column), where in _where(m, n, group, ws, lane).items():
        assert where == cell(row, column)


def test_granules_are_half_slabs() -> None:
    assert granules(2, 2, (0, 1)).tolist() == [16, 17, 24, 25]
