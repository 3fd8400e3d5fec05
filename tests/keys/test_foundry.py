"""Foundry schema documents: written and read as they are documented, everything else refused by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from keyed import KEY, keyed, plain
from mirrorlib.errors import KeysError
from mirrorlib.keys.declare import key_by
from mirrorlib.keys.foundry import from_foundry_schema, to_foundry_schema
from mirrorlib.keys.read import keys_of
from mirrorlib.keys.value import Keys
from mirrorlib.keys.view import current_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# As the source page has it.
DOCUMENTED = """
{
  "columns": ["uniqueCol1", "uniqueCol2"],
  "resolution": {
    "type": "duplicate",
    "duplicate": {
      "resolutionStrategy": {"type": "customStrategy", "customStrategy": {}},
      "deletionColumn": "isDeletedCol"
    }
  }
}
"""
ALL = (
    "a_binary binary, a_boolean boolean, a_byte tinyint, a_date date, a_decimal decimal(9, 2), a_double double, "
    "a_float float, a_integer int, a_long bigint, a_short smallint, a_string string NOT NULL, a_timestamp timestamp, "
    "an_array array<map<string, struct<x: decimal(3, 1), y: array<int>>>>"
)


def unique(spark: SparkSession) -> DataFrame:
    """Give a frame with the columns of the documented example."""
    return spark.createDataFrame(
        [], "uniqueCol1 string, uniqueCol2 long, isDeletedCol boolean, v double"
    )


def field(name: str, kind: str, **members: Any) -> dict[str, Any]:
    """Give a field of a document, with all its members."""
    empty = (
        "arraySubtype",
        "precision",
        "scale",
        "mapKeyType",
        "mapValueType",
        "subSchemas",
        "userDefinedTypeClass",
    )
    return {
        "type": kind,
        "name": name,
        "nullable": True,
        "customMetadata": {},
        **dict.fromkeys(empty),
        **members,
    }


def document(primary: object, **fields: Any) -> dict[str, Any]:
    """Give a document of two keys, a deletion column and an order column."""
    told = [
        field("a", "STRING", customMetadata={"includeInPartitioning": True}),
        field("b", "LONG", customMetadata={"includeInPartitioning": True}),
        field("gone", "BOOLEAN"),
        field("at", "TIMESTAMP"),
        field("ratio", "DOUBLE"),
    ]
    return {"fieldSchemaList": told, "primaryKey": primary, **fields}


def duplicate(strategy: object, **more: object) -> dict[str, Any]:
    """Give a primary key whose rows are resolved."""
    return {
        "columns": ["a", "b"],
        "resolution": {"type": "duplicate", "duplicate": {"resolutionStrategy": strategy, **more}},
    }


CUSTOM = {"type": "customStrategy", "customStrategy": {}}
TAGS = field(
    "tags",
    "ARRAY",
    arraySubtype={"type": "STRING"},
    customMetadata={"includeInPartitioning": True},
)


def test_the_documented_primary_key_is_written(session: SparkSession) -> None:
    """Letter by letter, as are the fields' marks; nothing marks the others."""
    df = key_by(unique(session), ["uniqueCol1", "uniqueCol2"], cdc=True, deleted="isDeletedCol")
    told = to_foundry_schema(df)

    assert json.loads(DOCUMENTED) == told["primaryKey"]
    assert [{"includeInPartitioning": True}, {"includeInPartitioning": True}, {}, {}] == [
        f["customMetadata"] for f in told["fieldSchemaList"]
    ]
    assert (
        field("uniqueCol1", "STRING", customMetadata={"includeInPartitioning": True})
        == told["fieldSchemaList"][0]
    )
    assert {
        "fieldSchemaList",
        "primaryKey",
        "dataFrameReaderClass",
        "customMetadata",
    } == told.keys()


