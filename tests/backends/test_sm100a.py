"""Configurations and launch plans for sm_100a."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from umma_jit._config import MAX_SHARED_BYTES, TMEM_COLUMNS, AttentionFwdConfig
from umma_jit._plan import PointerArgument, ScalarArgument, TensorMapArgument
from umma_jit._problem import AttentionProblem
from umma_jit._source import render
from umma_jit.backends import for_arch
from umma_jit.errors import UnsupportedArchError, UnsupportedProblemError

ARCHITECTURES = ("sm_100a", "sm_103a")


def problem(**changes: object) -> AttentionProblem:
    """A dense problem: 2 batch entries, 300 queries, 1000 keys, 8 heads over 2, head_dim 128."""
    fields = {
        "dtype": "bfloat16",
        "batch_size": 2,
        "seqlen_q": 300,
        "seqlen_k": 1000,
        "num_heads": 8,
        "num_heads_kv": 2,
        "head_dim": 128,
        "causal": False,
        "softmax_scale": 0.125,
        "return_lse": True,
        **changes,
    }
    fields.setdefault("out_dtype", fields["dtype"])
    out_bytes = 4 if fields["out_dtype"] == "float32" else 2

    def strides(seqlen: int, heads: int, itemsize: int = 2) -> tuple[int, int, int]:
        row = heads * fields["head_dim"] * itemsize
        return (seqlen * row, row, fields["head_dim"] * itemsize)

    fields.setdefault("q_strides", strides(fields["seqlen_q"], fields["num_heads"]))
    fields.setdefault("k_strides", strides(fields["seqlen_k"], fields["num_heads_kv"]))
    fields.setdefault("v_strides", strides(fields["seqlen_k"], fields["num_heads_kv"]))
    fields.setdefault("out_strides", strides(fields["seqlen_q"], fields["num_heads"], out_bytes))
    return AttentionProblem(**fields)


def test_no_kernels_for_hopper_yet() -> None:
    with pytest.raises(UnsupportedArchError, match=r"sm_90a.*sm_100a"):
        for_arch("sm_90a")


@pytest.mark.parametrize("head_dim", [1, 32, 80, 96, 192, 512])
def test_other_head_dims_are_refused(head_dim: int) -> None:
    with pytest.raises(UnsupportedProblemError, match=rf"head_dim {head_dim}; expected one of 64, 128, 256"):
        for_arch("sm_100a").check(problem(head_dim=head_dim))


@pytest.mark.parametrize("field", ["num_heads", "batch_size"])
def test_what_does_not_fit_the_grid_is_refused(field: str) -> None:
    changes = {field: 65_536, "num_heads_kv": 1}
    with pytest.raises(UnsupportedProblemError, match="65536; expected at most 65535"):
        for_arch("sm_100a").check(problem(**changes))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_config_fits_the_hardware(arch: str) -> None:
    for config in for_arch(arch).configs():
        assert config.shared_bytes <= MAX_SHARED_BYTES
        assert 2 * 128 + config.q_tiles * config.head_dim <= TMEM_COLUMNS
        share = 65_536 // config.threads // 8 * 8  # registers per thread at the start
        budget = config.softmax_registers * config.q_tiles + config.correction_registers + config.other_registers
        assert budget <= share * (config.q_tiles + 2)
        assert config.kv_stages >= 2 * (config.head_dim // config.slot_columns)


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_one_stage_more_would_not_fit(head_dim: int) -> None:
    config = for_arch("sm_100a").choose_config(problem(head_dim=head_dim))
    more = dataclasses.replace(config, kv_stages=config.kv_stages + 1)
    assert more.shared_bytes > MAX_SHARED_BYTES


@pytest.mark.parametrize(
    ("head_dim", "seqlen_k", "causal", "kv_tiles"),
    [
        (64, 0, False, 0),
        (64, 1, False, 1),
        (64, 128, False, 1),
        (64, 129, False, 2),
        (64, 256, False, 2),
        (64, 257, False, 0),
        (64, 128, True, 1),
        (64, 129, True, 0),
        (64, 0, True, 0),
        (128, 128, False, 1),
        (128, 129, False, 0),
        (256, 129, False, 0),
    ],
)
def test_few_key_tiles_are_laid_out(head_dim: int, seqlen_k: int, causal: bool, kv_tiles: int) -> None:
    config = for_arch("sm_100a").choose_config(problem(head_dim=head_dim, seqlen_k=seqlen_k, causal=causal))
    assert config.kv_tiles == kv_tiles


def test_configs_are_all_that_can_be_chosen() -> None:
    backend = for_arch("sm_100a")
    known = set(backend.configs())
    assert len(known) == 2 * 2 * ((3 + 2) + 2 * (2 + 2))
    for head_dim in (64, 128, 256):
        for dtype in ("bfloat16", "float16"):
            for out_dtype in (dtype, "float32"):
                for causal in (False, True):
                    for seqlen_k in (0, 1, 200, 5000):
                        asked = problem(
                            head_dim=head_dim, dtype=dtype, out_dtype=out_dtype, causal=causal, seqlen_k=seqlen_k
                        )
                        assert backend.choose_config(asked) in known


def test_ultra_leaves_the_exponentials_to_its_fast_unit() -> None:
    assert all(config.exp2_on_fma == 0 for config in for_arch("sm_103a").configs())


def test_config_survives_json() -> None:
    for config in for_arch("sm_100a").configs():
        assert AttentionFwdConfig.from_dict(config.to_dict()) == config


def test_every_field_of_the_config_changes_the_source() -> None:
    config = for_arch("sm_100a").choose_config(problem())
    changed = {
        "head_dim": 64,
        "dtype": "float16",
        "out_dtype": "float32",
        "causal": True,
        "q_tiles": 1,
        "kv_tiles": 1,
        "kv_stages": 3,
        "rescale_slack": 0,
        "exp2_on_fma": 0,
        "softmax_registers": 168,
        "correction_registers": 88,
        "other_registers": 48,
    }
    assert set(changed) == {field.name for field in dataclasses.fields(config)}
    text = render(config, "sm_100a").text
    for name, value in changed.items():
        assert render(dataclasses.replace(config, **{name: value}), "sm_100a").text != text, name


class TestLaunchPlan:
    """The plan of one launch."""

    def test_grid_covers_every_query_tile_head_and_batch_entry(self) -> None:
        backend = for_arch("sm_100a")
        for head_dim, rows in ((64, 256), (128, 256), (256, 128)):
            for seqlen_q in (1, 127, 128, 129, 256, 257):
                asked = problem(head_dim=head_dim, seqlen_q=seqlen_q)
                plan = backend.launch_plan(asked, backend.choose_config(asked))
                assert plan.grid == (-(-seqlen_q // rows), 8, 2)

    def test_arguments(self) -> None:
        backend = for_arch("sm_100a")
        asked = problem()
        plan = backend.launch_plan(asked, backend.choose_config(asked))
        maps = plan.arguments[:4]
        assert [argument.array for argument in maps] == ["q", "k", "v", "out"]
        k_map = maps[1]
        assert isinstance(k_map, TensorMapArgument)
        assert k_map.layout.dims == (128, 1000, 2, 2)
        assert k_map.layout.strides_bytes == (2 * 128 * 2, 128 * 2, 1000 * 2 * 128 * 2)
        assert plan.arguments[4:6] == (PointerArgument("lse"), PointerArgument(None))
        lengths = [argument.value for argument in plan.arguments[9:12] if isinstance(argument, ScalarArgument)]
        assert lengths == [300, 1000, 4]
        scale = plan.arguments[12]
        assert isinstance(scale, ScalarArgument)
        assert scale.value == np.float32(0.125 * 1.4426950408889634)

    def test_no_keys_need_no_memory(self) -> None:
        backend = for_arch("sm_100a")
        asked = problem(seqlen_k=0)
        plan = backend.launch_plan(asked, backend.choose_config(asked))
        for argument in plan.arguments[:4]:
            assert isinstance(argument, TensorMapArgument)
            assert argument.array in ("q", "out")
            assert min(argument.layout.dims) >= 1

    def test_float32_output_goes_by_pointer(self) -> None:
        backend = for_arch("sm_100a")
        asked = problem(out_dtype="float32")
        plan = backend.launch_plan(asked, backend.choose_config(asked))
        assert plan.arguments[5] == PointerArgument("out")
        strides = [argument.value for argument in plan.arguments[6:9] if isinstance(argument, ScalarArgument)]
        assert strides == [8 * 128, 128, 300 * 8 * 128]

    def test_strides_of_extents_of_one_are_made_valid(self) -> None:
        backend = for_arch("sm_100a")
        asked = problem(batch_size=1, num_heads=1, num_heads_kv=1, q_strides=(3, 256, 7))
        plan = backend.launch_plan(asked, backend.choose_config(asked))
        q_map = plan.arguments[0]
        assert isinstance(q_map, TensorMapArgument)
        assert all(stride % 16 == 0 and stride > 0 for stride in q_map.layout.strides_bytes)
