from __future__ import annotations

import inspect
import pickle

import pytest

from umma_jit import errors

EXAMPLES = [
    errors.OutOfMemoryError("no memory"),
    errors.ArgumentTypeError("causal", "1 of type int", "True or False"),
    errors.UnsupportedProblemError("q", "has 3 axes", "4", "Add one"),
    errors.SettingsError("UMMA_JIT_ARCH", "sm_1", "one of sm_100a"),
    errors.UnsupportedArchError("sm_100", ["sm_100a"], "Write the suffix"),
    errors.ArchMismatchError("sm_100a", "sm_103a"),
    errors.TemplateError("a.jinja", "no such file", 3),
    errors.CompilerNotFoundError("no NVRTC"),
    errors.CompileError("NVRTC_ERROR_COMPILATION", "log", "excerpt", "source", "sm_100a", ["-x"]),
    errors.DeviceNotFoundError("none"),
    errors.LaunchError("no"),
    errors.EmulationError("broke", ["finding"]),
]


def _classes() -> list[type]:
    return [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.UmmaJitError)]


def test_every_error_has_an_example_here():
    abstract = {errors.UmmaJitError, errors.InvalidArgumentError}
    assert {type(e) for e in EXAMPLES} == set(_classes()) - abstract


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_is_also_the_builtin_a_caller_expects(error):
    builtin = {
        "ArgumentTypeError": TypeError,
        "UnsupportedProblemError": ValueError,
        "SettingsError": ValueError,
        "UnsupportedArchError": ValueError,
        "CompilerNotFoundError": ImportError,
        "OutOfMemoryError": MemoryError,
    }.get(type(error).__name__, RuntimeError)
    assert isinstance(error, builtin)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_survives_pickling_with_its_facts(error):
    # A worker process hands its exception to the parent this way.
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_the_tree_in_the_docstring_is_the_tree():
    for cls in _classes():
        assert cls.__name__ in errors.__doc__


def test_argument_errors_name_argument_value_and_expectation():
    error = errors.UnsupportedProblemError("k", "has 3 heads", "a divisor of 4", "Repeat them")
    assert str(error) == "k: has 3 heads; expected a divisor of 4. Repeat them"
