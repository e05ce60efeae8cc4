"""The examples in docs/ run and print what they say they print; links lead somewhere."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples(page: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for number, block in enumerate(blocks):
        test = parser.get_doctest(block, {}, f"{page.name}[{number}]", str(page), 0)
        assert test.examples, f"{page.name}: a python block without >>> is never run"
        runner.run(test)
    assert runner.failures == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (DOCS / target).exists(), target
    for path in re.findall(r"`((?:templates|tests|src|docs|benchmarks)/[\w./]+\.(?:cuh|jinja|py|md))`", text):
        assert (DOCS.parent / path).exists(), path
