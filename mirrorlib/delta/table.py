"""The Delta table of a mirror: where it lies, what it is, how it is created, widened and rewritten.

In: a `Target` and a table's name. Out: `TableRef` (how SQL, writers and the log address it) and
`Found` (id, columns, properties). Creating and widening are commits of their own and idempotent: a
second runner finds what the first has done. Names reach SQL only through `quote`. Properties of a
new table: design §6, "New tables".
Also the schema and version of a table that others may write meanwhile, see `find_target`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mirrorlib.delta.columns import (
    Column,
    Columns,
    find_column,
    find_key_column,
    needs_mapping,
    sql_type,
    to_columns,
)
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.log import FileLog, HistoryLog, TableLog, commit_path
from mirrorlib.delta.properties import (
    FEED_DAYS,
    LIFE_PROPERTY,
    MAPPED,
    MAPPING,
    READERS_PROPERTY,
    VECTORS,
    WALL_CLOCK,
    feed_properties,
    to_sql,
)
from mirrorlib.errors import LandingZoneError, SchemaError, StoreError, TableNameError
from mirrorlib.identifiers import find_name, fold_name, quote, sql_text
from mirrorlib.names import TableName
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from mirrorlib.journal.entries import Readers
    from mirrorlib.store import Store
    from mirrorlib.store.target import Target

_STATISTICS = "delta.dataSkippingStatsColumns"
_LONGEST_COLUMN = 255
_NOT_EMPTY = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
_LOCATION = re.compile(r"location \('(?P<place>[^']+)'\)")
_NO_RANGE = frozenset({"boolean", "binary"})  # Delta refuses them as dataSkippingStatsColumns
EXACT_IN_DOUBLE = 1 << 53


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRef:
    """How one table is addressed.

    Attributes:
        name: the table in the landing zone.
        sql: quoted, for SQL.
        path: for reader and writer by path; None for a table of a catalog.

    """

    name: TableName
    sql: str
    path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a Delta table is at this moment.

    Attributes:
        id: Delta's.
        bytes: its size.
        columns: those that a mirror can have.
        foreign: the others, which somebody has added by hand: their Spark types by name.
        properties: the table's.
        location: where its files lie.
        features: the names of the features that its protocol lists.

    """

    id: str
    bytes: int
    columns: Columns
    foreign: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str]
    location: str
    features: frozenset[str] = frozenset()

    @property
    def mapped(self) -> bool:
        """Say whether the table has column mapping, which lets a column have any name."""
        return self.properties.get(MAPPING, "none") != "none"

    @property
    def readers(self) -> Readers | None:
        """Return whom the table is for, as it remembers."""
        return "plain" if self.properties.get(READERS_PROPERTY) == "plain" else None

    @property
    def vectors(self) -> bool:
        """Say whether commits may leave deletion vectors."""
        return self.properties.get(VECTORS) == "true"


def refer(target: Target, name: TableName) -> TableRef:
    """Address a table of the target."""
    if target.catalog is None:
        path = open_store(target.place).uri(name.path)
        return TableRef(name=name, sql=f"delta.{quote(path)}", path=path)
    parts = (target.catalog, target.place, name.table)
    return TableRef(name=name, sql=".".join(quote(part) for part in parts), path=None)


def find_table(spark: SparkSession, ref: TableRef) -> Found | None:
    """Look at the Delta table; None when there is none.

    Raises:
        LandingZoneError: something that is no Delta table has its place.

    """
    if not _exists(spark, ref):
        return None
    detail = spark.sql(f"DESCRIBE DETAIL {ref.sql}").collect()[0]
    if detail["format"] != "delta":
        msg = "the target is not a Delta table"
        raise LandingZoneError(
            msg, table=str(ref.name), found=detail["format"], next_step="Choose another target."
        )
    fields = read_table(spark, ref).schema.fields
    types = {one.name: one.dataType.simpleString() for one in fields}
    columns = to_columns(types.items())
    known = {column.name for column in columns}
    return Found(
        id=detail["id"],
        bytes=detail["sizeInBytes"] or 0,
        columns=columns,
        foreign={name: kind for name, kind in types.items() if name not in known},
        properties=dict(detail["properties"]),
        location=detail["location"],
        features=frozenset(detail["tableFeatures"] or ()),
    )


def find_location(spark: SparkSession, ref: TableRef) -> str | None:
    """Return where a catalog keeps the table; None for a table by path, and while there is none."""
    if ref.path is not None or not _exists(spark, ref):
        return None
    return str(spark.sql(f"DESCRIBE DETAIL {ref.sql}").collect()[0]["location"])


