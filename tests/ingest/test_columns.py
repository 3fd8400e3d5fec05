"""Names of columns are compared as Spark compares them."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from typing import TYPE_CHECKING

from mirrorlib.identifiers import fold_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_characters_are_folded_as_java_folds_them(spark: SparkSession) -> None:
    """`equalsIgnoreCase` says of each by itself: upper case, then lower; the two may know different Unicodes."""
    upper = "cast(java_method('java.lang.Character', 'toUpperCase', cast(id AS int)) AS int)"
    lower = f"java_method('java.lang.Character', 'toLowerCase', {upper})"
    known = "java_method('java.lang.Character', 'isDefined', cast(id AS int))"
    rows = spark.sql(f"SELECT id, cast({lower} AS int), {known} FROM range(65536)").collect()
    java: dict[int, set[str]] = defaultdict(set)
    python: dict[str, set[str]] = defaultdict(set)
    for code, folded, defined in rows:
        character = chr(code)
        if defined == "true" and unicodedata.category(character) not in {"Cn", "Cs"}:
            java[folded].add(character)
            python[fold_name(character)].add(character)

    assert len(java) > 50_000
    assert sorted(map(sorted, java.values())) == sorted(map(sorted, python.values()))
