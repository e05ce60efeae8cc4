from __future__ import annotations

import pytest

from umma_jit.cache import cache_key

PARTS = {
    "source": "text",
    "entry": "kernel",
    "kind": "cubin",
    "arch": "sm_100a",
    "options": ("--std=c++17", "-lineinfo"),
    "compiler": "12.9.86 CL-1",
}


@pytest.mark.parametrize(
    "change",
    [
        {"source": "text "},
        {"entry": "kernel2"},
        {"kind": "ptx"},
        {"arch": "sm_103a"},
        {"arch": "sm_100f"},
        {"options": ("--std=c++17",)},
        {"options": ("-lineinfo", "--std=c++17")},
        {"options": ("--std=c++17-lineinfo",)},
        {"compiler": "12.9.41 CL-1"},
        {"compiler": "12.9.86 CL-2"},
    ],
)
def test_everything_that_matters_is_in_the_key(change):
    assert cache_key(**(PARTS | change)) != cache_key(**PARTS)


def test_parts_cannot_run_into_each_other():
    a = cache_key(**(PARTS | {"entry": "ab", "compiler": "c"}))
    b = cache_key(**(PARTS | {"entry": "a", "compiler": "bc"}))
    assert a != b


def test_the_format_is_in_the_key(monkeypatch):
    from umma_jit.cache import key

    before = cache_key(**PARTS)
    monkeypatch.setattr(key, "FORMAT_VERSION", key.FORMAT_VERSION + 1)
    assert cache_key(**PARTS) != before


def test_a_key_is_a_file_name():
    assert set(cache_key(**PARTS)) <= set("0123456789abcdef")
    assert len(cache_key(**PARTS)) == 64