def open_log(spark: SparkSession, ref: TableRef, location: str | None) -> TableLog:
    """Choose the way to the table's commits: its own files, or the catalog's history where those are closed to us."""
    place = ref.path if ref.path is not None else location
    if place is None:
        return HistoryLog(spark, ref.sql)
    try:
        store = open_store(place)
        readable = ref.path is not None or store.list_folder("_delta_log") is not None
    except (LandingZoneError, StoreError):
        readable = False
    return FileLog(store) if readable else HistoryLog(spark, ref.sql)


def read_table(spark: SparkSession, ref: TableRef) -> DataFrame:
    """Return the table's rows."""
    return spark.table(ref.sql) if ref.path is None else spark.read.format("delta").load(ref.path)


def create_table(
    spark: SparkSession,
    ref: TableRef,
    columns: Columns,
    keys: Sequence[str],
    life: str,
    more: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Create an empty mirror table: feed on, deletion vectors on, statistics on the keys; nothing when it is there.

    *more* are properties beside these, or instead.

    Raises:
        LandingZoneError: the table's folder holds something else, or what a killed run has left in a catalog's.
        TableNameError: a column's name cannot be carried.

    """
    check_vacant(ref)
    properties = {
        **feed_properties(FEED_DAYS),
        VECTORS: "true",
        LIFE_PROPERTY: life,
        **more,
    }
    for column in columns:
        _check_column_name(ref, column.name)
    skipping = _skipping_columns(columns, keys)
    if any(needs_mapping(column.name) for column in columns):
        properties |= MAPPED
    elif skipping:
        properties[_STATISTICS] = skipping
    ddl = ", ".join(column.ddl for column in columns)
    told = to_sql(properties)
    try:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {ref.sql} ({ddl}) USING delta TBLPROPERTIES ({told})"
        )
    except Exception as exc:  # some of Delta's refusals are PySpark's errors, others Py4J's
        if _NOT_EMPTY not in str(exc):
            raise
        raise _taken(ref, str(exc)) from exc


def _taken(ref: TableRef, said: str) -> LandingZoneError:
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
    return LandingZoneError(msg, table=str(ref.name), found=found, next_step=step)


def _skipping_columns(columns: Columns, keys: Sequence[str]) -> str:
    """Name the key columns that Delta can keep minimum and maximum of."""
    found = (find_key_column(columns, key) for key in keys)
    return ",".join(quote(c.name) for c in found if c is not None and c.sql_type not in _NO_RANGE)


def drop_table(spark: SparkSession, ref: TableRef) -> None:
    """Remove a table with all its rows and files; nothing happens when there is none."""
    if ref.path is None:
        spark.sql(f"DROP TABLE IF EXISTS {ref.sql}")
        return
    store = open_store(ref.path)
    there = store.list_folder("")
    for folder in there.folders if there else ():
        if folder != "_delta_log":  # last: what is left without it is nobody's table
            store.delete_folder(folder)
    for file in there.files if there else ():
        store.delete(file.path)
    store.delete_folder("_delta_log")
    store.delete_folder("")


def set_life(spark: SparkSession, ref: TableRef, life: str) -> None:
    """Write on the table which life it belongs to."""
    spark.sql(
        f"ALTER TABLE {ref.sql} SET TBLPROPERTIES ({sql_text(LIFE_PROPERTY)} = {sql_text(life)})"
    )


def free_columns(
    spark: SparkSession, ref: TableRef, columns: Columns, keys: Sequence[str], found: Found
) -> None:
    """Make way for the new columns of a table that is about to be replaced: names, and statistics on the old keys."""
    if not found.mapped and any(needs_mapping(column.name) for column in columns):
        _map_columns(spark, ref)
    allow_wall_clock(spark, ref, tuple(c for c in columns if c not in found.columns))
    if found.properties.get(_STATISTICS, "") not in {"", _skipping_columns(columns, keys)}:
        spark.sql(f"ALTER TABLE {ref.sql} UNSET TBLPROPERTIES ({sql_text(_STATISTICS)})")


def _map_columns(spark: SparkSession, ref: TableRef) -> None:
    """Turn column mapping on; the columns that are there keep their names in the data files."""
    spark.sql(f"ALTER TABLE {ref.sql} SET TBLPROPERTIES ({to_sql(MAPPED)})")


def add_columns(spark: SparkSession, ref: TableRef, columns: Columns, found: Found) -> None:
    """Add columns at the end; column mapping is turned on for a name that needs it.

    Raises:
        TableNameError: a column's name cannot be carried.

    """
    for column in columns:
        _check_column_name(ref, column.name)
    if not found.mapped and any(needs_mapping(column.name) for column in columns):
        _map_columns(spark, ref)
    allow_wall_clock(spark, ref, columns)
    spark.sql(f"ALTER TABLE {ref.sql} ADD COLUMNS ({', '.join(column.ddl for column in columns)})")


def replace_columns(spark: SparkSession, ref: TableRef, old: Columns, columns: Columns) -> None:
    """Drop the *old* columns of an empty table with column mapping, once it has others."""
    here = to_columns(read_table(spark, ref).dtypes)
    missing = tuple(column for column in columns if find_column(here, column.name) is None)
    if missing:
        spark.sql(f"ALTER TABLE {ref.sql} ADD COLUMNS ({', '.join(c.ddl for c in missing)})")
    dropped = ", ".join(quote(column.name) for column in old)
    spark.sql(f"ALTER TABLE {ref.sql} DROP COLUMNS ({dropped})")


def allow_wall_clock(spark: SparkSession, ref: TableRef, columns: Columns) -> None:
    """Turn on what a table that is there needs for columns without a zone, if some of these are."""
    if any(column.sql_type == "timestamp_ntz" for column in columns):
        spark.sql(f"ALTER TABLE {ref.sql} SET TBLPROPERTIES ({to_sql(WALL_CLOCK)})")


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


def _exists(spark: SparkSession, ref: TableRef) -> bool:
    if ref.path is None:
        return spark.catalog.tableExists(ref.sql)
    # A runner that was killed while it made the table leaves a log with drafts in it and no commit.
    return FileLog(open_store(ref.path)).newest() is not None


def check_vacant(ref: TableRef) -> None:
    """See that no table is made among somebody's files."""
    there = open_store(ref.path).list_folder("") if ref.path is not None else None
    if there is None or "_delta_log" in there.folders or not (there.folders or there.files):
        return
    first = (*there.folders, *(file.name for file in there.files))[0]
    msg = "the target is a folder with other files in it"
    step = "Choose another target, or empty the folder."
    raise LandingZoneError(msg, table=str(ref.name), found=f"{first} in {ref.path}", next_step=step)


def _check_column_name(ref: TableRef, name: str) -> None:
    if len(name) > _LONGEST_COLUMN or any(
        ord(character) < ord(" ") and character not in "\n\t" for character in name
    ):
        msg = "the column's name cannot be carried: it is too long or has a control character in it"
        raise TableNameError(msg, table=str(ref.name), column=ascii(name)[1:-1][:80])


def find_target(spark: SparkSession, ref: TableRef) -> tuple[Found, StructType] | None:
    """Look at a table; None when there is none.

    Raises:
        LandingZoneError: something that is no Delta table has its place.

    """
    from pyspark.sql.types import StructType

    if ref.path is None:
        found = find_table(spark, ref)
        return None if found is None else (found, read_table(spark, ref).schema)
    store = open_store(ref.path)
    version = FileLog(store).newest()
    if version is None:
        return None
    metadata = Commits(store, str(ref.name)).metadata_at(version)
    schema = StructType.fromJson(dict(metadata.schema))
    size = _size(store, version)
    if size is None:
        size = spark.sql(f"DESCRIBE DETAIL {ref.sql}").collect()[0]["sizeInBytes"]
    found = Found(
        id=metadata.id,
        bytes=size or 0,
        columns=to_columns((field.name, field.dataType.simpleString()) for field in schema.fields),
        properties=metadata.properties,
        location=ref.path,
    )
    return found, schema


def read_checksum(store: Store, version: int) -> Mapping[str, Any]:
    """Read what the writer of a version has noted of the table as a whole; nothing where it has not, or not yet.

    Source: Delta PROTOCOL.md, "Version Checksum File".
    """
    data = store.read(commit_path(version).removesuffix("json") + "crc")
    try:
        told: Any = json.loads(data or b"{}")
    except ValueError:  # it is not written at once
        return {}
    return told if isinstance(told, dict) else {}


def _size(store: Store, version: int) -> int | None:
    """Return a table's bytes, where the writer of its newest version has told them."""
    size = read_checksum(store, version).get("tableSizeBytes")
    return size if isinstance(size, int) else None
