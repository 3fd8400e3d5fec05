"""What a rule of the review is: a name, a severity, and what breaking it means on either side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "note"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that a zone may get wrong.

    An error stops the table, or keeps data out of it. A warning does not stop mirrorlib; Fabric may
    stop, says nothing about it, or the rows are likely not what was meant. A note is advice.

    Attributes:
        id: its name in reports, kebab-case; it never changes.
        severity: how bad it is.
        title: what is wrong, a clause.
        fabric: what Fabric documents, or was seen to do.
        mirrorlib: what mirrorlib does.
        fix: what the publisher should do.

    """

    id: str
    severity: Severity
    title: str
    fabric: str
    mirrorlib: str
    fix: str

    @property
    def why(self) -> str:
        """Return what comes of it, on either side."""
        return f"Fabric: {self.fabric} mirrorlib: {self.mirrorlib}"
