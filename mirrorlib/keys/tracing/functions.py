"""Tell which functions of a plan are Spark's own: all others are user-defined, and no key goes through them.

A function prints as its name and its arguments, whoever wrote it: a Java function that was registered, one
defined in SQL, a Python one (with a number behind). So every name is looked up in the session: its class has to
be one of Spark's expressions. A name that is not known there, and not one of Spark's way to write, is a user's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirrorlib.identifiers import quote
from mirrorlib.keys.tracing.outputs import TYPE, is_closed, selected
from mirrorlib.keys.tracing.plan import Node, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

_CALL = re.compile(r"`?([^\s,()\[\]]+)\(")  # a quoted name may begin with one
_NUMBERED = re.compile(r"\)#(\d+)")
# A name behind its expression, up to the number that ends its part of a list.
_DEFINED = re.compile(rf" AS (?=([^#]*\))#(\d+){TYPE}(?:, |\]|$))")
_SHARED, _SHARED_CONF = "global_temp", "spark.sql.globalTempDatabase"
_OWN_FIRST = (4, 2)  # from this Spark on, no function of a user's takes the place of Spark's own
_OWN = "org.apache.spark.sql.catalyst."
_OTHERS = frozenset({"java_method", "reflect", "try_reflect"})  # they call any method of Java
# What Spark writes so without there being such a function.
_PIVOTED = "__pivot_"  # what Spark calls the columns from which it makes a pivot's
_WRITTEN = frozenset(
    {
        "ArrayType",
        "MapType",
        "StructField",
        "StructType",
        "atleastnnonnulls",
        "currentrow$",
        "knownnullable",
        "lambdafunction",
        "namedlambdavariable",
        "outer",
        "pivotfirst",
        "precisetimestampconversion",
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
        # A leaf prints its columns alone.
        found.update(_defined(node) if node.children else _NUMBERED.findall(node.text))
    return frozenset(found)


def _defined(node: Node) -> list[str]:
    """Return the numbers of the names like a call that an operator gives to what it computes.

    A text in a call may look like one, too, `concat(x AS y)#7`; it stands where a parenthesis is open.
    """
    text = selected(node) or node.text.strip().removeprefix("[")
    return [
        one[2]
        for one in _DEFINED.finditer(text)
        if is_closed(one[1]) and is_closed(text[: one.start()])
    ]


def called(node: Node) -> set[str]:
    """Return the names of the functions that an operator calls, in its subqueries too."""
    return {name for inner in _and_subplans(node) for name in _CALL.findall(inner.text)}


def _and_subplans(node: Node) -> list[Node]:
    return [node, *walk(*node.subplans)]


def user_defined(spark: SparkSession, names: Iterable[str]) -> frozenset[str]:
    """Return those of the names that are not Spark's own functions; no job runs to find out."""
    from pyspark.errors import PySparkException

    functions = set(names)
    try:
        return frozenset(functions - _own(spark, functions))
    except PySparkException:  # a platform that does not tell
        return frozenset(functions)


def shared_until(spark: SparkSession, way: Sequence[Node]) -> int:
    """Say how many operators of a way stand below a view that another session may have made.

    That session may have its own function by a name that is Spark's here.
    """
    if tuple(map(int, spark.version.split(".")[:2])) >= _OWN_FIRST:
        return 0
    schema = quote(spark.conf.get(_SHARED_CONF, _SHARED) or _SHARED)
    begin = f" ({schema}."
    places = [
        n for n, node in enumerate(way) if node.operator == "View" and node.text.startswith(begin)
    ]
    return max(places, default=0)


def _own(spark: SparkSession, functions: set[str]) -> set[str]:
    # A name with a catalog before it is no function of Spark's, nor is one with odd signs.
    plain = sorted(
        name for name in functions if re.fullmatch(r"\w+", name) and name.lower() not in _OTHERS
    )
    found = _registered(spark, plain)
    own = {name for name in plain if name in found and _is_own(spark, name)}
    written = {name for name in functions - found if name in _WRITTEN or name.startswith(_PIVOTED)}
    return own | written


def _registered(spark: SparkSession, names: Sequence[str]) -> set[str]:
    """Return those of the names by which there is a function. To ask for another one would log an error."""
    if not names:
        return set()
    listed = spark.sql(f"SHOW FUNCTIONS LIKE '{'|'.join(names)}'").collect()
    there = {str(row[0]).rpartition(".")[2].lower() for row in listed}
    return {name for name in names if name.lower() in there}


def _is_own(spark: SparkSession, name: str) -> bool:
    """Say whether a function's class is one of Spark's expressions: a name can be given to another one."""
    lines = [str(row[0]) for row in spark.sql(f"DESCRIBE FUNCTION {quote(name)}").collect()]
    kind = next((line for line in lines if line.startswith("Class: ")), "")
    return kind.removeprefix("Class: ").startswith(_OWN)
