from __future__ import annotations

import re

import numpy as np
import pytest

from umma_jit import demo


def test_prints_a_line_for_each_head_dim_and_says_where_it_came_from(fake_device, capsys):
    assert demo.main(["--emulate", "--seqlen", "40"]) == 0
    rows = re.findall(r"^ +(\d+)  sm_100a .*emulated$", capsys.readouterr().out, re.MULTILINE)
    assert rows == ["64", "128", "256"]


@pytest.mark.parametrize("fault", [lambda a: a * 1.01, lambda a: a * np.nan])
def test_fails_when_an_error_is_above_its_limit(fake_device, monkeypatch, capsys, fault):
    launch = fake_device.launch

    def wrong(kernel, plan, arrays, stream):
        launch(kernel, plan, arrays, stream)
        out = arrays["out"].array
        out[...] = fault(out.astype(np.float32)).astype(out.dtype)

    monkeypatch.setattr(fake_device, "launch", wrong)
    assert demo.main(["--emulate", "--seqlen", "40"]) == 1
    assert "FAILED" in capsys.readouterr().err


def test_a_typed_error_is_one_line(fake_device, capsys):
    fake_device.arch = "sm_90a"
    assert demo.main(["--emulate"]) == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_without_a_gpu_it_is_emulated_and_says_why(monkeypatch):
    from umma_jit._arrays import EMULATED
    from umma_jit.runtime import cuda

    monkeypatch.setattr(cuda, "device_count", lambda: 0)
    assert demo._choose_device() == (EMULATED, "no CUDA device here")
