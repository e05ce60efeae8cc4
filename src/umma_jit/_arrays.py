"""Arrays of the caller's → `ArrayView`: address, shape, strides, dtype and device, whatever library they are from.

NumPy arrays belong to the emulated device. CuPy arrays are read by their own attributes, which is the fastest way;
everything else that lives on a CUDA device by DLPack or ``__cuda_array_interface__``, through `cuda.core`.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from .errors import ArgumentTypeError, UmmaJitError, UnsupportedProblemError

__all__ = ["EMULATED", "ArrayLayout", "ArrayView", "overlap", "span_bytes", "view"]

EMULATED = -1
"""Stands in for the ordinal of a CUDA device where an array is in host memory."""

_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged (dlpack.h)


class ArrayLayout(NamedTuple):
    """All of an array but its address; hashable, so that it can be part of a dictionary's key.

    Attributes
    ----------
    shape : tuple of int
        Extents in elements.
    strides : tuple of int
        Distances in bytes.
    dtype : numpy.dtype
        The element type; bfloat16 is that of ml_dtypes.
    device : int
        Ordinal of the CUDA device, or `EMULATED`.
    writable : bool
        Whether the array may be written to.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int
    writable: bool


class ArrayView(NamedTuple):
    """An array of the caller's.

    Attributes
    ----------
    layout : ArrayLayout
        All that does not change from call to call of one shape.
    address : int
        Of the first element, in host or device memory.
    array : object
        The array itself, which keeps the memory alive.
    """

    layout: ArrayLayout
    address: int
    array: Any


def view(array: Any, name: str) -> ArrayView:
    """Read an array.

    Parameters
    ----------
    array : array_like
        NumPy, CuPy, or anything with ``__cuda_array_interface__`` or DLPack on a CUDA device.
    name : str
        The argument's name, for the message.

    Raises
    ------
    ArgumentTypeError
        It is no such array.
    """
    if type(array) is np.ndarray:
        return _numpy_view(array)
    module = type(array).__module__.partition(".")[0]
    if module == "cupy":
        layout = ArrayLayout(array.shape, array.strides, array.dtype, array.device.id, writable=True)
        return ArrayView(layout, array.data.ptr, array)
    if isinstance(array, np.ndarray):
        if isinstance(array, (np.ma.MaskedArray, np.matrix)):
            raise ArgumentTypeError(name, f"is a {type(array).__name__}", "a plain array; masks are not looked at")
        return _numpy_view(array)
    return _cuda_view(array, name)


def _numpy_view(array: np.ndarray[Any, Any]) -> ArrayView:
    flags = array.flags
    layout = ArrayLayout(array.shape, array.strides, array.dtype, EMULATED, flags.writeable)
    return ArrayView(layout, array.__array_interface__["data"][0], array)


_EXPECTED = "a NumPy array (runs on the emulated device), or a CuPy, PyTorch, JAX or other array on a CUDA device"


def _cuda_view(array: Any, name: str) -> ArrayView:
    if isinstance(array, type):
        raise ArgumentTypeError(name, f"is the class {array.__qualname__}", _EXPECTED)
    try:
        return _read_cuda(array, name)
    except UmmaJitError:
        raise
    except Exception as error:  # whatever an object that only looks like an array may raise
        kind = f"is of type {type(array).__module__}.{type(array).__qualname__}"
        problem = f"{type(error).__name__}: {error}"
        raise ArgumentTypeError(name, f"{kind}, which cannot be read ({problem})", _EXPECTED) from error


