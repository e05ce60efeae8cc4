"""tcgen05 end to end: right results under every schedule, and a name for every mistake."""

from __future__ import annotations

import numpy as np
import pytest

from machine_kernels import (
    GEMM,
    TS_GEMM,
    kernel,
    launch,
    load_row,
    registers,
    replaced,
    run_gemm,
    run_ts_gemm,
    store_row,
    without,
)
from umma_jit.emulator import DescriptorError, HazardError, MbarrierError, TensorMemoryFault

SCHEDULES = ("program", "eager", "lazy", "random")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("run", [run_gemm, run_ts_gemm])
def test_a_correct_kernel_is_right_and_clean_under_every_schedule(run, schedule: str) -> None:
    out, wanted, report = run(schedule=schedule, strict=True)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-4)
    assert report.findings == []


@pytest.mark.parametrize("seed", range(4))
def test_random_schedules_agree(seed: int) -> None:
    out, wanted, report = run_gemm(schedule="random", seed=seed)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-4)
    assert report.findings == []


def _rules(report) -> set[str]:
    return {finding.rule for finding in report.errors}


def test_reading_the_accumulator_without_waiting_is_a_race_whatever_the_schedule() -> None:
    broken = replaced(GEMM, "@!%p4 bra DONE;", "")
    for schedule in ("eager", "lazy"):
        broken_now = replaced(broken, "DONE: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r4+8], 0;", "")
        _, _, report = run_gemm(broken_now, schedule=schedule)
        assert "tmem.race" in _rules(report), schedule


def test_a_lazy_schedule_shows_the_race_in_the_result() -> None:
    broken = without(replaced(GEMM, "@!%p4 bra DONE;", ""), "DONE: mbarrier.try_wait")
    out, wanted, _ = run_gemm(broken, schedule="lazy")
    assert not np.allclose(out, wanted, rtol=1e-3, atol=1e-3)


def test_operands_read_before_tma_delivered_them() -> None:
    broken = without(without(GEMM, "@!%p3 bra FULL;"), "FULL: mbarrier.try_wait")
    _, _, report = run_gemm(broken, schedule="eager")
    assert "shared.race" in _rules(report)


def test_missing_proxy_fence() -> None:
    _, _, report = run_ts_gemm(without(TS_GEMM, "fence.proxy.async"))
    assert _rules(report) == {"proxy-fence.missing"}
    assert all("fence.proxy.async" in finding.remedy for finding in report.errors)


def test_a_proxy_fence_by_the_consumer_counts_too() -> None:
    moved = without(TS_GEMM, "fence.proxy.async")
    moved = replaced(moved, "@!%p3 bra FULL;", "@!%p3 bra FULL;\nfence.proxy.async;")
    _, _, report = run_ts_gemm(moved)
    assert report.findings == []


def test_store_not_waited_for_before_the_hand_over() -> None:
    _, _, report = run_ts_gemm(without(TS_GEMM, "tcgen05.wait::st"))
    assert "tmem.st-not-waited" in _rules(report)


def test_using_a_load_before_its_wait_is_a_warning_and_the_value_is_right() -> None:
    out, wanted, report = run_gemm(without(GEMM, "tcgen05.wait::ld"), schedule="lazy")
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-4)
    assert report.errors == []
    assert [finding.rule for finding in report.warnings] == ["tcgen05.ld-register-dependence"]
    with pytest.raises(HazardError, match=r"wait::ld"):
        run_gemm(without(GEMM, "tcgen05.wait::ld"), strict=True)


DESCRIPTOR = "or.b64 %rd3, %rd3, 0x4000404000000000;"
ADDRESS = "add.s32 %r12, %r6, %r11;"


