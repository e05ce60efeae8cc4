"""Back ends: how a problem becomes a configuration and a launch on one family of architectures."""

from __future__ import annotations

from umma_jit.backends._base import Backend
from umma_jit.backends.sm100a import Sm100aBackend
from umma_jit.errors import ArchMismatchError

__all__ = ["Backend", "for_arch"]

_BACKENDS: dict[str, Backend] = {arch: Sm100aBackend(arch) for arch in Sm100aBackend.architectures}


def for_arch(arch: str) -> Backend:
    """The back end for an architecture such as ``"sm_100a"``.

    Raises
    ------
    ArchMismatchError
        If there are no kernels for it.
    """
    try:
        return _BACKENDS[arch]
    except KeyError:
        message = f"there are no kernels for {arch!r}; expected one of {', '.join(sorted(_BACKENDS))}"
        raise ArchMismatchError(message) from None
