"""Virtual registers of one CTA, one array per storage class, and views of them for a range of warps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["LANES", "RegisterFile", "RegisterViews"]

LANES = 32
_STORAGE: dict[str, Any] = {
    "pred": np.bool_,
    "b8": np.uint8,
    "b16": np.uint16,
    "b32": np.uint32,
    "b64": np.uint64,
}
_POISON = {"b8": 0xAB, "b16": 0x7FAB, "b32": 0x7FABABAB, "b64": 0x7FABABAB7FABABAB}  # NaNs, and odd as integers

# The lists of `RegisterViews`, by PTX type: storage class and NumPy type.
VIEWS: dict[str, tuple[str, Any]] = {
    "pred": ("pred", np.bool_),
    "u8": ("b8", np.uint8),
    "s8": ("b8", np.int8),
    "u16": ("b16", np.uint16),
    "s16": ("b16", np.int16),
    "u32": ("b32", np.uint32),
    "s32": ("b32", np.int32),
    "f32": ("b32", np.float32),
    "u64": ("b64", np.uint64),
    "s64": ("b64", np.int64),
    "f64": ("b64", np.float64),
    "f32x2": ("b64", np.float32),
    "b128": ("b128", np.uint64),
}


class _Lists(dict[str, "list[NDArray[Any]]"]):
    """The lists of `RegisterViews`, each made when it is first asked for: few kernels use all types."""

    def __init__(self, banks: Mapping[str, NDArray[Any]], w0: int, w1: int) -> None:
        super().__init__()
        self._banks = banks
        self._lanes = slice(w0 * LANES, w1 * LANES)

    def __missing__(self, kind: str) -> list[NDArray[Any]]:
        bank, dtype = VIEWS[kind]
        storage = self._banks[bank]
        flat = storage.reshape(len(storage), storage.shape[1] * LANES, *storage.shape[3:])[:, self._lanes]
        # A register's lanes are contiguous for any range of warps.
        views = [view.view(np.float32).reshape(-1, 2) for view in flat] if kind == "f32x2" else list(flat.view(dtype))
        self[kind] = views
        return views


class RegisterViews:
    """The registers of warps w0 to w1-1: for each PTX type a list of 1-D arrays, one per register.

    ``f32x2`` arrays are (lanes, 2); ``b128`` arrays are uint64 (lanes, 2).
    """

    def __init__(self, banks: Mapping[str, NDArray[Any]], w0: int, w1: int) -> None:
        self.lanes = (w1 - w0) * LANES
        self.lists: dict[str, list[NDArray[Any]]] = _Lists(banks, w0, w1)


class RegisterFile:
    """All registers of a CTA.

    Parameters
    ----------
    banks
        Number of registers per storage class.
    warps
        Warps of the CTA.
    """

    def __init__(self, banks: Mapping[str, int], warps: int) -> None:
        self.warps = warps
        self.banks: dict[str, NDArray[Any]] = {
            bank: np.empty((banks.get(bank, 0), warps, LANES), kind) for bank, kind in _STORAGE.items()
        }
        self.banks["b128"] = np.zeros((banks.get("b128", 0), warps, LANES, 2), np.uint64)
        self._views: dict[tuple[int, int], RegisterViews] = {}
        self.poison()

    def poison(self) -> None:
        """Fill with values that make a read before a write conspicuous."""
        for bank, array in self.banks.items():
            array.fill(_POISON.get(bank, 0))

    def views(self, w0: int, w1: int) -> RegisterViews:
        """Views for warps w0 to w1-1, made once."""
        found = self._views.get((w0, w1))
        if found is None:
            found = self._views[w0, w1] = RegisterViews(self.banks, w0, w1)
        return found
