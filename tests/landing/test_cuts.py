"""However a backlog of numbers is cut into batches, a column ends with one type and one set of values, or at one fault."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", minversion="21", reason="an older one has not all types")

from mirrorlib.landing.types import widen_type
from mirrorlib.landing.values import first_misfit, fit_values

DEC = pa.decimal128
NUMBERS = [
    *((pa.int8(), one) for one in (-3, 0)),
    *((pa.int32(), one) for one in (1, 2**24 + 1)),
    *((pa.int64(), one) for one in (7, 2**53)),
    *((pa.float32(), one) for one in (0.5, 0.1, 1e20, 2.0**24)),
    *((pa.float64(), one) for one in (0.5, 0.1, 3.0, 1e300)),
    *((DEC(4, 2), Decimal(one)) for one in ("0.35", "1.10", "0.5")),
    *((DEC(4, 1), Decimal(one)) for one in ("0.5", "7")),
    *((DEC(10, 2), Decimal(one)) for one in ("12345678.91", "16777216")),
    (DEC(20, 12), Decimal("0.100000001490")),
    (DEC(38, 0), Decimal(10**37)),
]
Number = tuple[pa.DataType, object]


def column(kind: pa.DataType, *values: object) -> pa.ChunkedArray:
    """Write values as a column."""
    return pa.chunked_array([pa.array(values, kind)])


def grown(known: pa.DataType | None, files: Sequence[Number]) -> pa.DataType | None:
    """Give the type that a column has after a batch of files with a value each; None where one fits nowhere."""
    for kind, value in files:
        if known is None:
            known = kind
        elif first_misfit(column(kind, value), known) is not None:
            known = widen_type(known, kind)
            if known is None or first_misfit(column(kind, value), known) is not None:
                return None
    return known


def widened(rows: list[object], old: pa.DataType, new: pa.DataType) -> list[object]:
    """Change a column's type as Delta does, by the number that is stored."""
    return column(old, *rows).cast(new).to_pylist()


def applied(batches: Sequence[Sequence[Number]]) -> tuple[str, list[object]] | None:
    """Apply batch after batch; None when one cannot be."""
    known: pa.DataType | None = None
    rows: list[object] = []
    for files in batches:
        after = grown(known, files)
        if after is None:
            return None
        rows = rows if known in {None, after} else widened(rows, known, after)
        if any(first_misfit(column(*file), after) is not None for file in files):
            return None
        rows += [fit_values(column(*file), after)[0].as_py() for file in files]
        known = after
    return str(known), rows


@given(st.lists(st.sampled_from(NUMBERS), min_size=2, max_size=4), st.data())
def test_a_column_does_not_know_where_its_backlog_was_cut(
    files: list[Number], data: st.DataObject
) -> None:
    """All files in one batch, a batch a file, or anything between; a zero's sign aside."""
    cut = data.draw(st.integers(1, len(files) - 1))

    whole = applied([files])

    assert whole == applied([[file] for file in files])
    assert whole == applied([files[:cut], files[cut:]])
