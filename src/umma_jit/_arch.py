"""The only table of architectures: target names, and the compute capabilities they belong to.

Code that uses wgmma or tcgen05 is *architecture specific*: it must be compiled for a target with the ``a`` suffix and
runs on exactly that compute capability (PTX ISA, ".target"; CUDA programming guide, "architecture-specific
features"). A name without the suffix compiles to code that lacks these instructions, so it is refused, not guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import UnsupportedArchError

__all__ = ["ARCHITECTURES", "Arch", "arch_of_compute_capability", "parse_arch"]


@dataclass(frozen=True)
class Arch:
    """One target.

    Attributes
    ----------
    name : str
        The real architecture with its suffix, as ptxas and NVRTC take it: ``"sm_100a"``.
    major, minor : int
        Its compute capability.
    description : str
        The chips that have it.
    """

    name: str
    major: int
    minor: int
    description: str

    @property
    def virtual_name(self) -> str:
        """The virtual architecture, the target when only PTX is wanted: ``"compute_100a"``."""
        return "compute_" + self.name.removeprefix("sm_")

    def __str__(self) -> str:
        return self.name


ARCHITECTURES: dict[str, Arch] = {
    arch.name: arch
    for arch in (
        Arch("sm_90a", 9, 0, "Hopper: H100, H200, GH200"),
        Arch("sm_100a", 10, 0, "Blackwell: B200, GB200"),
        Arch("sm_103a", 10, 3, "Blackwell Ultra: B300, GB300"),
    )
}

_NAME = re.compile(r"(?:sm_|compute_)?(\d+)([a-z]?)")


def parse_arch(name: str) -> Arch:
    """Return the architecture of a full name.

    Parameters
    ----------
    name : str
        A real architecture with its suffix, such as ``"sm_100a"``.

    Raises
    ------
    UnsupportedArchError
        The name is not one of `ARCHITECTURES`; says so in particular when only its suffix is missing.
    """
    arch = ARCHITECTURES.get(name)
    if arch is not None:
        return arch
    hint = None
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is not None:
        full = f"sm_{match[1]}a"
        if full in ARCHITECTURES:
            hint = (
                f"Write {full!r}: wgmma and tcgen05 exist only in architecture-specific targets, "
                "whose names begin with 'sm_' and end in 'a'"
            )
    raise UnsupportedArchError(str(name), tuple(ARCHITECTURES), hint)


def arch_of_compute_capability(major: int, minor: int) -> Arch:
    """Return the architecture of a device by its compute capability.

    Raises
    ------
    UnsupportedArchError
        No target here has exactly this compute capability. Nearby ones do not run each other's code: sm_100a code does
        not load on compute capability 10.3.
    """
    for arch in ARCHITECTURES.values():
        if (arch.major, arch.minor) == (major, minor):
            return arch
    known = ", ".join(f"{arch.major}.{arch.minor} ({arch.name})" for arch in ARCHITECTURES.values())
    raise UnsupportedArchError(
        f"compute capability {major}.{minor}",
        tuple(ARCHITECTURES),
        f"Compute capabilities with a target: {known}",
    )
