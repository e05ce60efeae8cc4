"""The directory of entries: trusted, read whole, written atomically.

Whatever lies in the cache is run on a device, so what is read must be the user's own: the directory and each entry must
belong to the user (or to root) and be writable by nobody else, and no symbolic link is followed. All access goes by a
descriptor of the directory, so that it cannot be exchanged between check and use.

Every method may raise `OSError`; `KernelCache` turns that into a warning and does without the disk.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .key import FORMAT_VERSION
from .lock import file_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["DiskStore", "default_directory"]

_ABANDONED_SECONDS = 3600.0
"""A temporary file this old belongs to a process that died."""

_LOCK_BUCKETS = 2
"""Hexadecimal digits of the key that name its lock file: 256 files at most, however many keys."""


def default_directory() -> Path:
    """Return where the user's kernels are kept unless a setting says otherwise."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("umma_jit", appauthor=False))


_LARGEST_ENTRY = 64 << 20
"""No kernel comes near this many bytes."""


class DiskStore:
    """The files of one cache directory.

    Parameters
    ----------
    root : path
        Created, with mode 0700, when first written to. Entries are in a directory below it that names their format.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).absolute()
        self.directory = self.root / f"v{FORMAT_VERSION}"

    def path(self, key: str) -> Path:
        """Return where the entry of a key is, or would be."""
        return self.directory / f"{key}.kernel"

    def read(self, key: str) -> bytes | None:
        """Return an entry's bytes, or None if there is none.

        Raises
        ------
        OSError
            It is there and cannot be read, or must not be trusted.
        """
        try:
            with self._opened(create=False) as directory:
                descriptor = os.open(
                    self.path(key).name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
                )
        except FileNotFoundError:
            return None
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            status = os.fstat(descriptor)
            _check_trust(status, self.path(key), stat.S_ISREG, "a regular file")
            if status.st_size > _LARGEST_ENTRY:
                return file.read(_LARGEST_ENTRY)  # cut short, so that its checksum refuses it as damaged
            return file.read()

    def write(self, key: str, data: bytes) -> None:
        """Publish an entry: other processes see all of it or nothing, also after a power cut."""
        with self._opened(create=True) as directory:
            temporary = f"{key}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
            try:
                with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
                    file.write(data)
                    file.flush()
                    os.fsync(descriptor)
                os.replace(temporary, self.path(key).name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=directory)
                raise
            os.fsync(directory)
            self._sweep(directory)

    def quarantine(self, key: str) -> Path:
        """Move an entry out of the way, for a look at it, and return where to."""
        away = self.directory / f"{key}.damaged"
        with self._opened(create=False) as directory:
            os.replace(self.path(key).name, away.name, src_dir_fd=directory, dst_dir_fd=directory)
        return away

    def keys(self) -> list[str]:
        """Return the keys of all entries, sorted."""
        try:
            with self._opened(create=False) as directory:
                names = os.listdir(directory)  # noqa: PTH208 - a descriptor, not a path
        except FileNotFoundError:
            return []
        return sorted(name.removesuffix(".kernel") for name in names if name.endswith(".kernel"))

    @contextlib.contextmanager
    def locked(self, key: str, timeout: float) -> Iterator[None]:
        """Hold the lock of a key among processes; see `lock.file_lock` for what it raises."""
        with self._opened(create=True) as directory, file_lock(f"{key[:_LOCK_BUCKETS]}.lock", directory, timeout):
            yield

    @contextlib.contextmanager
    def _opened(self, *, create: bool) -> Iterator[int]:
        if create:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.directory.mkdir(mode=0o700)
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _check_trust(os.fstat(descriptor), self.directory, stat.S_ISDIR, "a directory")
            yield descriptor
        finally:
            os.close(descriptor)

    def _sweep(self, directory: int) -> None:
        """Remove what died processes left behind; never fails."""
        with contextlib.suppress(OSError):
            for name in os.listdir(directory):
                if name.endswith(".tmp"):
                    age = time.time() - os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime
                    if age > _ABANDONED_SECONDS:
                        os.unlink(name, dir_fd=directory)


def _check_trust(status: os.stat_result, path: Path, is_kind: Callable[[int], bool], kind: str) -> None:
    if not is_kind(status.st_mode):
        raise PermissionError(f"{path} is not {kind}")
    if status.st_uid not in (os.geteuid(), 0):
        raise PermissionError(f"{path} belongs to user {status.st_uid}; expected the user's own")
    if status.st_mode & 0o022:
        raise PermissionError(f"others may write to {path} (mode {stat.S_IMODE(status.st_mode):04o}); expected 0700")
