r"""`KernelImage` ↔ the bytes of one file of the disk cache.

========  =====  ==========================================================
offset    bytes  content
========  =====  ==========================================================
0         8      magic ``b"UMMAJIT\x01"``; its last byte is the format version
8         4      length of the metadata, little-endian
12        32     SHA-256 of all that follows
44        …      metadata: JSON, UTF-8
…         …      the payload: a cubin, or PTX text
========  =====  ==========================================================

One file, so that publishing it by a rename is atomic. JSON and raw bytes only: nothing in it is ever executed by
reading it. The checksum finds damage; against an attacker who may write here only permissions help, see `disk`.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from umma_jit._image import KernelImage, ResourceUsage

from .key import FORMAT_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DamagedEntryError", "Entry", "decode", "encode"]

_MAGIC = b"UMMAJIT" + bytes([FORMAT_VERSION])
_HEAD = struct.Struct("<8sI32s")
_ELF_MAGIC = b"\x7fELF"


class DamagedEntryError(Exception):
    """An entry is not what it should be; says why. Never leaves the cache."""


@dataclass(frozen=True)
class Entry:
    """What one file holds.

    Attributes
    ----------
    key : str
        The key it was stored under.
    image : KernelImage
        The image.
    config : dict
        The configuration it was rendered from, for listing.
    """

    key: str
    image: KernelImage
    config: dict[str, Any]


def encode(key: str, image: KernelImage, config: Mapping[str, Any]) -> bytes:
    """Return the bytes of an entry."""
    metadata = {
        "key": key,
        "kind": image.kind,
        "arch": image.arch,
        "entry": image.entry,
        "options": list(image.options),
        "compiler": image.compiler,
        "resources": None if image.resources is None else image.resources.to_dict(),
        "compile_seconds": image.compile_seconds,
        "log": image.log,
        "payload_bytes": len(image.payload),
        "payload_sha256": image.digest,
        "config": dict(config),
    }
    text = json.dumps(metadata, sort_keys=True).encode("utf-8")
    digest = hashlib.sha256(text + image.payload).digest()
    return _HEAD.pack(_MAGIC, len(text), digest) + text + image.payload


def decode(data: bytes, key: str) -> Entry:
    """Return the entry of some bytes.

    Raises
    ------
    DamagedEntryError
        They are not a whole and sound entry with this key.
    """
    if len(data) < _HEAD.size:
        raise DamagedEntryError(f"{len(data)} bytes are too few")
    magic, length, digest = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise DamagedEntryError(f"begins with {magic!r}, expected {_MAGIC!r}")
    body = data[_HEAD.size :]
    if hashlib.sha256(body).digest() != digest:
        raise DamagedEntryError("the checksum does not match")
    try:
        metadata = json.loads(body[:length])
        if metadata["key"] != key:
            raise DamagedEntryError(f"holds the key {metadata['key']!r}")
        image = _image(metadata, body[length:])
        config = dict(metadata["config"])
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, AttributeError) as error:
        raise DamagedEntryError(f"metadata: {error!r}") from error
    return Entry(key, image, config)


def _image(metadata: dict[str, Any], payload: bytes) -> KernelImage:
    kind = metadata["kind"]
    if kind not in ("cubin", "ptx") or len(payload) != metadata["payload_bytes"] or not payload:
        raise DamagedEntryError(f"a {kind} of {len(payload)} bytes, {metadata['payload_bytes']} expected")
    if kind == "cubin" and not payload.startswith(_ELF_MAGIC):
        raise DamagedEntryError("the cubin is no ELF file")
    resources = metadata["resources"]
    return KernelImage(
        kind=kind,
        arch=str(metadata["arch"]),
        entry=str(metadata["entry"]),
        payload=payload,
        options=tuple(str(option) for option in metadata["options"]),
        compiler=str(metadata["compiler"]),
        resources=None if resources is None else ResourceUsage.from_dict(resources),
        compile_seconds=float(metadata["compile_seconds"]),
        log=str(metadata["log"]),
        origin="disk",
    )
