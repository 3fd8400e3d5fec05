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
    from pyspark.sql import SparkSession

# A quoted name may begin with one; a sign before a call is an operator.
_CALL = re.compile(r"`?((?![-~])[^\s,()\[\]]+)\(")
_NUMBERED = re.compile(r"\)#(\d+)")
# A name behind its expression, up to the number that ends its part of a list.
_DEFINED = re.compile(rf" AS (?=([^#]*\))#(\d+){TYPE}(?:, |\]|$))")
_OWN = "org.apache.spark.sql.catalyst."
_OTHERS = frozenset({"java_method", "reflect", "try_reflect"})  # they call any method of Java
# What Spark writes so without there being such a function, types inside of types too; `__pivot_` begins the columns
# from which it makes a pivot's.
_WRITTEN = re.compile(
    r"ArrayType|DayTimeIntervalType|DecimalType|MapType|StructField|StructType|YearMonthIntervalType|"
    r".*[<:]decimal|atleastnnonnulls|currentrow\$|extractansiintervaldays|knownnullable|"
    r"lambdafunction|namedlambdavariable|(?:not)?like(?:all|any)|outer|pivotfirst|precisetimestampconversion|"
    r"specifiedwindowframe|timestampadd|timestampdiff|try_cast|unboundedfollowing\$|unboundedpreceding\$|varchar|"
    r"windowspecdefinition|__pivot_.*",
    re.DOTALL,
)


def calls_python(node: Node, defined: frozenset[str]) -> bool:
    """Say whether an operator calls a Python function, which prints with a number behind its arguments.

    So do columns that are named like a call, `max(v)#7`; but those are *defined* somewhere.
    """
    return any(
        number not in defined
        for inner in (node, *walk(*node.subplans))
        for number in _NUMBERED.findall(inner.text)
    )


def defined_columns(root: Node) -> frozenset[str]:
    """Return the numbers of columns that are named like a call."""
    found: set[str] = set()
    for node in walk(root):
        if not node.children:  # a leaf prints its columns alone
            found.update(_NUMBERED.findall(node.text))
            continue
        text = selected(node) or node.text.strip().removeprefix("[")
        # A text in a call may look like a name, too, `concat(x AS y)#7`; it stands where a parenthesis is open.
        found.update(
            one[2]
            for one in _DEFINED.finditer(text)
            if is_closed(one[1]) and is_closed(text[: one.start()])
        )
    return frozenset(found)


def called(node: Node) -> set[str]:
    """Return the names of the functions that an operator calls, in its subqueries too."""
    texts = (inner.text for inner in (node, *walk(*node.subplans)))
    return {name for text in texts for name in _CALL.findall(text)}


def user_defined(spark: SparkSession, names: set[str]) -> set[str]:
    """Return those of the names that are not Spark's own functions; no job runs to find out.

    A function is Spark's where its class is one of Spark's expressions: a name can be given to another one. A name
    with a catalog before it, or with odd signs, is none of Spark's.
    """
    from pyspark.errors import PySparkException

    plain = sorted(
        name for name in names if re.fullmatch(r"\w+", name) and name.lower() not in _OTHERS
    )
    try:
        # To ask for one that is not there would log an error.
        listed = spark.sql(f"SHOW FUNCTIONS LIKE '{'|'.join(plain)}'").collect() if plain else []
        known = {str(row[0]).rpartition(".")[2].lower() for row in listed}
        there = {name for name in plain if name.lower() in known}
        own = {name for name in there if _class_of(spark, name).startswith(_OWN)}
    except PySparkException:  # a platform that does not tell
        return names
    return {name for name in names - own if name in there or not _WRITTEN.fullmatch(name)}


def _class_of(spark: SparkSession, name: str) -> str:
    lines = [str(row[0]) for row in spark.sql(f"DESCRIBE FUNCTION {quote(name)}").collect()]
    kind = next((line for line in lines if line.startswith("Class: ")), "")
    return kind.removeprefix("Class: ")
