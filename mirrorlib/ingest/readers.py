"""Keep a table to what every reader of Delta can read: no deletion vectors, no types widened in place.

In: what a caller asks for (`readers="plain"`), and what the table's own property remembers. Out: a `Work` whose plans
keep to it. A table that has such features already is refused, not rewritten: purging it costs what its owner has to
agree to, and Delta 3 drops a feature only a day later. What reads what: docs/readers.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorlib.delta.properties import READERS_PROPERTY, VECTORS, to_sql
from mirrorlib.delta.table import find_table
from mirrorlib.errors import SchemaError

if TYPE_CHECKING:
    from mirrorlib.delta.table import Found
    from mirrorlib.ingest.batch.foreign_writes import Standing
    from mirrorlib.ingest.work import Work
    from mirrorlib.journal.entries import Readers

_NOT_PLAIN = ("deletionVectors", "typeWidening", "typeWidening-preview")


def readers_property(readers: Readers | None) -> dict[str, str]:
    """Return the properties of a table for these readers, beside or instead of a mirror's own; none for any table."""
    return {VECTORS: "false", READERS_PROPERTY: readers} if readers else {}


def heed_readers(work: Work, standing: Standing, asked: Readers | None) -> Work:
    """Let the next plans keep to what the table remembers, or what is asked for, which it remembers from now on.

    Raises:
        SchemaError: see `check_readers`.

    """
    found = check_readers(work, standing, asked)
    if found is not None:
        told = to_sql(readers_property(asked or standing.readers))
        work.spark.sql(f"ALTER TABLE {work.ref.sql} SET TBLPROPERTIES ({told})")
    return planned_for(work, standing, asked)


def planned_for(work: Work, standing: Standing, asked: Readers | None) -> Work:
    """Say in the policies of the next plans whom the table is for."""
    policies = replace(work.source.policies, readers=asked or standing.readers)
    return replace(work, source=replace(work.source, policies=policies))


def check_readers(work: Work, standing: Standing, asked: Readers | None) -> Found | None:
    """Return the mirror's table where it has still to be told whom it is for; None where there is nothing to tell.

    Raises:
        SchemaError: the table needs readers that know more.

    """
    wanted = asked or standing.readers
    if wanted is None or (wanted == standing.readers and not standing.vectors):
        return None
    found = find_table(work.spark, work.ref)
    if found is None or not work.owns(found.properties):
        return None  # it will be made so, or refused as another's
    features = [name for name in _NOT_PLAIN if name in found.features]
    if features:
        msg = "the table already has features that plain readers do not know"
        step = (
            'Purge and drop them (docs/readers.md, "A table that is there"), or let the table be made anew: '
            f"mirrorlib reset TARGET {work.table}, remove the Delta table, and apply. "
            f"Without --readers and the property {READERS_PROPERTY} it goes on as it is."
        )
        raise SchemaError(msg, table=work.table, found=", ".join(features), next_step=step)
    return found
