"""Feeds and landing zones as Spark's own sources, for SQL and for queries: from Spark 4 on."""
