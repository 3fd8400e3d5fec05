"""Quote names for Spark SQL and for Spark's column names: the one place that does."""

from __future__ import annotations


def quote(identifier: str) -> str:
    """Quote a name for Spark SQL; whatever it holds, it stays one identifier."""
    escaped = identifier.replace("`", "``")
    return f"`{escaped}`"
