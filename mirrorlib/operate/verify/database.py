"""Bring what a database holds of a table, as text, to Spark by way of a file, and give it its types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, IntegralType, StructType

from mirrorlib.commit.stage import Stage
from mirrorlib.delta.sessions import file_reader
from mirrorlib.errors import SchemaError
from mirrorlib.feed.exact_text import JSON_OPTIONS
from mirrorlib.identifiers import find_name

_ROWS = 10_000  # that are written at a time


def write_texts(
    stage: Stage, names: Sequence[str], rows: Iterable[tuple[str | None, ...]]
) -> DataFrame:
    """Write rows of text where Spark can read them; columns are numbered, so that names clash with nothing."""
    path, rest = f"{stage.folder}/rows.parquet", iter(rows)
    schema = pa.schema([(f"c{place}", pa.string()) for place in range(len(names))])
    with (
        stage.state.open_new(path) as file,
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        while some := [*islice(rest, _ROWS)]:
            columns = [pa.array(column, pa.string()) for column in zip(*some, strict=True)]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    ddl = ", ".join(f"{name} string" for name in schema.names)
    return file_reader(stage.spark, ddl).parquet(stage.state.uri(path))


def typed_rows(texts: DataFrame, names: Sequence[str], schema: StructType, table: str) -> DataFrame:
    """Give a database's text the types of the table's columns."""
    values: list[Column] = []
    unfit: list[Column] = []
    for field in schema.fields:
        if (name := find_name(names, field.name)) is not None:
            text = f"c{names.index(name)}"
            value = _value(text, field.dataType)
            values.append(value.alias(field.name))
            misspelt = value.isNull() | ~f.rlike(f.col(text), f.lit(_spelling(field.dataType)))
            unfit.append(f.max(f.isnotnull(text) & misspelt).alias(field.name))
    found = texts.agg(*unfit).collect()[0].asDict()
    for name in (name for name, is_unfit in found.items() if is_unfit):
        msg = "the database holds a value that is none of the column's type"
        step = "Correct it there, or let a snapshot replace the table."
        raise SchemaError(msg, table=table, column=name, next_step=step)
    return texts.select(*values)


def _spelling(kind: DataType) -> str:
    """Return the pattern of text that an export writes, where a cast would make a value of more than that.

    Also where the column has stayed of a wider type: zeros behind the scale, midnight behind a day.
    """
    name = kind.typeName()
    if name == "decimal":
        scale = kind.jsonValue().partition(",")[2].strip(" )")  # type: ignore[union-attr]  # "decimal(10,2)"
        return r"^-?\d+(\.0+)?$" if scale == "0" else rf"^-?\d+\.\d{{{scale}}}0*$"
    day = r"^[+-]?\d{4,}-\d\d-\d\d( 00:00:00(\+00(:00)?)?)?$"
    return {"boolean": "^(true|false|0|1)$", "date": day}.get(name, "")


def _value(text: str, kind: DataType) -> Column:
    """Read the column *text* as a type; NULL where that cannot be."""
    if kind.typeName() in {"struct", "array"}:
        return f.from_json(text, kind, JSON_OPTIONS)  # type: ignore[arg-type]  # of any type
    if kind.typeName() == "binary":
        return f.expr(f"unhex(substr({text}, 3))")  # behind \\x
    if isinstance(kind, IntegralType):  # whose column may have stayed of a wider type
        text = f"regexp_replace({text}, '[.]0+$', '')"
    return f.expr(f"try_cast({text} AS {kind.simpleString()})")
