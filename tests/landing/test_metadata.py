"""`_metadata.json` is read as publishers write it; repairs are named, the hopeless is refused."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mirrorlib.errors import MetadataError
from mirrorlib.landing.metadata.declared import DefinedColumn, TableMetadata, as_published
from mirrorlib.landing.metadata.lenient import Json, read_lenient
from mirrorlib.landing.metadata.partner import read_partner
from mirrorlib.landing.metadata.reading import parse_metadata
from mirrorlib.store import LocalStore

BY_TIME = {"fileDetectionStrategy": "LastUpdateTimeFileDetection"}


def parsed(text: str | bytes) -> TableMetadata:
    """Read a text as the metadata of a table."""
    return parse_metadata(text.encode() if isinstance(text, str) else text, "dbo/orders")


def refused(text: str | bytes) -> MetadataError:
    """Read a text that is refused, and give the refusal."""
    with pytest.raises(MetadataError) as caught:
        parsed(text)
    return caught.value


# What is stated


def test_nothing_stated_means_the_defaults() -> None:
    """An empty object is a table without keys, in sequence, with inserts by default."""
    assert TableMetadata() == parsed("{}")


def test_every_property_is_read() -> None:
    """A publisher that states everything is understood without a repair."""
    text = r"""{
      "keyColumns": ["id", "Region"],
      "fileDetectionStrategy": "LastUpdateTimeFileDetection",
      "isUpsertDefaultRowMarker": true,
      "FileFormat": "DelimitedText",
      "FileExtension": ".tsv",
      "FileFormatTypeProperties": {"ColumnSeparator": "\t", "FirstRowAsHeader": true, "NullValue": null},
      "SchemaDefinition": {"Columns": [{"Name": "id", "DataType": "Int32", "IsNullable": false},
                                       {"Name": "v", "DataType": "String"}]},
      "ConditionalUpdateColumn": "seqNum",
      "isPartitionEnabled": true
    }"""

    expected = TableMetadata(
        key_columns=("id", "Region"),
        detection="last_update_time",
        upsert_default=True,
        file_format="delimited",
        delimited_text=True,
        file_extension="tsv",
        format_properties={"ColumnSeparator": "\t", "FirstRowAsHeader": "true"},
        schema_definition=(
            DefinedColumn(name="id", data_type="Int32", nullable=False),
            DefinedColumn(name="v", data_type="String", nullable=None),
        ),
        conditional_update="seqNum",
        partitioned=True,
    )
    assert expected == parsed(text)


@pytest.mark.parametrize(
    "stated,expected",
    [
        ("parquet", "parquet"),
        ("Parquet", "parquet"),
        ("csv", "delimited"),
        ("CSV", "delimited"),
        ("DelimitedText", "delimited"),
        ("", None),
    ],
)
def test_file_formats_in_any_case(stated: str, expected: str | None) -> None:
    """Formats are compared case-insensitively; blank is not stated."""
    assert expected == parsed(json.dumps({"fileFormat": stated})).file_format


@pytest.mark.parametrize(
    "stated,expected",
    [
        ({"SchemaDefinition": {"Columns": []}}, "delimited"),
        ({"FileFormatTypeProperties": {"Encoding": "UTF-8"}}, "delimited"),
        ({"SchemaDefinition": {}, "FileExtension": ".parquet"}, None),
        ({"SchemaDefinition": None, "FileFormatTypeProperties": None}, None),
        ({"SchemaDefinition": {}, "FileFormat": "parquet"}, "parquet"),
    ],
)
def test_what_describes_text_is_text(stated: dict[str, object], expected: str | None) -> None:
    """CSV is the documented default of FileFormat, and what is assumed is said."""
    found = parsed(json.dumps(stated))

    assert expected == found.file_format
    assert (expected == "delimited") is bool(found.assumed)
    assert () == found.repairs


@pytest.mark.parametrize("stated", ["csv", ".csv", "*.csv", " *.CSV "])
def test_an_extension_is_read_with_a_dot_a_star_or_neither(stated: str) -> None:
    """However it is written, files are known by it; compressed ones too."""
    found = parsed(json.dumps({"FileFormat": "DelimitedText", "FileExtension": stated}))

    assert (".csv", ".csv.gz", ".csv.zst") == found.endings


def test_names_are_compared_case_insensitively_at_every_depth() -> None:
    """Microsoft's own page mixes `keyColumns` and `KeyColumns`."""
    found = parsed(
        '{"KEYCOLUMNS": ["a"], "schemadefinition": {"columns": [{"NAME": "a", "datatype": "String"}]}, '
        '"fileformattypeproperties": {"ENCODING": "UTF-8"}}'
    )

    assert ("a",) == found.key_columns
    assert (DefinedColumn(name="a", data_type="String", nullable=None),) == found.schema_definition
    assert {"Encoding": "UTF-8"} == found.format_properties
    assert () == found.repairs


