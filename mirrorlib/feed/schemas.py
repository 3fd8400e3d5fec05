"""Compare a table's schemas over time, and tell old rows in a new one.

In: schemas as metadata has them, with the names that column mapping gives. Promise: a column or field
follows its name in the data files, at any depth; one that a row has not is NULL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from mirrorlib.delta.actions import Metadata
from mirrorlib.delta.columns import is_same, widening
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.ddl import EXACT_IN_DOUBLE
from mirrorlib.delta.properties import PAUSED
from mirrorlib.errors import FeedError
from mirrorlib.identifiers import find_name, fold_name, quote
from mirrorlib.landing.types import WALL_CLOCK, widens_in_place
from mirrorlib.nested import names_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

    _Tell: TypeAlias = Callable[[StructField, DataType], Column]
    _NameOf: TypeAlias = Callable[[StructField], str]  # what fields are known by

# What SQL calls types that Spark's JSON calls otherwise.
_SQL = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_DAY = 86_400  # seconds
_TOO_LONG = (
    "A bigint of an older version does not fit the double that its column has become since. "
    "Read the versions before that by themselves, with `until`."
)
_CHANGES = "delta.typeChanges"  # where Delta notes at a field what its type was
_INNER = ("elementType", "keyType", "valueType")  # of arrays and maps


def physical_name(column: Mapping[str, Any]) -> str:
    """Return the name that a column has in the data files, which renaming it leaves as it is."""
    found: str = column.get("metadata", {}).get("delta.columnMapping.physicalName", column["name"])
    return found.lower()


def physical_names(metadata: Metadata) -> dict[str, str]:
    """Say which column of the data files each name stands for, at any depth: without column mapping its own."""
    return dict(_physical_names(metadata.schema, ""))


def _physical_names(kind: object, place: str) -> Iterator[tuple[str, str]]:
    if not isinstance(kind, Mapping):
        return
    for field in kind.get("fields", ()):
        # A column is called by its name alone, a field of one by its way there.
        name = f"{place}.{quote(field['name'])}" if place else field["name"]
        yield name, physical_name(field)
        yield from _physical_names(field["type"], place=name if place else quote(name))
    for part in _INNER:
        yield from _physical_names(kind.get(part), f"{place}.{part}")


def spans(before: Metadata, became: Metadata) -> bool:
    """Say whether rows of both can be read in one go: all that was there still is, under its name and type.

    And in files or their folders as it was: Delta takes the newest partition columns for those of every file.
    """
    return before is became or (
        before.mapped == became.mapped
        and before.partitions == became.partitions
        and _holds(before.schema, became.schema)
    )


def widens(before: Metadata, became: Metadata) -> bool:
    """Say whether all that was there still is, with its type or one that Delta has widened it to in place, and noted.

    What somebody wrote over in wider types is not noted, and Spark 3.5 cannot read all of its old files so.
    """
    enabled = became.properties.get("delta.enableTypeWidening") == "true"
    alike = before.mapped == became.mapped and before.partitions == became.partitions
    return enabled and alike and _holds(before.schema, became.schema, widened=True)


def keeps(before: Metadata, became: Metadata) -> bool:
    """Say whether rows that nobody has touched read as before: all columns that were there are the very same."""
    was, now = (
        {fold_name(one["name"]): (physical_name(one), one["type"]) for one in each.schema["fields"]}
        for each in (before, became)
    )
    same = all(now.get(name) == column for name, column in was.items())
    return same and before.partitions == became.partitions


def _holds(old: object, new: object, *, widened: bool = False, noted: bool = False) -> bool:
    """Say whether a type, in Spark's JSON, has all of another in it, whatever fields it has besides.

    If *widened* types do, then where it is *noted* at their field.
    """
    if isinstance(old, str) and isinstance(new, str):
        return old == new or (widened and noted and widens_to(old, new))
    if not (isinstance(old, Mapping) and isinstance(new, Mapping) and old["type"] == new["type"]):
        return False
    fields = {fold_name(field["name"]): field for field in new.get("fields", ())}
    return all(
        (now := fields.get(fold_name(was["name"]))) is not None
        and physical_name(now) == physical_name(was)
        and _holds(
            was["type"], now["type"], widened=widened, noted=_CHANGES in now.get("metadata", ())
        )
        for was in old.get("fields", ())
    ) and all(
        _holds(old[part], new[part], widened=widened, noted=noted) for part in _INNER if part in old
    )


def widens_to(old: object, new: object) -> bool:
    """Say whether Delta can widen one type to the other in place, both as in Spark's JSON."""
    if not (isinstance(old, str) and isinstance(new, str)):
        return False
    types = widening(_SQL.get(old, old), _SQL.get(new, new))
    return types is not None and (types == (pa.date32(), WALL_CLOCK) or widens_in_place(*types))


