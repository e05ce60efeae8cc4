"""What a launch reports: instruction counts and findings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Finding", "Report"]


@dataclass(frozen=True)
class Finding:
    """One use of the machine that breaks a rule.

    Attributes
    ----------
    rule
        Short stable identifier, such as ``"proxy-fence.missing"``.
    severity
        ``"error"``: against the ISA in a way that can go wrong; ``"warning"``: against its letter, yet relied on by
        compilers whose kernels run.
    message, remedy
        What happened, and what to do.
    line
        Line of the PTX text, from 1.
    opcode
        The instruction there.
    source
        ``file:line`` of the CUDA source if the PTX carries line information.
    cta, warp
        Index of the CTA in the grid (x, y, z) and of the warp in the CTA; None if not of one warp.
    """

    rule: str
    severity: str
    message: str
    remedy: str
    line: int
    opcode: str
    source: str | None
    cta: tuple[int, int, int] | None
    warp: int | None

    def __str__(self) -> str:
        where = f"PTX line {self.line}" + (f" ({self.source})" if self.source else "")
        who = "" if self.cta is None else f", CTA {self.cta}" + ("" if self.warp is None else f" warp {self.warp}")
        return f"{self.severity} [{self.rule}] {where}{who}: {self.opcode}: {self.message}. Remedy: {self.remedy}"


@dataclass
class Report:
    """The outcome of one launch.

    Attributes
    ----------
    instructions
        Warp instructions executed, by full opcode.
    findings
        Rules broken, each place and rule once, in the order of first occurrence.
    occurrences
        How often each finding occurred.
    """

    instructions: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    occurrences: Counter[tuple[str, int]] = field(default_factory=Counter)

    @property
    def total_instructions(self) -> int:
        """Warp instructions executed."""
        return sum(self.instructions.values())

    @property
    def errors(self) -> list[Finding]:
        """Findings of severity ``"error"``."""
        return [finding for finding in self.findings if finding.severity == "error"]

    @property
    def warnings(self) -> list[Finding]:
        """Findings of severity ``"warning"``."""
        return [finding for finding in self.findings if finding.severity == "warning"]

    def add(self, finding: Finding) -> bool:
        """Record a finding; False if the same rule was already broken at the same line."""
        key = (finding.rule, finding.line)
        self.occurrences[key] += 1
        if self.occurrences[key] > 1:
            return False
        self.findings.append(finding)
        return True