def test_unknown_properties_are_ignored_and_named() -> None:
    """Publishers add their own, at any depth of nesting."""
    found = parsed('{"publisher": {"a": [1, {}]}, "keyColumns": ["id"], "protocolVersion": 1.0}')

    assert TableMetadata(key_columns=("id",), unknown=("publisher", "protocolVersion")) == found


# What is repaired


@pytest.mark.parametrize(
    "text,repair",
    [
        ('{"keyColumns": ["id"],}', "a trailing comma in line 1"),
        ('{"keyColumns": ["id",\n]}', "a trailing comma in line 1"),
        ('{"keyColumns": [id]}', "a value without quotes in line 1"),
        ('{keyColumns: ["id"]}', "a property name without quotes in line 1"),
        ('{"keyColumns": ["id "]}', "blanks around the key column 'id'"),
        ('{"keyColumns": "id"}', "keyColumns is a single string"),
        ('{"keyColumns": ["id", "ID"]}', "the key column 'ID' is named twice"),
        ('{"keyColumns": ["", "id"]}', "an empty name in keyColumns"),
        (
            '{"keyColumns": ["id"], "KeyColumns": ["id"]}',
            "the property 'KeyColumns' is given twice",
        ),
        (codecs.BOM_UTF8 + b'{"keyColumns": ["id"]}', "a byte order mark"),
        ('\ufeff{"keyColumns": ["id"]}'.encode("utf-16-le"), "UTF-16 in place of UTF-8"),
        ('\ufeff{"keyColumns": ["id"]}'.encode("utf-16-be"), "UTF-16 in place of UTF-8"),
        ('{"keyColumns": ["id"]}'.encode("utf-16-le"), "UTF-16 in place of UTF-8"),
        (
            '{"keyColumns": ["id"], "isUpsertDefaultRowMarker": "false"}',
            "isUpsertDefaultRowMarker is a string",
        ),
    ],
)
def test_each_damage_is_repaired_and_named(text: str | bytes, repair: str) -> None:
    """The value is the one that was meant, and one phrase says what was wrong."""
    found = parsed(text)

    assert TableMetadata(key_columns=("id",), repairs=(repair,)) == replace(found, blank_keys={})
    assert "id" == found.stated_keys[0].strip()


@pytest.mark.parametrize(
    "text", ['{"keyColumns": []}', '{"keyColumns": [""]}', '{"keyColumns": null}', "{}"]
)
def test_no_keys_in_any_writing(text: str) -> None:
    """Publishers write a missing key in four ways."""
    assert () == parsed(text).key_columns


def test_booleans_as_strings() -> None:
    """`"True"`, as benchmarks and Python publishers write it, is true."""
    found = parsed('{"isUpsertDefaultRowMarker": "True", "isPartitionEnabled": "true"}')

    assert (True, True) == (found.upsert_default, found.partitioned)
    assert ("isUpsertDefaultRowMarker is a string",) == found.repairs


@pytest.mark.parametrize("text", ["true", '"true"', "false", '"false"'])
def test_partition_folders_are_declared_by_a_string_or_a_boolean(text: str) -> None:
    """The property is not documented: it was seen as a string, so neither is a mistake."""
    found = parsed(f'{{"isPartitionEnabled": {text}}}')

    assert ("true" in text, ()) == (found.partitioned, found.repairs)


