"""Descriptors: every field against values worked out by hand from the PTX ISA's tables."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umma_jit.descriptors import (
    DescriptorFieldError,
    InstructionDescriptor,
    MatrixFormat,
    MmaKind,
    SharedMemoryDescriptor,
    SwizzleMode,
    WgmmaDescriptor,
)
from umma_jit.errors import UmmaJitError

BF16, F16, F32 = MatrixFormat.BF16, MatrixFormat.F16, MatrixFormat.F32
EMPTY = 1 << 46  # bits 46-48 = 0b001 and nothing else


def tile(start: int, leading: int, stride: int, swizzle: SwizzleMode) -> SharedMemoryDescriptor:
    return SharedMemoryDescriptor(
        start_address=start, leading_byte_offset=leading, stride_byte_offset=stride, swizzle=swizzle
    )


def mma(m: int, n: int, form: MatrixFormat = BF16, **fields: object) -> InstructionDescriptor:
    return InstructionDescriptor(a_format=form, b_format=fields.pop("b", form), m=m, n=n, **fields)


# ---- Table 40, field by field ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "bits"),
    [
        ({}, EMPTY),
        ({"start_address": 0x10}, EMPTY | 1),
        ({"start_address": 0x3FFF0}, EMPTY | 0x3FFF),
        ({"leading_byte_offset": 0x10}, EMPTY | 1 << 16),
        ({"leading_byte_offset": 0x3FFF0}, EMPTY | 0x3FFF << 16),
        ({"stride_byte_offset": 0x10}, EMPTY | 1 << 32),
        ({"stride_byte_offset": 0x3FFF0}, EMPTY | 0x3FFF << 32),
        ({"swizzle": SwizzleMode.B128_ATOM_32B}, EMPTY | 1 << 61),
        ({"swizzle": SwizzleMode.B128}, EMPTY | 2 << 61),
        ({"swizzle": SwizzleMode.B64}, EMPTY | 4 << 61),
        ({"swizzle": SwizzleMode.B32}, EMPTY | 6 << 61),
        ({"swizzle": SwizzleMode.B64, "base_offset": 1}, EMPTY | 4 << 61 | 1 << 49),
        ({"swizzle": SwizzleMode.B64, "base_offset": 7}, EMPTY | 4 << 61 | 7 << 49),
        ({"swizzle": SwizzleMode.B128, "leading_is_absolute": True}, EMPTY | 2 << 61 | 1 << 52),
    ],
)
def test_each_field_has_the_bits_of_table_40(fields: dict[str, object], bits: int) -> None:
    assert SharedMemoryDescriptor(**fields).encode() == bits
    assert SharedMemoryDescriptor.decode(bits) == SharedMemoryDescriptor(**fields)


@pytest.mark.parametrize(
    ("descriptor", "value"),
    [
        # 128 rows of 64 bf16, K-major: eight rows of 128 bytes are 1024
        (tile(0x400, 0, 1024, SwizzleMode.B128), 0x4000404000000040),
        (tile(0x400, 16, 1024, SwizzleMode.B128), 0x4000404000010040),
        # rows of 32 and of 16 bf16
        (tile(0x400, 0, 512, SwizzleMode.B64), 0x8000402000000040),
        (tile(0x400, 0, 256, SwizzleMode.B32), 0xC000401000000040),
        # core matrices of 8 rows x 16 bytes, row groups outside or K chunks outside
        (tile(0x400, 128, 1024, SwizzleMode.NONE), 0x0000404000080040),
        (tile(0x400, 2048, 128, SwizzleMode.NONE), 0x0000400800800040),
        # V: 128 keys x 128 columns, MN-major, two atoms of 64 columns
        (tile(0x400, 16384, 1024, SwizzleMode.B128), 0x4000404004000040),
    ],
)
def test_worked_tiles(descriptor: SharedMemoryDescriptor, value: int) -> None:
    assert descriptor.encode() == value
    assert descriptor.low_word == value & 0xFFFFFFFF
    assert descriptor.high_word == value >> 32


@pytest.mark.parametrize(
    ("leading", "stride", "swizzle", "encoded_leading", "encoded_stride"),
    [  # the figures of 9.7.16.3.3: strides in elements times the element's bytes
        (64 * 4, 32 * 4, SwizzleMode.NONE, 16, 8),
        (0, 64 * 4, SwizzleMode.B32, 0, 16),
        (128 * 2, 64 * 2, SwizzleMode.NONE, 16, 8),
        (128 * 2, 256 * 2, SwizzleMode.B32, 16, 32),
        (256 * 2, 512 * 2, SwizzleMode.B64, 32, 64),
    ],
)
def test_the_manuals_examples(
    leading: int, stride: int, swizzle: SwizzleMode, encoded_leading: int, encoded_stride: int
) -> None:
    value = tile(0, leading, stride, swizzle).encode()
    assert (value >> 16 & 0x3FFF, value >> 32 & 0x3FFF) == (encoded_leading, encoded_stride)


def test_a_k_step_adds_to_the_low_word_only() -> None:
    base = tile(0x400, 0, 1024, SwizzleMode.B128)
    steps = [base.advance(32 * step) for step in range(4)]
    assert [step.low_word for step in steps] == [0x40, 0x42, 0x44, 0x46]
    assert {step.high_word for step in steps} == {0x40004040}
    assert steps[3].encode() == 0x4000404000000046
    assert steps[3].advance(-96) == base
    assert base.advance(64 * 128).low_word == 0x240  # the next 64-column atom of a tile of 64 rows


def test_hopper_descriptor() -> None:
    fields = {"start_address": 0x400, "stride_byte_offset": 1024}
    codes = {SwizzleMode.NONE: 0, SwizzleMode.B128: 1, SwizzleMode.B64: 2, SwizzleMode.B32: 3}
    for mode, code in codes.items():
        hopper = WgmmaDescriptor(**fields, swizzle=mode)
        assert hopper.encode() == 0x40 | 64 << 32 | code << 62
        assert WgmmaDescriptor.decode(hopper.encode()) == hopper
        # the generations share every bit but the constant
        assert SharedMemoryDescriptor(**fields, swizzle=mode).encode() == hopper.encode() | 1 << 46
    with pytest.raises(DescriptorFieldError, match="swizzle"):
        WgmmaDescriptor(swizzle=SwizzleMode.B128_ATOM_32B)


# ---- Table 42, field by field ------------------------------------------------------------------------------

# F16 x F16 -> F32, M 128, N 8
BASE = 1 << 4 | 1 << 17 | 8 << 24


@pytest.mark.parametrize(
    ("descriptor", "bits"),
    [
        (mma(128, 8, F16), BASE),
        (mma(128, 8, F16, d_format=F16), BASE - (1 << 4)),
        (mma(128, 8, BF16), BASE | 1 << 7 | 1 << 10),
        (mma(128, 8, F16, negate_a=True), BASE | 1 << 13),
        (mma(128, 8, F16, negate_b=True), BASE | 1 << 14),
        (mma(128, 8, F16, transpose_a=True), BASE | 1 << 15),
        (mma(128, 8, F16, transpose_b=True), BASE | 1 << 16),
        (mma(128, 256, F16), 1 << 4 | 32 << 17 | 8 << 24),
        (mma(32, 8, F16), 1 << 4 | 1 << 17 | 2 << 24),
        (mma(256, 8, F16), 1 << 4 | 1 << 17 | 16 << 24),
        (mma(128, 8, F16, sparse=True), BASE | 1 << 2),
        (mma(128, 8, F16, sparse=True, sparsity_selector=3), BASE | 1 << 2 | 3),
        (mma(128, 8, F16, max_shift=8), BASE | 1 << 30),
        (mma(128, 8, F16, max_shift=16), BASE | 2 << 30),
        (mma(128, 8, F16, max_shift=32), BASE | 3 << 30),
    ],
)
def test_each_field_has_the_bits_of_table_42(descriptor: InstructionDescriptor, bits: int) -> None:
    assert descriptor.encode() == bits
    assert InstructionDescriptor.decode(bits) == descriptor


F8 = MmaKind.F8F6F4
E4M3, E5M2 = MatrixFormat.E4M3, MatrixFormat.E5M2


@pytest.mark.parametrize(
    ("descriptor", "value"),
    [
        (mma(128, 128), 0x08200490),
        (mma(128, 64), 0x08100490),
        (mma(128, 256), 0x08400490),
        (mma(64, 128), 0x04200490),
        (mma(128, 128, transpose_b=True), 0x08210490),
        (mma(128, 64, transpose_b=True), 0x08110490),
        (mma(128, 128, transpose_a=True, transpose_b=True), 0x08218490),
        (mma(256, 128), 0x10200490),
        (mma(256, 128, transpose_b=True), 0x10210490),
        (mma(256, 256), 0x10400490),
        (mma(128, 128, F16), 0x08200010),
        (mma(128, 128, F16, d_format=F16), 0x08200000),
        (mma(64, 128, F16), 0x04200010),
        (mma(128, 128, E4M3, kind=F8), 0x08200010),
        (mma(128, 64, E4M3, kind=F8), 0x08100010),
        (mma(128, 128, E5M2, b=E4M3, kind=F8), 0x08200090),
        (mma(128, 128, E4M3, b=E5M2, kind=F8), 0x08200410),
        (mma(128, 128, MatrixFormat.TF32, kind=MmaKind.TF32), 0x08200910),
        (mma(128, 64, MatrixFormat.TF32, kind=MmaKind.TF32), 0x08100910),
        (mma(128, 16, MatrixFormat.S8, kind=MmaKind.I8, d_format=MatrixFormat.S32, saturate=True), 0x080404A8),
    ],
)
def test_worked_instructions(descriptor: InstructionDescriptor, value: int) -> None:
    assert descriptor.encode() == value
    assert InstructionDescriptor.decode(value, descriptor.kind) == descriptor


@pytest.mark.parametrize(
    ("kind", "formats"),
    [
        (MmaKind.F16, {"F16": 0, "BF16": 1}),
        (MmaKind.TF32, {"TF32": 2}),
        (MmaKind.F8F6F4, {"E4M3": 0, "E5M2": 1, "E2M3": 3, "E3M2": 4, "E2M1": 5}),
        (MmaKind.I8, {"U8": 0, "S8": 1}),
    ],
)
def test_format_codes(kind: MmaKind, formats: dict[str, int]) -> None:
    d = MatrixFormat.S32 if kind is MmaKind.I8 else F32
    for form in MatrixFormat:
        if form.name in formats:
            value = mma(128, 16, form, kind=kind, d_format=d).encode()
            assert value >> 7 & 7 == value >> 10 & 7 == formats[form.name]
        else:
            with pytest.raises(DescriptorFieldError, match="a_format"):
                mma(128, 16, form, kind=kind, d_format=d)


def test_depth_of_one_instruction_is_32_bytes() -> None:
    assert mma(128, 128).k == 16
    assert mma(128, 128, MatrixFormat.TF32, kind=MmaKind.TF32).k == 8
    assert mma(128, 128, E4M3, kind=F8).k == 32
    assert mma(128, 128, sparse=True).k == 32


# ---- round trips -------------------------------------------------------------------------------------------

units = st.integers(0, 0x3FFF).map(lambda n: n * 16)
shared_descriptors = st.builds(
    SharedMemoryDescriptor,
    start_address=units,
    leading_byte_offset=units,
    stride_byte_offset=units,
    swizzle=st.sampled_from([mode for mode in SwizzleMode if mode is not SwizzleMode.NONE]),
    base_offset=st.integers(0, 7),
) | st.builds(tile, units, units, units, st.just(SwizzleMode.NONE))
instructions = st.builds(
    mma,
    st.sampled_from([32, 64, 128, 256]),
    st.integers(1, 32).map(lambda n: n * 8),
    st.sampled_from([F16, BF16]),
    negate_a=st.booleans(),
    negate_b=st.booleans(),
    transpose_a=st.booleans(),
    transpose_b=st.booleans(),
    max_shift=st.sampled_from([0, 8, 16, 32]),
)


@given(shared_descriptors)
def test_shared_memory_round_trip(descriptor: SharedMemoryDescriptor) -> None:
    value = descriptor.encode()
    assert value < 1 << 64
    assert SharedMemoryDescriptor.decode(value) == descriptor
    assert descriptor.high_word << 32 | descriptor.low_word == value


@given(instructions)
def test_instruction_round_trip(descriptor: InstructionDescriptor) -> None:
    value = descriptor.encode()
    assert value < 1 << 32
    assert InstructionDescriptor.decode(value) == descriptor


@given(st.integers(0, (1 << 64) - 1))
def test_decoding_any_64_bits_is_exact_or_refused(value: int) -> None:
    try:
        descriptor = SharedMemoryDescriptor.decode(value)
    except DescriptorFieldError:
        return
    assert descriptor.encode() == value


@given(st.integers(0, (1 << 32) - 1), st.sampled_from(list(MmaKind)))
def test_decoding_any_32_bits_is_exact_or_refused(value: int, kind: MmaKind) -> None:
    try:
        descriptor = InstructionDescriptor.decode(value, kind)
    except DescriptorFieldError:
        return
    assert descriptor.encode() == value


# ---- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"start_address": 8}, "start_address"),
        ({"start_address": 1 << 18}, "start_address"),
        ({"start_address": -16}, "start_address"),
        ({"leading_byte_offset": 1}, "leading_byte_offset"),
        ({"stride_byte_offset": 1 << 18}, "stride_byte_offset"),
        ({"swizzle": SwizzleMode.B128, "base_offset": 8}, "base_offset"),
        ({"base_offset": 1}, "base_offset"),
        ({"leading_is_absolute": True}, "leading_is_absolute"),
        ({"swizzle": SwizzleMode.B128, "base_offset": 1, "leading_is_absolute": True}, "leading_is_absolute"),
    ],
)
def test_illegal_shared_memory_fields(fields: dict[str, object], named: str) -> None:
    with pytest.raises(DescriptorFieldError) as caught:
        SharedMemoryDescriptor(**fields)
    assert caught.value.field == named
    assert caught.value.value == fields[named]
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, UmmaJitError)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (0, "constant"),
        (3 << 46, "constant"),
        (EMPTY | 1 << 14, "reserved"),
        (EMPTY | 1 << 31, "reserved"),
        (EMPTY | 1 << 53, "reserved"),
        (EMPTY | 1 << 60, "reserved"),
        (EMPTY | 3 << 61, "swizzle"),
        (EMPTY | 5 << 61, "swizzle"),
        (EMPTY | 7 << 61, "swizzle"),
        (1 << 64, "value"),
        (-1, "value"),
        (0x0040_0200, "constant"),  # a tensor-memory address is no descriptor
    ],
)
def test_illegal_shared_memory_bits(value: int, named: str) -> None:
    with pytest.raises(DescriptorFieldError) as caught:
        SharedMemoryDescriptor.decode(value)
    assert caught.value.field == named


def test_hopper_has_no_constant() -> None:
    with pytest.raises(DescriptorFieldError, match="reserved"):
        WgmmaDescriptor.decode(EMPTY)


def test_advance_stays_on_16_bytes_and_in_18_bits() -> None:
    with pytest.raises(DescriptorFieldError, match="start_address"):
        tile(0x400, 0, 1024, SwizzleMode.B128).advance(8)
    with pytest.raises(DescriptorFieldError, match="start_address"):
        tile(0x3FFF0, 0, 1024, SwizzleMode.B128).advance(16)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"m": 96}, "m"),
        ({"m": 0}, "m"),
        ({"n": 0}, "n"),
        ({"n": 12}, "n"),
        ({"n": 264}, "n"),
        ({"b_format": F16}, "b_format"),
        ({"d_format": F16}, "d_format"),
        ({"d_format": MatrixFormat.S32}, "d_format"),
        ({"saturate": True}, "saturate"),
        ({"sparsity_selector": 1}, "sparsity_selector"),
        ({"sparse": True, "sparsity_selector": 4}, "sparsity_selector"),
        ({"max_shift": 4}, "max_shift"),
        ({"kind": MmaKind.TF32}, "a_format"),
    ],
)
def test_illegal_instruction_fields(fields: dict[str, object], named: str) -> None:
    legal = {"a_format": BF16, "b_format": BF16, "m": 128, "n": 128}
    with pytest.raises(DescriptorFieldError) as caught:
        InstructionDescriptor(**(legal | fields))
    assert caught.value.field == named


def test_kinds_have_their_own_limits() -> None:
    with pytest.raises(DescriptorFieldError, match="transpose_b"):
        mma(128, 128, MatrixFormat.E2M1, kind=F8, transpose_b=True)
    with pytest.raises(DescriptorFieldError, match="negate_a"):
        mma(128, 128, MatrixFormat.S8, kind=MmaKind.I8, d_format=MatrixFormat.S32, negate_a=True)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (BASE | 1 << 6, "reserved"),
        (BASE | 1 << 23, "reserved"),
        (BASE | 1 << 29, "reserved"),
        (BASE | 2 << 7, "a_format"),
        (BASE | 7 << 10, "b_format"),
        (BASE | 3 << 4, "d_format"),
        (BASE & ~(0x1F << 24), "m"),
        (BASE & ~(0x3F << 17), "n"),
        (1 << 32, "value"),
    ],
)
def test_illegal_instruction_bits(value: int, named: str) -> None:
    with pytest.raises(DescriptorFieldError) as caught:
        InstructionDescriptor.decode(value)
    assert caught.value.field == named


@pytest.mark.parametrize(
    ("descriptor", "form", "named"),
    [
        (mma(256, 128), {}, "m"),
        (mma(32, 64), {}, "m"),
        (mma(64, 128), {"cta_group": 2}, "m"),
        (mma(128, 24), {"cta_group": 2}, "n"),
        (mma(128, 32), {"weight_stationary": True}, "n"),
        (mma(128, 256, sparse=True), {"weight_stationary": True}, "n"),
        (mma(128, 128), {"cta_group": 2, "weight_stationary": True}, "cta_group"),
        (mma(128, 128, transpose_a=True), {"a_in_tensor_memory": True}, "transpose_a"),
        (mma(128, 128, max_shift=8), {}, "max_shift"),
        (mma(128, 40, MatrixFormat.S8, kind=MmaKind.I8, d_format=MatrixFormat.S32), {}, "n"),
    ],
)
def test_shapes_that_a_form_does_not_take(
    descriptor: InstructionDescriptor, form: dict[str, object], named: str
) -> None:
    with pytest.raises(DescriptorFieldError) as caught:
        descriptor.check_form(**form)
    assert caught.value.field == named


def test_shapes_that_a_form_takes() -> None:
    for descriptor, form in (
        (mma(128, 8), {}),
        (mma(64, 256), {"a_in_tensor_memory": True}),
        (mma(256, 16), {"cta_group": 2}),
        (mma(32, 64), {"weight_stationary": True}),
        (mma(128, 24, MatrixFormat.U8, kind=MmaKind.I8, d_format=MatrixFormat.S32), {}),
    ):
        assert descriptor.check_form(**form) is descriptor


# ---- to be read --------------------------------------------------------------------------------------------


def test_printed_forms_name_every_field_with_its_bits() -> None:
    text = str(tile(0x400, 16384, 1024, SwizzleMode.B128))
    lines = text.splitlines()
    assert lines[0] == "SharedMemoryDescriptor 0x4000404004000040"
    assert [line.split("bits")[1].split()[0] for line in lines[1:]] == [
        "0-13",
        "16-29",
        "32-45",
        "46-48",
        "49-51",
        "52",
        "61-63",
    ]
    assert "16384 bytes (0x4000)" in lines[2]

    text = str(mma(128, 64, transpose_b=True))
    assert "0x08110490" in text
    assert "N = 64" in text
    assert [line.split("bits")[1].split()[0] for line in text.splitlines()[1:]][-3:] == ["17-22", "24-28", "30-31"]
    assert mma(128, 64, transpose_b=True).summary() == ("kind::f16 128x64x16, A bf16 K-major, B bf16 MN-major, D f32")
    assert "\n" not in tile(0, 0, 1024, SwizzleMode.B128).summary()


def test_errors_say_what_was_wrong_and_survive_pickling() -> None:
    with pytest.raises(DescriptorFieldError) as caught:
        mma(100, 128)
    assert str(caught.value) == (
        "InstructionDescriptor.m is 100 (0x64): expected 32 (.ws only), 64, 128 or 256 (cta_group::2 only)"
    )
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_descriptors_are_values() -> None:
    assert len({tile(0x400, 0, 1024, SwizzleMode.B128), tile(0x400, 0, 1024, SwizzleMode.B128)}) == 1
    with pytest.raises(AttributeError):
        mma(128, 128).m = 64
