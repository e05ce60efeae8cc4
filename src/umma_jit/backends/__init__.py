"""Back ends: how a problem becomes a configuration and a launch on one family of architectures."""

from __future__ import annotations

from umma_jit.errors import UnsupportedArchError

from ._base import Backend
from .sm100a import Sm100aBackend

__all__ = ["Backend", "for_arch"]

_BACKENDS: dict[str, Backend] = {arch: Sm100aBackend(arch) for arch in Sm100aBackend.architectures}


def for_arch(arch: str) -> Backend:
    """Return the back end for an architecture such as ``"sm_100a"``.

    Raises
    ------
    UnsupportedArchError
        There are no kernels for it.
    """
    backend = _BACKENDS.get(arch)
    if backend is None:
        raise UnsupportedArchError(arch, tuple(_BACKENDS), "There are no kernels for it yet")
    return backend
