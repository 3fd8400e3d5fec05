"""Make Delta tables and change them by DDL: new tables and columns, names that need column mapping, wider types.

In: how a table is addressed, and columns, a mirror's or Spark's own. Every statement is a commit of its own, and
idempotent: a second runner finds what the first has done. Names reach SQL only through `quote`. Properties of a
new mirror: design §6, "New tables".
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from mirrorlib.delta.columns import (
    Column,
    Columns,
    find_column,
    find_key_column,
    needs_mapping,
    sql_type,
    to_columns,
    to_ddl,
)
from mirrorlib.delta.properties import (
    FEED_DAYS,
    LIFE_PROPERTY,
    MAPPED,
    VECTORS,
    WALL_CLOCK,
    feed_properties,
    to_sql,
)
from mirrorlib.delta.table import Found, TableRef, read_table
from mirrorlib.errors import LandingZoneError, SchemaError, TableNameError
from mirrorlib.identifiers import find_name, fold_name, quote, sql_text
from mirrorlib.nested import names_in
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField

    AnyColumn: TypeAlias = Column | StructField

_STATISTICS = "delta.dataSkippingStatsColumns"
_LONGEST_COLUMN = 255
_NTZ = "timestamp_ntz"
_NOT_EMPTY = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
_LOCATION = re.compile(r"location \('(?P<place>[^']+)'\)")
_NO_RANGE = frozenset({"boolean", "binary"})  # Delta refuses them as dataSkippingStatsColumns
EXACT_IN_DOUBLE = 1 << 53


def make_table(
    spark: SparkSession,
    ref: TableRef,
    columns: Sequence[AnyColumn],
    properties: Mapping[str, str],
    shown: str,
) -> None:
    """Make an empty table with these columns; nothing happens when there is one.

    Args:
        spark: with Delta.
        ref: the table.
        columns: all of them; names that need column mapping turn it on.
        properties: all others.
        shown: how its user calls it.

    Raises:
        LandingZoneError: its folder holds something else, or what a killed run has left in a catalog's.

    """
    check_vacant(ref, shown)
    properties = {**properties, **(MAPPED if need_mapping(columns) else {})}
    clause = f" TBLPROPERTIES ({to_sql(properties)})" if properties else ""
    try:
        spark.sql(f"CREATE TABLE IF NOT EXISTS {ref.sql} ({_ddl(columns)}) USING delta{clause}")
    except Exception as exc:  # some of Delta's refusals are PySpark's errors, others Py4J's
        if _NOT_EMPTY not in str(exc):
            raise
        raise _taken(shown, str(exc)) from exc


def create_mirror(
    spark: SparkSession,
    ref: TableRef,
    columns: Columns,
    keys: Sequence[str],
    life: str,
    more: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Make an empty mirror: feed on, deletion vectors on, statistics on the keys; nothing when it is there.

    *more* are properties beside these, or instead.

    Raises:
        LandingZoneError: see `make_table`.
        TableNameError: a column's name cannot be carried.

    """
    check_column_names(ref, columns)
    properties = {**feed_properties(FEED_DAYS), VECTORS: "true", LIFE_PROPERTY: life, **more}
    skipping = _skipping_columns(columns, keys)
    if skipping and not need_mapping(columns):
        properties[_STATISTICS] = skipping
    make_table(spark, ref, columns, properties, str(ref.name))


def need_mapping(columns: Iterable[AnyColumn]) -> bool:
    """Say whether a name, on any level, can be carried by column mapping alone."""
    return any(map(needs_mapping, (name for column in columns for name in _names(column))))


def _names(column: AnyColumn) -> Iterator[str]:
    yield column.name
    if not isinstance(column, Column):
        yield from names_in(column.dataType)


def _type(column: AnyColumn) -> str:
    return column.sql_type if isinstance(column, Column) else to_ddl(column.dataType)


def _ddl(columns: Iterable[AnyColumn]) -> str:
    return ", ".join(f"{quote(column.name)} {_type(column)}" for column in columns)


def allow_columns(
    spark: SparkSession, ref: TableRef, columns: Iterable[AnyColumn], found: Found
) -> None:
    """Turn on what a table that is there needs for columns: column mapping for names, a feature for times without zone.

    Under a mapping that is turned on, the columns that are there keep their names in the data files.
    """
    columns = tuple(columns)
    wanted: dict[str, str] = {}
    if not found.mapped and need_mapping(columns):
        wanted |= MAPPED
    known = "timestampNtz" in found.features or any(c.sql_type == _NTZ for c in found.columns)
    if not known and any(_NTZ in _type(column) for column in columns):
        wanted |= WALL_CLOCK
    if wanted:
        spark.sql(f"ALTER TABLE {ref.sql} SET TBLPROPERTIES ({to_sql(wanted)})")


def add_columns(
    spark: SparkSession, ref: TableRef, columns: Sequence[AnyColumn], found: Found
) -> None:
    """Add columns at the end, with what they need."""
    allow_columns(spark, ref, columns, found)
    spark.sql(f"ALTER TABLE {ref.sql} ADD COLUMNS ({_ddl(columns)})")


