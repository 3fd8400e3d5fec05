"""Open one table folder: its listing, its metadata, and the policies that follow from both.

In: a table folder. Out: `Folder`, or the reason why the table waits. Metadata is read leniently;
what was repaired is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.apply.journal import Policies, now
from mirrorlib.errors import MetadataError
from mirrorlib.landing.delimited import Dialect, dialect_of
from mirrorlib.landing.listing import list_files
from mirrorlib.landing.metadata import TableMetadata, parse_metadata

if TYPE_CHECKING:
    from mirrorlib.apply.options import Options
    from mirrorlib.landing.listing import FolderListing, TableFolder
    from mirrorlib.store import Store


_NAMED = 3  # how many names a warning lists


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A table folder at one moment.

    Attributes:
        listing: its files.
        metadata: what its publisher states; None while `_metadata.json` is absent.
        dialect: how its text is written; None when its files are Parquet.
        warnings: what was repaired, what is ignored.
        listed_at: a moment just before it was listed, ISO 8601, UTC.

    """

    listing: FolderListing
    metadata: TableMetadata | None
    dialect: Dialect | None = None
    warnings: tuple[str, ...]
    listed_at: str

    @property
    def waits_for(self) -> str:
        """Say what has to come before anything can be applied, "" when nothing has to."""
        if self.metadata is None:
            return "_metadata.json is missing. The table waits until its publisher writes it."
        return "" if self.listing.files else "No change file has been published yet."


def open_folder(zone: Store, folder: TableFolder) -> Folder:
    """List a table folder and read its metadata.

    Raises:
        MetadataError: the metadata cannot be understood, or asks for a part of the format that is
            not supported.
        ChangeFileError: two files carry one sequence number.

    """
    listed_at = now()
    listing = list_files(zone, folder)
    data = zone.read(listing.metadata.path) if listing.metadata else None
    if data is None:
        return Folder(listing=listing, metadata=None, warnings=(), listed_at=listed_at)
    metadata = parse_metadata(data, str(folder.name))
    _refuse_unsupported(metadata, str(folder.name))
    text = metadata.file_format == "delimited"
    return Folder(
        listing=listing,
        metadata=metadata,
        dialect=dialect_of(metadata, table=str(folder.name)) if text else None,
        warnings=_warnings(metadata, listing),
        listed_at=listed_at,
    )


def policies_of(metadata: TableMetadata, dialect: Dialect | None, options: Options) -> Policies:
    """Join what the publisher states with what the caller asks for."""
    return Policies(
        keys=metadata.key_columns,
        upsert_default=metadata.upsert_default,
        insert_policy=options.insert_policy,
        evolution=options.evolution,
        ntz=options.ntz,
        quiet=options.quiet,
        dialect=dialect,
    )


def _refuse_unsupported(metadata: TableMetadata, table: str) -> None:
    asked = {
        "fileDetectionStrategy LastUpdateTimeFileDetection": metadata.detection != "sequential",
        "partition folders": metadata.partitioned,
    }
    for what, is_asked in asked.items():
        if is_asked:
            msg = "this version of mirrorlib applies numbered files only"
            step = "Publish files with sequential names; nothing was applied to this table."
            raise MetadataError(msg, table=table, file="_metadata.json", found=what, next_step=step)


def _warnings(metadata: TableMetadata, listing: FolderListing) -> tuple[str, ...]:
    told = [f"_metadata.json was repaired: {repair}" for repair in metadata.repairs]
    told += [f"_metadata.json has an unknown property: {name}" for name in metadata.unknown]
    if metadata.conditional_update:
        told.append("ConditionalUpdateColumn is not honoured: changes apply in file order")
    if listing.foreign:
        named = ", ".join(listing.foreign[:_NAMED]) + (
            " …" if len(listing.foreign) > _NAMED else ""
        )
        told.append(
            f"{len(listing.foreign)} files are no change files and were left alone: {named}"
        )
    return tuple(told)
