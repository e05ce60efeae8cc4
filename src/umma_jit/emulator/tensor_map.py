"""Tensor maps: the descriptor that TMA instructions read, and the boxes they move.

The hardware's 128 bytes are opaque and undocumented, so a map made by ``cuTensorMapEncodeTiled`` means
nothing here and `TensorMap.encode` means nothing to hardware. The own format, little-endian:

=======  =====  ========================================================
offset   bytes  content
=======  =====  ========================================================
0        8      magic ``b"UMMATMP1"``
8        8      global address
16       1      element type code (as CUtensorMapDataType)
17       1      rank
18       1      swizzle code (as CUtensorMapSwizzle)
19       1      interleave code
20       1      L2 promotion code
21       1      out-of-bounds fill code
22       2      zero
24       20     5 dimensions, each minus 1, 32 bits
44       4      zero
48       32     4 strides in bytes, 64 bits
80       10     5 box dimensions, 16 bits
90       5      5 element strides, 8 bits
95       33     zero
=======  =====  ========================================================

Limits are those of the driver API page of ``cuTensorMapEncodeTiled``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from umma_jit.emulator.swizzle import (
    NONE,
    SWIZZLE_32B,
    SWIZZLE_64B,
    SWIZZLE_128B,
    SWIZZLE_128B_ATOM_32B,
    Swizzle,
    chunk_permutation,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MAGIC", "TENSOR_MAP_BYTES", "Box", "TensorMap", "TensorMapError"]

TENSOR_MAP_BYTES = 128
MAGIC = b"UMMATMP1"
_LAYOUT = struct.Struct("<8sQBBBBBBH5IIQQQQ5H5B33x")

_DTYPES: dict[str, tuple[int, int]] = {  # name: (driver code, bytes)
    "uint8": (0, 1),
    "uint16": (1, 2),
    "uint32": (2, 4),
    "int32": (3, 4),
    "uint64": (4, 8),
    "int64": (5, 8),
    "float16": (6, 2),
    "float32": (7, 4),
    "float64": (8, 8),
    "bfloat16": (9, 2),
    "float32_ftz": (10, 4),
    "tfloat32": (11, 4),
    "tfloat32_ftz": (12, 4),
}
_SWIZZLES = ("none", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B")
_SWIZZLE_MODES: dict[str, Swizzle] = {
    "none": NONE,
    "32B": SWIZZLE_32B,
    "64B": SWIZZLE_64B,
    "128B": SWIZZLE_128B,
    "128B_ATOM_32B": SWIZZLE_128B_ATOM_32B,
}
_INTERLEAVES = ("none", "16B", "32B")
_PROMOTIONS = ("none", "64B", "128B", "256B")
_FILLS = ("zero", "nan")
_NAN = {"float16": 0x7FFF, "bfloat16": 0x7FFF, "float32": 0x7FFFFFFF, "float64": 0x7FFFFFFFFFFFFFFF}


class TensorMapError(ValueError):
    """A tensor map that the driver API would refuse, or bytes that are not one."""


@dataclass(frozen=True)
class TensorMap:
    """A tiled tensor map, fields as in ``cuTensorMapEncodeTiled``, innermost dimension first.

    Parameters
    ----------
    address
        Global address, 16-byte aligned.
    dtype
        Element type: ``"bfloat16"``, ``"float16"``, ``"float32"``, ``"uint8"`` (also for fp8), ...
    dims
        Elements in each dimension, 1 to 5 of them, each 1 to 2**32.
    strides_bytes
        Byte strides of dimensions 1 and up (dimension 0 is dense): multiples of 16 below 2**40.
    box
        Elements of the box in each dimension, 1 to 256.
    swizzle
        ``"none"``, ``"32B"``, ``"64B"``, ``"128B"`` or ``"128B_ATOM_32B"``; the other modes of the driver
        API encode but cannot be executed.
    element_strides
        Step between the elements taken in each dimension, 1 to 8; that of dimension 0 is ignored.
    interleave
        ``"none"``; ``"16B"`` and ``"32B"`` encode but cannot be executed.
    l2_promotion
        Accepted and without effect.
    oob_fill
        ``"zero"`` or ``"nan"``: what elements outside the tensor read as.

    Raises
    ------
    TensorMapError
        Outside the limits of the driver API; the message names field, value and limit.
    """

    address: int
    dtype: str
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: str = "none"
    element_strides: tuple[int, ...] | None = None
    interleave: str | None = None
    l2_promotion: str | None = None
    oob_fill: str = "zero"
    element_bytes: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "address", int(self.address))
        put(self, "dims", tuple(int(n) for n in self.dims))
        put(self, "strides_bytes", tuple(int(n) for n in self.strides_bytes))
        put(self, "box", tuple(int(n) for n in self.box))
        strides = self.element_strides
        put(self, "element_strides", (1,) * len(self.dims) if strides is None else tuple(map(int, strides)))
        put(self, "interleave", self.interleave or "none")
        put(self, "l2_promotion", self.l2_promotion or "none")
        put(self, "swizzle", self.swizzle or "none")
        self._validate()

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def mode(self) -> Swizzle | None:
        """The swizzle to execute, None if it is one that cannot be."""
        return _SWIZZLE_MODES.get(self.swizzle)

    @property
    def box_shape(self) -> tuple[int, ...]:
        """Elements in each dimension of the shared-memory image, innermost first."""
        steps = self.element_strides or ()
        return (self.box[0], *(-(-b // s) for b, s in zip(self.box[1:], steps[1:], strict=True)))

    @property
    def box_bytes(self) -> int:
        """Bytes of the shared-memory image: what a load signals, filled elements included."""
        size = self.element_bytes
        for extent in self.box_shape:
            size *= extent
        return size

    def encode(self) -> bytes:
        """The 128 bytes of the map, in the format of the module's docstring."""
        pad = 5 - self.rank
        steps = self.element_strides or ()
        return _LAYOUT.pack(
            MAGIC,
            self.address,
            _DTYPES[self.dtype][0],
            self.rank,
            _SWIZZLES.index(self.swizzle),
            _INTERLEAVES.index(self.interleave or "none"),
            _PROMOTIONS.index(self.l2_promotion or "none"),
            _FILLS.index(self.oob_fill),
            0,
            *(n - 1 for n in self.dims),
            *(0,) * pad,
            0,
            *self.strides_bytes,
            *(0,) * pad,
            *self.box,
            *(1,) * pad,
            *steps,
            *(1,) * pad,
        )

    @classmethod
    def decode(cls, raw: bytes) -> TensorMap:
        """Rebuild the map from its 128 bytes.

        Raises
        ------
        TensorMapError
            `raw` was not made by `encode`, or was changed into something illegal.
        """
        return _decode(bytes(raw))

    def _validate(self) -> None:
        rank = len(self.dims)
        if self.dtype not in _DTYPES:
            raise TensorMapError(f"dtype {self.dtype!r}: use one of {', '.join(_DTYPES)}")
        object.__setattr__(self, "element_bytes", _DTYPES[self.dtype][1])
        steps = self.element_strides or ()
        if not 1 <= rank <= 5:
            raise TensorMapError(f"rank {rank}: a tensor map has 1 to 5 dimensions")
        for name, got, want in (
            ("strides_bytes", len(self.strides_bytes), rank - 1),
            ("box", len(self.box), rank),
            ("element_strides", len(steps), rank),
        ):
            if got != want:
                raise TensorMapError(f"{name} has {got} entries, rank {rank} needs {want}")
        for name, value, allowed in (
            ("swizzle", self.swizzle, _SWIZZLES),
            ("interleave", self.interleave, _INTERLEAVES),
            ("l2_promotion", self.l2_promotion, _PROMOTIONS),
            ("oob_fill", self.oob_fill, _FILLS),
        ):
            if value not in allowed:
                raise TensorMapError(f"{name} {value!r}: use one of {', '.join(allowed)}")
        alignment = 32 if self.interleave == "32B" else 16
        if self.address % alignment or not 0 <= self.address < 1 << 64:
            raise TensorMapError(f"address {self.address:#x} must be {alignment}-byte aligned")
        for axis, extent in enumerate(self.dims):
            if not 1 <= extent <= 1 << 32:
                raise TensorMapError(f"dims[{axis}] = {extent}: 1 to 2**32 elements")
        for axis, stride in enumerate(self.strides_bytes):
            if stride % alignment or not 0 <= stride < 1 << 40:
                raise TensorMapError(f"strides_bytes[{axis}] = {stride}: a multiple of {alignment} below 2**40")
        for axis, extent in enumerate(self.box):
            if not 1 <= extent <= 256:
                raise TensorMapError(f"box[{axis}] = {extent}: 1 to 256 elements")
        for axis, step in enumerate(steps):
            if not 1 <= step <= 8:
                raise TensorMapError(f"element_strides[{axis}] = {step}: 1 to 8")
        self._validate_inner()

    def _validate_inner(self) -> None:
        inner = self.box[0] * self.element_bytes
        if self.interleave == "none" and inner % 16:
            raise TensorMapError(
                f"box[0] = {self.box[0]} {self.dtype} is {inner} bytes: the inner box must be a multiple of 16 bytes"
            )
        width = 128 if self.swizzle.startswith("128B") else {"32B": 32, "64B": 64}.get(self.swizzle)
        if width is not None and self.interleave == "none" and inner > width:
            raise TensorMapError(
                f"box[0] = {self.box[0]} {self.dtype} is {inner} bytes, wider than the {self.swizzle} swizzle: "
                f"use at most {width // self.element_bytes} elements, and several boxes for a wider tile"
            )
        if self.interleave == "32B" and self.swizzle != "32B":
            raise TensorMapError("interleave 32B needs swizzle 32B")
        if self.oob_fill == "nan" and self.dtype not in _NAN:
            raise TensorMapError(f"oob_fill 'nan' needs a floating-point type, not {self.dtype}")