def tell_columns(frame: DataFrame, was: StructType, becomes: StructType) -> list[Column]:
    """Tell rows that were written in one schema as another has them; *frame* may have wider types and more fields."""
    from pyspark.sql import functions as f

    def tell(found: StructField, kind: DataType) -> Column:
        name = find_name(frame.columns, found.name) or found.name  # its case may have changed since
        value, given = f.col(quote(name)), frame.schema[name].dataType
        same = found.dataType == kind and given.simpleString() == kind.simpleString()
        return value if same else _tell(value, found.dataType, kind, _name_in_files)

    return _tell_fields(was, becomes, tell, _name_in_files)


def in_its_order(rows: DataFrame, schema: StructType) -> DataFrame:
    """Give the structs of rows a table's order of fields: Spark unites and compares them by place, not by name."""
    from pyspark.sql import functions as f

    wanted = {fold_name(field.name): field.dataType for field in schema.fields}
    turned = {}
    for field in rows.schema.fields:
        kind, becomes = field.dataType, wanted.get(fold_name(field.name), field.dataType)
        if is_same(kind, becomes) and names_in(kind) != names_in(becomes):
            turned[field.name] = _tell(f.col(quote(field.name)), kind, becomes, _folded_name)
    return rows.withColumns(turned) if turned else rows


def _name_in_files(field: StructField) -> str:
    return physical_name(field.jsonValue())


def _folded_name(field: StructField) -> str:
    return fold_name(field.name)


def _tell_fields(
    was: StructType, becomes: StructType, tell: _Tell, name_of: _NameOf
) -> list[Column]:
    from pyspark.sql import functions as f

    old = {name_of(field): field for field in was.fields}
    columns = []
    for field in becomes.fields:
        found, kind = old.get(name_of(field)), field.dataType
        value = f.lit(None).cast(kind) if found is None else tell(found, kind)
        columns.append(value.alias(field.name))
    return columns


def _tell(value: Column, was: DataType, becomes: DataType, name_of: _NameOf) -> Column:
    """Rebuild a value field by field: a cast would take the fields of structs by their places, not by their names."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(was, StructType) and isinstance(becomes, StructType):

        def tell(found: StructField, kind: DataType) -> Column:
            return _tell(value.getField(found.name), found.dataType, kind, name_of)

        return f.when(value.isNotNull(), f.struct(*_tell_fields(was, becomes, tell, name_of)))
    if isinstance(was, ArrayType) and isinstance(becomes, ArrayType):
        items = (was.elementType, becomes.elementType, name_of)
        return f.transform(value, lambda item: _tell(item, *items))
    if isinstance(was, MapType) and isinstance(becomes, MapType):
        keys = (was.keyType, becomes.keyType, name_of)
        values = (was.valueType, becomes.valueType, name_of)
        value = f.transform_keys(value, lambda key, _: _tell(key, *keys))
        return f.transform_values(value, lambda _, item: _tell(item, *values))
    if (was.simpleString(), becomes.simpleString()) == ("bigint", "double"):
        exact = value.isNull() | value.between(-EXACT_IN_DOUBLE, EXACT_IN_DOUBLE)
        return f.when(exact, value.cast(becomes)).otherwise(f.raise_error(f.lit(_TOO_LONG)))
    if (was.simpleString(), becomes.simpleString()) == ("date", "timestamp"):
        # As the table's rows were written again: no midnight of the reader's own session.
        return f.timestamp_seconds(f.unix_date(value).cast("bigint") * _DAY)
    return value.cast(becomes)


def renewed_columns(commits: Commits, after: int, until: int) -> dict[str, str]:
    """Say what names in the data files have become of older ones in versions (after, until], as far as the log tells.

    The log is only gone through where a property says that a rewrite of this kind has been.
    """
    renewed: dict[str, str] = {}
    with contextlib.suppress(FeedError):  # what came before is told by nobody
        if PAUSED not in commits.metadata_at(max(until, 0)).properties:
            return renewed
        for number in range(until, max(after, commits.first), -1):
            commit = commits.glance(number)
            if commit.metadata is None or not commit.rewrites:
                continue
            became = physical_names(commit.metadata).items()
            now = {fold_name(name): physical for name, physical in became}
            for name, old in physical_names(commits.metadata_at(number - 1)).items():
                new = now.get(fold_name(name), old)
                if new != old:
                    renewed[old] = renewed.get(new, new)
    return renewed


def renew(metadata: Metadata, renewed: Mapping[str, str]) -> Metadata:
    """Name a schema's columns in the data files as they are named now."""
    fields = [
        {**field, "metadata": {**field["metadata"], "delta.columnMapping.physicalName": new}}
        if (new := renewed.get(physical_name(field))) is not None
        else field
        for field in metadata.schema["fields"]
    ]
    return replace(metadata, schema={**metadata.schema, "fields": fields})
