"""Make everything that is to be written, checked and encoded, before anything is; then declare the table.

In: rows, what the caller wants, and what the table folder shows. Out: a `Draft`: metadata, schema and
whole change files, one for each partition folder. Bad input ends here, and has written nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.errors import MetadataError, SchemaError
from mirrorlib.identifiers import fold_name
from mirrorlib.landing.metadata.declared import METADATA_NAME, DefinedColumn, TableMetadata
from mirrorlib.landing.metadata.partner import PARTNER_FILE
from mirrorlib.landing.metadata.reading import parse_metadata
from mirrorlib.landing.publish.checks import Fitted, fit_rows
from mirrorlib.landing.publish.claims import Content, Place
from mirrorlib.landing.publish.columns import Given
from mirrorlib.landing.publish.declare import (
    Wanted,
    format_of,
    metadata_bytes,
    settle_metadata,
)
from mirrorlib.landing.publish.known import KnownSchema, adopt_known, read_known, write_known
from mirrorlib.landing.publish.rows import INSERT, UPSERT, Rows, encode_rows, missing_column
from mirrorlib.names import NO_VALUE, is_ignored
from mirrorlib.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 32)}
_LONGEST = 255  # bytes: what every file system takes as one name


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderState:
    """What a table folder showed last.

    Attributes:
        etag: the metadata file's identity, None when there is no such file.
        metadata: what it says.
        known: the published schema, None when nothing was published.
        taken: the last number of each partition that this process knows to be taken.

    """

    etag: str | None = None
    metadata: TableMetadata | None = None
    known: KnownSchema | None = None
    taken: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Everything that is to be written: metadata, schema, and the change files by their places."""

    metadata: TableMetadata
    fitted: Fitted
    contents: tuple[tuple[Place, Content], ...]


def read_state(zone: Store, folder: str, state: FolderState, *, table: str) -> FolderState:
    """Look at a table folder again; other metadata means that all may be another.

    Raises:
        MetadataError: the metadata cannot be understood.
        SchemaError, StoreError: what was published before cannot be read.

    """
    path = f"{folder}/{METADATA_NAME}"
    there = zone.stat(path)
    if there is None:
        return FolderState(known=read_known(zone, folder))
    if there.etag != state.etag:
        metadata = parse_metadata(zone.read(path) or b"", table)
        state = FolderState(etag=there.etag, metadata=metadata)
    known = read_known(zone, folder, state.known)
    if known is None and state.known is None:
        known = adopt_known(zone, folder, state.metadata, table=table)
    return replace(state, known=known or state.known)


def partitions(
    wanted: Wanted, state: FolderState, *, table: str, force: bool = False
) -> tuple[str, ...]:
    """Give the columns that name the partition folders.

    Raises:
        MetadataError: they are not known, or would be others than before.

    """
    before = state.known.partition_by if state.known else None
    asked = wanted.partition_by
    if before is not None and asked is not None and before != asked and not force:
        msg = f"the table is partitioned by {', '.join(before) or 'nothing'} already"
        step = "Leave the partitioning out, or delete the table folder and publish the table anew."
        raise MetadataError(msg, table=table, found=", ".join(asked), next_step=step)
    if asked is None and not before and state.metadata is not None and state.metadata.partitioned:
        msg = "the table has partition folders, and nothing says by which columns"
        raise MetadataError(msg, table=table, next_step="Give the columns to partition by.")
    return asked or before or ()


def make_draft(
    rows: Rows,
    state: FolderState,
    wanted: Wanted,
    *,
    folder: str,
    table: str,
    force: bool,
) -> Draft:
    """Check rows and encode them.

    Raises:
        MarkerError, MetadataError, SchemaError: see `LandingTable.write`.

    """
    metadata = settle_metadata(wanted, state.metadata, table=table, force=force)
    by = partitions(wanted, state, table=table, force=force)
    file_format = format_of(metadata)
    given = Given(
        table=table,
        keys=metadata.key_columns,
        file_format=file_format,
        upsert_default=metadata.upsert_default,
        known=state.known or KnownSchema(),
        partition_by=by,
        force=force,
    )
    fitted = fit_rows(rows, given)
    default = UPSERT if metadata.upsert_default else INSERT
    contents = [
        (
            Place(table=table, folder=folder, partition=partition),
            Content(
                data=encode_rows(part, file_format),
                extension=file_format,
                rows=part.data.num_rows,
                markers=part.counts(default),
            ),
        )
        for partition, part in split_partitions(fitted.rows, by, table=table)
    ]
    spelled = _spelled(metadata, fitted, state, force=force)
    return Draft(metadata=spelled, fitted=fitted, contents=tuple(contents))


