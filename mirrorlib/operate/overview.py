"""Show in one report how a target stands, what was applied to it lately, and three plots of it.

In: a target, and, to keep the ledger, a place for its tables. Out: `Overview`, which the notebook
`status` shows. Spark is needed only where the ledger is kept. What cannot be drawn or kept is said
below the rest, and the overview is not well then: one part takes no other along.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from mirrorlib.errors import MirrorError, ParameterError, first_line
from mirrorlib.operate.book import BookReport, write_ledger
from mirrorlib.operate.ledger import LAST, LedgerReport, read_ledger
from mirrorlib.operate.plots import Picture, plot_ledger
from mirrorlib.operate.status import StatusReport, read_status
from mirrorlib.tabular import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.store import PathOrUrl


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Overview(Report):
    """How a target stands, and how it came there.

    Attributes:
        status: how every table stands.
        ledger: the newest batches of each.
        picture: lag, rows by marker over time, seconds of each stage; None where it could not be drawn.
        kept: what was written down; None where nothing was asked for, or could be.
        failures: what could not be drawn or written down, and why.

    """

    status: StatusReport
    ledger: LedgerReport
    picture: Picture | None = None
    kept: BookReport | None = None
    failures: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Say whether every table is well, and the overview whole; what was applied long ago does not count."""
        return self.status.ok and not self.failures

    def header(self) -> tuple[str, ...]:
        """Name the columns of how tables stand."""
        return self.status.header()

    def rows(self) -> list[tuple[str, ...]]:
        """Return how each table stands."""
        return self.status.rows()

    def notes(self) -> list[str]:
        """Say for each table why it is not current, then what is missing here."""
        return [*self.status.notes(), *self.failures]

    def to_dict(self) -> dict[str, Any]:
        """Return how tables stand, in the shape of `mirrorlib status --json`, and what is missing here."""
        return {**self.status.to_dict(), "ok": self.ok, "failures": list(self.failures)}

    def __str__(self) -> str:
        """Show the reports one below the other."""
        return "\n\n".join([*map(str, self._titled().values()), *self.failures])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Show the reports and the plots, in a notebook."""
        parts = [f"<h3>{title}</h3>{part._repr_html_()}" for title, part in self._titled().items()]
        parts += [self.picture._repr_html_()] if self.picture else []
        return "".join([*parts, *(f"<p>{escape(failure)}</p>" for failure in self.failures)])

    def _titled(self) -> dict[str, Report]:
        parts = {"How tables stand": self.status, "What was applied lately": self.ledger}
        return parts | ({"What was written down": self.kept} if self.kept else {})


def read_overview(
    target: PathOrUrl,
    *,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    last: int = LAST,
    to: str | None = None,
    spark: SparkSession | None = None,
    allow_new: bool = False,
) -> Overview:
    """Read how a target stands and what was applied to it lately, draw that, and keep the ledger where it is asked for.

    The ledger is kept in two Delta tables, as `write_ledger` does it, where *to* says a place, and by *spark*, which
    is for that alone. *last* is how many batches of each table. The rest means the same as for `status`.

    Raises:
        JournalError: nothing has ever been applied to this target.
        LandingZoneError: *last* is no number from 1 on.
        ParameterError: *to* is given without *spark*.

    """
    if to and spark is None:
        msg = "the ledger's tables are written by Spark"
        raise ParameterError(msg, found=f"to={to!r} without spark", next_step="Give spark, too.")
    place: dict[str, Any] = {"catalog": catalog, "state": state, "allow_new": allow_new}
    status, ledger = read_status(target, **place), read_ledger(target, last=last, **place)
    kept: BookReport | None = None
    picture: Picture | None = None
    failures: list[str] = []
    try:
        if to and spark is not None:
            kept = write_ledger(spark, target, to, **place)
    except Exception as exc:  # noqa: BLE001  # Spark's, too: whoever looks at tables still sees them
        failures.append(f"the ledger was not written to {to}: {first_line(exc)}")
    try:
        picture = plot_ledger(ledger, status)
    except MirrorError as exc:
        failures.append(f"nothing was drawn: {exc}")
    return Overview(
        status=status, ledger=ledger, picture=picture, kept=kept, failures=tuple(failures)
    )
