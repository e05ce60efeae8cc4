"""One holder at a time among processes: the operating system's lock on a file, with a time limit.

The lock belongs to the open file, so it ends with the process that holds it, however that ends: nothing stale is left.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

with contextlib.suppress(ImportError):  # not POSIX: processes may compile the same kernel twice, nothing worse
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LockTimeoutError", "file_lock"]

_FIRST_WAIT_SECONDS = 0.005
_LONGEST_WAIT_SECONDS = 0.1


class LockTimeoutError(Exception):
    """Another process held the lock all the time. Never leaves the cache."""


@contextlib.contextmanager
def file_lock(name: str, directory: int, timeout: float) -> Iterator[None]:
    """Hold a lock.

    Parameters
    ----------
    name : str
        The lock file's name.
    directory : int
        Descriptor of the directory that it is in.
    timeout : float
        How long to wait, in seconds.

    Raises
    ------
    LockTimeoutError
        Somebody else held it all the time; names the process, as far as it can be told.
    OSError
        There can be no lock file here.
    """
    if "fcntl" not in globals():  # pragma: no cover
        yield
        return
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        _acquire(descriptor, name, timeout)
        # For the message of a process that waits in vain.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode("ascii"), 0)
        yield
    finally:
        os.close(descriptor)  # unlocks


def _acquire(descriptor: int, name: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    wait = _FIRST_WAIT_SECONDS
    while not _try(descriptor):
        left = deadline - time.monotonic()
        if left <= 0:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace") or "unknown"
            raise LockTimeoutError(f"process {holder} has held {name} for more than {timeout:g} s")
        time.sleep(min(wait, left))
        wait = min(2 * wait, _LONGEST_WAIT_SECONDS)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
