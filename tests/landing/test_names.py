"""Names of folders and files are typed values; what cannot be carried is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlib.errors import LandingZoneError, TableNameError
from mirrorlib.identifiers import quote
from mirrorlib.names import (
    TableName,
    find_conflicts,
    is_ignored,
    matches,
    parse_name,
    printable,
    refuse_unmatched,
    sequence_name,
    sequence_number,
    uncarriable,
)

ORDERS = TableName("dbo", "orders")
HOSTILE = (
    "a%b", "a%2Fb", "a#b", "a?b", "a*b", "a[b]", "a{b}", "a'b", 'a"b', "a`b", "a:b", "a;b", "a,b",
    "a b", " a", "a ", "a.", "a=b", "a&b", "a+b", "a<b>", "a|b", "a~b", "${env:HOME}", "-rf", "äก日",
    "e\u0301", "\U0001f600", "a.b", "a..b", "part=1", "x" * 230,
)  # fmt: skip


@pytest.mark.parametrize(
    "name,folder",
    [
        (TableName(None, "orders"), "orders"),
        (TableName(None, "a.b"), "a.b"),
        (ORDERS, "dbo.schema/orders"),
        (TableName("dbo", "a.schema"), "dbo.schema/a.schema"),
    ],
)
def test_a_table_knows_its_folder(name: TableName, folder: str) -> None:
    """Below the folder of its schema, where it has one."""
    assert folder == name.folder


@pytest.mark.parametrize(
    "name,expected",
    [
        ("_metadata.json", True),
        ("_00000000000000000001.parquet", True),
        (".DS_Store", True),
        ("00000000000000000001.parquet", False),
        ("a_b", False),
    ],
)
def test_names_beginning_with_underscore_or_dot_are_ignored(name: str, expected: bool) -> None:
    """The format reserves them for publishers."""
    assert expected is is_ignored(name)


@pytest.mark.parametrize(
    "name,expected",
    [
        ("00000000000000000001.parquet", 1),
        ("00000000000000000001.csv", 1),
        ("99999999999999999999.parquet", 10**20 - 1),
        ("p=1.5/q=\n/00000000000000000001.csv", 1),
        ("p=00000000000000000001.csv/1.csv", None),
        ("00000000000000000000.parquet", None),
        ("0000000000000000001.parquet", None),
        ("000000000000000000001.parquet", None),
        ("00000000000000000001", None),
        ("00000000000000000001.", None),
        ("00000000000000000001.parquet.temp", None),
        ("00000000000000000001.parquet_TEMP", None),
        ("00000000000000000001.parquet#1", None),
        ("00000000000000000001.parquet\n", None),
        ("0000000000000000000\u0661.parquet", None),
        ("-0000000000000000001.parquet", None),
        ("_00000000000000000001.parquet", None),
        ("part-0001.parquet", None),
    ],
)
def test_a_sequence_number_is_exactly_twenty_digits(name: str, expected: int | None) -> None:
    """Anything else beside an extension is another kind of name."""
    assert expected == sequence_number(name)


@given(st.integers(1, 10**20 - 1), st.sampled_from(["parquet", ".csv"]))
def test_sequence_names_come_back_as_their_numbers(number: int, extension: str) -> None:
    """Writing and reading a name are each other's inverse."""
    name = sequence_name(number, extension)

    assert number == sequence_number(name)
    assert name.endswith(f"{number}.{extension.lstrip('.')}")


@pytest.mark.parametrize("number", [0, -1, 10**20])
def test_numbers_that_no_file_can_have(number: int) -> None:
    """Numbers begin at 1 and have twenty digits."""
    with pytest.raises(ValueError, match="at most 20 digits"):
        sequence_name(number)


def test_a_table_is_named_as_users_say_it() -> None:
    """The name is also the table's path below the target."""
    assert "dbo/orders" == str(ORDERS)
    assert "orders" == str(TableName(None, "orders"))


@pytest.mark.parametrize("name", [ORDERS, TableName(None, "orders"), TableName(None, "a.b")])
def test_a_name_is_read_as_it_is_written(name: TableName) -> None:
    """Options and reports use one writing."""
    assert name == parse_name(str(name))


def test_a_name_with_two_slashes_is_refused() -> None:
    """There is one schema at most."""
    with pytest.raises(TableNameError, match="schema/table"):
        parse_name("a/b/c")


def test_a_segment_is_one_readable_path_segment() -> None:
    """Plain names stay readable in the state folder."""
    assert "dbo~2FOrders_2.x" == TableName("dbo", "Orders_2.x").segment


