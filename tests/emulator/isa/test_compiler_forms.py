"""Forms of instructions that shipping compilers emit, beyond those that the fixtures contain."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from machine_kernels import launch
from umma_jit.emulator import ExecutionError, Module, UnsupportedInstructionError

_DECLARATIONS = """
.reg .b32 %r<40>; .reg .f32 %f<20>; .reg .b64 %rd<20>; .reg .b16 %rs<20>; .reg .pred %p<10>; .reg .b128 %q<4>;
"""


def run(body, words=1, inputs=None, shared="", threads=32, target="sm_100a", **options):
    """Run `body` with %rd1 = the thread's slot of the output, %rd2 = the input, %r1 = %tid.x: (threads, words)."""
    text = f"""
.version 9.0
.target {target}
.address_size 64
{shared}
.visible .entry k(.param .u64 out, .param .u64 in)
{{
{_DECLARATIONS}
ld.param.u64 %rd1, [out];
ld.param.u64 %rd2, [in];
mov.u32 %r1, %tid.x;
mad.wide.u32 %rd1, %r1, {4 * words}, %rd1;
{body}
ret;
}}
"""
    out = np.zeros((threads, words), np.uint32)
    data = np.zeros(4, np.uint32) if inputs is None else np.ascontiguousarray(inputs)
    report = launch(text, [out, data], block=(threads, 1, 1), **options)
    assert report.findings == []
    return out


def test_call_of_vprintf_passes_parameters_and_gives_a_result():
    got = run(
        """
        {
        .param .b64 param0;
        st.param.b64 [param0], %rd1;
        .param .b64 param1;
        st.param.b64 [param1], %rd2;
        .param .b32 retval0;
        call.uni (retval0), vprintf, (param0, param1);
        ld.param.b32 %r2, [retval0];
        }
        add.u32 %r2, %r2, 5;
        st.global.u32 [%rd1], %r2;
        """
    )
    assert (got == 5).all()


def test_128_bit_loads_moves_and_stores():
    got = run(
        """
        ld.global.v2.b64 {%rd3, %rd4}, [%rd2];
        mov.b128 %q1, {%rd4, %rd3};
        st.shared.b128 [slot], %q1;
        ld.shared.b128 %q2, [slot];
        mov.b128 {%rd5, %rd6}, %q2;
        st.global.v2.b64 [%rd1], {%rd5, %rd6};
        """,
        words=4,
        inputs=np.arange(4, dtype=np.uint32),
        shared=".shared .align 16 .b8 slot[16];",
        threads=1,
    )
    assert got.tolist() == [[2, 3, 0, 1]]


def test_extended_precision_carries():
    got = run(
        """
        mov.u32 %r2, 0xffffffff;
        add.cc.u32 %r3, %r2, 1;
        addc.cc.u32 %r4, %r2, 0;
        addc.u32 %r5, 7, 0;
        sub.cc.u32 %r6, 0, 1;
        subc.u32 %r7, 10, 0;
        mad.lo.cc.u32 %r8, %r2, %r2, %r2;
        madc.hi.u32 %r9, %r2, %r2, 0;
        st.global.v4.u32 [%rd1], {%r3, %r4, %r5, %r6};
        st.global.v2.u32 [%rd1+16], {%r7, %r8};
        st.global.u32 [%rd1+24], %r9;
        """,
        words=8,
    )
    ones = 2**32 - 1
    total = ones * ones + ones
    assert got[0, :7].tolist() == [0, 0, 8, ones, 9, total % 2**32, total >> 32]


def test_carry_is_kept_per_thread():
    got = run(
        """
        neg.s32 %r2, %r1;
        add.cc.u32 %r3, %r2, 3;
        addc.u32 %r4, 0, 0;
        st.global.u32 [%rd1], %r4;
        """
    )
    assert got[:, 0].tolist() == [0, 1, 1, 1] + [0] * 28


def test_mixed_precision_arithmetic():
    x = np.array([1.5, -2.25], np.float16)
    packed = np.concatenate([x.view(np.uint32), np.array([0.1], np.float32).view(np.uint32)])
    got = run(
        """
        ld.global.u32 %r2, [%rd2];
        mov.b32 {%rs1, %rs2}, %r2;
        ld.global.f32 %f1, [%rd2+4];
        sub.rn.f32.f16 %f2, %rs1, %f1;
        add.f32.f16 %f3, %rs2, %f1;
        fma.rn.f32.f16 %f4, %rs1, %rs2, %f1;
        add.rz.f32.f16.sat %f5, %rs2, %f1;
        st.global.v4.f32 [%rd1], {%f2, %f3, %f4, %f5};
        """,
        words=4,
        inputs=packed,
        threads=1,
    ).view(np.float32)
    tenth = np.float32(0.1)
    assert got[0].tolist() == [np.float32(1.5) - tenth, np.float32(-2.25) + tenth, np.float32(-3.375) + tenth, 0.0]


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [("f4e", 0x66554433), ("b4e", 0x66003311), ("rc8", 0x33333333), ("ecl", 0x33333333), ("ecr", 0x33221100),
     ("rc16", 0x33223322)],
)  # fmt: skip
def test_prmt_modes_with_control_3_or_as_the_table_says(opcode, expected):
    a, b = 0x33221100, 0x77665544
    got = run(f"mov.u32 %r2, {a}; mov.u32 %r3, {b}; prmt.b32.{opcode} %r4, %r2, %r3, 3; st.global.u32 [%rd1], %r4;")
    source = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    table = {"f4e": (3, 4, 5, 6), "b4e": (3, 2, 1, 0), "rc8": (3,) * 4, "ecl": (3,) * 4, "ecr": (0, 1, 2, 3),
             "rc16": (2, 3, 2, 3)}  # fmt: skip
    wanted = int.from_bytes(bytes(source[i] for i in table[opcode]), "little")
    assert int(got[0, 0]) == wanted


