from __future__ import annotations

import json
import os
import subprocess
import sys

SCRIPT = """
import json, sys, time
before = set(sys.modules)  # some packages load a part of themselves at each start of Python
import numpy
start = time.process_time()
import umma_jit
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "modules": sorted(set(sys.modules) - before)}))
"""

LIMIT_SECONDS = 0.060
"""Beside NumPy, whose import takes 0.1 s where that of the whole takes 0.15: the machine decides on that part."""


def run(script: str, **environment: str) -> str:
    path = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
    ).stdout


def test_import_is_quick():
    # Time of the process, the best of a few: what is measured is the import, not what else the machine does.
    assert min(json.loads(run(SCRIPT))["seconds"] for _ in range(5)) <= LIMIT_SECONDS


def test_import_loads_neither_cuda_nor_a_compiler_nor_the_emulator():
    modules = json.loads(run(SCRIPT))["modules"]
    for name in ("cuda", "cuda.bindings", "cupy", "torch", "jinja2", "ml_dtypes", "umma_jit.emulator", "asyncio"):
        assert name not in modules


def test_import_works_where_cuda_cannot_be_imported():
    run("import sys; sys.modules['cuda'] = None; sys.modules['cupy'] = None; import umma_jit; umma_jit.attention")


def test_a_wrong_setting_does_not_break_the_import():
    run("import umma_jit", UMMA_JIT_ARCH="nonsense")
