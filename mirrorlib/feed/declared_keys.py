"""Read a table with its keys: what its property says is declared again, as far as it can still be true.

In: a table. Out: a DataFrame of one version of it. A partition key holds whoever writes. That each primary key
occurs once is what the table's owner guarantees, so it is claimed only while nobody else has changed rows since
mirrorlib's last commit.
And tell them to a catalog, see `key_statements`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.delta.address import address_of, find_feed_table, split_dotted
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.key_property import VIEW_PROPERTY, missing_columns, spell_keys_as, stored_keys
from mirrorlib.errors import FeedError
from mirrorlib.feed.owners import is_owners, keeps_columns
from mirrorlib.identifiers import quote, sql_text
from mirrorlib.keys.tags import STALE, tag_columns
from mirrorlib.keys.value import Keys
from mirrorlib.store import PathOrUrl

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
    wanted = commits.newest if version is None else version
    if not 0 <= wanted <= commits.newest:
        msg = "the table has no such version"
        step = f"Choose one up to {commits.newest}."
        raise FeedError(msg, table=found.shown, found=wanted, next_step=step)
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
