"""The 32-bit instruction descriptor: worked values and legality."""

from __future__ import annotations

import pytest

from umma_jit.emulator.instruction_descriptor import InstructionDescriptor

encode = InstructionDescriptor.encode


@pytest.mark.parametrize(
    ("bits", "kind", "m", "n", "a", "b", "d", "transposes"),
    [
        (0x08200490, "f16", 128, 128, "bf16", "bf16", "f32", (False, False)),
        (0x08100490, "f16", 128, 64, "bf16", "bf16", "f32", (False, False)),
        (0x08400490, "f16", 128, 256, "bf16", "bf16", "f32", (False, False)),
        (0x04200490, "f16", 64, 128, "bf16", "bf16", "f32", (False, False)),
        (0x08210490, "f16", 128, 128, "bf16", "bf16", "f32", (False, True)),
        (0x08218490, "f16", 128, 128, "bf16", "bf16", "f32", (True, True)),
        (0x10200490, "f16", 256, 128, "bf16", "bf16", "f32", (False, False)),
        (0x10400490, "f16", 256, 256, "bf16", "bf16", "f32", (False, False)),
        (0x08200010, "f16", 128, 128, "f16", "f16", "f32", (False, False)),
        (0x08200000, "f16", 128, 128, "f16", "f16", "f16", (False, False)),
        (0x08200010, "f8f6f4", 128, 128, "e4m3", "e4m3", "f32", (False, False)),
        (0x08200090, "f8f6f4", 128, 128, "e5m2", "e4m3", "f32", (False, False)),
        (0x08200410, "f8f6f4", 128, 128, "e4m3", "e5m2", "f32", (False, False)),
        (0x08200910, "tf32", 128, 128, "tf32", "tf32", "f32", (False, False)),
    ],
)
def test_worked_values(bits, kind, m, n, a, b, d, transposes) -> None:
    idesc = InstructionDescriptor.decode(bits, kind)
    assert (idesc.m, idesc.n, idesc.a.name, idesc.b.name, idesc.d) == (m, n, a, b, d)
    assert (idesc.transpose_a, idesc.transpose_b) == transposes
    group = 2 if m == 256 else 1
    assert idesc.problems(group) == ()


def test_encode_and_decode_agree() -> None:
    assert encode(128, 128, 1, 1) == 0x08200490
    assert encode(128, 64, 1, 1, transpose_b=True) == 0x08110490
    bits = encode(64, 40, 0, 0, d=0, negate_a=True, negate_b=True, transpose_a=True)
    idesc = InstructionDescriptor.decode(bits, "f16")
    assert (idesc.m, idesc.n, idesc.d) == (64, 40, "f16")
    assert idesc.negate_a
    assert idesc.negate_b
    assert idesc.transpose_a
    assert not idesc.transpose_b


def test_k_is_32_bytes_of_every_type() -> None:
    for kind, k in (("f16", 16), ("tf32", 8), ("f8f6f4", 32), ("i8", 32)):
        assert InstructionDescriptor.decode(0, kind).k == k


@pytest.mark.parametrize(
    ("bits", "kind", "group", "rule"),
    [
        (encode(128, 264, 1, 1), "f16", 1, "idesc.shape"),
        (encode(256, 128, 1, 1), "f16", 1, "idesc.shape"),
        (encode(64, 128, 1, 1), "f16", 2, "idesc.shape"),
        (encode(128, 8, 1, 1), "f16", 2, "idesc.shape"),
        (encode(96, 128, 1, 1), "f16", 1, "idesc.shape"),
        (encode(128, 128, 2, 2), "f16", 1, "idesc.type"),
        (encode(128, 128, 1, 1, d=0), "f16", 1, "idesc.type"),
        (encode(128, 128, 0, 0), "tf32", 1, "idesc.type"),
        (encode(128, 40, 0, 0, d=2), "i8", 1, "idesc.shape"),
        (encode(128, 128, 0, 0, d=1), "i8", 1, "idesc.type"),
        (encode(128, 128, 1, 1) | 4, "f16", 1, "idesc.sparse"),
        (encode(128, 128, 1, 1) | 1 << 23, "f16", 1, "idesc.reserved"),
        (encode(128, 128, 3, 0, transpose_a=True), "f8f6f4", 1, "idesc.transpose"),
    ],
)
def test_illegal_ones_are_named(bits: int, kind: str, group: int, rule: str) -> None:
    problems = InstructionDescriptor.decode(bits, kind).problems(group)
    assert rule in {problem.rule for problem in problems if problem.severity == "error"}


def test_a_in_tensor_memory() -> None:
    transposed = InstructionDescriptor.decode(encode(128, 128, 1, 1, transpose_a=True), "f16")
    assert [p.rule for p in transposed.problems(1, a_in_tmem=True)] == ["idesc.transpose"]
    odd = InstructionDescriptor.decode(encode(128, 24, 1, 1), "f16")
    assert odd.problems(1) == ()
    assert [(p.rule, p.severity) for p in odd.problems(1, a_in_tmem=True)] == [("idesc.shape-unverified", "warning")]


def test_warp_specialised_shapes() -> None:
    assert InstructionDescriptor.decode(encode(32, 64, 1, 1), "f16").problems(1, warp_specialised=True) == ()
    for m, n, group in ((32, 96, 1), (256, 64, 1), (32, 64, 2)):
        assert InstructionDescriptor.decode(encode(m, n, 1, 1), "f16").problems(group, warp_specialised=True)