def declare(
    zone: Store, folder: str, draft: Draft, state: FolderState, partner: bytes | None
) -> bool:
    """Write down what is new: the zone's partner, the table's schema, its metadata, in this order.

    False when another writer was first with something else: look again, and make another draft.
    """
    if partner is not None and zone.stat(PARTNER_FILE) is None:
        zone.put_new(PARTNER_FILE, partner)
    known = draft.fitted.known
    new = state.known is None or known != state.known
    if new and not write_known(zone, folder, known):
        return False
    if draft.metadata == state.metadata:
        return True
    path, data = f"{folder}/{METADATA_NAME}", metadata_bytes(draft.metadata)
    if state.metadata is not None:
        zone.put(path, data)
        return True
    return zone.put_new(path, data) or zone.read(path) == data


def _spelled(
    metadata: TableMetadata, fitted: Fitted, state: FolderState, *, force: bool
) -> TableMetadata:
    """Spell new keys as the columns are, and declare the types of delimited text."""
    if state.metadata is None or state.metadata.key_columns != metadata.key_columns:
        names = {fold_name(column.name): column.name for column in fitted.known.columns}
        keys = tuple(names[fold_name(key)] for key in metadata.key_columns)
        metadata = replace(metadata, key_columns=keys)
    if format_of(metadata) == "csv":
        columns = _definition(metadata.schema_definition, fitted.definition, force=force)
        metadata = replace(metadata, schema_definition=columns)
    return metadata


def _definition(
    stated: Sequence[DefinedColumn], fitted: Sequence[DefinedColumn], *, force: bool
) -> tuple[DefinedColumn, ...]:
    """Keep what is declared, unless the columns were forced to be others; add what is new."""
    mine = {fold_name(column.name): column for column in fitted}
    kept = [(mine.pop(fold_name(old.name), old), old) for old in stated]
    return (*(new if force else old for new, old in kept), *mine.values())


def split_partitions(
    rows: Rows, columns: Sequence[str], *, table: str
) -> tuple[tuple[str, Rows], ...]:
    """Split rows by the values of some columns, each partition's rows in their order; sorted by path.

    Without columns there is one partition, `""`. Rows that are none have no partition to lie in then.

    Raises:
        SchemaError: a column is missing, or its values cannot be the name of a folder.

    """
    if not columns:
        return (("", rows),)
    steps = [_steps(rows.data, name, table) for name in columns]
    paths = pc.binary_join_element_wise(*steps, "/").combine_chunks().dictionary_encode()
    if isinstance(paths, pa.ChunkedArray):  # pyarrow 14 combines to a chunked array of one chunk
        paths = paths.combine_chunks()
    order = pc.sort_indices(paths.indices)  # stable
    names = paths.dictionary.to_pylist()
    data, codes = rows.data.take(order), paths.indices.take(order)
    markers = None if rows.markers is None else rows.markers.take(order)
    partitions = [
        (
            names[code],
            Rows(
                data=data.slice(start, count),
                markers=None if markers is None else markers.slice(start, count),
            ),
        )
        for code, start, count in _runs(codes)
    ]
    return tuple(sorted(partitions, key=lambda partition: partition[0]))


def check_partition_names(columns: Sequence[str], *, table: str) -> None:
    """Refuse a partition column whose folder every reader would ignore.

    Raises:
        SchemaError: its name begins with `_` or `.`.

    """
    for name in columns:
        if is_ignored(name):
            msg = "readers ignore folders whose name begins with _ or ."
            step = "Rename the column, or partition by another."
            raise SchemaError(msg, table=table, column=name, next_step=step)


def _steps(data: pa.Table, name: str, table: str) -> pa.ChunkedArray:
    """Give each row's step of the path: `name=value`."""
    if name not in data.column_names:
        raise missing_column(name, table)
    kind = data.schema.field(name).type
    if not _has_plain_text(kind):
        msg = "values of this type cannot name a partition folder"
        step = "Partition by text, whole numbers, dates or booleans."
        raise SchemaError(msg, table=table, column=name, found=str(kind), next_step=step)
    texts = data[name].cast(pa.string()).combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    steps = [
        f"{_escaped(name)}={_escaped(text or '') or NO_VALUE}"
        for text in texts.dictionary.to_pylist()
    ]
    for step in steps:
        if len(step.encode()) > _LONGEST:
            msg = f"a value is too long for a partition folder of {_LONGEST} bytes"
            advice = "Partition by another column."
            raise SchemaError(msg, table=table, column=name, next_step=advice)
    return pa.chunked_array([pa.array(steps, pa.string()).take(texts.indices)], pa.string())


def _has_plain_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_integer(kind)
        or types.is_date32(kind)
        or types.is_boolean(kind)
    )


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def _runs(codes: pa.Array) -> Iterator[tuple[int, int, int]]:
    """Give value, start and length of each run of equal values; the values are sorted."""
    start = 0
    for item in pc.value_counts(codes).to_pylist():  # in the order of first appearance: run by run
        yield item["values"], start, item["counts"]
        start += item["counts"]
