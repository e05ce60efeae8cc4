"""Where kernels run: a CUDA device, or the emulated device. Siblings with the same few methods.

Which of the two a call uses follows from its arrays: NumPy arrays are in the emulated device's reach, arrays in the
memory of a CUDA device in that device's.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from umma_jit._arrays import EMULATED
from umma_jit._settings import settings

if TYPE_CHECKING:
    from ._base import Kernel, Runtime

__all__ = ["Kernel", "Runtime", "for_device"]


@functools.cache
def for_device(device: int) -> Runtime:
    """Return the runtime of a device, by the ordinal of `umma_jit._arrays.ArrayLayout`.

    Parameters
    ----------
    device : int
        A CUDA device's ordinal, or `EMULATED`.

    Raises
    ------
    DeviceNotFoundError
        No CUDA driver, or no such device.
    UnsupportedArchError
        No target here has that device's compute capability.
    """
    if device == EMULATED:
        from .emulated import EmulatedRuntime

        return EmulatedRuntime.from_settings(settings())
    from .cuda import CudaRuntime

    return CudaRuntime(device)


def __getattr__(name: str) -> object:
    if name in ("Kernel", "Runtime"):
        from . import _base

        return getattr(_base, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