@pytest.mark.parametrize(
    ("old", "new", "error", "rule"),
    [
        # A tensor-memory address widened to 64 bits and given without brackets.
        (
            "[%r6], %rd3, %rd4, %r10, 0;",
            "[%r6], %rd40, %rd4, %r10, 0;",
            DescriptorError,
            "mma.tmem-address-as-descriptor",
        ),
        ("mov.b32 %r10, 0x08100490;", "mov.b32 %r10, 0x08100590;", DescriptorError, "idesc.type"),
        ("mov.b32 %r10, 0x08100490;", "mov.b32 %r10, 0x06100490;", DescriptorError, "idesc.shape"),
        (DESCRIPTOR, "or.b64 %rd3, %rd3, 0x6000404000000000;", DescriptorError, "descriptor.swizzle"),
        (DESCRIPTOR, "or.b64 %rd3, %rd3, 0x4002404000000000;", DescriptorError, "descriptor.base-offset"),
        (DESCRIPTOR, "or.b64 %rd3, %rd3, 0x40007FC000000000;", DescriptorError, "descriptor.out-of-bounds"),
        (ADDRESS, "add.s32 %r12, %r6, 8388608;", TensorMemoryFault, "access_out_of_physical_bounds"),
        (ADDRESS, "add.s32 %r12, %r11, 32;", TensorMemoryFault, "unallocated_columns_access"),
        (ADDRESS, "add.s32 %r12, %r11, 1048576;", TensorMemoryFault, "invalid_datapath_alignment"),
        ("[%r5], 64;", "[%r5], 48;", TensorMemoryFault, "allocation_granularity_invalid"),
        ("b32 %r6, 64;", "b32 %r6, 32;", TensorMemoryFault, "col_being_dealloced_not_returned_by_alloc"),
        ("f16 [%r6], %rd3", "f16 [%r13], %rd3", TensorMemoryFault, "invalid_datapath_alignment"),
        ("mbarrier.init.shared::cta.b64 [%r4+8], 1;", "", MbarrierError, "mbarrier.uninitialised"),
    ],
)  # fmt: skip
def test_mistakes_that_stop_the_kernel(old: str, new: str, error: type[Exception], rule: str) -> None:
    text = replaced(GEMM, old, new)
    # Registers that some of the replacements use.
    text = replaced(
        text,
        "ld.shared.b32 %r6, [%r5];",
        "ld.shared.b32 %r6, [%r5];\ncvt.u64.u32 %rd40, %r6;\nadd.s32 %r13, %r6, 2097152;",
    )
    with pytest.raises(error) as caught:
        run_gemm(text)
    assert caught.value.finding.rule == rule
    assert caught.value.finding.remedy


def test_a_missing_constant_is_a_warning() -> None:
    text = replaced(GEMM, "or.b64 %rd3, %rd3, 0x4000404000000000;", "or.b64 %rd3, %rd3, 0x4000004000000000;")
    out, wanted, report = run_gemm(text)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-4)
    assert {finding.rule for finding in report.warnings} == {"descriptor.constant"}
    assert report.errors == []


def test_lane_zero_from_every_warp_is_routed_and_warned_about() -> None:
    out, wanted, report = run_gemm(replaced(GEMM, "add.s32 %r12, %r6, %r11;", "mov.b32 %r12, %r6;"))
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-4)
    assert {finding.rule for finding in report.warnings} == {"current_warp_owner_invalid"}


def test_accumulating_onto_nothing() -> None:
    _, _, report = run_gemm(replaced(GEMM, "[%r6], %rd3, %rd4, %r10, 0;", "[%r6], %rd3, %rd4, %r10, 1;"))
    assert "tmem.uninitialised" in _rules(report)


def test_leaving_without_deallocating() -> None:
    _, _, report = run_gemm(without(GEMM, "tcgen05.dealloc"))
    assert "tmem.dealloc-missing" in _rules(report)


def test_freeing_columns_that_are_still_read() -> None:
    broken = replaced(GEMM, "bar.sync 0;\n@%p2 bra END;", "@%p2 bra END;")
    _, _, report = run_gemm(broken)
    assert "tmem.dealloc-in-use" in _rules(report)


def test_alloc_after_relinquish() -> None:
    line = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
    again = line + "\ntcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r5], 64;"
    with pytest.raises(TensorMemoryFault) as caught:
        run_gemm(replaced(GEMM, line, again))
    assert caught.value.finding.rule == "phase_invalid_during_alloc"


# -- data movement -----------------------------------------------------------------------------------------------

UNITS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4}


def _round_trip(store: str, load: str, count: int, *, block: int = 128) -> str:
    """Each warp stores a fragment of `count` registers in one way and loads it in another."""
    return kernel(
        ".param .u64 in, .param .u64 out",
        ".shared .align 4 .b32 tptr;\n",
        f"""
mov.u32 %r1, %tid.x;
shr.u32 %r2, %r1, 5;
mov.u32 %r5, tptr;
setp.ne.u32 %p2, %r2, 0;
@%p2 bra ALLOC_DONE;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r5], 256;
ALLOC_DONE:
bar.sync 0;
ld.shared.b32 %r6, [%r5];
shl.b32 %r11, %r2, 21;
add.s32 %r12, %r6, %r11;
add.s32 %r13, %r12, 1048576;
ld.param.u64 %rd1, [in];
mul.wide.u32 %rd2, %r1, {4 * count};
add.s64 %rd3, %rd1, %rd2;
{load_row(100, count, "%rd3")}
{store}
tcgen05.wait::st.sync.aligned;
{load}
tcgen05.wait::ld.sync.aligned;
ld.param.u64 %rd4, [out];
add.s64 %rd5, %rd4, %rd2;
{store_row(300, count, "%rd5")}
bar.sync 0;
@%p2 bra END;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r6, 256;
END:
""",
    )


