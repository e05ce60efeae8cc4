"""What README and CONTRIBUTING show, runs; what they name, is there."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from umma_jit._settings import Settings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("snippet", blocks(README, "python"))
def test_the_readmes_python_runs_on_the_emulated_device(snippet):
    names: dict = {}
    exec(compile(snippet, "README.md", "exec"), names)
    assert names["out"].shape == names["q"].shape
    assert np.isfinite(names["out"].astype(np.float32)).all()
    assert np.isfinite(names["lse"]).all()


def test_contributings_python_runs(tmp_path):
    (snippet,) = re.findall(r"<<'PYTHON'\n(.*?)\n\s*PYTHON", CONTRIBUTING, re.DOTALL)
    script = re.sub(r"^   ", "", snippet, flags=re.MULTILINE)
    subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert 'extern "C"' in (tmp_path / "kernel.cu").read_text()
    assert ".target sm_100a" in (tmp_path / "kernel.ptx").read_text()


def test_the_example_runs_with_a_fake_device(fake_device, capsys):
    runpy.run_path(str(ROOT / "examples" / "attention.py"))
    assert "relative error" in capsys.readouterr().out


@pytest.mark.parametrize("text", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_links_and_make_targets_are_there(text):
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / link).exists(), link
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for targets in re.findall(r"^\s*make ([a-z ]+?)(?: *#.*)?$", text, re.MULTILINE):
        for target in targets.split():
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_readme_lists_every_setting_and_no_other():
    from umma_jit import _settings

    source = Path(_settings.__file__).read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(UMMA_JIT_\w+)`", README, re.MULTILINE))
    assert listed == set(re.findall(r"UMMA_JIT_\w+", source))
    assert len(listed) == len(fields(Settings))


@pytest.mark.parametrize("extra", ["cu12", "cu13", "nvrtc12", "test", "dev"])
def test_the_extras_that_messages_name_are_there(extra):
    assert re.search(rf"^{extra} = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
