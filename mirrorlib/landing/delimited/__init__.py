"""Delimited text: from the bytes of a change file to typed Arrow tables, in the order of its rows.

The data's way: `dialect` says how a table's text is written, `text` gives its UTF-8 blocks, `rows`
cuts them where rows end, `reading` has pyarrow parse them and names what does not fit, `values` says
what each declared type is written like; `tables` is what a reader takes, `survey` what it refuses.
"""

from __future__ import annotations

from mirrorlib.landing.delimited.dialect import Dialect, dialect_of
from mirrorlib.landing.delimited.survey import Survey, read_names, survey_tables
from mirrorlib.landing.delimited.tables import iter_tables, line_of, read_header
from mirrorlib.landing.delimited.values import read_values, shape_of

__all__ = [
    "Dialect",
    "Survey",
    "dialect_of",
    "iter_tables",
    "line_of",
    "read_header",
    "read_names",
    "read_values",
    "shape_of",
    "survey_tables",
]
