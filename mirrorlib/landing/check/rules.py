"""The catalogue of everything that the review looks for, by severity; docs/check.md tells of each what follows from it.

An error stops the table, or keeps data out of it. A warning does not stop mirrorlib; Fabric may stop, says nothing
about it, or the rows are likely not what was meant. A note is advice.
"""

from __future__ import annotations

# Of each rule its name, what is wrong where it is broken, a clause, and below what the publisher should do.
ERRORS = """
tables-collide: two tables would be one in the target: names that differ only by case, or one inside the other
    Rename one of the two folders.
table-name: the table's name cannot be carried
    Rename the folder: no control characters, no slashes or backslashes, at most 240 bytes.
not-checked: the store failed, so that the rest could not be reviewed
    See that the place can be read, and check again.
wrong-name: a data file's name is not a number of 20 digits from 1
    Name it by the next number, 20 digits, or declare "fileDetectionStrategy": "LastUpdateTimeFileDetection".
wrong-extension: a file without a number has not the extension of the declared format
    Publish the file in the table's format, or correct FileFormat and FileExtension.
partition-undeclared: files lie in partition folders, and isPartitionEnabled is not declared
    Declare "isPartitionEnabled": true in _metadata.json.
first-number: the first number is not 1, and nothing says that files were cleaned up
    Publish the missing files; begin every table, and every partition, with number 1.
gap: numbers are missing between two files
    Publish the missing files under the missing numbers.
duplicate-number: two files carry one number
    Remove the one that is not meant.
zero-byte: a change file has no bytes
    Publish whole files by renaming them into place; zero rows are fine, zero bytes are not.
metadata-missing: the table folder has no _metadata.json
    Write _metadata.json before the first data file; {"keyColumns": ["id"]} is enough.
metadata-unreadable: the metadata cannot be understood, even read leniently
    Write it as one JSON object with the documented properties.
unreadable: a change file is not whole Parquet
    Publish a good file under the same name, by renaming it into place.
damaged: a page of a change file cannot be decoded
    Publish a good file under the same name.
column-name: a column's name is reserved or cannot be carried, or there are too many
    Rename the column at its publisher; split a table of more than 30,000.
columns-collide: two columns of a file have one name, or differ only by case
    Rename one of the two.
column-type: a column has a type that Delta cannot hold
    Publish nested values as a JSON string, and numbers with at most 38 digits.
value-out-of-range: a value does not fit the Delta type of its column
    Publish times in whole microseconds, and values within their type.
schema-conflict: a column changes to a type that has nothing in common with the earlier one (Fabric: SchemaMergeFailure)
    Publish the file with the earlier type, or create the table folder again with a full load.
text-undecodable: a file has bytes that are not of the declared encoding
    Write the file in the declared encoding; UTF-8 by default.
text-no-header: the first row is not a header
    Write the column names as the first row of every file.
text-ragged-row: a row has more or fewer fields than the header
    Quote values that hold separators, quotes or line ends.
text-unparsable: the text cannot be cut into rows and fields
    Close every quote, and declare the separators that are used.
text-value: a value is not of its declared DataType, or beyond its range
    Write values as their DataType asks for, or declare a type that holds them.
text-open-quote: a quoted value has no end
    Close every quote, and double or escape those inside of values.
marker-twice: a file has two row marker columns
    Write one column __rowMarker__.
marker-unknown: a row marker is not 0, 1, 2 or 4
    Write 0 for insert, 1 for update, 2 for delete, 4 for upsert.
marker-null: a row marker is NULL
    Give every row its marker.
no-keys: a row is an update, delete or upsert, and no keyColumns are declared
    Declare keyColumns in _metadata.json.
key-missing: a file lacks a key column
    Write all key columns into every file, or correct keyColumns.
key-untyped: a key column has no type in any file
    Give the writer a schema; do not let it infer types from values.
"""
WARNINGS = """
no-tables: the zone has no table folder
    Make a folder for each table: TABLE or SCHEMA.schema/TABLE.
too-many-tables: the zone has more than 1,000 tables
    Spread the tables over several zones.
no-files: the table folder has no change file
    Publish the initial load together with the folder; a file of zero rows will do.
other-extension: a numbered file's extension is not one of the table's
    Publish the file with the table's extension, or correct FileFormat and FileExtension.
metadata-repaired: the metadata is not quite JSON, or not quite what is documented; something was assumed
    Write it with a JSON library, and values as documented.
property-misspelt: an unknown property looks like a known one
    Correct the property's name.
conditional-update: ConditionalUpdateColumn is declared
    Publish changes in the order in which they have to apply.
schema-definition-missing: delimited text without SchemaDefinition
    Declare SchemaDefinition.Columns with Name, DataType and IsNullable before the first file.
extension-undeclared: FileFormat is DelimitedText, and FileExtension is not declared
    Declare "FileExtension", for instance "tsv".
format-property: a property of delimited text has a value that is not documented
    Use a documented value, or publish Parquet.
column-untyped: a column is of no type, because the file has no value for it
    Give the writer a schema; do not let it infer types from values.
schema-drift: a column changes its type from file to file (Fabric: SchemaMergeFailure)
    Give the writer one schema for all files of a table.
nullability-flip: a column is required in one file and optional in another (Fabric: SchemaMergeFailure)
    Write every column as optional, always.
new-required-column: a later file brings a new column that is required
    Write the new column as optional.
dropped-required-column: a file lacks a column that was required before (Fabric: SchemaMergeFailure)
    Keep the column, or create the table folder again with a full load.
text-null: a column that is declared with IsNullable false is NULL in a row
    Write a value, or declare IsNullable true.
text-column-undeclared: the header has a column that SchemaDefinition lacks
    Declare the column in SchemaDefinition.
text-column-missing: the header lacks a column that SchemaDefinition declares
    Write every declared column into every file.
text-row-separator: rows end otherwise than declared
    Declare the RowSeparator that is written.
marker-type: the row marker is not an integer column
    Write __rowMarker__ as a 32-bit integer.
marker-name: the row marker is not spelled __rowMarker__
    Spell it __rowMarker__; in Snowflake, quote the alias.
marker-missing: a file has no row marker, and earlier files had one
    Write __rowMarker__ into every file once it has been there.
marker-null-defaulted: a row marker is NULL, and isUpsertDefaultRowMarker makes it an upsert
    Write 4, or leave the column out of the file.
key-null: a key is NULL
    Declare a key whose columns always have a value.
"""
NOTES = """
foreign-file: a file in a table folder is no data file
    Begin its name with an underscore, or keep it elsewhere.
foreign-folder: a folder in a table folder is no partition
    Begin its name with an underscore, or name a partition column=value.
cleaned-up: early files are gone, and a folder of processed files is there
    Nothing, unless a new reader is to take over the zone: publish a full load for it.
small-files: the table consists of many small files
    Collect changes for longer: some megabytes a file.
large-file: a change file is larger than 1 GiB
    Cut large loads into files of some hundred megabytes.
property-unknown: a property means nothing to either side
    Leave it out, unless it is meant for somebody else.
dropped-column: a file lacks a column that earlier files had
    Nothing, if the column was dropped; updates have to carry all columns.
marker-not-last: the row marker is not the last column
    Write __rowMarker__ last.
"""
