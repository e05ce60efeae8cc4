"""32x32b.x8 stores in a loop over all of tensor memory."""

from __future__ import annotations

import numpy as np
import pytest

from block_kernels import ROWS, SCHEDULES, TmemStoresConfig, build, run

CONFIG = TmemStoresConfig()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_cell_keeps_its_value(schedule: str) -> None:
    values = np.arange(ROWS * 512, dtype=np.uint32).reshape(ROWS, 512) * np.uint32(2654435761)
    out = np.zeros((ROWS, 512), np.uint32)
    report = run(CONFIG, [values, out], schedule, operand_bytes=0, seed=2)
    assert np.array_equal(out, values)
    stores = sum(n for opcode, n in report.instructions.items() if opcode.startswith("tcgen05.st"))
    assert stores == 4 * 512 // 8  # warps times trips


def test_it_is_a_loop() -> None:
    text = build(CONFIG)[1].payload.decode()
    assert text.count("tcgen05.st.sync.aligned.32x32b.x8.b32") == 1