def test_redux_of_floats_with_and_without_nan():
    values = np.array([3.0, -7.0, np.nan, 2.0] * 8, np.float32)
    got = run(
        """
        mad.wide.u32 %rd3, %r1, 4, %rd2;
        ld.global.f32 %f1, [%rd3];
        redux.sync.max.f32 %f2, %f1, 0xffffffff;
        redux.sync.min.f32 %f3, %f1, 0xffffffff;
        redux.sync.max.abs.f32 %f4, %f1, 0xffffffff;
        redux.sync.max.NaN.f32 %f5, %f1, 0xffffffff;
        st.global.v4.f32 [%rd1], {%f2, %f3, %f4, %f5};
        """,
        words=4,
        inputs=values,
    ).view(np.float32)
    assert got[0, :3].tolist() == [3.0, -7.0, 7.0]
    assert np.isnan(got[:, 3]).all()


def test_hints_and_policies_change_nothing():
    got = run(
        """
        mov.f32 %f1, 0f3F800000;
        createpolicy.fractional.L2::evict_first.b64 %rd3, %f1;
        createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd4, 0.5;
        createpolicy.range.L2::evict_last.L2::evict_first.b64 %rd5, [%rd2], 0x10, 0x20;
        createpolicy.cvt.L2.b64 %rd6, 0x1234;
        prefetch.global.L2 [%rd2];
        prefetchu.L1 [%rd2];
        discard.global.L2 [%rd2], 128;
        applypriority.global.L2::evict_normal [%rd2], 128;
        griddepcontrol.launch_dependents;
        griddepcontrol.wait;
        nanosleep.u32 20;
        ld.global.L1::no_allocate.L2::cache_hint.u32 %r2, [%rd2], %rd3;
        add.u32 %r2, %r2, 9;
        st.global.L2::cache_hint.u32 [%rd1], %r2, %rd4;
        """
    )
    assert (got == 9).all()


def test_packed_pairs_of_f32():
    got = run(
        """
        mov.b64 %rd3, {%r2, %r3};
        mov.f32 %f1, 0f3F800000;
        mov.f32 %f2, 0f40400000;
        mov.b64 %rd3, {%f1, %f2};
        add.rm.f32x2 %rd4, %rd3, %rd3;
        fma.rn.ftz.f32x2 %rd5, %rd3, %rd4, %rd3;
        sub.f32x2 %rd6, %rd5, %rd3;
        mul.rn.f32x2 %rd7, %rd6, %rd3;
        st.global.v2.b64 [%rd1], {%rd5, %rd7};
        """.replace("mov.b64 %rd3, {%r2, %r3};", ""),
        words=4,
    ).view(np.float32)
    assert got[0].tolist() == [3.0, 21.0, 2.0, 54.0]


def test_narrow_integer_forms():
    got = run(
        """
        mov.b16 %rs1, 0x80f0;
        cvt.s16.s8 %rs2, %rs1;
        cvt.s32.s8 %r2, %rs1;
        mul.wide.s16 %r3, %rs2, %rs2;
        mul.wide.u16 %r4, %rs1, %rs1;
        shr.s16 %rs3, %rs1, 4;
        cvt.s32.s16 %r5, %rs3;
        setp.gt.u16 %p1, %rs1, %rs2;
        selp.u16 %rs4, 1, 2, %p1;
        cvt.u32.u16 %r6, %rs4;
        min.relu.s32 %r7, %r2, 5;
        st.global.v4.u32 [%rd1], {%r2, %r3, %r4, %r5};
        st.global.v2.u32 [%rd1+16], {%r6, %r7};
        """,
        words=8,
    )
    signed = (0x80F0 - 0x10000) >> 4
    assert got[0, :6].view(np.int32).tolist() == [-16, 256, 0x80F0 * 0x80F0, signed, 2, 0]


