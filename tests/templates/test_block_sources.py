"""Every block kernel is made of the attention kernel's own headers, and ptxas takes it."""

from __future__ import annotations

import re

import pytest

from block_kernels import (
    ARCH,
    BlockConfig,
    DescriptorSetupConfig,
    EpilogueConfig,
    PvConfig,
    QkConfig,
    SeparateBuffersConfig,
    SoftmaxConfig,
    TmemStoresConfig,
    build,
)
from umma_jit._source import render, templates_directory

CONFIGS: list[BlockConfig] = [
    QkConfig(head_dim=16),
    QkConfig(head_dim=64),
    QkConfig(head_dim=128),
    QkConfig(head_dim=256),
    SeparateBuffersConfig(head_dim=64),
    DescriptorSetupConfig(),
    SoftmaxConfig(rescale_slack=8, exp2_on_fma=3),
    SoftmaxConfig(dtype="float16", rescale_slack=8, exp2_on_fma=3),
    EpilogueConfig(head_dim=64),
    EpilogueConfig(head_dim=128, dtype="float16"),
    PvConfig(head_dim=64),
    PvConfig(head_dim=128, dtype="float16"),
    PvConfig(head_dim=64, widen_address=True),
    TmemStoresConfig(),
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_ptxas_takes_it_without_spills(config: BlockConfig) -> None:
    cubin, ptx = build(config)
    assert cubin.payload.startswith(b"\x7fELF")
    assert f".target {ARCH}" in ptx.payload.decode()
    assert cubin.resources is not None
    assert cubin.resources.spill_store_bytes == cubin.resources.spill_load_bytes == 0
    warnings = re.findall(r"warning #(\d+)", cubin.log)
    assert set(warnings) <= {"177"}  # constants of a header that this block has no use for


def test_every_template_is_covered() -> None:
    templates = {path.name for path in (templates_directory() / "sm100a" / "blocks").glob("*.cu.jinja")}
    assert templates == {config.template.rsplit("/", 1)[1] for config in CONFIGS}


def test_blocks_bring_no_device_code_of_their_own() -> None:
    """What a block tests is in the headers, byte for byte; inline PTX is nowhere else."""
    root = templates_directory()
    headers = [
        *sorted((root / "include").rglob("*.cuh")),
        *(root / "sm100a" / name for name in ("umma.cuh", "softmax.cuh", "epilogue.cuh")),
    ]
    text = render(TmemStoresConfig(), ARCH).text
    for header in headers:
        assert header.read_text(encoding="utf-8").rstrip("\n") in text
    for path in (root / "sm100a" / "blocks").iterdir():
        assert re.search(r"\basm\b", path.read_text(encoding="utf-8")) is None
