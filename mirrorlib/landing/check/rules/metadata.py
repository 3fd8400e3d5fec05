"""Rules about `_metadata.json`."""

from __future__ import annotations

from mirrorlib.landing.check.rules.rule import Rule

METADATA_RULES = (
    Rule(
        id="metadata-missing",
        severity="error",
        title="the table folder has no _metadata.json",
        fabric="Every table folder must have it; a folder without it was seen to be ignored.",
        mirrorlib="The table waits for it; with --plain-folders append its files are rows to be appended.",
        fix='Write _metadata.json before the first data file; {"keyColumns": ["id"]} is enough.',
    ),
    Rule(
        id="metadata-unreadable",
        severity="error",
        title="the metadata cannot be understood, even read leniently",
        fabric="The table fails.",
        mirrorlib="The table fails until the file is corrected.",
        fix="Write it as one JSON object with the documented properties.",
    ),
    Rule(
        id="metadata-repaired",
        severity="warning",
        title="the metadata is not quite JSON, or not quite what is documented; something was assumed",
        fabric="Not documented; its own examples have such mistakes.",
        mirrorlib="It goes on with what it assumed.",
        fix="Write it with a JSON library, and values as documented.",
    ),
    Rule(
        id="property-misspelt",
        severity="warning",
        title="an unknown property looks like a known one",
        fabric="Unknown properties are ignored.",
        mirrorlib="It is ignored.",
        fix="Correct the property's name.",
    ),
    Rule(
        id="property-unknown",
        severity="note",
        title="a property means nothing to either side",
        fabric="Unknown properties are ignored.",
        mirrorlib="It is ignored.",
        fix="Leave it out, unless it is meant for somebody else.",
    ),
    Rule(
        id="many-keys",
        severity="note",
        title="the key has more than four columns",
        fabric="Fewer than five key columns are advised.",
        mirrorlib="It takes any number.",
        fix="Use a shorter key where there is one.",
    ),
    Rule(
        id="conditional-update",
        severity="warning",
        title="ConditionalUpdateColumn is declared",
        fabric="It stood in one edition of the documentation and is gone from the next.",
        mirrorlib="Changes apply in file order; with --conditional-updates, an update only where its value is greater.",
        fix="Publish changes in the order in which they have to apply.",
    ),
    Rule(
        id="schema-definition-missing",
        severity="warning",
        title="delimited text without SchemaDefinition",
        fabric="Delimited text needs the types of its columns there.",
        mirrorlib="It reads every column as strings, and the table keeps them so.",
        fix="Declare SchemaDefinition.Columns with Name, DataType and IsNullable before the first file.",
    ),
    Rule(
        id="data-type-unknown",
        severity="error",
        title="SchemaDefinition has a DataType that does not exist",
        fabric=(
            "The types are Double, Single, Int16, Int32, Int64, DateTime, IDate, ITime, String, "
            "Boolean and ByteArray; there is no Decimal."
        ),
        mirrorlib="It stops the table.",
        fix="Use one of the documented types; String keeps every digit.",
    ),
    Rule(
        id="extension-undeclared",
        severity="warning",
        title="FileFormat is DelimitedText, and FileExtension is not declared",
        fabric="FileExtension is required with DelimitedText.",
        mirrorlib="It takes .csv, .tsv, .psv and .txt.",
        fix='Declare "FileExtension", for instance "tsv".',
    ),
    Rule(
        id="header-not-declared",
        severity="error",
        title="FirstRowAsHeader is false",
        fabric="Delimited text must have a header row; it has to be true.",
        mirrorlib="It stops the table: columns are found by their names.",
        fix="Write a header row into every file, and declare true.",
    ),
    Rule(
        id="format-property",
        severity="warning",
        title="a property of delimited text has a value that is not documented",
        fabric="Only the documented separators, quotes and escapes are supported.",
        mirrorlib="It takes any single character, blanks around it, and \\t for a tab.",
        fix="Use a documented value, or publish Parquet.",
    ),
    Rule(
        id="encoding-unknown",
        severity="error",
        title="Encoding names no encoding",
        fabric="The table fails.",
        mirrorlib="The table stops: its text cannot be read.",
        fix="Declare UTF-8, and write UTF-8.",
    ),
)
