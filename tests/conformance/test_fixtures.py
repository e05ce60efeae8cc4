"""What known-good compilers emit runs right under every schedule, and nothing is found in it."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.expected_warnings import expected_warnings
from conformance.runner import MANIFEST, run
from umma_jit.emulator import SCHEDULES

_NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if entry["slow"] else name for name, entry in sorted(MANIFEST.items())
]


@pytest.mark.parametrize("name", _NAMES)
def test_right_under_all_schedules_with_no_false_finding(name):
    first = None
    for schedule in SCHEDULES:
        outcome = run(name, schedule, seed=1)
        for output, (error, allowed) in outcome.errors.items():
            assert error <= allowed, f"{output} under {schedule}: relative error {error:.2e} of {allowed:.1e}"
        unexpected = [
            str(finding)
            for finding in outcome.report.findings
            if finding.severity != "warning" or finding.rule not in expected_warnings(name)
        ]
        assert unexpected == [], f"under {schedule}"
        if first is None:
            first = outcome
        elif MANIFEST[name]["family"] != "atomics":  # order of atomics is free
            for output, array in outcome.outputs.items():
                assert np.array_equal(_bits(array), _bits(first.outputs[output])), f"{output} differs under {schedule}"


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8)


def test_every_fixture_file_is_in_the_manifest():
    from conformance.runner import FIXTURES

    assert {entry["file"] for entry in MANIFEST.values()} == {path.name for path in FIXTURES.glob("*.ptx")}
