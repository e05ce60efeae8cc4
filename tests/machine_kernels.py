"""Small PTX kernels for the tests of the emulated machine, and a way to break them line by line."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from umma_jit.emulator import DeviceMemory, Module, TensorMap

HEADER = ".version 8.7\n.target {target}\n.address_size 64\n"
REGISTERS = ".reg .b32 %r<700>;\n.reg .b64 %rd<64>;\n.reg .b16 %rs<8>;\n.reg .pred %p<16>;\n"


def kernel(parameters: str, shared: str, body: str, *, target: str = "sm_100a") -> str:
    """A module with one kernel named k."""
    return (
        HEADER.format(target=target)
        + f".visible .entry k({parameters})\n{{\n"
        + REGISTERS
        + shared
        + body
        + "\nret;\n}\n"
    )


def registers(first: int, count: int) -> str:
    """A vector operand of consecutive 32-bit registers."""
    return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


def store_row(first: int, count: int, base: str) -> str:
    """Store `count` registers to ``[base]``, 16 bytes at a time."""
    return "\n".join(f"st.global.v4.b32 [{base}+{4 * i}], {registers(first + i, 4)};" for i in range(0, count, 4))


def load_row(first: int, count: int, base: str) -> str:
    """Load `count` registers from ``[base]``, 16 bytes at a time."""
    return "\n".join(f"ld.global.v4.b32 {registers(first + i, 4)}, [{base}+{4 * i}];" for i in range(0, count, 4))


def without(text: str, line: str) -> str:
    """`text` without the one line that contains `line`."""
    lines = text.split("\n")
    hits = [index for index, content in enumerate(lines) if line in content]
    assert len(hits) == 1, f"{line!r} is in {len(hits)} lines"
    del lines[hits[0]]
    return "\n".join(lines)


def replaced(text: str, old: str, new: str) -> str:
    """`text` with the one occurrence of `old` replaced."""
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
    return text.replace(old, new)


def launch(text: str, params: list[Any], **options: Any) -> Any:
    """Run kernel k and return the report."""
    options = {"grid": (1, 1, 1), "block": (128, 1, 1), "memory": DeviceMemory(), **options}
    return Module(text)["k"].launch(params=params, **options)


# -- D = A B^T, 128 x 64 x 64, bf16, through TMA, one MMA thread, four warps that read D ---------------------------

GEMM = kernel(
    ".param .align 64 .b8 amap[128], .param .align 64 .b8 bmap[128], .param .u64 out",
    ".shared .align 1024 .b8 tiles[24576];\n.shared .align 8 .b64 bars[2];\n.shared .align 4 .b32 tptr;\n",
    f"""
mov.u32 %r1, %tid.x;
shr.u32 %r2, %r1, 5;
mov.u32 %r3, tiles;
mov.u32 %r4, bars;
mov.u32 %r5, tptr;
setp.ne.u32 %p1, %r1, 0;
setp.ne.u32 %p2, %r2, 0;
@%p1 bra INIT_DONE;
mbarrier.init.shared::cta.b64 [%r4], 1;
mbarrier.init.shared::cta.b64 [%r4+8], 1;
fence.mbarrier_init.release.cluster;
INIT_DONE:
@%p2 bra ALLOC_DONE;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r5], 64;
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
ALLOC_DONE:
bar.sync 0;
ld.shared.b32 %r6, [%r5];
@%p1 bra ISSUE_DONE;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 24576;
mov.b64 %rd1, amap;
cvta.param.u64 %rd1, %rd1;
mov.b64 %rd2, bmap;
cvta.param.u64 %rd2, %rd2;
mov.b32 %r7, 0;
add.s32 %r8, %r3, 16384;
cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r3], [%rd1, {{%r7, %r7}}], [%r4];
cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r8], [%rd2, {{%r7, %r7}}], [%r4];
FULL: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r4], 0;
@!%p3 bra FULL;
shr.u32 %r9, %r3, 4;
cvt.u64.u32 %rd3, %r9;
or.b64 %rd3, %rd3, 0x4000404000000000;
add.s64 %rd4, %rd3, 1024;
add.s64 %rd5, %rd3, 2;
add.s64 %rd6, %rd4, 2;
add.s64 %rd7, %rd3, 4;
add.s64 %rd8, %rd4, 4;
add.s64 %rd9, %rd3, 6;
add.s64 %rd10, %rd4, 6;
mov.b32 %r10, 0x08100490;
tcgen05.mma.cta_group::1.kind::f16 [%r6], %rd3, %rd4, %r10, 0;
tcgen05.mma.cta_group::1.kind::f16 [%r6], %rd5, %rd6, %r10, 1;
tcgen05.mma.cta_group::1.kind::f16 [%r6], %rd7, %rd8, %r10, 1;
tcgen05.mma.cta_group::1.kind::f16 [%r6], %rd9, %rd10, %r10, 1;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r4+8];
ISSUE_DONE:
DONE: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r4+8], 0;
@!%p4 bra DONE;
tcgen05.fence::after_thread_sync;
shl.b32 %r11, %r2, 21;
add.s32 %r12, %r6, %r11;
tcgen05.ld.sync.aligned.32x32b.x64.b32 {registers(100, 64)}, [%r12];
tcgen05.wait::ld.sync.aligned;
ld.param.u64 %rd20, [out];
mul.wide.u32 %rd21, %r1, 256;
add.s64 %rd22, %rd20, %rd21;
{store_row(100, 64, "%rd22")}
bar.sync 0;
@%p2 bra END;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r6, 64;
END:
""",
)


def gemm_inputs(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A (128, 64) and B (64, 64) in bf16, and A B^T in float32."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((128, 64)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((64, 64)).astype(ml_dtypes.bfloat16)
    return a, b, a.astype(np.float32) @ b.astype(np.float32).T


def run_gemm(text: str = GEMM, **options: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Run `GEMM` or a broken form of it: result, expected, report."""
    a, b, wanted = gemm_inputs()
    memory = DeviceMemory()
    maps = [
        TensorMap(
            memory.upload(x), dtype="bfloat16", dims=(64, rows), strides_bytes=(128,), box=(64, rows), swizzle="128B"
        )
        for x, rows in ((a, 128), (b, 64))
    ]
    out = np.full((128, 64), np.nan, np.float32)
    report = launch(text, [*maps, out], memory=memory, **options)
    return out, wanted, report


