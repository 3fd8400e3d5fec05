"""Make Delta tables and change them by DDL: new tables and columns, names that need column mapping, wider types.

In: how a table is addressed, and columns, a mirror's or Spark's own. Every statement is a commit of its own, and
idempotent: a second runner finds what the first has done. Names reach SQL only through `quote`. Properties of a
new mirror: `properties.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from mirrorlib.delta import properties as known
from mirrorlib.delta.columns import (
    NO_TYPE_STEP,
    Column,
    Columns,
    find_column,
    needs_mapping,
    spelled_keys,
    write_type,
)
from mirrorlib.delta.log import LOG, list_log
from mirrorlib.delta.sessions import check_variables
from mirrorlib.delta.table import Found, TableRef, describe_schema, read_table
from mirrorlib.delta.trouble import spark_error
from mirrorlib.errors import LandingZoneError, SchemaError
from mirrorlib.identifiers import find_name, quote, sql_text
from mirrorlib.nested import names_in
from mirrorlib.store import Folder, LocalStore, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField

    AnyColumn: TypeAlias = Column | StructField

_STATISTICS = "delta.dataSkippingStatsColumns"
_NTZ = "timestamp_ntz"
_BINARY = "UTF8_BINARY"
_NOT_EMPTY = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
_NO_RANGE = frozenset({"boolean", "binary"})  # Delta refuses them as dataSkippingStatsColumns
EXACT_IN_DOUBLE = 1 << 53
_MOST_DAYS = (1 << 63) // 86_400_000_000  # whose midnight is a bigint of microseconds


def make_table(
    spark: SparkSession,
    ref: TableRef,
    columns: Sequence[AnyColumn],
    properties: Mapping[str, str],
    shown: str,
) -> None:
    """Make an empty table with these columns; nothing happens when there is one.

    Names that need column mapping turn it on. Raises `LandingZoneError` where its folder holds something else,
    `MirrorError` where a catalog's does; *shown* is how the table's user calls it.
    """
    check_vacant(ref, shown)
    store = None if ref.path is None else open_store(ref.path)
    bare = Folder(folders=(LOG,), files=())
    if (
        isinstance(store, LocalStore)
        and store.list_folder("") == bare
        and not list_log(store).versions
    ):
        # Spark takes for a table what a run leaves that ends between making a log and its first version. Nothing that
        # is committed goes, so that a runner who is at it beside us, on another machine, loses no version.
        store.delete_drafts(LOG)
    check_variables(spark, (column.name for column in columns), shown)
    properties = {**properties, **(known.MAPPED if need_mapping(columns) else {})}
    clause = _compared_by_bytes(spark, ref)
    if properties:
        clause += f" TBLPROPERTIES ({known.to_sql(properties)})"
    try:
        spark.sql(f"CREATE TABLE IF NOT EXISTS {ref.sql} ({_ddl(columns)}) USING delta{clause}")
    except Exception as exc:  # some of Delta's refusals are PySpark's errors, others Py4J's
        if _NOT_EMPTY not in str(exc):
            raise
        # It is not taken over or emptied here: another runner may be making the table in it at this moment.
        raise spark_error(exc, "make the table", shown) from exc


def _compared_by_bytes(spark: SparkSession, ref: TableRef) -> str:
    """Return what keeps a new table's text apart where its schema has a collation, by which two keys may be one."""
    if ref.path is not None:
        return ""
    said = describe_schema(spark, ref.sql.removesuffix(f".{quote(ref.name.table)}"))
    return "" if said.get("Collation", _BINARY) == _BINARY else f" DEFAULT COLLATION {_BINARY}"


def create_mirror(
    spark: SparkSession,
    ref: TableRef,
    columns: Columns,
    keys: Sequence[str],
    life: str,
    more: Mapping[str, str],
) -> None:
    """Make an empty mirror: feed on, deletion vectors on, statistics on the keys; nothing when it is there.

    *more* are properties beside these, or instead. Raises as `make_table` does.
    """
    feed = known.feed_properties(known.FEED_DAYS)
    properties = {**feed, known.VECTORS: "true", known.LIFE_PROPERTY: life, **more}
    skipping = _skipping_columns(columns, keys)
    if skipping and not need_mapping(columns):
        properties[_STATISTICS] = skipping
    make_table(spark, ref, columns, properties, str(ref.name))


def need_mapping(columns: Iterable[AnyColumn]) -> bool:
    """Say whether a name, on any level, can be carried by column mapping alone."""
    names: list[str] = []
    for column in columns:
        names += [column.name, *(() if isinstance(column, Column) else names_in(column.dataType))]
    return any(map(needs_mapping, names))


def _type(column: AnyColumn) -> str:
    if isinstance(column, Column):
        return column.sql_type
    return write_type(column.dataType, lambda leaf: leaf.simpleString())


def _ddl(columns: Iterable[AnyColumn]) -> str:
    return ", ".join(f"{quote(column.name)} {_type(column)}" for column in columns)


