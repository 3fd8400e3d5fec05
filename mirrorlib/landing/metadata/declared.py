"""Know what a table folder's `_metadata.json` says: keys, file detection, what marker-free files mean.

Out: `TableMetadata`, which `reading` makes of the file's bytes. Properties and defaults: Microsoft's "Open
mirroring landing zone requirements and formats".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from mirrorlib.errors import MetadataError
from mirrorlib.names import sequence_number

METADATA_NAME = "_metadata.json"
METADATA_BYTES = 16 << 20  # of it, and of a partner's file: 30,000 columns are declared in 3 MB

Detection: TypeAlias = Literal["sequential", "last_update_time"]
FileFormat: TypeAlias = Literal["parquet", "delimited"]

TEXT_EXTENSIONS = ("csv", "tsv", "psv", "txt")  # of delimited text that states none
PACKED = ("", ".gz", ".zst")  # what stands behind them where content is compressed
TEXT_ENDINGS = tuple(f".{extension}{end}" for extension in TEXT_EXTENSIONS for end in PACKED)
_CSV_ENDINGS = tuple(f".csv{end}" for end in PACKED)
DETECTION_NAMES: Mapping[Detection, str] = {
    "sequential": "SequentialFileName",
    "last_update_time": "LastUpdateTimeFileDetection",
}


LISTED = "listed:"  # before the column that lists what is set


def metadata_error(reason: str, table: str, **facts: str | None) -> MetadataError:
    """Say what is wrong with a table's `_metadata.json`."""
    return MetadataError(reason, table=table, file=METADATA_NAME, **facts)  # type: ignore[arg-type]  # its own parameters


def list_column(partial: str | None) -> str | None:
    """Name the column that lists what an update sets; None where none does."""
    return partial.removeprefix(LISTED).strip() if partial and partial.startswith(LISTED) else None


def is_partial(text: str) -> bool:
    """Say whether a text is one of the ways in which updates may be partial: absent, nulls, listed:COLUMN."""
    return text in {"absent", "nulls"} or bool(list_column(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinedColumn:
    """A column as `SchemaDefinition` states it; needed for delimited text only."""

    name: str
    data_type: str
    nullable: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetadata:
    """What a publisher states about a table."""

    # The key, in order, without surrounding blanks; empty when none is declared.
    key_columns: tuple[str, ...] = ()
    # Those of them that are stated with blanks around them, as they are stated.
    blank_keys: Mapping[str, str] = field(default_factory=dict)
    detection: Detection = "sequential"  # how new files are found and ordered
    upsert_default: bool = False  # whether files without a marker column are upserts, not inserts
    file_format: FileFormat | None = None  # the files' format; None when it is not stated
    # Whether that is stated as DelimitedText: CSV has an extension of its own.
    delimited_text: bool = False
    file_extension: str | None = None  # the files' extension without its dot, when stated
    # How delimited text is written, by Microsoft's names; only what is stated.
    format_properties: Mapping[str, str] = field(default_factory=dict)
    schema_definition: tuple[DefinedColumn, ...] = ()  # the columns of delimited text, in order
    partitioned: bool = False  # whether files lie in Hive-style partition folders
    conditional_update: str | None = None  # the column whose greater value wins, when stated
    # What updates set, where it is not every column: "absent", "nulls", "listed:COLUMN".
    partial_updates: str | None = None
    plain: bool = False  # there is none: the folder is read without, see `plain`
    repairs: tuple[str, ...] = ()  # what had to be repaired to read it, a phrase each
    assumed: tuple[str, ...] = ()  # what it does not state and is taken to mean, a clause each
    unknown: tuple[str, ...] = ()  # properties that mean nothing here and are ignored

    @property
    def stated_keys(self) -> tuple[str, ...]:
        """Return the key as it is stated: blanks may be a slip, or part of a column's name. See `find_key`."""
        return tuple(self.blank_keys.get(name, name) for name in self.key_columns)

    @property
    def is_text(self) -> bool:
        """Say whether the table's files are delimited text; without a stated format they are Parquet."""
        return self.file_format == "delimited"

    @property
    def extensions(self) -> tuple[str, ...]:
        """Return the extensions that the table's files may have, in lower case and without a dot."""
        if not self.is_text:
            return ("parquet",)
        return (self.file_extension.lower(),) if self.file_extension else TEXT_EXTENSIONS

    @property
    def numbered(self) -> tuple[str, ...]:
        """Return the extensions of numbered files, in lower case and without a dot.

        Numbered text counts where no format is stated: it is refused then, and not passed over.
        """
        stated = (self.file_extension.lower(),) if self.file_extension else ()
        return (*self.extensions, *stated, *(() if self.file_format else TEXT_EXTENSIONS))

    @property
    def endings(self) -> tuple[str, ...]:
        """Return how names of change files end, in lower case, where they have no number to be known by."""
        packed = PACKED if self.is_text else ("",)
        return tuple(f".{extension}{end}" for extension in self.extensions for end in packed)


def as_published(metadata: TableMetadata, names: Iterable[str]) -> TableMetadata:
    """Let a folder's files decide where the metadata states no format: all are Parquet, or all are `.csv`."""
    if metadata.file_extension or (metadata.file_format and not metadata.assumed):
        return metadata
    by_time = metadata.detection != "sequential"  # else a file without a number is no change file
    data = [name.lower() for name in names if by_time or sequence_number(name)]
    data = [name for name in data if name.endswith((".parquet", *TEXT_ENDINGS))]
    if metadata.assumed and data and all(name.endswith(".parquet") for name in data):
        said = "it states no FileFormat and describes text, and all files are Parquet: Parquet"
        return replace(metadata, file_format="parquet", assumed=(said,))
    if not metadata.assumed and data and all(name.endswith(_CSV_ENDINGS) for name in data):
        said = "it states no FileFormat, and all files are .csv: CSV"
        return replace(metadata, file_format="delimited", assumed=(said,))
    return metadata