@pytest.mark.parametrize(
    "names, metadata, expected",
    [
        ([f"{1:020d}.parquet", f"{2:020d}.PARQUET", "x.md5"], {}, "parquet"),
        ([f"{1:020d}.parquet", "readme.txt"], {}, "parquet"),
        ([f"{1:020d}.parquet", "readme.txt"], BY_TIME, "delimited"),
        ([f"{1:020d}.parquet", f"{2:020d}.csv"], {}, "delimited"),
        (["1.csv.gz"], BY_TIME, "delimited"),
        ([], {}, "delimited"),
        ([f"{1:020d}.parquet"], {"FileFormat": "CSV"}, "delimited"),
        ([f"{1:020d}.parquet"], {"FileExtension": "csv"}, "delimited"),
    ],
)
def test_a_table_whose_files_are_all_parquet_is_parquet(
    names: list[str], metadata: dict[str, object], expected: str
) -> None:
    """`SchemaDefinition` has no meaning for it; what is stated counts more than names, and a stray file for nothing."""
    stated = parsed(json.dumps({"SchemaDefinition": {"Columns": []}, **metadata}))

    found = as_published(stated, names)

    assert expected == found.file_format
    assert ("all files are Parquet" in " ".join(found.assumed)) is (expected == "parquet")


def test_learns_example_with_a_bare_word() -> None:
    """Microsoft Learn shows the detection strategy without its quotes."""
    text = (
        '{\n  "keyColumns" : [ "C1" ],\n  "fileDetectionStrategy": LastUpdateTimeFileDetection,\n}'
    )

    found = parsed(text)

    assert "last_update_time" == found.detection
    assert found.repairs == (
        "a value without quotes in line 3",
        "a trailing comma in line 3",
    )


def test_learns_example_with_a_lone_backslash() -> None:
    """Microsoft Learn shows the escape character unescaped, in a list of properties."""
    text = r"""{
      "FileFormatTypeProperties": {
        "QuoteCharacter": "\"",
        "EscapeCharacter": "\",
        "NullValue": "N/A",
        "RowSeparator": "\r\n"
      }
    }"""

    expected = {
        "QuoteCharacter": '"',
        "EscapeCharacter": "\\",
        "NullValue": "N/A",
        "RowSeparator": "\r\n",
    }
    assert expected == parsed(text).format_properties
    assert ("a lone backslash in line 4",) == parsed(text).repairs


@pytest.mark.parametrize("end", ["}", " }", ", }", "\n}"])
def test_lone_backslash_at_the_end_of_one_line(end: str) -> None:
    """It is recognised wherever a value may end."""
    text = '{"FileFormatTypeProperties": {"NullValue": "x", "EscapeCharacter": "\\"' + end + "}"

    assert "\\" == parsed(text).format_properties["EscapeCharacter"]


def test_valid_json_is_never_taken_for_a_lone_backslash() -> None:
    r"""`"\","` is a quote and a comma, as JSON says."""
    text = r'{"FileFormatTypeProperties": {"NullValue": "\",", "ColumnSeparator": "\"}"}}'

    assert {"NullValue": '",', "ColumnSeparator": '"}'} == parsed(text).format_properties


# What is refused


@pytest.mark.parametrize("text", [b"", b"  \n ", codecs.BOM_UTF8, codecs.BOM_UTF16_LE])
def test_an_empty_file_is_refused(text: bytes) -> None:
    """Zero bytes are a file that is being written, not a table without keys."""
    assert "dbo/orders" == refused(text).table


def test_a_truncated_file_is_refused_with_line_and_column() -> None:
    """The message leads to the place, and says what to do."""
    error = refused('{\n  "keyColumns": ["id"')

    assert "it is not JSON: line 2, column 22: expecting ',' delimiter" == error.reason
    assert "the end of the file" == error.found
    assert str(error).endswith("the next run reads it again.")


