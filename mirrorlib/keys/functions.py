"""Tell which functions of a plan are Spark's own: all others are user-defined, and no key goes through them.

A function prints as its name and its arguments, whoever wrote it: a Java function that was registered, one
defined in SQL, a Python one (with a number behind). So every name is looked up in the session: its class has to
be one of Spark's expressions. A name that is not known there, and not one of Spark's way to write, is a user's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirrorlib.keys.plan import Node, walk
from mirrorlib.quoting import quote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

_CALL = re.compile(r"([^\s,()\[\]]+)\(")
_NUMBERED = re.compile(r"\)#(\d+)")
_DEFINED = re.compile(r" AS [^#]*\)#(\d+)")
_OWN = "org.apache.spark.sql.catalyst."
# What Spark writes so without there being such a function.
_WRITTEN = frozenset(
    {
        "currentrow$",
        "lambdafunction",
        "outer",
        "pivotfirst",
        "specifiedwindowframe",
        "unboundedfollowing$",
        "unboundedpreceding$",
        "varchar",
        "windowspecdefinition",
    }
)


def calls_python(node: Node, defined: frozenset[str]) -> bool:
    """Say whether an operator calls a Python function, which prints with a number behind its arguments.

    So do columns that are named like a call, `max(v)#7`; but those are *defined* somewhere.
    """
    return any(
        number not in defined
        for inner in _and_subplans(node)
        for number in _NUMBERED.findall(inner.text)
    )


def defined_columns(root: Node) -> frozenset[str]:
    """Return the numbers of columns that are named like a call."""
    found: set[str] = set()
    for node in walk(root):
        numbers = _DEFINED if node.children else _NUMBERED  # a leaf prints its columns alone
        found.update(numbers.findall(node.text))
    return frozenset(found)


def called(node: Node) -> set[str]:
    """Return the names of the functions that an operator calls, in its subqueries too."""
    return {name for inner in _and_subplans(node) for name in _CALL.findall(inner.text)}


def _and_subplans(node: Node) -> list[Node]:
    return [node, *walk(*node.subplans)]


def user_defined(spark: SparkSession, names: Iterable[str]) -> frozenset[str]:
    """Return those of the names that are not Spark's own functions."""
    return frozenset(name for name in names if not _is_own(spark, name))


def _is_own(spark: SparkSession, name: str) -> bool:
    """Look a function up; no job runs for it."""
    from pyspark.errors import PySparkException

    if not re.fullmatch(
        r"\w+\$?", name
    ):  # Spark's own have no catalog before them, and no odd signs
        return False
    try:
        told = spark.sql(f"DESCRIBE FUNCTION {quote(name)}").collect()
    except PySparkException:
        return name in _WRITTEN
    lines = [str(row[0]) for row in told]
    found = next((line for line in lines if line.startswith("Class: ")), "")
    if not found and any(
        "not found" in line for line in lines
    ):  # what Spark 3.5 says instead of failing
        return name in _WRITTEN
    return found.removeprefix("Class: ").startswith(_OWN)
