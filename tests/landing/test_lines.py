"""JSON lines are read exactly: types by all values of a file, errors by their line."""

from __future__ import annotations

import gzip
import io
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlib.errors import ChangeFileError, SchemaError
from mirrorlib.landing.delimited.text import TextFile
from mirrorlib.landing.lines import iter_line_tables, read_line_schema
from mirrorlib.landing.plain import PLAIN_DIALECT
from texts import listed

BIG = 2**53


def read(data: bytes | str, block: int = 1 << 20) -> pa.Table:
    """Read a file's rows: its columns first, then its tables."""
    data = data.encode() if isinstance(data, str) else data
    text = TextFile(io.BytesIO(data), listed(data), PLAIN_DIALECT, "t", block)
    schema = read_line_schema(text)
    found = list(iter_line_tables(text, schema))
    assert schema.rows == sum(map(len, found))
    return pa.concat_tables(found)


def lines(*values: object) -> str:
    """Write one column `a`, a value a line."""
    return "\n".join(json.dumps({"a": value}) for value in values)


@pytest.mark.parametrize(
    "values, kind, expected",
    [
        ([1, None, -3], pa.int64(), [1, None, -3]),
        ([2**63 - 1, -(2**63)], pa.int64(), [2**63 - 1, -(2**63)]),
        ([2**63], pa.decimal128(38, 0), [2**63]),
        ([10**38], pa.string(), [str(10**38)]),
        ([1, 1.5], pa.float64(), [1.0, 1.5]),
        ([BIG, 1.5], pa.float64(), [float(BIG), 1.5]),
        ([BIG + 1, 1.5], pa.string(), [str(BIG + 1), "1.5"]),
        ([True, None], pa.bool_(), [True, None]),
        ([True, 1], pa.string(), ["true", "1"]),
        (["x", 1, "1"], pa.string(), ["x", "1", "1"]),
        (["2026-01-01", "2026-01-01T00:00:00Z"], pa.string(), ["2026-01-01", "2026-01-01T00:00:00Z"]),
        ([{"b": [1, None]}, None], pa.string(), ['{"b":[1,null]}', None]),
        ([[1, "x", {}]], pa.string(), ['[1,"x",{}]']),
        ([None, None], pa.null(), [None, None]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_a_column_has_the_type_that_holds_all_its_values(
    values: list[object], kind: pa.DataType, expected: list[object], block: int
) -> None:
    """Nothing is rounded and nothing is guessed, however the file is cut into blocks."""
    column = read(lines(*values), block).column("a")

    assert (kind, expected) == (column.type, column.to_pylist())


@pytest.mark.parametrize(
    "values, expected",
    [
        (['{"amt": 123456789012345678.12}'], ['{"amt":123456789012345678.12}']),
        (['[1.50, {"b": [-0.0, 1E+2, 0e-999]}, []]'], ['[1.50,{"b":[-0.0,1E+2,0e-999]},[]]']),
        (['{"a": {}, "é\\n": ["\\"", null, true]}'], ['{"a":{},"é\\n":["\\"",null,true]}']),
        (["0.10000000000000000001", '"x"'], ["0.10000000000000000001", "x"]),
        (["123456789012345678.12", "1"], [123456789012345680.0, 1.0]),
        (["5e-324", "0.000e-9999", "-0.0"], [5e-324, 0.0, -0.0]),
    ],
)
def test_numbers_in_text_stand_as_they_were_written(
    values: list[str], expected: list[object]
) -> None:
    """A double column has the nearest doubles, as every reader of JSON; text has every digit."""
    found = read("\n".join(f'{{"a": {value}}}' for value in values))

    assert expected == found.column("a").to_pylist()


def test_values_may_be_nested_to_a_limit() -> None:
    """Wherever they are read from: the stack is not what ends."""
    deep = "[" * 100 + "]" * 100

    def stacked(frames: int) -> list[object]:
        return stacked(frames - 1) if frames else read(f'{{"a": {deep}}}').column("a").to_pylist()

    assert [deep] == stacked(300)


def test_names_come_in_their_order_and_may_be_missing() -> None:
    """An object may have any of the names, or none; blank lines are none; the last line needs no end."""
    found = read('{"b": 1}\r\n\n  \n{"a": "x", "c": null}\n{}')

    assert ["b", "a", "c"] == found.column_names
    assert [(1, None), (None, "x"), (None, None)] == [(r["b"], r["a"]) for r in found.to_pylist()]


def test_rows_without_any_name_still_count() -> None:
    """An empty object is a row of NULLs."""
    data = b"{}\n{}\n{}\n"
    text = TextFile(io.BytesIO(data), listed(data), PLAIN_DIALECT, "t")
    schema = read_line_schema(text)

    (found,) = iter_line_tables(text, schema)

    assert (3, 3) == (schema.rows, len(found))


@pytest.mark.parametrize(
    "pack", [gzip.compress, lambda data: pa.compress(data, "zstd", asbytes=True)]
)
def test_compression_is_told_by_content(pack: object) -> None:
    """Whatever the name says, a byte order mark or not."""
    data = b"\xef\xbb\xbf" + '{"a": "é東"}\n'.encode()

    assert [{"a": "é東"}] == read(pack(data)).to_pylist()  # type: ignore[operator]  # a function


@pytest.mark.parametrize(
    "text, reason, line, found",
    [
        ('{"a": 1}\n{"a": 2\n{"a": 3}', "the line is not JSON", 2, "Expecting ',' delimiter, character 8"),
        ('{"a": 1}\n\n{"a": secret}', "the line is not JSON", 3, "Expecting value, character 7"),
        ('{"a": 1} {"a": 2}', "the line is not JSON", 1, "Extra data, character 10"),
        ('{"a": NaN}', "the line is not JSON", 1, "NaN is no number in JSON"),
        ('{"a": 1}\n{"a": 1, "a": 2}', "the line is not JSON", 2, "a name is given twice in one object"),
        ('{"b": {"a": 1, "a": 2}}', "the line is not JSON", 1, "a name is given twice in one object"),
        ("[" * 100_000, "the line is not JSON", 1, "objects or arrays nested too deep"),
        ('{"a": ' + "[" * 101 + "1" + "]" * 101 + "}", "more than 100 objects or arrays", 1, None),
        ("[1]", "the line is no JSON object", 1, "an array"),
        ('{"a": 1}\nnull', "the line is no JSON object", 2, "null"),
        ('{"a": 1}\n{"a": 1e999}', "the number is beyond the range of a double", 2, None),
        ('{"a": [1e999]}', "the number is beyond the range of a double", 1, None),
        ('{"a": 0.0}\n{"a": 1e-999}', "the number is beyond the range of a double", 2, None),
        ('{"a": {"b": -0.1e-999}}', "the number is beyond the range of a double", 1, None),
        ('{"a": "x"}\n{"a": "\\ud800"}', "the text has half a character", 2, None),
        ('{"a": {"b": "\\ud800"}}', "the text has half a character", 1, None),
        (b'{"a": 1}\n{"a": "\xff"}', "the text is not utf-8", 2, "the byte 0xff"),
        (b"", "the change file has no bytes", None, "0 bytes"),
        (gzip.compress(b'{"a": 1}', mtime=0)[:-4], "gzip stream is cut short", None, None),
        (b"PAR1\x15 and so on", "the change file is no text", None, "Parquet"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("block", [16, 1 << 20])
def test_what_cannot_be_read_is_named_by_its_line(
    text: str | bytes, reason: str, line: int | None, found: str | None, block: int
) -> None:
    """And never by its content."""
    with pytest.raises(ChangeFileError, match=reason) as caught:
        read(text, block)

    assert line == caught.value.line
    assert found is None or found == caught.value.found
    assert "secret" not in str(caught.value)


def test_too_many_names_are_refused_before_the_rest_is_read() -> None:
    """Each costs memory, and the line behind them is none."""
    names = ",".join(f'"{name}":1' for name in range(30_002))

    with pytest.raises(SchemaError, match="the file has more than 30,000 columns"):
        read(f"{{{names}}}\n" + "{}\n" * 30_000 + "no JSON", 1 << 16)


def test_names_that_most_lines_lack_make_no_large_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table has so many cells at most, one row at least."""
    for cells, rows in ((7, [3, 2]), (1, [1] * 5)):
        monkeypatch.setattr("mirrorlib.landing.lines._CELLS", cells)

        found = read('{"a": 1, "b": 2}\n' + "{}\n" * 4)

        assert rows == [len(batch) for batch in found.to_batches()]
        assert [1, None, None, None, None] == found.column("a").to_pylist()


@pytest.mark.parametrize("name", ["", "a`b", "_metadata", "\\ud800", "\\u0001"])
def test_names_that_no_table_has_are_refused(name: str) -> None:
    """As in any other format."""
    with pytest.raises(SchemaError):
        read(f'{{"{name}": 1}}')


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
    max_leaves=5,
)  # fmt: skip


@given(st.lists(JSON_VALUES, min_size=1, max_size=8), st.integers(1, 40))
def test_any_values_come_back_as_they_were(values: list[object], block: int) -> None:
    """Each is its typed value, or its JSON text."""
    found = read(lines(*values), block).column("a").to_pylist()

    for value, back in zip(values, found, strict=True):
        if isinstance(back, str) and not isinstance(value, str):
            assert value == json.loads(back)
        else:
            assert value == back
