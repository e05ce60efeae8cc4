from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umma_jit._image import KernelImage, ResourceUsage
from umma_jit.cache.entry import DamagedEntryError, decode, encode

KEY = "ab" * 32
RESOURCES = ResourceUsage(
    registers=168, stack_bytes=0, spill_store_bytes=0, spill_load_bytes=0, static_shared_bytes=0, barriers=3
)


def image(**changes) -> KernelImage:
    fields = {
        "kind": "cubin",
        "arch": "sm_100a",
        "entry": "kernel",
        "payload": b"\x7fELF" + bytes(range(256)),
        "options": ("--std=c++17",),
        "compiler": "12.9.86 CL-1",
        "resources": RESOURCES,
        "compile_seconds": 0.25,
        "log": "a warning",
    }
    return KernelImage(**(fields | changes))


@pytest.mark.parametrize("original", [image(), image(kind="ptx", payload=b".version 8.8", resources=None, log="")])
def test_comes_back_as_it_went(original):
    entry = decode(encode(KEY, original, {"head_dim": 64}), KEY)
    assert entry.config == {"head_dim": 64}
    assert entry.image.origin == "disk"
    assert entry.image == image(**{**vars(original), "origin": "disk"})


def test_the_payload_is_in_the_file_as_it_is():
    assert encode(KEY, image(), {}).endswith(image().payload)


@pytest.mark.parametrize("length", [0, 1, 8, 43, 44, 100, -1])
def test_a_truncated_entry_is_damaged(length):
    with pytest.raises(DamagedEntryError):
        decode(encode(KEY, image(), {})[:length], KEY)


@given(st.data())
def test_any_changed_byte_is_noticed(data):
    whole = bytearray(encode(KEY, image(), {"head_dim": 64}))
    where = data.draw(st.integers(0, len(whole) - 1))
    whole[where] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedEntryError):
        decode(bytes(whole), KEY)


@given(st.binary(max_size=200))
def test_any_bytes_are_damaged_and_nothing_worse(data):
    with pytest.raises(DamagedEntryError):
        decode(data, KEY)


def test_trailing_bytes_are_damage():
    with pytest.raises(DamagedEntryError):
        decode(encode(KEY, image(), {}) + b"x", KEY)


def test_an_entry_under_another_key_is_damaged():
    with pytest.raises(DamagedEntryError, match="key"):
        decode(encode(KEY, image(), {}), "cd" * 32)


def resigned(change) -> bytes:
    """An entry whose metadata was changed by somebody who knows how to sign it."""
    import hashlib

    from umma_jit.cache import entry

    whole = encode(KEY, image(), {})
    _, length, _ = entry._HEAD.unpack_from(whole)
    body = whole[entry._HEAD.size :]
    metadata = change(json.loads(body[:length]))
    text = json.dumps(metadata).encode()
    rest = text + body[length:]
    return entry._HEAD.pack(entry._MAGIC, len(text), hashlib.sha256(rest).digest()) + rest


@pytest.mark.parametrize(
    "change",
    [
        lambda m: [],
        lambda m: {k: v for k, v in m.items() if k != "arch"},
        lambda m: m | {"resources": {"registers": "many"}},
        lambda m: m | {"resources": 7},
        lambda m: m | {"kind": "sass"},
        lambda m: m | {"payload_bytes": 3},
        lambda m: m | {"options": 3},
        lambda m: m | {"config": 3},
        lambda m: m | {"compile_seconds": "soon"},
    ],
)
def test_metadata_of_another_shape_is_damage(change):
    with pytest.raises(DamagedEntryError):
        decode(resigned(change), KEY)


def test_a_cubin_is_an_elf_file():
    with pytest.raises(DamagedEntryError, match="ELF"):
        decode(encode(KEY, image(payload=b"not one"), {}), KEY)


def test_an_empty_payload_is_damage():
    with pytest.raises(DamagedEntryError):
        decode(encode(KEY, image(kind="ptx", payload=b""), {}), KEY)
