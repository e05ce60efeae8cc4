from __future__ import annotations

import importlib
import pkgutil

import pytest

import umma_jit

PUBLIC = ["umma_jit", "umma_jit.errors", "umma_jit.reference", "umma_jit.testing", "umma_jit.runtime", "umma_jit.cache"]


def modules() -> list[str]:
    return ["umma_jit", *(m.name for m in pkgutil.walk_packages(umma_jit.__path__, "umma_jit."))]


@pytest.mark.parametrize("name", PUBLIC)
def test_all_is_sorted_and_true(name):
    module = importlib.import_module(name)
    # Constants, then classes, then functions, each in order: as the linter sorts them.
    kinds = [(not n.isupper(), not n[0].isupper(), n) for n in module.__all__]
    assert kinds == sorted(kinds)
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        assert getattr(module, public).__doc__


@pytest.mark.parametrize("name", [name for name in modules() if not name.endswith("__main__")])
def test_every_module_says_what_it_is_for(name):
    assert importlib.import_module(name).__doc__


def test_the_front_door_has_every_error():
    from umma_jit import errors

    assert set(errors.__all__) < set(umma_jit.__all__)


def test_the_version_is_one():
    assert umma_jit.__version__.count(".") == 2
