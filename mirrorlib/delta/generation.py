"""Say which generation of Spark and Delta this is, for the few things that an older one lacks."""

from __future__ import annotations

ARROW_FRAMES = 4  # a DataFrame is made from an Arrow table
FULL_WIDENING = 4  # Delta widens every type of its protocol in place (TypeWidening, Delta 4.0)


def spark_generation() -> int:
    """Return the major version of the PySpark at hand: 3 or 4."""
    import pyspark  # an extra

    return int(pyspark.__version__.partition(".")[0])
