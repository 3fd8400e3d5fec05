"""`_metadata.json` is written as the format has it, and our reader reads back what was meant."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlib.errors import MetadataError, SchemaError
from mirrorlib.landing.metadata.declared import DefinedColumn, TableMetadata
from mirrorlib.landing.metadata.reading import parse_metadata
from mirrorlib.landing.publish.declare import (
    CSV_PROPERTIES,
    Wanted,
    metadata_bytes,
    partner_bytes,
    published_type,
    settle_metadata,
)


def settled(
    stated: TableMetadata | None = None, *, force: bool = False, **wanted: Any
) -> TableMetadata:
    """Bring together what is stated and what is wanted."""
    return settle_metadata(Wanted(**wanted, force=force), stated, table="t")


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(
    lambda name: name == name.strip()
)
COLUMNS = st.lists(
    st.builds(
        DefinedColumn,
        name=NAMES,
        data_type=st.sampled_from(["Int64", "String", "DateTime"]),
        nullable=st.booleans(),
    ),
    max_size=4,
).map(tuple)


@given(
    keys=st.lists(NAMES, min_size=1, max_size=3, unique_by=str.casefold).map(tuple),
    csv=st.booleans(),
    upsert=st.booleans(),
    partition=st.booleans(),
    columns=COLUMNS,
    partial=st.sampled_from([None, "absent", "listed:c"]),
)
def test_our_reader_reads_back_what_was_declared(
    keys: tuple[str, ...],
    csv: bool,
    upsert: bool,
    partition: bool,
    columns: Any,
    partial: str | None,
) -> None:
    """Every property, whatever the names hold, and without a repair."""
    made = settled(
        keys=keys,
        file_format="csv" if csv else "parquet",
        partition_by=("p",) if partition else None,
    )
    made = replace(
        made,
        upsert_default=upsert,
        partial_updates=partial,
        schema_definition=columns if csv else (),
    )

    read = parse_metadata(metadata_bytes(made), "t")

    assert made == read


def test_what_is_stated_stays_as_it_is() -> None:
    """Nothing wanted, nothing changed: what others wrote is not rewritten."""
    stated = TableMetadata(
        key_columns=("id",), upsert_default=True, conditional_update="n", unknown=("x",)
    )

    assert stated == settled(stated)
    assert stated == settled(stated, keys=("ID",), file_format="parquet")
    typed = replace(
        stated,
        file_format="parquet",
        schema_definition=(DefinedColumn(name="id", data_type="Int64", nullable=None),),
    )
    assert typed == settled(typed)


def test_forced_changes_keep_what_they_do_not_touch() -> None:
    """`force` changes what is named, and no more."""
    made = settled(keys=("id",), file_format="csv")
    stated = replace(made, conditional_update="n", partial_updates="absent", upsert_default=True)

    forced = settled(stated, force=True, partition_by=("p",))

    assert replace(stated, partitioned=True) == forced
    other = settled(forced, force=True, file_format="parquet")
    assert not other.is_text
    assert ("n", "absent", True) == (
        other.conditional_update,
        other.partial_updates,
        other.upsert_default,
    )
    assert ("b",) == settled(stated, force=True, keys=("b",)).key_columns


@pytest.mark.parametrize(
    "stated,wanted,error",
    [
        (TableMetadata(key_columns=("a",)), {"keys": ("b",)}, SchemaError),
        (TableMetadata(key_columns=("a",)), {"file_format": "csv"}, MetadataError),
        (TableMetadata(file_format="delimited"), {}, MetadataError),
        (TableMetadata(detection="last_update_time"), {"force": True}, MetadataError),
    ],
)
def test_contradictions_are_refused(
    stated: TableMetadata | None, wanted: dict[str, Any], error: type[Exception]
) -> None:
    """Other keys, another format, another publisher's delimited text, files by time."""
    with pytest.raises(error):
        settled(stated, **wanted)


def test_our_own_delimited_text_is_continued() -> None:
    """Its properties are ours."""
    stated = parse_metadata(metadata_bytes(settled(keys=("id",), file_format="csv")), "t")

    assert stated == settled(stated)
    assert dict(CSV_PROPERTIES) == dict(stated.format_properties)


def test_delimited_text_that_is_declared_alike_in_other_words_is_continued() -> None:
    """What it means counts, and what is declared stays as it is."""
    stated = settled(keys=("id",), file_format="csv")
    said = {**CSV_PROPERTIES, "FirstRowAsHeader": "True", "Encoding": "utf8", "RowSeparator": "\\n"}
    alike = replace(stated, format_properties=said)

    assert alike == settled(alike)
    with pytest.raises(MetadataError, match="in another way"):
        settled(replace(stated, format_properties={**said, "EscapeCharacter": "\\"}))


@pytest.mark.parametrize(
    "stored,kind,name",
    [
        (pa.int8(), pa.int16(), "Int16"),
        (pa.uint16(), pa.int32(), "Int32"),
        (pa.int64(), pa.int64(), "Int64"),
        (pa.float16(), pa.float32(), "Single"),
        (pa.float64(), pa.float64(), "Double"),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us"), "DateTime"),
        (pa.date64(), pa.date32(), "IDate"),
        (pa.time64("us"), pa.string(), "ITime"),
        (pa.bool_(), pa.bool_(), "Boolean"),
        (pa.large_binary(), pa.binary(), "ByteArray"),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), "String"),
        (pa.decimal128(5, 2), None, ""),
    ],
)
def test_delimited_text_names_its_types(
    stored: pa.DataType, kind: pa.DataType | None, name: str
) -> None:
    """Eleven words, and none for decimals."""
    assert (kind, name) == published_type(stored, text=True)


def test_partner_events_are_the_documented_ones() -> None:
    """A name, a source, and its version when it is known."""
    info = {"sourceType": "SQL", "sourceVersion": "2019"}

    assert {"partnerName": "p", "sourceInfo": info} == json.loads(partner_bytes("p", "SQL", "2019"))
    assert {"sourceType": "SQL"} == json.loads(partner_bytes("p", "SQL", None))["sourceInfo"]
