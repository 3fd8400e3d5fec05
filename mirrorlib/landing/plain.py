"""Plain folders: table folders without `_metadata.json`, whose files are rows to be appended, each file once.

In: a `Store` over the zone, a table folder. Out: its files at every level, ordered by when they were
written, and what kind each is by its name. Nothing is opened. The model is Databricks' Auto Loader in
directory listing mode: a file is its path below the table's folder; dates and numbers in names say
nothing about order, so nothing that comes late is ever lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.listing import AppliedFiles, FolderContent, FolderListing, order_by_time
from mirrorlib.landing.metadata.declared import PACKED, TableMetadata
from mirrorlib.store import StoredFile

FileKind: TypeAlias = Literal["parquet", "delimited", "lines"]

PLAIN_METADATA = TableMetadata(detection="last_update_time", plain=True)
PLAIN_DIALECT = Dialect(escape="")  # RFC 4180: commas, quotes doubled; values are text
RESCUED = "_rescued_data"  # the column that takes what fits no other, and where it came from
FILE_PATH = "_file_path"
_KINDS: Mapping[str, FileKind] = {
    ".parquet": "parquet",
    ".csv": "delimited",
    ".json": "lines",
    ".jsonl": "lines",
    ".ndjson": "lines",
}
_ENDINGS = (".parquet", *(f"{end}{pack}" for end in _KINDS if end != ".parquet" for pack in PACKED))


def kind_of(name: str) -> FileKind:
    """Tell a file of a plain folder by its name's ending; compression is told by content."""
    bare = name.lower()
    for pack in PACKED:
        bare = bare.removesuffix(pack)
    return _KINDS["." + bare.rpartition(".")[2]]


def order_plain(
    seen: FolderContent, applied: AppliedFiles, passed: Mapping[str, str], *, overwrites: bool
) -> tuple[FolderListing, tuple[StoredFile, ...]]:
    """Order the files that count, by when they were written, ties by name.

    *passed* is what identified the content of each file that is passed over, by name; "" where nobody can tell.
    Where a run *overwrites*, a file that was written again is as new as one that has come. Comes with the files
    that are passed over.
    """

    def is_passed(file: StoredFile) -> bool:
        known = file.name in passed and file.name not in applied.etags
        return known and not (overwrites and passed[file.name] not in {"", file.etag})

    left = tuple(file for file in seen.files if is_passed(file))
    kept = tuple(file for file in seen.files if not is_passed(file))
    if overwrites:
        etags = {file.name: file.etag for file in kept}
        same = {n: etag for n, etag in applied.etags.items() if etag in {"", etags.get(n, etag)}}
        applied = replace(applied, etags=same)
    return order_by_time(replace(seen, files=kept), _ENDINGS, applied), left
