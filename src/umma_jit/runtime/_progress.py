"""A progress bar for work that takes seconds, on a terminal and nowhere else."""

from __future__ import annotations

import sys
import time
from typing import TextIO

__all__ = ["ProgressBar"]

_PATIENCE_SECONDS = 1.0
"""Work done sooner shows nothing."""

_INTERVAL_SECONDS = 0.1
_WIDTH = 30


class ProgressBar:
    """A line on stderr that is drawn over, and wiped at the end.

    Parameters
    ----------
    title : str
        What is going on.
    enabled : bool
        False: never shown.
    stream : file, optional
        By default ``sys.stderr``.
    patience : float
        Seconds before it is shown for the first time.

    Examples
    --------
    >>> with ProgressBar("emulating") as bar:
    ...     bar.update(1, 2)
    """

    def __init__(
        self,
        title: str,
        *,
        enabled: bool = True,
        stream: TextIO | None = None,
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        self._title = title
        self._stream = sys.stderr if stream is None else stream
        # In a program without a console there is no stderr at all.
        self._enabled = enabled and self._stream is not None and self._stream.isatty()
        self._start = time.monotonic()
        self._next = self._start + patience
        self._shown = False

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def update(self, done: int, total: int) -> None:
        """Say how far the work is; cheap enough to call often.

        Parameters
        ----------
        done, total : int
            Units of work.
        """
        if not self._enabled:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _INTERVAL_SECONDS
        self._shown = True
        fraction = done / total if total else 1.0
        filled = round(fraction * _WIDTH)
        elapsed = now - self._start
        left = f", about {elapsed / fraction - elapsed:.0f} s left" if done else ""
        bar = "#" * filled + "." * (_WIDTH - filled)
        self._stream.write(f"\r\x1b[K{self._title} [{bar}] {done}/{total}, {elapsed:.0f} s{left}")
        self._stream.flush()