@lru_cache(maxsize=256)
def _decode(raw: bytes) -> TensorMap:
    if len(raw) != TENSOR_MAP_BYTES or not raw.startswith(MAGIC):
        raise TensorMapError(
            "these 128 bytes are not a tensor map of this emulator: pass a TensorMap as the kernel parameter, or "
            "TensorMap.encode() inside a raw one; a map encoded by the CUDA driver cannot be read"
        )
    fields = _LAYOUT.unpack(raw)
    address, dtype, rank, swizzle, interleave, promotion, fill, _ = fields[1:9]
    if dtype >= len(_DTYPES) or swizzle >= len(_SWIZZLES) or not 1 <= rank <= 5:
        raise TensorMapError(f"damaged tensor map: dtype code {dtype}, swizzle code {swizzle}, rank {rank}")
    return TensorMap(
        address=address,
        dtype=list(_DTYPES)[dtype],
        dims=tuple(n + 1 for n in fields[9 : 9 + rank]),
        strides_bytes=tuple(fields[15 : 15 + rank - 1]),
        box=tuple(fields[19 : 19 + rank]),
        swizzle=_SWIZZLES[swizzle],
        element_strides=tuple(fields[24 : 24 + rank]),
        interleave=_INTERLEAVES[min(interleave, 2)],
        l2_promotion=_PROMOTIONS[min(promotion, 3)],
        oob_fill=_FILLS[min(fill, 1)],
    )


