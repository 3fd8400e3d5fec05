"""Show in one report how a target stands, what was applied to it lately, who receives it, and a page of all that.

In: a target, and, to keep the ledger, a place for its tables. Out: `Overview`. What cannot be read or kept is said
below the rest: one part takes no other along. The page needs jinja2, which Databricks and Fabric have.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from mirrorlib.delivery.consumers import list_consumers
from mirrorlib.delivery.report import ConsumersReport
from mirrorlib.errors import MirrorError, ParameterError, first_line
from mirrorlib.operate.book import write_ledger
from mirrorlib.operate.ledger import LAST, LedgerReport, read_ledger
from mirrorlib.operate.lineage import LineageReport, lineage
from mirrorlib.operate.page.render import make_page
from mirrorlib.operate.status import StatusReport, read_status
from mirrorlib.store import PathOrUrl, open_store
from mirrorlib.tabular import PartReport, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Overview(PartReport):
    """How a target stands, and how it came there.

    Attributes:
        status: how every table stands.
        ledger: the newest batches of each.
        consumers: who is delivered to, and how far each has come; None where that could not be read.
        ways: where tables come from and go to; the same.
        failures: what could not be read or written down, and why.

    """

    columns: ClassVar = StatusReport.columns
    status: StatusReport
    ledger: LedgerReport
    consumers: ConsumersReport | None = None
    ways: LineageReport | None = None

    @property
    def ok(self) -> bool:
        """Say whether every table is well, and the overview whole; what was applied long ago does not count."""
        return self.status.ok and not self.failures

    def rows(self) -> list[tuple[str, ...]]:
        """Return how each table stands."""
        return self.status.rows()

    def notes(self) -> list[str]:
        """Say for each table why it is not current, then what is missing here."""
        return [*self.status.notes(), *self.failures]

    def to_dict(self) -> dict[str, Any]:
        """Return how tables stand, in the shape of `mirrorlib status --json`, and what is missing here."""
        return {**self.status.to_dict(), "ok": self.ok, "failures": list(self.failures)}

    def save(self, page: PathOrUrl) -> None:
        """Write the status page to a file, in one step: whoever reads it sees the one before, or this one.

        Raises:
            MirrorError: jinja2 is not installed, or the file cannot be written.

        """
        folder, slash, name = os.fspath(page).rpartition("/")
        if not name:
            msg = "a page is a file, and this is a folder"
            raise ParameterError(msg, found=os.fspath(page), next_step="Name a file in it.")
        data = make_page(self).encode()
        open_store(folder or slash or ".").put(name, data)

    def _repr_html_(self) -> str:
        """Show the page in a notebook, in a frame of its own; how tables stand, alone, where jinja2 is missing."""
        try:
            page = make_page(self)
        except MirrorError as exc:
            return f"{Report._repr_html_(self)}<p>{escape(str(exc))}</p>"
        style = "width:100%;height:80vh;min-height:20rem;border:0"
        # As high as the page is, up to what one scrolls through; where a host lets no script run it stays as it is.
        grow = "this.style.height=Math.min(this.contentDocument.body.offsetHeight+8,1800)+'px'"
        return f'<iframe title="Status" style="{style}" onload="{grow}" srcdoc="{escape(page)}"></iframe>'


def read_overview(
    target: PathOrUrl,
    *,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    last: int = LAST,
    to: str | None = None,
    spark: SparkSession | None = None,
    allow_new: bool = False,
    before: Overview | None = None,
) -> Overview:
    """Read how a target stands, what was applied to it and who receives it; keep the ledger where it is asked for.

    The ledger is kept in two Delta tables, as `write_ledger` does it, where *to* says a place, and by *spark*, which
    is for that, and to find the tables of a catalog. *last* is how many batches of each table. *before* is an earlier
    answer of the same target, whose batches are not read again. The rest means the same as for `status`.

    Raises:
        JournalError: nothing has ever been applied to this target.
        ParameterError: *to* is given without *spark*.

    """
    if to and spark is None:
        msg = "the ledger's tables are written by Spark"
        raise ParameterError(msg, found=f"to={to!r} without spark", next_step="Give spark, too.")
    place: dict[str, Any] = {"catalog": catalog, "state": state, "allow_new": allow_new}
    status = read_status(target, **place)
    failures: list[str] = []

    def part(what: str, read: Callable[..., _Part], *by: object, **how: object) -> _Part | None:
        try:
            return read(*by, **how)
        except Exception as exc:  # noqa: BLE001  # Spark's, too: whoever looks at tables still sees them
            failures.append(f"{what}: {exc if isinstance(exc, MirrorError) else first_line(exc)}")
            return None

    old = before.ledger if before else None
    own = {"catalog": catalog, "state": state}
    ledger = part("the ledger was not read", read_ledger, target, last=last, before=old, **place)
    consumers = part("consumers were not read", list_consumers, target, spark=spark, **own)
    ways = part("the lineage was not read", lineage, target, **own)
    kept = (
        part("the ledger was not written", write_ledger, spark, target, to, **place) if to else None
    )
    ledger = ledger or LedgerReport(target=status.target, batches=())
    for what, one in (("the ledger", ledger), ("the lineage", ways), ("what was kept", kept)):
        failures += [f"{what} is not whole: {each}" for each in (one.failures if one else ())]
    told = tuple(failures)
    return Overview(status=status, ledger=ledger, consumers=consumers, ways=ways, failures=told)
