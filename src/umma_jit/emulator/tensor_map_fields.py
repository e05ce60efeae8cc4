"""Tensor maps that are built or changed in memory, field by field (PTX ISA 9.7.9.26, ``tensormap.replace``).

The format is that of `umma_jit.emulator.tensor_map`. 128 zero bytes are a map of rank 1 with extents of 1, as kernels
expect that build one from zeros; what is still missing shows when the map is used.
"""

from __future__ import annotations

import struct

from umma_jit.emulator.tensor_map import MAGIC, TENSOR_MAP_BYTES, TensorMapError

__all__ = ["FIELDS", "replace_field"]

FIELDS: dict[str, tuple[int, str, int]] = {
    "global_address": (8, "Q", 1),
    "elemtype": (16, "B", 1),
    "rank": (17, "B", 1),
    "swizzle_mode": (18, "B", 1),
    "interleave_layout": (19, "B", 1),
    "fill_mode": (21, "B", 1),
    "swizzle_atomicity": (22, "B", 1),
    "global_dim": (24, "I", 5),
    "global_stride": (48, "Q", 4),
    "box_dim": (80, "H", 5),
    "element_stride": (90, "B", 5),
}
"""Name: (offset, struct code, entries)."""

# PTX's codes of element types are not those of CUtensorMapDataType.
_ELEMENT_CODES = {**{code: code for code in range(8)}, 8: 10, 9: 8, 10: 9, 11: 11, 12: 12, 13: 13, 14: 14, 15: 15}
_FIRST_ATOMICITY = 3  # driver codes 3 to 6 are 128B with 16B, 32B, 32B + 8B flip and 64B atoms


def replace_field(raw: bytes, field: str, value: int, ordinal: int = 0) -> bytes:
    """`raw` with one field set.

    Parameters
    ----------
    raw
        128 bytes: a map, or zeros.
    field
        One of `FIELDS`.
    value
        As the instruction takes it: the rank is one less, element types have PTX's codes.
    ordinal
        Dimension, for fields with several entries.

    Raises
    ------
    TensorMapError
        No map, no such ordinal, or a value that does not fit the field.
    """
    if len(raw) != TENSOR_MAP_BYTES or (not raw.startswith(MAGIC) and any(raw)):
        raise TensorMapError("these 128 bytes are neither a tensor map of this emulator nor zeros")
    offset, code, entries = FIELDS[field]
    if not 0 <= ordinal < entries:
        raise TensorMapError(f"ordinal {ordinal} of {field}: 0 to {entries - 1}")
    data = bytearray(MAGIC + raw[len(MAGIC) :])
    if field == "rank":
        value += 1
    elif field == "global_dim":
        if value == 0:
            raise TensorMapError(f"global_dim {ordinal} is 0: at least 1 element")
        value -= 1
    elif field == "elemtype":
        value = _ELEMENT_CODES.get(value, 255)
    elif field in ("swizzle_mode", "swizzle_atomicity"):
        mode = value if field == "swizzle_mode" else min(data[18], _FIRST_ATOMICITY)
        atomicity = value if field == "swizzle_atomicity" else max(data[22], data[18] - _FIRST_ATOMICITY)
        if not (0 <= mode <= 3 and 0 <= atomicity <= 3):
            raise TensorMapError(f"{field} {value}: 0 to 3")
        data[18] = _FIRST_ATOMICITY + atomicity if mode == _FIRST_ATOMICITY else mode
        data[22] = atomicity
        return bytes(data)
    size = struct.calcsize(code)
    if not 0 <= value < 1 << 8 * size:
        raise TensorMapError(f"{field} {value} does not fit")
    struct.pack_into(f"<{code}", data, offset + size * ordinal, value)
    return bytes(data)
