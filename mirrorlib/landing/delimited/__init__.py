"""Delimited text: from the bytes of a change file to typed Arrow tables, in the order of its rows.

The data's way: `dialect` says how a table's text is written, `text` gives its UTF-8 blocks, `rows`
cuts them where rows end, `reading` has pyarrow parse them and names what does not fit, `values` says
what each declared type is written like; `tables` is what a reader takes, or a survey of what it refuses.
"""

from __future__ import annotations

from mirrorlib.landing.delimited.dialect import Dialect, dialect_of
from mirrorlib.landing.delimited.reading import open_header
from mirrorlib.landing.delimited.tables import (
    Survey,
    header_schema,
    iter_tables,
    line_of,
    read_header,
    survey_tables,
)
from mirrorlib.landing.delimited.values import read_values, shape_of

__all__ = [
    "Dialect",
    "Survey",
    "dialect_of",
    "header_schema",
    "iter_tables",
    "line_of",
    "open_header",
    "read_header",
    "read_values",
    "shape_of",
    "survey_tables",
]
