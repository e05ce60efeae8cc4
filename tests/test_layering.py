"""Dependencies point one way; see the package's files for what each may know."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "umma_jit"

MAY_NOT_IMPORT = {
    "emulator": ["umma_jit", "jinja2", "cuda", "cupy"],  # but itself: it stands alone
    "backends": ["umma_jit._compile", "umma_jit.cache", "umma_jit.runtime", "umma_jit._attention", "umma_jit.emulator"],
    "cache": ["umma_jit.runtime", "umma_jit.backends", "umma_jit._attention", "umma_jit.emulator"],
    "runtime": ["umma_jit._attention", "umma_jit.backends", "umma_jit.cache", "umma_jit._compile"],
    "_problem.py": ["umma_jit.runtime", "umma_jit.backends", "umma_jit._source", "umma_jit._compile"],
    "_source.py": ["umma_jit._compile", "umma_jit.cache", "umma_jit.runtime", "umma_jit.backends"],
    "_compile.py": ["umma_jit.cache", "umma_jit.runtime", "umma_jit.backends"],
    "reference.py": ["umma_jit", "cuda", "jinja2"],
    "errors.py": ["umma_jit", "cuda", "jinja2", "numpy"],
}


def imports(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it, in full."""
    package = ["umma_jit", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


def files(part: str) -> list[Path]:
    path = PACKAGE / part
    return [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))


@pytest.mark.parametrize("part", MAY_NOT_IMPORT)
def test_nobody_looks_up(part):
    assert files(part)
    for path in files(part):
        for module in imports(path):
            if module == f"umma_jit.{part}" or module.startswith(f"umma_jit.{part}."):
                continue
            for banned in MAY_NOT_IMPORT[part]:
                assert not f"{module}.".startswith(f"{banned}."), f"{path} imports {module}"


def test_only_runtimes_know_whether_they_are_emulated():
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).parts
        if parts[0] in ("runtime", "emulator", "demo.py", "_arrays.py", "cli"):
            continue
        assert not any(m.startswith("umma_jit.emulator") for m in imports(path)), path


def test_nothing_unpickles():
    for path in PACKAGE.rglob("*.py"):
        assert not imports(path) & {"pickle", "cloudpickle", "dill", "marshal", "shelve"}, path