def test_the_documented_primary_key_is_read(session: SparkSession) -> None:
    """And can be declared on the data."""
    df = unique(session)
    told = to_foundry_schema(key_by(df, ["uniqueCol1", "uniqueCol2"]))
    found = from_foundry_schema(json.dumps({**told, "primaryKey": json.loads(DOCUMENTED)}))
    key = ("uniqueCol1", "uniqueCol2")

    assert Keys(partition=key, primary=key, deleted="isDeletedCol") == found.keys
    assert df.schema == found.schema
    assert found.keys == keys_of(found.declare(df))


def test_comments_of_the_documentation_are_read_over(session: SparkSession) -> None:
    """They stand behind values and on lines of their own; what looks like one inside of a text is text."""
    df = session.createDataFrame([(1, "x")], "`a//b` long, v string")
    document = json.dumps(to_foundry_schema(key_by(df, ["a//b"])), indent=1)
    told = "// what it is\n" + "".join(f"{line} // so\n" for line in document.splitlines())

    found = from_foundry_schema(told)

    assert ("a//b",) == found.keys.partition
    assert df.schema == found.schema


def test_no_primary_key_is_null(session: SparkSession) -> None:
    """With a partition key alone, and with none."""
    assert to_foundry_schema(key_by(unique(session), "v"))["primaryKey"] is None
    assert to_foundry_schema(unique(session))["primaryKey"] is None
    assert Keys() == from_foundry_schema(to_foundry_schema(unique(session))).keys


def test_every_type_goes_there_and_back(session: SparkSession) -> None:
    """Nested ones and what may be NULL, too."""
    schema = session.createDataFrame([], ALL).schema
    df = session.createDataFrame([], schema)

    assert schema == from_foundry_schema(json.dumps(to_foundry_schema(df))).schema


def test_resolutions_go_there_and_back(session: SparkSession) -> None:
    """By order columns, by arrival, and where every key occurs once."""
    for df in (keyed(session), key_by(plain(session), KEY, cdc=True), current_view(keyed(session))):
        told = to_foundry_schema(df)
        found = from_foundry_schema(told)
        expected = keys_of(df)
        if expected.unique:  # which says nothing of what decided before
            expected = Keys(partition=KEY, primary=KEY)
            assert {"type": "unique", "unique": {}} == told["primaryKey"]["resolution"]
            assert found.keys.unique

        assert expected == found.keys


@pytest.mark.parametrize("union", [True, False], ids=["wrapped", "flat"])
def test_both_ways_to_write_a_strategy_are_read(*, union: bool) -> None:
    """Under its name, as schema documents do, or beside its type, as other interfaces do."""
    columns = {"columns": ["at"]}
    strategy = (
        {"type": "latestWins", "latestWins": columns}
        if union
        else {"type": "latestWins", **columns}
    )
    found = from_foundry_schema(document(duplicate(strategy, deletionColumn=None)))

    assert Keys(partition=("a", "b"), primary=("a", "b"), order_by=("at",)) == found.keys


def test_a_primary_key_that_does_not_partition_warns() -> None:
    """The source recommends both; it is read all the same."""
    told = document(duplicate(CUSTOM))
    told["fieldSchemaList"][1]["customMetadata"] = {}

    with pytest.warns(UserWarning, match="the order of its rows is not kept"):
        found = from_foundry_schema(told)
    assert ("a", "b") == found.keys.primary == found.keys.partition


