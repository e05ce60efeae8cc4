"""Every environment variable that umma_jit reads, in one place, read once into a frozen `Settings`."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._arch import parse_arch
from .errors import SettingsError, UnsupportedArchError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SCHEDULES", "Settings", "settings"]

SCHEDULES = ("program", "eager", "lazy", "random")
"""When the emulated device completes asynchronous work; see `umma_jit.emulator`."""

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")


@dataclass(frozen=True)
class Settings:
    """What the environment asks for.

    Attributes
    ----------
    cache_dir : str or None
        ``UMMA_JIT_CACHE_DIR``: where compiled kernels are kept; default: the user's cache directory.
    disk_cache : bool
        ``UMMA_JIT_DISK_CACHE``: whether compiled kernels are kept on disk at all; default yes.
    arch : str
        ``UMMA_JIT_ARCH``: the architecture of the emulated device; default ``sm_100a``.
    lineinfo : bool
        ``UMMA_JIT_LINEINFO``: compile with source lines, for profilers and for the emulator's findings; default no,
        since the same source then compiles to a different binary in every process.
    emulator_schedule : str
        ``UMMA_JIT_EMULATOR_SCHEDULE``: one of `SCHEDULES`; default ``program``.
    emulator_seed : int
        ``UMMA_JIT_EMULATOR_SEED``: the seed of the schedule ``random``; default 0.
    emulator_strict : bool
        ``UMMA_JIT_EMULATOR_STRICT``: whether warnings of the emulated device end the call too; default no.
    progress : bool
        ``UMMA_JIT_PROGRESS``: whether a progress bar may be shown on a terminal; default yes.
    """

    cache_dir: str | None = None
    disk_cache: bool = True
    arch: str = "sm_100a"
    lineinfo: bool = False
    emulator_schedule: str = "program"
    emulator_seed: int = 0
    emulator_strict: bool = False
    progress: bool = True

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read the settings from a mapping such as `os.environ`.

        Raises
        ------
        SettingsError
            A variable's value means nothing.
        """
        arch = environment.get("UMMA_JIT_ARCH") or "sm_100a"
        try:
            parse_arch(arch)
        except UnsupportedArchError as error:
            raise SettingsError("UMMA_JIT_ARCH", arch, f"one of {', '.join(error.supported)}") from error
        schedule = environment.get("UMMA_JIT_EMULATOR_SCHEDULE") or "program"
        if schedule not in SCHEDULES:
            raise SettingsError("UMMA_JIT_EMULATOR_SCHEDULE", schedule, f"one of {', '.join(SCHEDULES)}")
        seed = environment.get("UMMA_JIT_EMULATOR_SEED") or "0"
        if not (seed.isascii() and seed.isdigit()):
            raise SettingsError("UMMA_JIT_EMULATOR_SEED", seed, "an integer of 0 or more")
        return cls(
            cache_dir=environment.get("UMMA_JIT_CACHE_DIR") or None,
            disk_cache=_flag(environment, "UMMA_JIT_DISK_CACHE", default=True),
            arch=arch,
            lineinfo=_flag(environment, "UMMA_JIT_LINEINFO", default=False),
            emulator_schedule=schedule,
            emulator_seed=int(seed),
            emulator_strict=_flag(environment, "UMMA_JIT_EMULATOR_STRICT", default=False),
            progress=_flag(environment, "UMMA_JIT_PROGRESS", default=True),
        )


def _flag(environment: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = environment.get(name)
    if value is None:
        return default
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise SettingsError(name, value, "1 or 0")


@functools.cache
def settings() -> Settings:
    """Return the process's settings; read at the first call and kept (``settings.cache_clear()`` reads anew)."""
    return Settings.from_environment(os.environ)
