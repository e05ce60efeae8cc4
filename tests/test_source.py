from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import pytest

from umma_jit import _source
from umma_jit.errors import TemplateError, UnsupportedArchError


@dataclass(frozen=True)
class Config:
    template: str = "t.cu.jinja"
    entry: str = "kernel"
    value: Any = 1


class Colour(enum.IntEnum):
    RED = 1


@pytest.fixture
def templates(tmp_path, monkeypatch):
    """A directory that `render` takes its templates from."""
    monkeypatch.setattr(_source, "templates_directory", lambda: tmp_path)
    _source._environment.cache_clear()
    yield tmp_path
    _source._environment.cache_clear()


def render(templates, text: str, value: Any = 1) -> str:
    (templates / "t.cu.jinja").write_text(text)
    return _source.render(Config(value=value), "sm_100a").text


@pytest.mark.parametrize(("value", "text"), [(True, "true"), (False, "false"), (0, "0"), (-3, "-3"), ("u32", "u32")])
def test_values_are_spelt_as_in_cpp(templates, value, text):
    assert render(templates, "constexpr auto x = {{ cfg.value }};\n", value) == f"constexpr auto x = {text};\n"


@pytest.mark.parametrize("value", [1.5, None, [1], (1, 2), Colour.RED, {"a": 1}, b"x"])
def test_values_without_one_spelling_are_refused(templates, value):
    with pytest.raises(TemplateError, match="cannot print"):
        render(templates, "{{ cfg.value }}", value)


def test_a_misspelt_field_is_an_error_with_the_template_and_its_line(templates):
    with pytest.raises(TemplateError, match="hed_dim") as caught:
        render(templates, "// one\n// two\n{{ cfg.hed_dim }}\n")
    assert (caught.value.template, caught.value.line) == ("t.cu.jinja", 3)


def test_an_unknown_name_is_an_error(templates):
    with pytest.raises(TemplateError, match="arch"):
        render(templates, "{{ arch }}")


def test_a_misspelt_field_in_a_condition_is_an_error(templates):
    with pytest.raises(TemplateError, match="hed_dim"):
        render(templates, "//% if cfg.hed_dim\nx\n//% endif\n")


def test_a_syntax_error_names_its_line(templates):
    with pytest.raises(TemplateError) as caught:
        render(templates, "a\n//% if cfg.value\nb\n")
    assert caught.value.line is not None


def test_control_lines_leave_no_trace(templates):
    text = "a\n//% if cfg.value\nb\n//% else\nc\n//% endif\nd\n"
    assert render(templates, text, True) == "a\nb\nd\n"
    assert render(templates, text, False) == "a\nc\nd\n"


def test_a_raw_header_arrives_byte_for_byte(templates):
    header = "int a[2][2] = {{0, 1}, {2, 3}};  // {% raw %} {{ cfg.nothing }} {# #}\n//% if\n"
    (templates / "h.cuh").write_text(header)
    lines = render(templates, 'int before;\n{{ raw("h.cuh") }}\nint after;').splitlines(keepends=True)
    assert "".join(lines[2:4]) == header
    # what the compiler says of it names the header, and what follows has its line of the rendered source again
    assert lines[1] == '#line 1 "h.cuh"\n'
    assert lines[4] == '#line 6 "kernel.cu"\n'
    assert lines[5] == "int after;"


@pytest.mark.parametrize("path", ["missing.cuh", "../secret", "/etc/hostname"])
def test_raw_reads_nothing_outside_the_templates(templates, path):
    with pytest.raises(TemplateError, match="raw"):
        render(templates, f'{{{{ raw("{path}") }}}}')


def test_a_missing_template_is_named(templates):
    with pytest.raises(TemplateError, match=r"nowhere\.jinja"):
        _source.render(Config(template="nowhere.jinja"), "sm_100a")


def test_the_arch_must_be_whole(templates):
    (templates / "t.cu.jinja").write_text("")
    with pytest.raises(UnsupportedArchError):
        _source.render(Config(), "sm_100")


def test_lineinfo_is_an_option_of_the_source(templates, monkeypatch):
    (templates / "t.cu.jinja").write_text("")
    assert "-lineinfo" not in _source.render(Config(), "sm_100a").options
    monkeypatch.setenv("UMMA_JIT_LINEINFO", "1")
    _source.settings.cache_clear()
    assert "-lineinfo" in _source.render(Config(), "sm_100a").options


def test_the_checkouts_templates_are_found():
    directory = _source.templates_directory()
    assert directory.name == "templates"
    assert (directory / "include").is_dir()


def _all_templates() -> list[str]:
    root = _source.templates_directory()
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.jinja"))


@pytest.mark.parametrize("template", _all_templates())
def test_a_template_wants_nothing_but_its_config_and_raw(template):
    assert _source.undeclared_names(template) <= {"cfg", "raw"}


def test_an_excerpt_marks_the_line():
    source = _source.KernelSource(text="a\nb\nc\nd\n", entry="k", arch="sm_100a", options=())
    assert source.excerpt(2, context=1) == "      1 | a\n>     2 | b\n      3 | c"
    assert source.excerpt(1, context=0) == ">     1 | a"
    assert source.excerpt(4, context=9).endswith(">     4 | d")
