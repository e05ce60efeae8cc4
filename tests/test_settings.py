from __future__ import annotations

import pytest

from umma_jit._settings import Settings
from umma_jit.errors import SettingsError


def test_an_empty_environment_gives_the_defaults():
    assert Settings.from_environment({}) == Settings()


def test_every_variable_is_read():
    environment = {
        "UMMA_JIT_CACHE_DIR": "/somewhere",
        "UMMA_JIT_DISK_CACHE": "no",
        "UMMA_JIT_ARCH": "sm_103a",
        "UMMA_JIT_LINEINFO": "1",
        "UMMA_JIT_EMULATOR_SCHEDULE": "random",
        "UMMA_JIT_EMULATOR_SEED": "7",
        "UMMA_JIT_EMULATOR_STRICT": "on",
        "UMMA_JIT_PROGRESS": "0",
    }
    assert Settings.from_environment(environment) == Settings(
        "/somewhere", False, "sm_103a", True, "random", 7, True, False
    )


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("UMMA_JIT_ARCH", "sm_100", "sm_100a"),
        ("UMMA_JIT_EMULATOR_SCHEDULE", "fast", "eager"),
        ("UMMA_JIT_EMULATOR_SEED", "-1", "integer"),
        ("UMMA_JIT_EMULATOR_SEED", "²", "integer"),
        ("UMMA_JIT_LINEINFO", "maybe", "1 or 0"),
    ],
)
def test_a_value_that_means_nothing_is_an_error_that_names_the_variable(variable, value, expected):
    with pytest.raises(SettingsError, match=f"{variable}.*{expected}"):
        Settings.from_environment({variable: value})