def _read_cuda(array: Any, name: str) -> ArrayView:
    kind = f"is of type {type(array).__module__}.{type(array).__qualname__}"
    device = getattr(array, "__dlpack_device__", None)
    if device is None and not hasattr(type(array), "__cuda_array_interface__"):
        raise ArgumentTypeError(name, kind, _EXPECTED)
    if device is not None:
        device_type, _ = device()
        if int(device_type) not in _DLPACK_CUDA:
            raise ArgumentTypeError(
                name,
                f"{kind} in memory that is not a CUDA device's",
                _EXPECTED,
                "Use numpy.asarray for the emulated device, or move it to a CUDA device",
            )
    try:
        from cuda.core.utils import StridedMemoryView
    except ImportError as error:
        raise ArgumentTypeError(
            name, f"{kind}, and cuda.core is not installed to read it", _EXPECTED, "pip install 'umma-jit[cu12]'"
        ) from error
    array = getattr(array, "detach", lambda: array)()  # PyTorch exports no tensor that requires a gradient
    # -1: no ordering of streams. The work is queued on the caller's current stream, where the array is valid.
    memory = StridedMemoryView.from_any_interface(array, stream_ptr=-1)
    dtype = np.dtype(memory.dtype)
    strides = memory.strides
    if strides is None:
        strides = dense_strides(memory.shape, 1)
    layout = ArrayLayout(
        tuple(memory.shape),
        tuple(stride * dtype.itemsize for stride in strides),
        dtype,
        int(memory.device_id),
        writable=not memory.readonly,
    )
    return ArrayView(layout, int(memory.ptr), array)


def current_stream(array: Any) -> int:
    """Return the handle of the caller's current stream in the library that an array is from.

    0, the legacy default stream, for libraries that do not have such a thing.
    """
    module = type(array).__module__.partition(".")[0]
    library: Any = sys.modules.get(module)
    if module == "cupy":
        return int(library.cuda.get_current_stream().ptr)
    if module == "torch":
        return int(library.cuda.current_stream(array.device).cuda_stream)
    return 0


def empty_like(array: Any, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Any:
    """Return a new array, not initialised, of the library that `array` is from, on its device.

    Raises
    ------
    UnsupportedProblemError
        The library has no arrays that could be written to; pass ``out``.
    """
    module = type(array).__module__.partition(".")[0]
    library: Any = sys.modules.get(module)
    if isinstance(array, np.ndarray):
        return np.empty(shape, dtype)
    if module == "cupy":
        with library.cuda.Device(device):
            return library.empty(shape, dtype)
    if module == "torch":
        return library.empty(shape, dtype=getattr(library, dtype.name), device=array.device)
    raise UnsupportedProblemError(
        "out",
        f"not given, and {type(array).__module__} has no arrays that a kernel may write to",
        "an array to write to",
        "Pass out=, or call with CuPy or PyTorch arrays",
    )


def dense_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides in bytes of a dense array in C order."""
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def span_bytes(layout: ArrayLayout) -> int:
    """Return how many bytes lie between an array's first and behind its last element; strides must not be negative."""
    if 0 in layout.shape:
        return 0
    reach = sum((extent - 1) * stride for extent, stride in zip(layout.shape, layout.strides, strict=True))
    return reach + layout.dtype.itemsize


def overlap(a: ArrayView, b: ArrayView) -> bool:
    """Return whether two arrays of one device share an element, or may do so in a way too costly to find out."""
    if (
        a.layout.device != b.layout.device
        or not (span_a := span_bytes(a.layout))
        or not (span_b := span_bytes(b.layout))
    ):
        return False
    if a.address + span_a <= b.address or b.address + span_b <= a.address:
        return False
    try:
        # Looks at addresses only: the memory itself, perhaps on a device, is not touched. (NumPy's stub knows of two
        # values of max_work, its documentation of any number.)
        return bool(np.shares_memory(_shadow(a), _shadow(b), max_work=100_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


class _Shadow:
    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def _shadow(view: ArrayView) -> np.ndarray[Any, Any]:
    interface = {
        "shape": view.layout.shape,
        "strides": view.layout.strides,
        "typestr": f"|V{view.layout.dtype.itemsize}",
        "data": (view.address, True),
        "version": 3,
    }
    return np.asarray(_Shadow(interface))
