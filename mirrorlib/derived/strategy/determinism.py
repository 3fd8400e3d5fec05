"""Say what of a transformation may give something else another time.

In: the operators above its sources, as the analyzed plan shows them. Out: the reason, or "". There are two: what is
another thing by and by though no source has a new version, and what is another thing each time that it is computed,
so that rows that stay cannot be told.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirrorlib.keys.tracing import functions
from mirrorlib.keys.tracing.plan import REDACTED, Node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WRITTEN_DOWN = "LocalRelation"  # no plan shows its rows; they are the transformation's own
_NO_READ = frozenset({"OneRowRelation", "Range", _WRITTEN_DOWN})
# What is drawn, or told of files: a result is as right as another, until a source changes.
_DRAWN = re.compile(
    "input_file_block_length|input_file_block_start|input_file_name|monotonically_increasing_id|"
    "rand|randn|random|randstr|shuffle|spark_partition_id|uniform|uuid",
    re.IGNORECASE,
)
# What is another thing by and by, though nothing of the sources is.
_OF_THE_MOMENT = re.compile(
    "current_catalog|current_database|current_date|current_path|current_schema|current_time|"
    "current_timestamp|current_timezone|current_user|curdate|java_method|localtimestamp|now|reflect|"
    "session_user|try_reflect|user",
    re.IGNORECASE,
)
# So is a text that Spark takes for a moment where it becomes a date or a timestamp, with a time zone or without: its
# rule `SpecialDatetimeValues`. Many functions print what they are given, but not how they convert it, or that they
# do not: among their arguments, and in a list, it may always be one.
_MOMENT = re.compile(
    r"(?:(?<=\w\()|(?<=, ))[\x00-\x20]*(now|today|tomorrow|yesterday)\b"
    r"[ \t]*[\w+:/-]*[\x00-\x20]*(?=, |\)| as (?:date|timestamp))",
    re.IGNORECASE,
)
_NAME = re.compile(r" AS [^#]*#\d+|\w+\([^#()]*\)#\d+")  # what a column is called


def moment_dependence(above: Sequence[Node]) -> str:
    """Say what in a transformation may give something else another time, though no source has a new version."""
    for node in above:
        if not node.children and node.operator not in _NO_READ:
            return f"it reads something that is no source of it ({node.operator})"
    if any(REDACTED in node.text for node in above):
        return "its plan is redacted"
    return _each_time(_names_called(above), _OF_THE_MOMENT) or _moment(above)


def trouble_of(result: DataFrame, root: Node, above: Sequence[Node]) -> str:
    """Say what in a transformation may give something else another time, on rows that have not changed."""
    if any(node.operator == _WRITTEN_DOWN for node in above):
        return f"it reads something that is no source of it ({_WRITTEN_DOWN})"
    defined = functions.defined_columns(root)
    if any(functions.calls_python(node, defined) for node in above):
        return "it calls a function of a user's"
    names = _names_called(above)
    foreign = functions.user_defined(result.sparkSession, names)
    unknown = f"{min(foreign)} is not known to be a function of Spark's" if foreign else ""
    return _each_time(names, _DRAWN) or unknown


def _names_called(above: Sequence[Node]) -> set[str]:
    # What a leaf prints in parentheses, such as a range's ends, is no call.
    return {name for node in above if node.children for name in functions.called(node)}


def _each_time(names: set[str], drawn: re.Pattern[str]) -> str:
    found = sorted(name for name in names if drawn.fullmatch(name))
    return f"{found[0]} gives another value each time" if found else ""


def _moment(above: Sequence[Node]) -> str:
    for node in above:
        if found := _MOMENT.search(_NAME.sub("", node.text)):
            return f"the text {found[1]} as a date or timestamp gives another value each time"
    return ""