@dataclass(frozen=True)
class Box:
    """One box of a tensor map at given coordinates, split into what lies inside the tensor.

    Attributes
    ----------
    map
        The tensor map.
    shape
        Elements of the shared-memory image, outermost first.
    inside
        For each dimension, outermost first, the slice of the image whose elements exist.
    strides
        Byte strides in global memory between image elements, outermost first.
    first
        Global byte address of the first existing element; meaningless when `empty`.
    span
        Bytes from `first` to one past the last existing element.
    empty
        No element of the box exists.
    """

    map: TensorMap
    shape: tuple[int, ...]
    inside: tuple[slice, ...]
    strides: tuple[int, ...]
    first: int
    span: int
    empty: bool

    @classmethod
    def at(cls, tensor_map: TensorMap, coordinates: tuple[int, ...]) -> Box:
        """Place the box of `tensor_map` at signed element `coordinates`, innermost first.

        Raises
        ------
        TensorMapError
            Wrong number of coordinates.
        """
        if len(coordinates) != tensor_map.rank:
            raise TensorMapError(f"{len(coordinates)} coordinates for a tensor map of rank {tensor_map.rank}")
        element = tensor_map.element_bytes
        pitches = (element, *tensor_map.strides_bytes)
        steps = (1, *(tensor_map.element_strides or ())[1:])
        inside: list[slice] = []
        strides: list[int] = []
        first, span, empty = tensor_map.address, element, False
        for start, extent, pitch, step, count in zip(
            coordinates, tensor_map.dims, pitches, steps, tensor_map.box_shape, strict=True
        ):
            low = min(count, max(0, -(start // step)))  # first index with start + index * step >= 0
            high = max(low, min(count, -((start - extent) // step)))
            inside.append(slice(low, high))
            strides.append(pitch * step)
            if high == low:
                empty = True
                continue
            first += (start + low * step) * pitch
            span += (high - low - 1) * pitch * step
        return cls(
            tensor_map,
            tensor_map.box_shape[::-1],
            tuple(inside[::-1]),
            tuple(strides[::-1]),
            first,
            0 if empty else span,
            empty,
        )

    def _view(self, region: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """View of the existing elements: uint8 (*extents, element bytes); `region` starts at `first`."""
        counts = tuple(part.stop - part.start for part in self.inside)
        element = self.map.element_bytes
        return np.lib.stride_tricks.as_strided(region, (*counts[:-1], counts[-1] * element), (*self.strides[:-1], 1))

    def gather(self, region: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The linear shared-memory image of the box.

        Parameters
        ----------
        region
            uint8 (span,): global memory from `first` on; anything when `empty`.

        Returns
        -------
        numpy.ndarray
            uint8 (box_bytes,), elements outside the tensor filled.
        """
        element = self.map.element_bytes
        shape = (*self.shape[:-1], self.shape[-1] * element)
        whole = not self.empty and all(
            part.stop - part.start == extent for part, extent in zip(self.inside, self.shape, strict=True)
        )
        image = np.empty(shape, np.uint8)
        if not whole:
            self._fill(image)
        if not self.empty:
            image[self._image_slices()] = self._view(region)
        return image.reshape(-1)

    def scatter(self, region: NDArray[np.uint8], image: NDArray[np.uint8]) -> None:
        """Write the linear `image` (uint8 (box_bytes,)) back; elements outside the tensor are dropped."""
        if self.empty:
            return
        shape = (*self.shape[:-1], self.shape[-1] * self.map.element_bytes)
        self._view(region)[...] = image.reshape(shape)[self._image_slices()]

    def reduce(self, region: NDArray[np.uint8], image: NDArray[np.uint8], dtype: np.dtype, ufunc: np.ufunc) -> None:
        """Combine the linear `image` into memory element by element with `ufunc` on elements of `dtype`."""
        if self.empty:
            return
        shape = (*self.shape[:-1], self.shape[-1] * self.map.element_bytes)
        target = self._view(region)
        part = np.ascontiguousarray(image.reshape(shape)[self._image_slices()])
        present = np.ascontiguousarray(target)
        target[...] = ufunc(present.view(dtype), part.view(dtype)).astype(dtype).view(np.uint8)

    def _image_slices(self) -> tuple[slice, ...]:
        element = self.map.element_bytes
        inner = self.inside[-1]
        return (*self.inside[:-1], slice(inner.start * element, inner.stop * element))

    def _fill(self, image: NDArray[np.uint8]) -> None:
        if self.map.oob_fill == "zero":
            image[...] = 0
            return
        size = self.map.element_bytes
        image.reshape(-1, size)[...] = np.frombuffer(_NAN[self.map.dtype].to_bytes(size, "little"), np.uint8)


def swizzled_chunks(tensor_map: TensorMap, address: int) -> NDArray[np.int64]:
    """16-byte chunk index in shared memory of each chunk of the linear image placed at `address`."""
    mode = tensor_map.mode
    assert mode is not None
    return chunk_permutation(mode, address, tensor_map.box_bytes // 16)
