"""Rules about rows: markers and keys."""

from __future__ import annotations

from mirrorlib.landing.check.rule import Rule

ROW_RULES = (
    Rule(
        id="marker-twice",
        severity="error",
        title="a file has two row marker columns",
        fabric="Not documented.",
        mirrorlib="The table stops.",
        fix="Write one column __rowMarker__.",
    ),
    Rule(
        id="marker-type",
        severity="warning",
        title="the row marker is not an integer column",
        fabric="Its examples show the integers 0, 1, 2 and 4; some publishers write them as text.",
        mirrorlib="It reads digits in any type.",
        fix="Write __rowMarker__ as a 32-bit integer.",
    ),
    Rule(
        id="marker-name",
        severity="warning",
        title="the row marker is not spelled __rowMarker__",
        fabric="The name is documented as __rowMarker__; other spellings are not.",
        mirrorlib="It finds the column in any case.",
        fix="Spell it __rowMarker__; in Snowflake, quote the alias.",
    ),
    Rule(
        id="marker-not-last",
        severity="note",
        title="the row marker is not the last column",
        fabric="It must be the final column, says the page of 2025; an earlier one had it first.",
        mirrorlib="It finds the column wherever it stands.",
        fix="Write __rowMarker__ last.",
    ),
    Rule(
        id="marker-missing",
        severity="warning",
        title="a file has no row marker, and earlier files had one",
        fabric="Its rows are inserted, or upserted by default; it is no new snapshot.",
        mirrorlib="The same: rows of known keys may then be there twice.",
        fix="Write __rowMarker__ into every file once it has been there.",
    ),
    Rule(
        id="marker-in-initial-load",
        severity="note",
        title="the first file has a row marker, and all its rows are inserts",
        fabric="It is optional and not recommended in the initial load: the file is loaded row by row.",
        mirrorlib="It means the same either way.",
        fix="Leave __rowMarker__ out of the initial load.",
    ),
    Rule(
        id="marker-unknown",
        severity="error",
        title="a row marker is not 0, 1, 2 or 4",
        fabric="Not documented.",
        mirrorlib="The table stops at the file.",
        fix="Write 0 for insert, 1 for update, 2 for delete, 4 for upsert.",
    ),
    Rule(
        id="marker-null",
        severity="error",
        title="a row marker is NULL",
        fabric="Not documented.",
        mirrorlib="The table stops at the file.",
        fix="Give every row its marker.",
    ),
    Rule(
        id="marker-null-defaulted",
        severity="warning",
        title="a row marker is NULL, and isUpsertDefaultRowMarker makes it an upsert",
        fabric="Not documented.",
        mirrorlib="The row is an upsert.",
        fix="Write 4, or leave the column out of the file.",
    ),
    Rule(
        id="no-keys",
        severity="error",
        title="a row is an update, delete or upsert, and no keyColumns are declared",
        fabric="Updates and deletes are not possible without keyColumns.",
        mirrorlib="The table stops at the file.",
        fix="Declare keyColumns in _metadata.json.",
    ),
    Rule(
        id="key-missing",
        severity="error",
        title="a file lacks a key column",
        fabric="Every row needs its key, deletes too.",
        mirrorlib="The table stops at the file.",
        fix="Write all key columns into every file, or correct keyColumns.",
    ),
    Rule(
        id="key-null",
        severity="warning",
        title="a key is NULL",
        fabric="Not documented.",
        mirrorlib="NULL is a key like any other: such rows replace each other.",
        fix="Declare a key whose columns always have a value.",
    ),
)
