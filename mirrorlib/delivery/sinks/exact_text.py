"""Write values as text from which the same values can be read, by Spark."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

# By default Spark leaves out fields that are NULL, and cuts moments to milliseconds.
JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def decimal_text(value: Column, scale: int) -> Column:
    """Write a decimal with all its digits behind the point: a cast may write 1E-7."""
    digits = "0." + "0" * scale if scale else "0"
    return f.call_function("format_number", value, f.lit(digits))