def allow_columns(
    spark: SparkSession, ref: TableRef, columns: Iterable[AnyColumn], found: Found
) -> bool:
    """Turn on what a table that is there needs for columns: column mapping for names, a feature for times without zone.

    Returns whether anything had to be turned on.

    Under a mapping that is turned on, the columns that are there keep their names in the data files.
    """
    columns = tuple(columns)
    wanted: dict[str, str] = {}
    if not found.mapped and need_mapping(columns):
        wanted |= known.MAPPED
    has = "timestampNtz" in found.features or any(c.sql_type == _NTZ for c in found.columns)
    if not has and any(_NTZ in _type(column) for column in columns):
        wanted |= known.WALL_CLOCK
    if wanted:
        known.set_properties(spark, ref.sql, wanted)
    return bool(wanted)


def add_columns(
    spark: SparkSession, ref: TableRef, columns: Sequence[AnyColumn], found: Found
) -> None:
    """Add columns at the end, with what they need."""
    allow_columns(spark, ref, columns, found)
    check_variables(spark, (column.name for column in columns), str(ref.name))
    spark.sql(f"ALTER TABLE {ref.sql} ADD COLUMNS ({_ddl(columns)})")


def _skipping_columns(columns: Columns, keys: Sequence[str]) -> str:
    """Name the key columns that Delta can keep minimum and maximum of."""
    narrow = tuple(column for column in columns if column.sql_type not in _NO_RANGE)
    return ",".join(map(quote, spelled_keys(narrow, keys)))


def unset_statistics(
    spark: SparkSession, ref: TableRef, columns: Columns, keys: Sequence[str], found: Found
) -> None:
    """Drop the statistics on the old keys of a table that is about to be replaced, whose columns may go."""
    if found.properties.get(_STATISTICS, "") not in {"", _skipping_columns(columns, keys)}:
        spark.sql(f"ALTER TABLE {ref.sql} UNSET TBLPROPERTIES ({sql_text(_STATISTICS)})")


def replace_columns(
    spark: SparkSession, ref: TableRef, old: Columns, columns: Columns, found: Found
) -> None:
    """Drop the *old* columns of an empty table with column mapping, once it has others."""
    here = read_table(spark, ref).columns
    missing = [column for column in columns if find_name(here, column.name) is None]
    if missing:
        add_columns(spark, ref, missing, found)
    dropped = ", ".join(quote(column.name) for column in old)
    spark.sql(f"ALTER TABLE {ref.sql} DROP COLUMNS ({dropped})")


def widen_columns(spark: SparkSession, ref: TableRef, columns: Columns, found: Found) -> None:
    """Change types in place (Delta type widening), turning the feature on when it is first needed."""
    if found.properties.get("delta.enableTypeWidening") != "true":
        known.set_properties(spark, ref.sql, {"delta.enableTypeWidening": "true"})
    for column in columns:
        mine = find_column(found.columns, column.name) or column
        spark.sql(f"ALTER TABLE {ref.sql} ALTER COLUMN {quote(mine.name)} TYPE {column.sql_type}")


def rewritten_rows(spark: SparkSession, ref: TableRef, columns: Columns, file: str) -> DataFrame:
    """Return the table's rows with the new types, to be written over it because of *file*.

    Raises `SchemaError` where a value of the table would change.
    """
    from pyspark.sql import functions as f

    rows = read_table(spark, ref)
    for column in columns:
        old = f.col(quote(column.name))
        was = rows.schema[find_name(rows.columns, column.name) or column.name].dataType
        kept = old.cast(column.sql_type).cast(was).eqNullSafe(old)
        if (was.simpleString(), column.sql_type) == ("bigint", "double"):
            # Casting back cannot tell: 2^63 as a double comes back as the bigint 2^63 - 1.
            kept = old.isNull() | old.between(-EXACT_IN_DOUBLE, EXACT_IN_DOUBLE)
        elif was.simpleString() == "date":  # a cast of one beyond microseconds is Java's own error
            kept = old.isNull() | f.unix_date(old).between(-_MOST_DAYS, _MOST_DAYS)
        if not rows.where(~kept).isEmpty():
            msg = "a value of the table itself does not fit the type that would hold both"
            found = f"{was.simpleString()} in the table, {column.sql_type} wanted"
            step, shown = NO_TYPE_STEP, str(ref.name)
            raise SchemaError(
                msg, table=shown, file=file, column=column.name, found=found, next_step=step
            )
    wider = {name: find_column(columns, name) for name in rows.columns}
    cast = {name: f.col(quote(name)).cast(one.sql_type) for name, one in wider.items() if one}
    return rows.withColumns(cast)


def check_vacant(ref: TableRef, shown: str) -> None:
    """Raise `LandingZoneError` where a table would be made among somebody's files."""
    there = open_store(ref.path).list_folder("") if ref.path is not None else None
    if there is None or LOG in there.folders or not (there.folders or there.files):
        return
    first = (*there.folders, *(file.name for file in there.files))[0]
    msg = "the target is a folder with other files in it"
    step = "Choose another target, or empty the folder."
    raise LandingZoneError(msg, table=shown, found=f"{first} in {ref.path}", next_step=step)
