"""Matrix descriptors: fields, worked values, canonical layouts, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from umma_jit.emulator.smem_descriptor import SmemDescriptor, operand_address, plan_operand
from umma_jit.emulator.swizzle import SWIZZLE_32B, SWIZZLE_64B, SWIZZLE_128B, SWIZZLE_128B_ATOM_32B, chunk_permutation

WORKED = [
    # start, leading, stride, code, bits
    (0x400, 0, 1024, 2, 0x4000404000000040),
    (0x400, 16, 1024, 2, 0x4000404000010040),
    (0x460, 0, 1024, 2, 0x4000404000000046),
    (0x400, 0, 512, 4, 0x8000402000000040),
    (0x400, 0, 256, 6, 0xC000401000000040),
    (0x400, 128, 1024, 0, 0x0000404000080040),
    (0x400, 2048, 128, 0, 0x0000400800800040),
    (0x400, 16384, 1024, 2, 0x4000404004000040),
]


@pytest.mark.parametrize(("start", "leading", "stride", "code", "bits"), WORKED)
def test_worked_values(start: int, leading: int, stride: int, code: int, bits: int) -> None:
    assert SmemDescriptor.encode(start, leading, stride, code) == bits
    decoded = SmemDescriptor.decode(bits)
    assert (decoded.start, decoded.leading, decoded.stride, decoded.code) == (start, leading, stride, code)
    assert decoded.constant == 1
    assert decoded.problems() == ()


def test_hopper_codes_differ_only_in_the_constant() -> None:
    for hopper, blackwell, mode in ((1, 2, SWIZZLE_128B), (2, 4, SWIZZLE_64B), (3, 6, SWIZZLE_32B)):
        bits = SmemDescriptor.encode(0x800, 0, 1024, hopper, wgmma=True)
        assert bits | 1 << 46 == SmemDescriptor.encode(0x800, 0, 1024, blackwell)
        assert SmemDescriptor.decode(bits, wgmma=True).swizzle is mode
        assert SmemDescriptor.decode(bits, wgmma=True).problems(wgmma=True) == ()


def _image(descriptor: SmemDescriptor, rows: int, k: int, element_bytes: int, mn_major: bool) -> list[int]:
    return [operand_address(descriptor, mn, kk, element_bytes, mn_major) for mn in range(rows) for kk in range(k)]


@pytest.mark.parametrize(
    ("leading", "stride", "code", "element_bytes", "mn_major"),
    [
        (0, 1024, 2, 2, False),
        (0, 512, 4, 2, False),
        (0, 256, 6, 2, False),
        (128, 256, 0, 2, False),
        (0, 1024, 2, 1, False),
        (0, 1024, 2, 4, False),
        (2048, 1024, 2, 2, True),
        (2048, 512, 4, 2, True),
        (1024, 256, 6, 2, True),
        (2048, 128, 0, 2, True),
        (4096, 512, 1, 4, True),
        (4096, 1024, 2, 1, True),
    ],
)
def test_a_plan_reads_what_the_layout_formula_says(
    leading: int, stride: int, code: int, element_bytes: int, mn_major: bool
) -> None:
    rows, depth = 64, 32 // element_bytes
    descriptor = SmemDescriptor.decode(SmemDescriptor.encode(0x800, leading, stride, code))
    memory = np.random.default_rng(0).integers(0, 256, 64 * 1024, np.uint8)
    plan = plan_operand(descriptor, rows, element_bytes, mn_major)
    addresses = _image(descriptor, rows, depth, element_bytes, mn_major)
    assert len(set(addresses)) == rows * depth, "two elements share an address"
    wanted = np.stack([memory[a : a + element_bytes] for a in addresses]).reshape(rows, -1)
    assert (plan.gather(memory) == wanted).all()
    touched = {word * 4 for a in addresses for word in range(a // 4, (a + element_bytes - 1) // 4 + 1)}
    assert {int(word) * 4 for word in plan.words} == touched
    assert plan.first <= min(addresses)
    assert plan.last > max(addresses)


def test_an_element_of_a_128b_tile() -> None:
    # K-step 1 of a 64-wide tile: element (5, 24) is k = 8 of the step that starts 32 bytes on.
    step = SmemDescriptor.decode(SmemDescriptor.encode(0x400 + 32, 0, 1024, 2))
    assert operand_address(step, 5, 8, 2, False) == 0x6E0


def test_k_major_reads_back_a_row_major_tile_that_was_stored_swizzled() -> None:
    tile = np.arange(128 * 64, dtype=np.uint16).reshape(128, 64)
    memory = np.zeros(32 * 1024, np.uint8)
    where = chunk_permutation(SWIZZLE_128B, 1024, tile.nbytes // 16)
    memory.reshape(-1, 16)[where] = tile.view(np.uint8).reshape(-1, 16)
    for step in range(4):
        descriptor = SmemDescriptor.decode(SmemDescriptor.encode(1024 + 32 * step, 0, 1024, 2))
        got = plan_operand(descriptor, 128, 2, False).gather(memory).view(np.uint16)
        assert (got == tile[:, 16 * step : 16 * step + 16]).all()


def test_mn_major_reads_the_transpose_of_two_64_wide_boxes() -> None:
    # V: 128 keys (K) by 128 dims (N), two boxes of 64 dims as TMA places them.
    value = np.arange(128 * 128, dtype=np.uint16).reshape(128, 128)
    memory = np.zeros(64 * 1024, np.uint8)
    for box in range(2):
        part = np.ascontiguousarray(value[:, 64 * box : 64 * box + 64])
        where = chunk_permutation(SWIZZLE_128B, 1024 + 16384 * box, part.nbytes // 16)
        memory.reshape(-1, 16)[where] = part.view(np.uint8).reshape(-1, 16)
    for step in range(8):
        descriptor = SmemDescriptor.decode(SmemDescriptor.encode(1024 + 2048 * step, 16384, 1024, 2))
        got = plan_operand(descriptor, 128, 2, True).gather(memory).view(np.uint16)
        assert (got == value[16 * step : 16 * step + 16].T).all()


def test_the_isa_examples_of_strides() -> None:
    # tf32, K-major, no swizzle: ((8,2),(4,4)):((4,32),(1,64)) elements, LBO and SBO encoded as 16 and 8.
    descriptor = SmemDescriptor.decode(SmemDescriptor.encode(0, 64 * 4, 32 * 4, 0))
    assert (descriptor.leading >> 4, descriptor.stride >> 4) == (16, 8)
    assert operand_address(descriptor, 9, 5, 4, False) == 4 * (4 * 1 + 32 * 1 + 1 + 64 * 1)
    # bf16, MN-major, no swizzle: ((8,1,2),(8,2)):((1,8,64),(8,128)), encoded 16 and 8.
    descriptor = SmemDescriptor.decode(SmemDescriptor.encode(0, 128 * 2, 64 * 2, 0))
    assert operand_address(descriptor, 11, 10, 2, True) == 2 * (3 + 64 + 8 * 2 + 128)
    # bf16, MN-major, 64B: ((8,4,2),(8,2)):((1,8,256),(32,512)), encoded 32 and 64.
    descriptor = SmemDescriptor.decode(SmemDescriptor.encode(0, 256 * 2, 512 * 2, 4))
    assert (descriptor.leading >> 4, descriptor.stride >> 4) == (32, 64)
    assert operand_address(descriptor, 33, 9, 2, True) == SWIZZLE_64B.apply(2 * (1 + 256 + 32 + 512))


@pytest.mark.parametrize(
    ("bits", "rule", "severity"),
    [
        (0x0000404000080040 & ~(1 << 46), "descriptor.constant", "warning"),
        (0x4000404000000040 | 1 << 49, "descriptor.base-offset", "error"),
        (0x4000404000000040 | 1 << 52, "descriptor.absolute-leading", "error"),
        (0x4000404000000040 | 1 << 60, "descriptor.reserved", "error"),
        (0x400040400000C040, "descriptor.reserved", "error"),
        (0x6000404000000040, "descriptor.swizzle", "error"),
        (0x0000000000000100, "mma.tmem-address-as-descriptor", "error"),
        (0x0000000000600040, "mma.tmem-address-as-descriptor", "error"),
    ],
)
def test_what_is_wrong_is_named(bits: int, rule: str, severity: str) -> None:
    problems = SmemDescriptor.decode(bits).problems()
    assert (problems[0].rule, problems[0].severity) == (rule, severity)
    assert hex(bits)[2:] in problems[0].message


def test_the_tensor_memory_mistake_tells_the_way_out() -> None:
    (problem,) = SmemDescriptor.decode(0x40).problems()
    assert "brackets" in problem.message
    assert "[a]" in problem.remedy


def test_the_mode_with_32_byte_atoms() -> None:
    descriptor = SmemDescriptor.decode(SmemDescriptor.encode(0x400, 2048, 512, 1))
    assert descriptor.swizzle is SWIZZLE_128B_ATOM_32B
    assert operand_address(descriptor, 8, 1, 4, True) == 0x400 + 128 + (32 ^ 32)