@pytest.mark.parametrize(
    "primary, reason",
    [
        ({"columns": ["a"], "resolution": {"type": "newest"}}, "a resolution that is not known .found newest"),
        (duplicate({"type": "firstWins"}), "a resolution strategy that is not known .found firstWins"),
        (duplicate({"type": "customStrategy", "customStrategy": {"x": 1}}), "customStrategy has a part that is not known .found x"),
        (duplicate({"type": "latestWins", "latestWins": {"columns": []}}), "latestWins names no columns"),
        (duplicate({"type": "latestWins", "columns": ["z"]}), "column z: the order columns name one that is not there"),
        (duplicate(CUSTOM, deletionColumn="at"), "column at: the deletion column cannot have its type"),
        (duplicate(CUSTOM, deletionColumn=3), "the deletion column is not a name"),
        (duplicate(CUSTOM, more=1), "duplicate has a part that is not known .found more"),
        (duplicate(None), "resolutionStrategy is not an object"),
        ({**duplicate(CUSTOM), "columns": []}, "primaryKey names no columns"),
        ({**duplicate(CUSTOM), "columns": ["a", "A"]}, "column a: the key columns name a column twice"),
        ({**duplicate(CUSTOM), "columns": ["z"]}, "column z: the key columns name one that is not there"),
        ({**duplicate(CUSTOM), "more": 1}, "primaryKey has a part that is not known .found more"),
        (["a"], "primaryKey is not an object"),
        ({"columns": ["a", "b"], "resolution": {"type": "unique", "unique": {}, "more": 1}}, "unique has a part that is not known .found more"),
        ({"columns": ["a", "b"], "resolution": {"type": "unique", "more": 1}}, "unique has a part that is not known .found more"),
        (duplicate({"type": "latestWins", "latestWins": {"columns": ["at"], "more": 1}}), "latestWins has a part that is not known .found more"),
        (duplicate({"type": "latestWins", "columns": ["at"], "more": 1}), "latestWins has a part that is not known .found more"),
        (duplicate({"type": "latestWins", "columns": ["ratio"]}), "column ratio: an order column cannot have its type .found double"),
        (duplicate({"type": "latestWins", "columns": ["b"]}), "column b: a column is a key and the order column"),
        ({**duplicate(CUSTOM, deletionColumn="gone"), "columns": ["a", "gone"]}, "column gone: a column is a key and the deletion column"),
    ],
)  # fmt: skip
def test_a_primary_key_of_another_shape_is_refused(primary: object, reason: str) -> None:
    """By the name of what is not known."""
    with pytest.raises(KeysError, match=reason):
        from_foundry_schema(document(primary))


@pytest.mark.parametrize(
    "told, reason",
    [
        ("{", "is not JSON"),
        ("[]", "is not an object"),
        ("{}", "has no fieldSchemaList"),
        ({"fieldSchemaList": [1]}, "field 0: a field of the schema document is not an object"),
        ({"fieldSchemaList": [{"type": "STRING"}]}, "has no name"),
        ({"fieldSchemaList": [field("a", "GEOHASH")]}, "column a: .* type that is not known .found GEOHASH"),
        ({"fieldSchemaList": [field("a", "DECIMAL")]}, "column a: a DECIMAL .* lacks precision or scale"),
        ({"fieldSchemaList": [field("a", "DECIMAL", precision=50, scale=60)]}, "column a: a DECIMAL .* digits .*found 50, 60"),
        ({"fieldSchemaList": [field("a", "STRUCT")]}, "column a: a STRUCT .* has no subSchemas"),
        ({"fieldSchemaList": [field("a", "ARRAY")]}, "column a.element: .* not an object"),
        ({"fieldSchemaList": [field("a", "STRING", extra=1)]}, "column a|field 0: .* a part that is not known"),
        ({"fieldSchemaList": [field("a", "STRING", userDefinedTypeClass="X")]}, "a type of its user's own .found X"),
        ({"fieldSchemaList": [field("a", "STRING"), field("a", "LONG")]}, "column a: .* two fields of one name"),
        ({"fieldSchemaList": [field("a", "STRING", customMetadata={"includeInPartitioning": "yes"})]}, "neither true nor false"),
        ({"fieldSchemaList": [field("a", "STRING", customMetadata=["x"])]}, "field 0: the customMetadata .* is not an object .found list"),
        ({"fieldSchemaList": [TAGS]}, "column tags: a key column cannot have its type .found array<string>"),
        (document(None, fields=1), "the schema document has a part that is not known .found fields"),
    ],
)  # fmt: skip
def test_a_document_of_another_shape_is_refused(told: str | dict[str, Any], reason: str) -> None:
    """By the name of the field."""
    with pytest.raises(KeysError, match=reason):
        from_foundry_schema(told)