@pytest.mark.parametrize("shape", list(UNITS))
@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_each_shape_is_read_as_the_plain_shape_says(shape: str, schedule: str) -> None:
    # 16 registers: 16 lanes x 32 columns in two 16-lane halves, read back as 32 lanes x 32 columns would need
    # 32 registers; so write both halves with 16 registers each.
    count = 32
    units = UNITS[shape]
    if shape == "32x32b":
        store = f"tcgen05.st.sync.aligned.32x32b.x32.b32 [%r12], {registers(100, 32)};"
    else:
        num = 16 // units
        store = (
            f"tcgen05.st.sync.aligned.{shape}.x{num}.b32 [%r12], {registers(100, 16)};\n"
            f"tcgen05.st.sync.aligned.{shape}.x{num}.b32 [%r13], {registers(116, 16)};"
        )
    load = f"tcgen05.ld.sync.aligned.32x32b.x32.b32 {registers(300, 32)}, [%r12];"
    data = np.arange(128 * count, dtype=np.uint32).reshape(128, count)
    out = np.zeros_like(data)
    report = launch(_round_trip(store, load, count), [data, out], schedule=schedule)
    assert report.findings == []
    cell = {
        "32x32b": lambda t, j: (t, j),
        "16x64b": lambda t, j: (t // 4 + 8 * (t % 2), (t // 2) % 2 + 2 * j),
        "16x128b": lambda t, j: (t // 4 + 8 * (j % 2), t % 4 + 4 * (j // 2)),
        "16x256b": lambda t, j: (t // 4 + 8 * ((j // 2) % 2), 2 * (t % 4) + j % 2 + 8 * (j // 4)),
    }[shape]
    wanted = np.zeros_like(data)
    for thread in range(128):
        for j in range(count):
            half, inner = (0, j) if shape == "32x32b" else divmod(j, 16)
            lane, column = cell(thread % 32, inner)
            wanted[thread // 32 * 32 + 16 * half + lane, column] = data[thread, j]
    assert (out == wanted).all()


def test_packed_halves() -> None:
    store = f"tcgen05.st.sync.aligned.32x32b.x8.unpack::16b.b32 [%r12], {registers(100, 8)};"
    load = f"tcgen05.ld.sync.aligned.32x32b.x16.b32 {registers(300, 16)}, [%r12];"
    data = np.arange(128 * 16, dtype=np.uint32).reshape(128, 16) * 0x10001 + 0x50003
    out = np.zeros_like(data)
    launch(_round_trip(store, load, 16), [data, out])
    assert (out[:, 0::2] == data[:, :8] & 0xFFFF).all()
    assert (out[:, 1::2] == data[:, :8] >> 16).all()
    packed = load.replace("x16.b32", "x8.pack::16b.b32").replace(registers(300, 16), registers(300, 8))
    again = np.zeros_like(data)
    launch(_round_trip(store, packed, 16).replace(store_row(300, 16, "%rd5"), store_row(300, 8, "%rd5")), [data, again])
    assert (again[:, :8] == data[:, :8]).all()


def test_a_16_lane_shape_at_the_wrong_half() -> None:
    # + 32 lanes instead of + 16: leaves the slab, and for the last warp tensor memory itself.
    store = f"tcgen05.st.sync.aligned.16x256b.x4.b32 [%r14], {registers(100, 16)};"
    load = f"tcgen05.ld.sync.aligned.32x32b.x16.b32 {registers(300, 16)}, [%r12];"
    text = replaced(_round_trip(store, load, 16), store, "add.s32 %r14, %r12, 2097152;\n" + store)
    with pytest.raises(TensorMemoryFault) as caught:
        launch(text, [np.zeros((128, 16), np.uint32), np.zeros((128, 16), np.uint32)])
    assert caught.value.finding.rule == "access_out_of_physical_bounds"