def test_vote_and_elect_forms():
    got = run(
        """
        setp.lt.u32 %p1, %r1, 5;
        vote.sync.any.pred %p2, %p1, 0xffffffff;
        vote.sync.all.pred %p3, !%p1, 0xffffffff;
        vote.sync.ballot.b32 %r2, %p1, -1;
        elect.sync _|%p4, 0xffffffff;
        selp.b32 %r3, 1, 0, %p2;
        selp.b32 %r4, 1, 0, %p3;
        selp.b32 %r5, 1, 0, %p4;
        st.global.v4.u32 [%rd1], {%r2, %r3, %r4, %r5};
        """,
        words=4,
    )
    assert got[0].tolist() == [31, 1, 0, 1]
    assert got[1:, 3].sum() == 0


def test_three_operand_maximum():
    got = run(
        """
        mov.f32 %f1, 0f3F800000;
        mov.f32 %f2, 0f40400000;
        max.f32 %f3, %f1, %f2, 0f40A00000;
        min.f32 %f4, %f2, 0f7FFFFFFF, %f1;
        st.global.v2.f32 [%rd1], {%f3, %f4};
        """,
        words=2,
    ).view(np.float32)
    assert got[0].tolist() == [5.0, 1.0]


def test_cluster_rank_addressing_and_remote_stores():
    text = """
.version 9.0
.target sm_100a
.address_size 64
.shared .align 16 .b32 slot;
.shared .align 8 .b64 bar;
.visible .entry k(.param .u64 out)
.reqnctapercluster 2
{
.reg .b32 %r<20>; .reg .b64 %rd<4>; .reg .pred %p<4>;
mov.u32 %r1, %tid.x;
mov.u32 %r2, %cluster_ctarank;
xor.b32 %r3, %r2, 1;
mov.u32 %r4, slot;
mov.u32 %r5, bar;
setp.ne.u32 %p1, %r1, 0;
@%p1 bra READY;
mbarrier.init.shared::cta.b64 [%r5], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 4;
fence.mbarrier_init.release.cluster;
READY:
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mapa.shared::cluster.u32 %r6, %r4, %r3;
mapa.shared::cluster.u32 %r7, %r5, %r3;
getctarank.shared::cluster.u32 %r8, %r6;
add.u32 %r9, %r8, 100;
@%p1 bra SENT;
st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r6], %r9, [%r7];
SENT:
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0;
@!%p2 bra WAIT;
ld.shared.u32 %r10, [%r4];
ld.param.u64 %rd1, [out];
mov.u32 %r11, %ctaid.x;
mad.wide.u32 %rd2, %r11, 4, %rd1;
@!%p1 st.global.u32 [%rd2], %r10;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
ret;
}
"""
    out = np.zeros(2, np.uint32)
    report = launch(text, [out], grid=(2, 1, 1), cluster=(2, 1, 1), block=(32, 1, 1))
    assert report.findings == []
    assert out.tolist() == [100, 101]


def test_refused_at_load_with_line_and_opcode():
    text = ".version 9.0\n.target sm_100a\n.address_size 64\n.visible .entry k()\n{\n"
    for line in ("txq.width.b32 %r1, [t];", "wmma.load.a.sync.row.m16n16k16.f16 {%r1}, [%rd1];"):
        with pytest.raises(UnsupportedInstructionError, match=rf"line 7: {line.split()[0]}"):
            Module(text + _DECLARATIONS.strip() + "\n" + line + "\nret;\n}\n")


def test_call_of_anything_else_is_refused():
    with pytest.raises(UnsupportedInstructionError, match="vprintf"):
        run("call.uni helper, ();")


def test_failed_device_assertion_stops_the_launch():
    with pytest.raises(ExecutionError, match="assertion"):
        run("call.uni __assertfail, ();")


def test_fp8_and_fp4_conversions_round_as_ml_dtypes_does():
    values = np.random.default_rng(0).uniform(-500, 500, 64).astype(np.float32)
    got = run(
        """
        mad.wide.u32 %rd3, %r1, 8, %rd2;
        ld.global.v2.f32 {%f1, %f2}, [%rd3];
        cvt.rn.satfinite.e4m3x2.f32 %rs1, %f2, %f1;
        cvt.rn.satfinite.e5m2x2.f32 %rs2, %f2, %f1;
        mov.b32 %r2, {%rs1, %rs2};
        cvt.rn.f16x2.e4m3x2 %r3, %rs1;
        st.global.v2.u32 [%rd1], {%r2, %r3};
        """,
        words=2,
        inputs=values,
    )
    clipped = values.reshape(-1, 2).clip(-448, 448)
    raw = np.ascontiguousarray(got[:, :1]).view(np.uint8)
    assert np.array_equal(raw[:, :2], clipped.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))
    assert np.array_equal(raw[:, 2:], values.reshape(-1, 2).astype(ml_dtypes.float8_e5m2).view(np.uint8))
    halves = np.ascontiguousarray(got[:, 1:]).view(np.float16)
    assert np.array_equal(halves, clipped.astype(ml_dtypes.float8_e4m3fn).astype(np.float16))