@given(
    st.none() | st.text("a/~%. _äก", min_size=1).map(lambda text: text.replace("/", "")),
    st.text(min_size=1),
)
def test_a_segment_is_reversible_and_safe(schema: str | None, table: str) -> None:
    """Whatever the name holds, the segment is one name that nothing decodes, and leads back."""
    table = table.replace("/", "")
    name = TableName(schema, table)

    assert name == TableName.from_segment(name.segment)
    assert all(character.isalnum() or character in "-_.~" for character in name.segment)


def test_names_that_differ_have_segments_that_differ() -> None:
    """A schema and a table never look like one table with an odd name."""
    names = [
        TableName("a", "b"),
        TableName(None, "a~2Fb"),
        TableName(None, "a%2Fb"),
        TableName(None, "A~2fb"),
    ]

    assert len(names) == len({name.segment for name in names})


@pytest.mark.parametrize(
    "patterns,expected",
    [
        ([], True),
        (["dbo/orders"], True),
        (["orders"], True),
        (["dbo/*"], True),
        (["ord*"], True),
        (["*/orders"], True),
        (["x", "orders"], True),
        (["Orders"], False),
        (["sales/*"], False),
        (["dbo"], False),
        ("dbo/orders", True),
        ("sales/*", False),
        ("", False),
    ],
)
def test_patterns_name_tables(patterns: list[str] | str, expected: bool) -> None:
    """A pattern without a slash matches in every schema; no pattern asks for every table, a lone text is one."""
    assert expected is matches(ORDERS, patterns)


def test_a_lone_text_that_fits_no_table_is_refused_whole() -> None:
    """It is told as it was said, not by its first letter."""
    refuse_unmatched("dbo/*", [ORDERS])
    with pytest.raises(LandingZoneError, match=r"sales/\*: no table"):
        refuse_unmatched("sales/*", [ORDERS])


def test_a_pattern_is_also_a_literal_name() -> None:
    """A table with brackets in its name can be asked for by its name."""
    assert matches(TableName(None, "a[b]"), ["a[b]"])


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_names_are_carried(part: str) -> None:
    """Real Delta carries them all, so none is refused."""
    assert uncarriable(TableName("dbo", part)) is None
    assert uncarriable(TableName(part, "t")) is None


@pytest.mark.parametrize(
    "part,reason",
    [
        ("", "'' is not a name"),
        (".", "'.' is not a name"),
        ("..", "'..' is not a name"),
        ("a\x00b", "control character"),
        ("a\nb", "control character"),
        ("a\x7f", "control character"),
        ("a\x85b", "control character"),
        ("a/b", "slash or backslash"),
        ("a\\b", "slash or backslash"),
        ("a\udcff", "not valid UTF-8"),
        ("ก" * 86, "longer than 255 bytes"),
        ("x" * 250, "together are longer than 240 bytes"),
    ],
)
def test_names_that_cannot_be_carried_are_refused_by_name(part: str, reason: str) -> None:
    """The refusal names the table, printably, as schema and as table part."""
    for name in (TableName("dbo", part), TableName(part, "orders")):
        refusal = uncarriable(name)

        assert refusal is not None
        assert reason in refusal.reason
        assert printable(str(name)) == refusal.table
        assert str(refusal).isprintable()


def test_tables_that_differ_only_by_case_are_both_refused() -> None:
    """On case-insensitive stores and in catalogs they are one table."""
    names = [ORDERS, TableName("DBO", "Orders"), TableName("dbo", "items")]

    found = find_conflicts(names)

    assert set(names[:2]) == set(found)
    assert "dbo/orders" == found[ORDERS].table
    assert "DBO/Orders" in str(found[ORDERS])


def test_tables_that_differ_only_by_unicode_form_are_both_refused() -> None:
    """Some file systems take `é` and `e` with an accent for one name."""
    assert 2 == len(find_conflicts([TableName(None, "\u00e9"), TableName(None, "e\u0301")]))


def test_a_table_inside_another_tables_folder_is_refused_with_it() -> None:
    """VACUUM of the outer table would delete the inner one's files."""
    outer, inner, free = TableName(None, "dbo"), ORDERS, TableName("dbo2", "orders")

    found = find_conflicts([outer, inner, free])

    assert {outer, inner} == set(found)
    assert "one inside the other" in str(found[inner])


def test_tables_without_conflict() -> None:
    """Equal table names in two schemas are two tables."""
    assert {} == find_conflicts([ORDERS, TableName("sales", "orders"), TableName(None, "orders")])


@given(st.text())
def test_a_quoted_name_stays_one_identifier(name: str) -> None:
    """No name ends its own quotes: every backtick inside is doubled."""
    quoted = quote(name)

    assert "`" == quoted[0] == quoted[-1]
    assert name == quoted[1:-1].replace("``", "`")
    assert 0 == quoted[1:-1].replace("``", "").count("`")