@pytest.mark.parametrize(
    "kind", ["timestamp_ntz", "interval day to second", "struct<x: array<timestamp_ntz>>"]
)
def test_a_type_without_counterpart_is_refused(spark: SparkSession, kind: str) -> None:
    """With its place in the column."""
    with pytest.raises(
        KeysError, match=r"column (a|a\.x\.element): a column's type has no counterpart"
    ):
        to_foundry_schema(spark.createDataFrame([], f"a {kind}"))


def test_a_text_of_another_order_has_no_counterpart(spark: SparkSession) -> None:
    """Keys that are equal there would differ in Foundry."""
    if spark.version < "4":
        pytest.skip("collations came with Spark 4")
    with pytest.raises(KeysError, match=r"column a: .* no counterpart .*found string collate"):
        to_foundry_schema(spark.sql("SELECT 'x' COLLATE UTF8_LCASE AS a"))


@pytest.mark.parametrize("kind", ["binary", "double", "float"])
def test_a_primary_key_of_another_type_is_refused(spark: SparkSession, kind: str) -> None:
    """A stream may be keyed by it; a primary key may not."""
    df = spark.createDataFrame([], f"a {kind}")

    assert to_foundry_schema(key_by(df, "a"))["primaryKey"] is None
    with pytest.raises(KeysError, match="column a: a Foundry primary key cannot have this type"):
        to_foundry_schema(key_by(df, "a", cdc=True))


def test_a_part_of_a_primary_key_is_not_written(spark: SparkSession) -> None:
    """It would merge records."""
    with pytest.raises(KeysError, match="column k2: a part of the primary key was lost"):
        to_foundry_schema(keyed(spark).drop("k2"))


def test_keys_are_not_declared_on_other_data(spark: SparkSession) -> None:
    """A document's key columns have to be there."""
    with pytest.raises(KeysError, match="key columns name one that is not there"):
        from_foundry_schema(document(duplicate(CUSTOM))).declare(plain(spark))


@pytest.mark.parametrize(
    "columns, reason",
    [
        ("a string, b array<bigint>, gone boolean, at timestamp", "column b: a key column cannot"),
        ("a string, b bigint, gone string, at timestamp", "column gone: the deletion column"),
        ("a string, b bigint, gone boolean, at double", "column at: an order column cannot"),
    ],
)
def test_keys_are_not_declared_on_columns_of_other_types(
    spark: SparkSession, columns: str, reason: str
) -> None:
    """What the data's own types do not allow is not claimed, whatever the document says of them."""
    strategy = {"type": "latestWins", "latestWins": {"columns": ["at"]}}
    found = from_foundry_schema(document(duplicate(strategy, deletionColumn="gone")))

    with pytest.raises(KeysError, match=reason):
        found.declare(spark.createDataFrame([], columns))


@pytest.mark.parametrize("resolution", ["unique", "duplicate"])
def test_a_partition_key_is_never_cut_down_to_the_primary_key(resolution: str) -> None:
    """Rows that are equal in a part of it are not kept in order: that would say more than the document."""
    told = document(duplicate(CUSTOM, deletionColumn="gone"))
    told["primaryKey"]["columns"] = ["a"]
    if resolution == "unique":
        told["primaryKey"]["resolution"] = {"type": "unique", "unique": {}}

    with pytest.warns(
        UserWarning, match=r"key \(a\) is not .* \(a, b\).* The partition key alone is"
    ):
        found = from_foundry_schema(told)
    assert Keys(partition=("a", "b")) == found.keys


def test_a_primary_key_does_not_hide_what_cannot_partition() -> None:
    """Every mark is looked at, also where the primary key is taken for both."""
    told = document(duplicate(CUSTOM))
    told["fieldSchemaList"].append(TAGS)

    with pytest.raises(KeysError, match="column tags: a key column cannot have its type"):
        from_foundry_schema(told)
