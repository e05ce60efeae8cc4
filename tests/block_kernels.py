"""The block kernels of ``templates/sm100a/blocks``: their configurations, and how to run one on the emulator."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import ml_dtypes
import numpy as np

from umma_jit._compile import compile_images
from umma_jit._source import render
from umma_jit.descriptors import InstructionDescriptor, MatrixFormat, SharedMemoryDescriptor, SwizzleMode
from umma_jit.emulator import DeviceMemory, Module, TensorMap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from umma_jit._image import KernelImage

ARCH = "sm_100a"
SCHEDULES = ("program", "eager", "lazy", "random")
ROWS = 128
THREADS = 128
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)


class BlockConfig(Protocol):
    """What `umma_jit._source.render` wants of a configuration; hashable, as kernels are compiled once."""

    template: ClassVar[str]
    entry: ClassVar[str]

    def __hash__(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class _Mma:
    dtype: str = "bfloat16"

    @property
    def format(self) -> MatrixFormat:
        return {"bfloat16": MatrixFormat.BF16, "float16": MatrixFormat.F16}[self.dtype]

    @property
    def element_type(self) -> str:
        return {"bfloat16": "Bfloat16", "float16": "Float16"}[self.dtype]

    def instruction(self, n: int, *, transpose_b: bool = False) -> InstructionDescriptor:
        return InstructionDescriptor(a_format=self.format, b_format=self.format, m=ROWS, n=n, transpose_b=transpose_b)


SWIZZLED_128B = SharedMemoryDescriptor(stride_byte_offset=1024, swizzle=SwizzleMode.B128)


@dataclass(frozen=True, kw_only=True)
class QkConfig(_Mma):
    """``Q·K^T``; rows of 16 columns fill a 32-byte swizzle, those of 64 and more go by 128-byte atoms."""

    template: ClassVar[str] = "sm100a/blocks/qk.cu.jinja"
    entry: ClassVar[str] = "block_qk"
    head_dim: int

    @property
    def box_columns(self) -> int:
        return min(self.head_dim, 64)

    @property
    def swizzle(self) -> str:
        return f"{2 * self.box_columns}B"

    @property
    def operand_descriptor(self) -> SharedMemoryDescriptor:
        mode = {16: SwizzleMode.B32, 64: SwizzleMode.B128}[self.box_columns]
        return SharedMemoryDescriptor(stride_byte_offset=8 * 2 * self.box_columns, swizzle=mode)

    @property
    def instruction_descriptor(self) -> InstructionDescriptor:
        return self.instruction(ROWS)


@dataclass(frozen=True, kw_only=True)
class SeparateBuffersConfig(_Mma):
    """``Q·K^T`` with each K-step in a buffer of core matrices: 128 bytes to the other chunk, 256 to 8 more rows."""

    template: ClassVar[str] = "sm100a/blocks/qk_separate_buffers.cu.jinja"
    entry: ClassVar[str] = "block_qk_separate_buffers"
    head_dim: int

    @property
    def operand_descriptor(self) -> SharedMemoryDescriptor:
        return SharedMemoryDescriptor(leading_byte_offset=128, stride_byte_offset=256)

    @property
    def instruction_descriptor(self) -> InstructionDescriptor:
        return self.instruction(ROWS)


@dataclass(frozen=True, kw_only=True)
class DescriptorSetupConfig(_Mma):
    """``A·B^T`` for 128 x 64 x 64 with B over any bytes by any descriptor."""

    template: ClassVar[str] = "sm100a/blocks/descriptor_setup.cu.jinja"
    entry: ClassVar[str] = "block_descriptor_setup"
    image_bytes: int = 16384
    operand_descriptor: ClassVar[SharedMemoryDescriptor] = SWIZZLED_128B

    @property
    def instruction_descriptor(self) -> InstructionDescriptor:
        return self.instruction(64)


@dataclass(frozen=True, kw_only=True)
class SoftmaxConfig(_Mma):
    template: ClassVar[str] = "sm100a/blocks/softmax.cu.jinja"
    entry: ClassVar[str] = "block_softmax"
    rescale_slack: int
    exp2_on_fma: int


@dataclass(frozen=True, kw_only=True)
class EpilogueConfig(_Mma):
    template: ClassVar[str] = "sm100a/blocks/epilogue.cu.jinja"
    entry: ClassVar[str] = "block_epilogue"
    head_dim: int
    output_column: int = 256


@dataclass(frozen=True, kw_only=True)
class PvConfig(_Mma):
    """``P·V`` with P in tensor memory; `widen_address` makes the mistake that ends in a wrong form of the MMA."""

    template: ClassVar[str] = "sm100a/blocks/pv.cu.jinja"
    entry: ClassVar[str] = "block_pv"
    head_dim: int
    widen_address: bool = False
    operand_descriptor: ClassVar[SharedMemoryDescriptor] = SWIZZLED_128B

    @property
    def instruction_descriptor(self) -> InstructionDescriptor:
        return self.instruction(self.head_dim, transpose_b=True)


@dataclass(frozen=True, kw_only=True)
class TmemStoresConfig:
    template: ClassVar[str] = "sm100a/blocks/tmem_stores.cu.jinja"
    entry: ClassVar[str] = "block_tmem_stores"


@functools.cache
def build(config: BlockConfig) -> tuple[KernelImage, KernelImage]:
    """Return cubin and PTX of one block kernel, from the same compilation."""
    cubin, ptx = compile_images(render(config, ARCH), ("cubin", "ptx"))
    return cubin, ptx


@functools.cache
def _module(config: BlockConfig) -> Module:
    return Module(build(config)[1].payload.decode())


def run(config: BlockConfig, params: list[Any], schedule: str, *, operand_bytes: int, seed: int = 0) -> Any:
    """Launch one CTA and return the emulator's report, which must have no finding.

    `params` are in the kernel's order; an array is passed as its address and written back to. A `Tile` becomes a
    tensor map over an array that is uploaded, and likewise written back to.
    """
    memory = DeviceMemory()
    tiles = [(tile, tile.upload(memory)) for tile in params if isinstance(tile, Tile)]
    maps = iter([tile.map_at(address) for tile, address in tiles])
    arguments = [next(maps) if isinstance(param, Tile) else param for param in params]
    report = _module(config)[config.entry].launch(
        grid=(1, 1, 1),
        block=(THREADS, 1, 1),
        cluster=(1, 1, 1),
        shared_bytes=2048 + operand_bytes,
        memory=memory,
        params=arguments,
        schedule=schedule,
        seed=seed,
    )
    for tile, address in tiles:
        tile.array[...] = memory.download(address, tile.array.shape, tile.array.dtype)
    assert not report.findings, "\n".join(str(finding) for finding in report.findings)
    return report


@dataclass(frozen=True)
class Tile:
    """A matrix of at most 128 rows that TMA moves in boxes of `box_columns`."""

    array: NDArray[Any]
    box_columns: int = 64
    swizzle: str = "128B"

    def upload(self, memory: DeviceMemory) -> int:
        return memory.upload(self.array)

    def map_at(self, address: int) -> TensorMap:
        rows, columns = self.array.shape
        size = self.array.nbytes
        return TensorMap(
            address,
            dtype={"bfloat16": "bfloat16", "float16": "float16"}[self.array.dtype.name],
            dims=(columns, rows, 1, 1),
            strides_bytes=(columns * self.array.itemsize, size, size),
            box=(self.box_columns, ROWS, 1, 1),
            swizzle=self.swizzle,
        )


def two_in_a_word(array: NDArray[Any]) -> NDArray[np.uint32]:
    """Pack pairs of 16-bit values along the last axis, the even one in the low half."""
    return np.ascontiguousarray(array).view(np.uint32)


def from_words(words: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Unpack what :func:`two_in_a_word` packs; `words` may be read as float32 bit patterns."""
    return np.ascontiguousarray(words).view(dtype)
