"""Make everything that is to be written, checked and encoded, before anything is; then declare the table.

In: rows, what the caller wants, and what the table folder shows. Out: a `Draft`: metadata, schema and
whole change files, one for each partition folder. Bad input ends here, and has written nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from mirrorlib.errors import MetadataError, SchemaError
from mirrorlib.identifiers import find_name, fold_name
from mirrorlib.landing.columns import check_names
from mirrorlib.landing.metadata.declared import METADATA_NAME, TableMetadata
from mirrorlib.landing.metadata.partner import PARTNER_FILE
from mirrorlib.landing.metadata.reading import parse_metadata
from mirrorlib.landing.publish.checks import Fitted, Given, fit_rows
from mirrorlib.landing.publish.claims import Content, FileSequence
from mirrorlib.landing.publish.declare import Wanted, metadata_bytes, settle_metadata
from mirrorlib.landing.publish.known import (
    NOTHING_KNOWN,
    KnownSchema,
    read_known,
    told_by_files,
    write_known,
)
from mirrorlib.landing.publish.rows import column_of, count_markers, encode_rows
from mirrorlib.names import LONGEST_PART, NO_VALUE
from mirrorlib.store import Store, StoredFile

_ESCAPES = {code: f"%{code:02X}" for code in (*b"\"#%'*/:=?\\{[]^\x7f", *range(32))}


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderState:
    """What a table folder showed last."""

    # The metadata file, None when there is none: an object store's etag alone is that of a folder that was made anew.
    stated: StoredFile | None = None
    metadata: TableMetadata | None = None  # what it says
    known: KnownSchema = NOTHING_KNOWN  # the published schema
    # The last number of each partition that this process knows to be taken.
    taken: dict[str, int] = field(default_factory=dict)

    def spelled(self, metadata: TableMetadata, fitted: Fitted, *, force: bool) -> TableMetadata:
        """Spell new keys as the columns are, and declare the types of delimited text.

        What is declared is kept, unless the columns were forced to be others.
        """
        if self.metadata is None or self.metadata.key_columns != metadata.key_columns:
            names = [column.name for column in fitted.known.columns]
            keys = tuple(find_name(names, key) or key for key in metadata.key_columns)
            metadata = replace(metadata, key_columns=keys)
        if metadata.is_text:
            # Without a type are columns of nothing but NULL, which stay what they are.
            typed = [column for column in fitted.definition if column.data_type]
            mine = {fold_name(column.name): column for column in typed}
            columns = {fold_name(column.name): column for column in metadata.schema_definition}
            columns = {**columns, **mine} if force else {**columns, **mine, **columns}
            metadata = replace(metadata, schema_definition=tuple(columns.values()))
        return metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Everything that is to be written: metadata, schema, and the change files by their places."""

    metadata: TableMetadata
    known: KnownSchema
    contents: tuple[tuple[FileSequence, Content], ...]
    notes: tuple[str, ...]

    def declare(self, zone: Store, folder: str, state: FolderState, partner: bytes | None) -> bool:
        """Write down what is new: the zone's partner, the table's schema, its metadata, in this order.

        False when another writer was first with something else: look again, and make another draft.
        """
        if partner is not None and zone.stat(PARTNER_FILE) is None:
            zone.put_new(PARTNER_FILE, partner)
        if self.known != state.known and not write_known(zone, folder, self.known):
            return False
        if self.metadata == state.metadata:
            return True
        path, data = f"{folder}/{METADATA_NAME}", metadata_bytes(self.metadata)
        if state.metadata is not None:
            zone.put(path, data)
            return True
        return zone.put_new(path, data) or zone.read(path) == data


def read_state(zone: Store, place: FileSequence, state: FolderState) -> FolderState:
    """Look at a table folder again; other metadata means that all may be another."""
    table, path = place.table, f"{place.folder}/{METADATA_NAME}"
    there = zone.stat(path)
    if there is None:
        state = FolderState()
    elif there != state.stated:
        metadata = parse_metadata(zone.read(path) or b"", table)
        metadata = told_by_files(zone, metadata, table=table)
        state = FolderState(stated=there, metadata=metadata)
    return replace(state, known=read_known(zone, state.metadata, state.known, table=table))