# -- P in tensor memory: D = P V, P (128, 64) by tcgen05.st, V by generic stores with a proxy fence -----------------

# Each thread holds one row of P (64 bf16, 32 registers) and half a row of V (64 x 64, MN-major, SW128).
TS_GEMM = kernel(
    ".param .u64 p, .param .u64 v, .param .u64 out",
    ".shared .align 1024 .b8 tile[8192];\n.shared .align 8 .b64 bars[2];\n.shared .align 4 .b32 tptr;\n",
    f"""
mov.u32 %r1, %tid.x;
shr.u32 %r2, %r1, 5;
mov.u32 %r3, tile;
mov.u32 %r4, bars;
mov.u32 %r5, tptr;
setp.ne.u32 %p1, %r1, 0;
setp.ne.u32 %p2, %r2, 0;
@%p1 bra INIT_DONE;
mbarrier.init.shared::cta.b64 [%r4], 128;
mbarrier.init.shared::cta.b64 [%r4+8], 1;
INIT_DONE:
@%p2 bra ALLOC_DONE;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r5], 128;
ALLOC_DONE:
bar.sync 0;
ld.shared.b32 %r6, [%r5];
ld.param.u64 %rd1, [p];
mul.wide.u32 %rd2, %r1, 128;
add.s64 %rd3, %rd1, %rd2;
{load_row(100, 32, "%rd3")}
shl.b32 %r11, %r2, 21;
add.s32 %r12, %r6, %r11;
add.s32 %r13, %r12, 64;
tcgen05.st.sync.aligned.32x32b.x32.b32 [%r13], {registers(100, 32)};
tcgen05.wait::st.sync.aligned;
ld.param.u64 %rd4, [v];
mul.wide.u32 %rd5, %r1, 64;
add.s64 %rd6, %rd4, %rd5;
{load_row(200, 16, "%rd6")}
shr.u32 %r20, %r1, 1;
and.b32 %r21, %r20, 7;
shl.b32 %r22, %r21, 4;
shl.b32 %r23, %r1, 6;
add.s32 %r24, %r23, 0;
xor.b32 %r25, %r24, %r22;
add.s32 %r26, %r3, %r25;
st.shared.v4.b32 [%r26], {registers(200, 4)};
add.s32 %r24, %r23, 16;
xor.b32 %r25, %r24, %r22;
add.s32 %r26, %r3, %r25;
st.shared.v4.b32 [%r26], {registers(204, 4)};
add.s32 %r24, %r23, 32;
xor.b32 %r25, %r24, %r22;
add.s32 %r26, %r3, %r25;
st.shared.v4.b32 [%r26], {registers(208, 4)};
add.s32 %r24, %r23, 48;
xor.b32 %r25, %r24, %r22;
add.s32 %r26, %r3, %r25;
st.shared.v4.b32 [%r26], {registers(212, 4)};
fence.proxy.async.shared::cta;
tcgen05.fence::before_thread_sync;
mbarrier.arrive.shared::cta.b64 _, [%r4];
@%p1 bra ISSUE_DONE;
FULL: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r4], 0;
@!%p3 bra FULL;
tcgen05.fence::after_thread_sync;
shr.u32 %r9, %r3, 4;
cvt.u64.u32 %rd10, %r9;
or.b64 %rd10, %rd10, 0x4000404000000000;
add.s64 %rd11, %rd10, 128;
add.s64 %rd12, %rd10, 256;
add.s64 %rd13, %rd10, 384;
mov.b32 %r10, 0x08110490;
add.s32 %r30, %r6, 64;
tcgen05.mma.cta_group::1.kind::f16 [%r6], [%r30], %rd10, %r10, 0;
tcgen05.mma.cta_group::1.kind::f16 [%r6], [%r30 + 8], %rd11, %r10, 1;
tcgen05.mma.cta_group::1.kind::f16 [%r6], [%r30 + 16], %rd12, %r10, 1;
tcgen05.mma.cta_group::1.kind::f16 [%r6], [%r30 + 24], %rd13, %r10, 1;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r4+8];
ISSUE_DONE:
DONE: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r4+8], 0;
@!%p4 bra DONE;
tcgen05.ld.sync.aligned.32x32b.x64.b32 {registers(300, 64)}, [%r12];
tcgen05.wait::ld.sync.aligned;
ld.param.u64 %rd20, [out];
mul.wide.u32 %rd21, %r1, 256;
add.s64 %rd22, %rd20, %rd21;
{store_row(300, 64, "%rd22")}
bar.sync 0;
@%p2 bra END;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r6, 128;
END:
""",
)


def run_ts_gemm(text: str = TS_GEMM, **options: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Run `TS_GEMM` or a broken form of it: result, expected, report."""
    rng = np.random.default_rng(1)
    p = rng.standard_normal((128, 64)).astype(ml_dtypes.bfloat16)
    v = rng.standard_normal((64, 64)).astype(ml_dtypes.bfloat16)
    out = np.full((128, 64), np.nan, np.float32)
    report = launch(text, [p, v, out], **options)
    return out, p.astype(np.float32) @ v.astype(np.float32), report
