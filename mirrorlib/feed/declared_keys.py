"""Read a table with its keys: what its property says is declared again, as far as it can still be true.

In: a table. Out: a DataFrame of one version of it. A partition key holds whoever writes. That each primary key
occurs once is what the table's owner guarantees, so it is claimed only while nobody else has changed rows since
mirrorlib's last commit.
And tell them to a catalog, see `key_statements`; and find a mirror's, as its journal has them, see `find_mirror`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.delta.address import address_of, find_feed_table, split_dotted
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.key_property import VIEW_PROPERTY, missing_columns, spell_keys_as, stored_keys
from mirrorlib.delta.table import refer
from mirrorlib.errors import FeedError
from mirrorlib.feed.owners import is_owners, keeps_columns
from mirrorlib.feed.window import NOTHING, settle_bound
from mirrorlib.identifiers import fold_name, quote, sql_text
from mirrorlib.journal.disk import Journal, check_owner, find_journals
from mirrorlib.keys.tags import STALE, tag_columns
from mirrorlib.keys.value import Keys
from mirrorlib.names import find_key, parse_name
from mirrorlib.store import PathOrUrl, open_store
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(spark: SparkSession, table: PathOrUrl, *, version: int | None = None) -> DataFrame:
    """Read a Delta table with the keys that its property names, as `apply`, `derive` and exports write it.

    Args:
        spark: any Spark with Delta.
        table: a path or URL, or a name in a catalog.
        version: the newest without it.

    Returns:
        its rows. `keys_of` tells the keys: none where the property names a column that the table lacks, or that is
        another one by now, which `explain_keys` says; the partition key alone where somebody else may have doubled
        a primary key.

    Raises:
        FeedError: there is no such Delta table or version.
        FeedExpiredError: the version cannot be read any more.

    """
    from mirrorlib.feed.read import read_rows  # Spark comes with it

    found = find_feed_table(spark, address_of(table))
    commits = found.commits
    wanted = commits.newest if version is None else settle_bound(commits, "version", version)
    if wanted == NOTHING:
        msg = "`version` is before the table's first"
        step = "Give a later version, or a later moment."
        raise FeedError(msg, table=commits.shown, found=str(version), next_step=step)
    return declare_stored(read_rows(spark, found, wanted), commits, wanted)


def declare_stored(rows: DataFrame, commits: Commits, version: int) -> DataFrame:
    """Declare the keys that a table's property names on rows of a version."""
    properties = commits.metadata_at(version).properties
    keys = stored_keys(properties)
    if keys is None:
        return rows
    if missing_columns(keys, rows.columns) or not keeps_columns(commits, version, keys.columns):
        return rows.alias(STALE)
    keys = spell_keys_as(keys, rows.columns)
    owned = keys.unique or VIEW_PROPERTY in properties
    if owned and not is_owners(commits, version):
        keys = Keys(partition=keys.partition, lost=keys.lost)
    return tag_columns(rows, keys, "read_table")


def key_statements(table: str, keys: Keys) -> tuple[str, ...]:
    """Write statements that tell a catalog the keys of a table: a primary key, and a comment.

    A primary key is told only where each occurs once, as in a mirror under `insert_policy="upsert"`, a copy, or a
    current view; its columns are declared to be never NULL first, which a table that has a NULL there refuses.

    Args:
        table: its name in the catalog.
        keys: as `keys_of(read_table(spark, table))` tells them.

    """
    if not keys:
        return ()
    named = split_dotted(table)
    name, statements = ".".join(map(quote, named)), []
    if keys.primary and keys.unique:
        columns = [quote(column) for column in keys.primary]
        statements += [f"ALTER TABLE {name} ALTER COLUMN {one} SET NOT NULL" for one in columns]
        constraint = quote(f"{named[-1]}_key")
        listed = ", ".join(columns)
        statements.append(f"ALTER TABLE {name} ADD CONSTRAINT {constraint} PRIMARY KEY ({listed})")
    parts = [f"Partition key: {', '.join(keys.partition)}"]
    if keys.primary:
        parts.append(f"primary key: {', '.join(keys.primary)}")
    if keys.deleted is not None:
        parts.append(f"deleted where {keys.deleted}")
    if keys.order_by:
        parts.append(f"newest by {', '.join(keys.order_by)}")
    return (*statements, f"COMMENT ON TABLE {name} IS {sql_text('; '.join(parts))}")


def find_mirror(
    place: str, table: str, *, catalog: str | None, state: str | None
) -> tuple[str, tuple[str, ...]]:
    """Return what `read_feed` knows a table of a target by, and its keys as its journal has them.

    No keys when it is no mirror or has none. Raises `TableNameError` where no table can have that name.
    """
    name = parse_name(table)
    if catalog is not None and state is None:
        nowhere = Target(place=place, catalog=catalog, state="")
        return refer(nowhere, name).address, ()
    target = Target.of(place, catalog=catalog, state=state)
    store, names = open_store(target.state), [name]
    if catalog is not None:
        # Its name in the zone a catalog does not tell: it has the table part alone, without regard to case. A zone's
        # `dbo/orders` and `sales/orders` are not applied to one schema together, but may be one after the other.
        owner = (check_owner(store, None) or {}).get("target")
        all_of_it = find_journals(store) if owner in {None, target.owner} else {}
        names = [each for each in all_of_it if fold_name(each.table) == fold_name(name.table)]
    journals = [Journal(store, each) for each in names]
    # Of a life that has planned nothing yet, as after a reset, those of the one before hold.
    newest = [next(filter(None, map(one.newest, reversed(one.lives()))), None) for one in journals]
    applied = (entry for entry in newest if entry is not None)
    entry = max(applied, key=lambda one: one.done.finished_at if one.done else "", default=None)
    keys = entry.plan.policies.keys if entry is not None else ()
    columns = [column for column, _ in entry.done.columns] if entry and entry.done else []
    found = tuple(find_key(columns, key) or key.strip() for key in keys)
    return refer(target, name).address, found