@pytest.mark.parametrize(
    "text,found",
    [
        ('{"keyColumns": {}}', "an object"),
        ('{"keyColumns": [1]}', "a number"),
        ('{"fileDetectionStrategy": "Newest"}', "Newest"),
        ('{"fileDetectionStrategy": 3}', "a number"),
        ('{"isUpsertDefaultRowMarker": "yes"}', "a string"),
        ('{"isUpsertDefaultRowMarker": 1}', "a number"),
        ('{"FileFormat": "orc"}', "orc"),
        ('{"FileFormatTypeProperties": []}', "an array"),
        ('{"FileFormatTypeProperties": {"NullValue": 1}}', "a number"),
        ('{"SchemaDefinition": "x"}', "a string"),
        ('{"SchemaDefinition": {"Columns": {}}}', "an object"),
        ('{"SchemaDefinition": {"Columns": ["id"]}}', "a string"),
        ('{"SchemaDefinition": {"Columns": [{"Name": ""}]}}', "a string"),
        ("[]", "an array"),
        ("null", "null"),
    ],
)
def test_what_means_nothing_is_refused(text: str, found: str) -> None:
    """A wrong kind of value is never guessed at."""
    assert found == refused(text).found


def test_a_property_that_contradicts_itself_is_refused() -> None:
    """Two different keys for one table cannot both be meant."""
    assert (
        "given twice, with different values"
        in refused('{"keyColumns": ["a"], "KeyColumns": ["b"]}').reason
    )


@pytest.mark.parametrize(
    "text",
    [
        "{,}",
        '{"a" 1}',
        '{"a": 1} x',
        "{\"a\": 'b'}",
        "{'a': 1}",
        '{"a": "\ud83d\\ud800"}'.encode("utf-8", "surrogatepass"),
    ],
)
def test_what_no_publisher_writes_is_not_json(text: str | bytes) -> None:
    """Leniency ends where guessing would begin."""
    assert "it is not JSON" in refused(text).reason


@pytest.mark.parametrize(
    "text,reason",
    [
        ("[" * 100_000, "nested too deeply"),
        ("[" + "a," * 1_000 + "a]", "too much to be repaired"),
        ("[" + "[1,]," * 1_000 + "1,]", "too much to be repaired"),
    ],
)
def test_what_has_no_end_of_brackets_or_faults_is_refused(text: str, reason: str) -> None:
    """A file of them is no way to stop a run."""
    assert reason in refused(text).reason


# For any metadata

NAMES = st.text("abcXYZ_ äก😀\\\"',}]", min_size=1, max_size=6).filter(
    lambda name: name.strip() == name
)
WORDS = st.text("abcXYZ", min_size=1, max_size=6)
COLUMNS = st.lists(
    st.fixed_dictionaries(
        {"Name": NAMES, "DataType": WORDS}, optional={"IsNullable": st.booleans()}
    ),
    max_size=3,
)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "keyColumns": st.lists(NAMES, max_size=4, unique_by=str.casefold),
        "fileDetectionStrategy": st.sampled_from(
            ["SequentialFileName", "LastUpdateTimeFileDetection"]
        ),
        "isUpsertDefaultRowMarker": st.booleans(),
        "FileFormat": st.sampled_from(["parquet", "CSV", "DelimitedText"]),
        "FileFormatTypeProperties": st.fixed_dictionaries(
            {}, optional={"EscapeCharacter": st.sampled_from(["\\", "/", ""]), "NullValue": NAMES}
        ),
        "SchemaDefinition": st.fixed_dictionaries({"Columns": COLUMNS}),
        "ConditionalUpdateColumn": WORDS,
        "isPartitionEnabled": st.booleans(),
        "publisher": st.recursive(
            st.none() | st.integers() | NAMES, lambda inner: st.lists(inner, max_size=2)
        ),
    },
)


def dumped(value: object, *, indent: int | None = None) -> str:
    """Write a value as JSON."""
    return json.dumps(value, indent=indent, ensure_ascii=False)


def with_trailing_commas(text: str) -> str:
    """Put a comma behind the last item of everything that spans lines."""
    return re.sub(r'([\]}"el0-9])(\s*\n\s*[\]}])', r"\1,\2", text)


