"""Say what was sent to a workspace, and how the job that was run has ended."""

from __future__ import annotations

from dataclasses import dataclass

from mirrorlib.tabular import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One thing that is in the workspace now: what it is, where or under which id, and whether it is new."""

    kind: str
    name: str
    place: str
    done: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DeployReport(Report):
    """What was sent, and how the job that was run has ended."""

    target: str
    sent: tuple[Sent, ...]
    left: tuple[str, ...] = ()
    run: str | None = None
    failed: str | None = None

    @property
    def ok(self) -> bool:
        """Say whether the job that was run has ended well."""
        return self.failed is None

    def header(self) -> tuple[str, ...]:
        """Name the columns."""
        return ("", "name", "in the workspace", "")

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row a thing."""
        return [(one.kind, one.name, one.place, one.done) for one in self.sent]

    def notes(self) -> list[str]:
        """Say what is not sent, and how the run ended."""
        left = [f"not sent: {name}; the Databricks CLI deploys it" for name in self.left]
        return [*left, *(text for text in (self.run, self.failed) if text)]