def _taken(shown: str, said: str) -> LandingZoneError:
    """Say which folder keeps a catalog from making a table, and who may have left it there.

    It is not taken over or emptied here: another runner may be making the table in it at this moment.
    """
    place = _LOCATION.search(said)
    msg = "the catalog has no such table, and the folder in which it would make it is not empty"
    step = (
        "A run that was killed while it made the table leaves such a folder, without rows. If nobody needs what is "
        "in it, remove it; the next run makes the table. Else choose another schema."
    )
    found = place["place"] if place else None
    return LandingZoneError(msg, table=shown, found=found, next_step=step)


def _skipping_columns(columns: Columns, keys: Sequence[str]) -> str:
    """Name the key columns that Delta can keep minimum and maximum of."""
    found = (find_key_column(columns, key) for key in keys)
    return ",".join(quote(c.name) for c in found if c is not None and c.sql_type not in _NO_RANGE)


def set_life(spark: SparkSession, ref: TableRef, life: str) -> None:
    """Write on the table which life it belongs to."""
    spark.sql(
        f"ALTER TABLE {ref.sql} SET TBLPROPERTIES ({sql_text(LIFE_PROPERTY)} = {sql_text(life)})"
    )


def free_columns(
    spark: SparkSession, ref: TableRef, columns: Columns, keys: Sequence[str], found: Found
) -> None:
    """Make way for the new columns of a table that is about to be replaced: names, and statistics on the old keys."""
    allow_columns(spark, ref, columns, found)
    if found.properties.get(_STATISTICS, "") not in {"", _skipping_columns(columns, keys)}:
        spark.sql(f"ALTER TABLE {ref.sql} UNSET TBLPROPERTIES ({sql_text(_STATISTICS)})")


def replace_columns(spark: SparkSession, ref: TableRef, old: Columns, columns: Columns) -> None:
    """Drop the *old* columns of an empty table with column mapping, once it has others."""
    here = to_columns(read_table(spark, ref).dtypes)
    missing = tuple(column for column in columns if find_column(here, column.name) is None)
    if missing:
        spark.sql(f"ALTER TABLE {ref.sql} ADD COLUMNS ({_ddl(missing)})")
    dropped = ", ".join(quote(column.name) for column in old)
    spark.sql(f"ALTER TABLE {ref.sql} DROP COLUMNS ({dropped})")


def widen_columns(spark: SparkSession, ref: TableRef, columns: Columns, found: Found) -> None:
    """Change types in place (Delta type widening), turning the feature on when it is first needed."""
    if found.properties.get("delta.enableTypeWidening") != "true":
        spark.sql(f"ALTER TABLE {ref.sql} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    names = [mine.name for mine in found.columns]
    for column in columns:
        spark.sql(
            f"ALTER TABLE {ref.sql} ALTER COLUMN {quote(_spelled(names, column))} TYPE {column.sql_type}"
        )


def rewritten_rows(spark: SparkSession, ref: TableRef, columns: Columns, file: str) -> DataFrame:
    """Return the table's rows with the new types, to be written over it because of *file*.

    Raises:
        SchemaError: a value of the table would change.

    """
    from pyspark.sql import functions as f

    rows = read_table(spark, ref)
    for column in columns:
        old = f.col(quote(column.name))
        was = rows.schema[_spelled(rows.columns, column)].dataType
        kept = old.cast(column.sql_type).cast(was).eqNullSafe(old)
        if (was.simpleString(), column.sql_type) == ("bigint", "double"):
            # Casting back cannot tell: 2^63 as a double comes back as the bigint 2^63 - 1.
            kept = old.isNull() | old.between(-EXACT_IN_DOUBLE, EXACT_IN_DOUBLE)
        if rows.where(~kept).limit(1).collect():
            msg = "a value of the table itself does not fit the type that would hold both"
            found = f"{was.simpleString()} in the table, {sql_type(column.type)} wanted"
            step = f"Start the table over: mirrorlib reset TARGET {ref.name}"
            raise SchemaError(
                msg,
                table=str(ref.name),
                file=file,
                column=column.name,
                found=found,
                next_step=step,
            )
    types = {fold_name(column.name): column.sql_type for column in columns}
    return rows.select(
        *[
            f.col(quote(name)).cast(types[fold_name(name)]).alias(name)
            if fold_name(name) in types
            else quote(name)
            for name in rows.columns
        ]
    )


def _spelled(names: Iterable[str], column: Column) -> str:
    return find_name(names, column.name) or column.name


def check_vacant(ref: TableRef, shown: str) -> None:
    """See that no table is made among somebody's files."""
    there = open_store(ref.path).list_folder("") if ref.path is not None else None
    if there is None or "_delta_log" in there.folders or not (there.folders or there.files):
        return
    first = (*there.folders, *(file.name for file in there.files))[0]
    msg = "the target is a folder with other files in it"
    step = "Choose another target, or empty the folder."
    raise LandingZoneError(msg, table=shown, found=f"{first} in {ref.path}", next_step=step)


def check_column_names(ref: TableRef, columns: Iterable[Column]) -> None:
    """See that a mirror can carry columns of these names.

    Raises:
        TableNameError: it cannot.

    """
    for name in (column.name for column in columns):
        if len(name) > _LONGEST_COLUMN or any(
            ord(character) < ord(" ") and character not in "\n\t" for character in name
        ):
            msg = "the column's name cannot be carried: it is too long or has a control character in it"
            raise TableNameError(msg, table=str(ref.name), column=ascii(name)[1:-1][:80])
