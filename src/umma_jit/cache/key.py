"""`KernelSource` and compiler → the key under which an image is kept."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FORMAT_VERSION", "cache_key"]

FORMAT_VERSION = 1
"""Of key and entry. Raise it when an old entry must not be read any more: its bytes are laid out differently, its
metadata has other fields, or the key leaves out something that a fault showed to matter."""


def cache_key(*, source: str, entry: str, kind: str, arch: str, options: Sequence[str], compiler: str) -> str:
    """Return the key, 64 hexadecimal digits of SHA-256.

    Parameters
    ----------
    source : str
        The rendered source: templates, configuration and headers are all in it.
    entry : str
        The kernel's name.
    kind : str
        ``"cubin"`` or ``"ptx"``.
    arch : str
        The full target, suffix and all: code for sm_100a does not run on sm_103a.
    options : sequence of str
        The exact options, as the compiler gets them.
    compiler : str
        The compiler's full version, with patch level and build.
    """
    digest = hashlib.sha256()
    for part in (str(FORMAT_VERSION), kind, arch, entry, compiler, str(len(options)), *options, source):
        data = part.encode("utf-8")
        # With its length before it, no part can be mistaken for the end of another.
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
