"""The arithmetic of the tensor core: exact products, accumulated in fp32 (or float64 on request).

Operands arrive as raw bytes, one row of 32 bytes of K each, and are widened to float32, which holds every
bf16, fp16, tf32, fp8 and 8-bit integer exactly. A product of a whole instruction is one matrix product. The
order of accumulation inside an instruction is not documented for the hardware; here it is NumPy's.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from umma_jit.emulator.tensor_memory import AccumulatorPiece, TensorMemory

__all__ = ["accumulate", "product", "unpack", "widen"]

_TABLES: dict[str, Any] = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}
_CHUNK = 16
"""Bytes of shared memory in which 4- and 6-bit elements are packed 16 together, with padding behind."""


@cache
def _table(name: str) -> NDArray[np.float32]:
    """All values of a narrow float type, by their bits."""
    count = {"e2m1": 16, "e2m3": 64, "e3m2": 64}.get(name, 256)
    table: NDArray[np.float32] = np.arange(count, dtype=np.uint8).view(_TABLES[name]).astype(np.float32)
    return table


def unpack(raw: NDArray[np.uint8], name: str, *, padded: bool) -> NDArray[np.float32]:
    """Values of an operand of 4- or 6-bit elements in shared memory.

    Parameters
    ----------
    raw
        uint8 (rows, bytes), contiguous.
    name
        ``"e2m1"``, ``"e2m3"`` or ``"e3m2"``.
    padded
        Every 16 bytes hold 16 elements, packed, and padding; else two 4-bit elements lie in every byte.

    Returns
    -------
    numpy.ndarray
        float32 (rows, K), exact.
    """
    width = 4 if name == "e2m1" else 6
    chunks = raw.reshape(-1, _CHUNK)[:, : 2 * width] if padded else raw.reshape(-1, _CHUNK)
    bits = np.unpackbits(np.ascontiguousarray(chunks), axis=1, bitorder="little").reshape(-1, width)
    codes = (bits << np.arange(width, dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
    values: NDArray[np.float32] = _table(name)[codes].reshape(raw.shape[0], -1)
    return values


def widen(raw: NDArray[np.uint8], name: str) -> NDArray[np.float32]:
    """Values of an operand.

    Parameters
    ----------
    raw
        uint8 (rows, bytes), contiguous.
    name
        ``"bf16"``, ``"f16"``, ``"tf32"``, ``"e4m3"``, ``"e5m2"``, ``"s8"`` or ``"u8"``.

    Returns
    -------
    numpy.ndarray
        float32 (rows, K), exact.
    """
    values: NDArray[np.float32]
    if name == "bf16":
        values = (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    elif name == "f16":
        values = raw.view(np.float16).astype(np.float32)
    elif name == "tf32":  # the low 13 bits are ignored
        values = (raw.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    elif name in _TABLES:
        values = _table(name)[raw]
    elif name == "s8":
        values = raw.view(np.int8).astype(np.float32)
    elif name == "u8":
        values = raw.astype(np.float32)
    else:
        raise KeyError(name)
    return values


def product(
    a: NDArray[np.float32], b: NDArray[np.float32], *, negate: bool = False, double: bool = False
) -> NDArray[Any]:
    """Transposed product of one instruction.

    Parameters
    ----------
    a, b
        float32 (M, K) and (N, K).
    negate
        The product changes sign.
    double
        Accumulate in float64.

    Returns
    -------
    numpy.ndarray
        (N, M) float32, or float64 if `double`.
    """
    result: NDArray[Any]
    if double:
        result = b.astype(np.float64) @ a.astype(np.float64).T
    else:
        # A NaN or an infinity in an operand is data, not a fault of the emulator.
        with np.errstate(invalid="ignore", over="ignore"):
            result = b @ a.T
    return -result if negate else result


def accumulate(
    memories: Sequence[TensorMemory],
    pieces: Sequence[AccumulatorPiece],
    transposed: NDArray[Any],
    column: int,
    dtype: str,
    *,
    add: bool,
    scale: float = 1.0,
    keep: Sequence[NDArray[np.bool_]] | None = None,
    saturate: bool = False,
) -> None:
    """Write or add a product to the accumulator.

    Parameters
    ----------
    memories
        Tensor memory of each CTA concerned.
    pieces
        From `accumulator_pieces`.
    transposed
        (N, M) product.
    column
        Column of the D address.
    dtype
        ``"f32"``, ``"f16"`` or ``"s32"``.
    add
        Add to what is there.
    scale
        Factor on what is there (``scale-input-d``).
    keep
        bool (128,) per CTA: lanes to write; None for all.
    saturate
        Clamp ``"s32"`` instead of wrapping.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        for piece in pieces:
            memory = memories[piece.cta]
            block = transposed[piece.columns, piece.rows]
            lanes: slice | NDArray[np.intp] = piece.lanes
            if keep is not None:
                indices = np.arange(128)[lanes] if isinstance(lanes, slice) else lanes
                written = keep[piece.cta][indices]
                lanes, block = indices[written], block[:, written]
            first = column + piece.offset
            where = (slice(first, first + block.shape[0]), lanes)
            if dtype == "f32":
                target = memory.words.view(np.float32)
                if not add:
                    target[where] = block
                elif block.dtype == np.float64 or scale != 1.0:
                    target[where] = target[where] * block.dtype.type(scale) + block
                else:
                    target[where] += block
            elif dtype == "f16":
                value = block
                if add:
                    present = memory.words[where].astype(np.uint16).view(np.float16).astype(np.float32)
                    value = present * np.float32(scale) + block
                memory.words[where] = value.astype(np.float16).view(np.uint16)
            else:
                whole = block.astype(np.int64)
                if add:
                    whole = whole + memory.words.view(np.int32)[where]
                if saturate:
                    whole = np.clip(whole, -(1 << 31), (1 << 31) - 1)
                memory.words[where] = (whole & 0xFFFFFFFF).astype(np.uint32)
            memory.written[where] = True
