"""Compiled kernels, kept: in memory, then on disk, else compiled, by one thread of one process per key.

A cache can never fail a call. A damaged entry is put aside and compiled again; a disk that is full, read-only or not to
be trusted is done without; a lock that nobody gives up is waited for only so long. Each is said once, by a
`CacheWarning`. Compile errors are the caller's, of course, and pass through.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from umma_jit._compile import compile_image, compiler_identity, nvrtc_options
from umma_jit._settings import settings
from umma_jit.errors import CacheWarning

from .disk import DiskStore, default_directory
from .entry import DamagedEntryError, decode, encode
from .key import FORMAT_VERSION, cache_key
from .lock import LockTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from umma_jit._image import ImageKind, KernelImage
    from umma_jit._source import KernelSource

__all__ = ["FORMAT_VERSION", "DiskStore", "KernelCache", "cache_key", "default_cache", "default_directory"]

LOCK_TIMEOUT_SECONDS = 60.0
"""Far beyond any compile here; a holder that takes longer is stuck."""


class KernelCache:
    """Images by the key of their source.

    Parameters
    ----------
    store : DiskStore or None
        Where images are kept between processes; None for memory only.
    compiler : callable
        ``compiler(source, kind) -> KernelImage``.
    identity : callable
        ``identity() -> str``, the compiler's full version.
    lock_timeout : float
        How long to wait for another process that compiles the same kernel, in seconds.
    """

    def __init__(
        self,
        store: DiskStore | None,
        *,
        compiler: Callable[[KernelSource, ImageKind], KernelImage] = compile_image,
        identity: Callable[[], str] = compiler_identity,
        lock_timeout: float = LOCK_TIMEOUT_SECONDS,
    ) -> None:
        self.store = store
        self._compiler = compiler
        self._identity = identity
        self._lock_timeout = lock_timeout
        self._images: dict[str, Future[KernelImage]] = {}
        self._mutex = threading.Lock()
        self._warned: set[str] = set()

    def key(self, source: KernelSource, kind: ImageKind) -> str:
        """Return the key of a source's image with the compiler at hand."""
        return cache_key(
            source=source.text,
            entry=source.entry,
            kind=kind,
            arch=source.arch,
            options=nvrtc_options(source, kind),
            compiler=self._identity(),
        )

    def get_or_compile(
        self, source: KernelSource, kind: ImageKind, config: Mapping[str, Any] | None = None, *, anew: bool = False
    ) -> KernelImage:
        """Return the image of a source.

        Parameters
        ----------
        source : KernelSource
            What to compile.
        kind : {"cubin", "ptx"}
            The kind of image.
        config : mapping, optional
            Kept beside the image, so that the store can be listed by it. JSON types only.
        anew : bool
            Compile even if it is kept, and keep the result: for an image that turned out not to load.

        Raises
        ------
        CompileError, CompilerNotFoundError
            As `compile_image`.
        """
        key = self.key(source, kind)
        while True:
            with self._mutex:
                flight = None if anew else self._images.get(key)
                mine = flight is None
                if flight is None:
                    flight = self._images[key] = Future()
            if not mine:
                try:
                    return flight.result()
                except _AbandonedError:
                    continue  # the thread that was at it was interrupted: this one takes over
            try:
                image = self._fetch(key, source, kind, config or {}, anew=anew)
            except BaseException as error:
                with self._mutex:
                    if self._images.get(key) is flight:
                        del self._images[key]  # the next call tries again
                flight.set_exception(error if isinstance(error, Exception) else _AbandonedError())
                raise
            flight.set_result(image)
            return image

    def _fetch(
        self, key: str, source: KernelSource, kind: ImageKind, config: Mapping[str, Any], *, anew: bool
    ) -> KernelImage:
        """Disk, else compile and publish; among processes, one at a time per key."""
        if self.store is None:
            return self._compiler(source, kind)
        if not anew and (image := self._read(key, source, kind)) is not None:
            return image
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self.store.locked(key, self._lock_timeout))
            except LockTimeoutError as error:
                self._warn("lock", f"{error}; compiling without waiting any longer")
            except OSError as error:
                self._warn("write", f"cannot keep kernels in {self.store.root} ({error}); they are kept in memory only")
                return self._compiler(source, kind)
            # Whoever held the lock before may just have published it.
            if not anew and (image := self._read(key, source, kind)) is not None:
                return image
            image = self._compiler(source, kind)
            try:
                self.store.write(key, encode(key, image, config))
            except (OSError, TypeError, ValueError) as error:  # the latter two: a config that JSON cannot hold
                self._warn("write", f"cannot keep kernels in {self.store.root} ({error}); they are kept in memory only")
            return image

    def _read(self, key: str, source: KernelSource, kind: ImageKind) -> KernelImage | None:
        assert self.store is not None
        try:
            data = self.store.read(key)
        except OSError as error:
            self._warn("read", f"cannot use {self.store.path(key)} ({error}); compiling instead")
            return None
        if data is None:
            return None
        try:
            image = decode(data, key).image
            if (image.kind, image.arch, image.entry) != (kind, source.arch, source.entry):
                raise DamagedEntryError(f"holds a {image.kind} of {image.entry} for {image.arch}")
        except DamagedEntryError as error:
            try:
                fate = f"moved to {self.store.quarantine(key).name}"
            except OSError as failure:
                fate = f"cannot be moved away: {failure}"
            self._warn("damaged", f"{self.store.path(key)} is damaged ({error}; {fate}); compiling again")
            return None
        return image

    def _warn(self, kind: str, message: str) -> None:
        with self._mutex:
            if kind in self._warned:
                return
            self._warned.add(kind)
        warnings.warn(f"umma_jit's kernel cache: {message}", CacheWarning, stacklevel=2)


class _AbandonedError(Exception):
    """The thread that compiled was interrupted."""


@functools.cache
def default_cache() -> KernelCache:
    """Return the cache that `umma_jit.attention` uses, as the settings have it."""
    chosen = settings()
    if not chosen.disk_cache:
        return KernelCache(None)
    try:
        return KernelCache(DiskStore(chosen.cache_dir or default_directory()))
    except (OSError, RuntimeError) as error:  # no home directory, no current directory
        warnings.warn(f"umma_jit's kernel cache: no directory for it ({error})", CacheWarning, stacklevel=2)
        return KernelCache(None)
