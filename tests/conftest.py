from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from umma_jit._image import KernelImage


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled kernels among pytest's own things, from run to run, unless the environment says otherwise."""
    for variable in [name for name in os.environ if name.startswith("UMMA_JIT_") and name != "UMMA_JIT_CACHE_DIR"]:
        del os.environ[variable]
    os.environ.setdefault("UMMA_JIT_CACHE_DIR", str(config.cache.mkdir("kernels")))


@pytest.fixture(autouse=True)
def _settings_read_anew() -> Iterator[None]:
    """A test that changes the environment must not leave its settings behind."""
    yield
    from umma_jit._settings import settings

    settings.cache_clear()


class FakeKernel:
    entry = "fake"


class FakeRuntime:
    """A device that computes by the float64 reference, for tests of what lies around the kernel."""

    image_kind = "ptx"
    evidence = "emulated"

    def __init__(self, arch: str = "sm_100a") -> None:
        self.arch = arch
        self.images: list[KernelImage] = []
        self.launches: list[tuple] = []

    def load(self, image):
        self.images.append(image)
        return FakeKernel()

    def launch(self, kernel, plan, arrays, stream):
        from umma_jit import reference

        self.launches.append((kernel, plan, dict(arrays), stream))
        self.plan = plan
        q, k, v = (arrays[name].array for name in ("q", "k", "v"))
        out, lse = reference.attention(q, k, v)
        arrays["out"].array[...] = out.astype(arrays["out"].array.dtype)
        if "lse" in arrays:
            arrays["lse"].array[...] = lse.astype(np.float32)


class FakeCache:
    """A cache that compiles nothing."""

    def __init__(self) -> None:
        self.requests: list[tuple] = []

    def get_or_compile(self, source, kind, config=None, *, anew=False):
        from umma_jit._image import KernelImage

        self.requests.append((source, kind, config, anew))
        return KernelImage(
            kind=kind, arch=source.arch, entry=source.entry, payload=b"fake", options=(), compiler="fake"
        )


@pytest.fixture
def fake_device(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    """Every call goes to a `FakeRuntime`, compiles nothing, and finds nothing prepared; its cache is `.cache`."""
    from umma_jit import _attention, cache, runtime

    device = FakeRuntime()
    device.cache = FakeCache()
    monkeypatch.setattr(runtime, "for_device", lambda ordinal: device)
    monkeypatch.setattr(cache, "default_cache", lambda: device.cache)
    monkeypatch.setattr(_attention, "_prepared_calls", {})
    monkeypatch.setattr(_attention, "_kernels", {})
    return device
