"""What the pure machine parts raise: a rule broken, with no idea of who broke it.

The instruction handlers know the instruction, warp and lane, and turn a `Misuse` into a typed error that
carries them.
"""

from __future__ import annotations

__all__ = ["Misuse"]


class Misuse(Exception):  # noqa: N818 - a cause, turned into an error by whoever knows the instruction
    """A use that hardware would trap on or that the ISA leaves undefined.

    Attributes
    ----------
    rule
        Short stable identifier.
    remedy
        What to do instead.
    """

    def __init__(self, rule: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.remedy = remedy