def recased(value: object) -> object:
    """Write every property name in capitals, at every depth."""
    if isinstance(value, dict):
        return {name.upper(): recased(item) for name, item in value.items()}
    return [recased(item) for item in value] if isinstance(value, list) else value


def with_strings_for_booleans(value: object) -> object:
    """Write booleans as Python publishers do."""
    if isinstance(value, dict):
        return {name: with_strings_for_booleans(item) for name, item in value.items()}
    if isinstance(value, list):
        return [with_strings_for_booleans(item) for item in value]
    return str(value) if isinstance(value, bool) else value


def with_blanks_around_keys(value: dict[str, object]) -> dict[str, object]:
    """Put blanks around every key, and an empty one behind them."""
    keys = value.get("keyColumns")
    return (
        value | {"keyColumns": [f" {key}  " for key in keys] + [""]}
        if isinstance(keys, list)
        else value
    )


DAMAGES: dict[str, Callable[[dict[str, object]], bytes]] = {
    "byte order mark": lambda value: codecs.BOM_UTF8 + dumped(value).encode(),
    "UTF-16": lambda value: dumped(value).encode("utf-16"),
    "trailing commas": lambda value: with_trailing_commas(dumped(value, indent=1)).encode(),
    "bare words": lambda value: re.sub(
        r'"(\w+FileDetection|SequentialFileName)"', r"\1", dumped(value)
    ).encode(),
    "lone backslash": lambda value: re.sub(
        r'(?<!\\)"\\\\"', r'"\\"', dumped(value, indent=1)
    ).encode(),
    "other case": lambda value: dumped(recased(value)).encode(),
    "strings for booleans": lambda value: dumped(with_strings_for_booleans(value)).encode(),
    "blanks and empty keys": lambda value: dumped(with_blanks_around_keys(value)).encode(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@given(stated=PROPERTIES)
def test_any_damaged_metadata_means_what_the_whole_one_means(
    damage: str, stated: dict[str, object]
) -> None:
    """Every repairable damage, done to any valid metadata, changes nothing but the list of repairs."""
    if damage == "lone backslash":  # beside one, an escaped quote cannot be told from the next one
        assume('\\"' not in dumped(stated))
    whole, damaged = parsed(dumped(stated)), parsed(DAMAGES[damage](stated))

    assert () == whole.repairs
    assert replace(whole, unknown=()) == replace(damaged, repairs=(), unknown=(), blank_keys={})


def plain(value: Json) -> object:
    """Turn what the lenient reader gives into what `json` gives."""
    if isinstance(value, tuple):
        return {name: plain(item) for name, item in value}
    return [plain(item) for item in value] if isinstance(value, list) else value


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    ),
    st.booleans(),
)
def test_valid_json_reads_as_json_reads_it(value: object, escape: bool) -> None:
    """Leniency changes the meaning of no valid text, and repairs nothing in it."""
    text = json.dumps(value, ensure_ascii=escape)

    found, repairs = read_lenient(text.encode())

    assert json.loads(text) == plain(found)
    assert () == repairs


def test_numbers_in_what_a_partner_says_keep_their_digits(tmp_path: Path) -> None:
    """A log's position is as long; what is beyond all floats is text, for which JSON has a word."""
    said = '{"sourceType": "Oracle", "sourceVersion": 19, "additionalInformation": {"scn": 9007199254740993, "v": 1e999}}'
    (tmp_path / "_partnerEvents.json").write_text(f'{{"sourceInfo": {said}}}')

    partner = read_partner(LocalStore(tmp_path))

    assert partner is not None
    assert ("19", {"scn": 9007199254740993, "v": "1e999"}) == (
        partner.source_version,
        partner.information,
    )


@given(st.binary(max_size=60) | st.text('{}[]",:\\ \ntruefalsnx0', max_size=40).map(str.encode))
def test_any_bytes_parse_or_are_refused(data: bytes) -> None:
    """Nothing but `MetadataError` ever comes out of a broken file."""
    try:
        parsed(data)
    except MetadataError as error:
        assert error.table == "dbo/orders"  # noqa: PT017  # some bytes are metadata