def partitions(wanted: Wanted, state: FolderState, *, table: str) -> tuple[str, ...]:
    """Give the columns that name the partition folders."""
    before, asked = state.known.partition_by, wanted.partition_by
    if before is not None and asked is not None and before != asked and not wanted.force:
        msg = f"the table is partitioned by {', '.join(before) or 'nothing'} already"
        step = "Leave the partitioning out, or delete the table folder and publish the table anew."
        raise MetadataError(msg, table=table, found=", ".join(asked), next_step=step)
    if asked is None and not before and state.metadata is not None and state.metadata.partitioned:
        msg = "the table has partition folders, and nothing says by which columns"
        raise MetadataError(msg, table=table, next_step="Give the columns to partition by.")
    return asked or before or ()


def make_draft(rows: pa.Table, state: FolderState, wanted: Wanted, place: FileSequence) -> Draft:
    """Check rows, refuse what is wrong with them as `LandingTable.write` does, and encode them."""
    table, force = place.table, wanted.force
    metadata = settle_metadata(wanted, state.metadata, table=table)
    by = partitions(wanted, state, table=table)
    # By whatever a writer has said, too, that died before it had declared the table.
    metadata = replace(metadata, partitioned=bool(by))
    given = Given(table=table, metadata=metadata, known=state.known, partition_by=by, force=force)
    fitted = fit_rows(rows, given)
    if metadata.is_text:  # in a header, blanks around a name are none of it
        names = [column.name.strip() for column in fitted.known.columns]
        check_names(names, table=table, file="the data")
    extension = metadata.file_extension or "csv" if metadata.is_text else "parquet"
    # Those of another format that the table had before count, too.
    place = replace(place, extensions=(*place.extensions, *metadata.numbered))
    contents: list[tuple[FileSequence, Content]] = []
    for partition, part in split_partitions(fitted.rows, by, table=table).items():
        data = encode_rows(part, text=metadata.is_text)
        markers = count_markers(part, given.default)
        content = Content(data=data, extension=extension, markers=markers)
        contents.append((replace(place, partition=partition), content))
    spelled, files = state.spelled(metadata, fitted, force=force), tuple(contents)
    return Draft(metadata=spelled, known=fitted.known, contents=files, notes=fitted.notes)


def split_partitions(rows: pa.Table, columns: Sequence[str], *, table: str) -> dict[str, pa.Table]:
    """Split rows by the values of some columns, each partition's rows in their order, by its path; sorted by these.

    Without columns there is one partition, `""`. Rows that are none have no partition to lie in then.
    """
    if not columns:
        return {"": rows}
    steps = (_steps(rows, name, table) for name in columns)
    places: dict[str, list[int]] = {}
    for place, path in enumerate(map("/".join, zip(*steps, strict=True))):
        places.setdefault(path, []).append(place)
    return {path: rows.take(pa.array(found)) for path, found in sorted(places.items())}


def _steps(rows: pa.Table, name: str, table: str) -> list[str]:
    """Give each row's step of the path: `name=value`."""
    values = column_of(rows, name, table)
    kind = values.type
    plain = (pa.types.is_string, pa.types.is_integer, pa.types.is_date32, pa.types.is_boolean)
    if not any(is_kind(kind) for is_kind in plain):
        msg = "values of this type cannot name a partition folder"
        step = "Partition by text, whole numbers, dates or booleans."
        raise SchemaError(msg, table=table, column=name, found=str(kind), next_step=step)
    texts, column = values.cast(pa.string()).to_pylist(), name.translate(_ESCAPES)
    stated = {text: (text or "").translate(_ESCAPES) for text in set(texts)}
    steps = {text: f"{column}={value or NO_VALUE}" for text, value in stated.items()}
    if any(len(step.encode()) > LONGEST_PART for step in steps.values()):
        msg = f"a value is too long for a partition folder of {LONGEST_PART} bytes"
        advice = "Partition by another column."
        raise SchemaError(msg, table=table, column=name, next_step=advice)
    return [steps[text] for text in texts]
