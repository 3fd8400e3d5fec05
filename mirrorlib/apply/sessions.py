"""Lend Spark sessions of our own: Delta's transaction marks are session configuration.

All threads of a session share its configuration, so each table in flight works in a session that
nobody else has. Sessions are kept for the next table and the next run: a new one has to be set up
before its first statement, which costs as much as reading the change files of a small batch.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_IDLE: WeakKeyDictionary[SparkSession, list[SparkSession]] = WeakKeyDictionary()
_CONF = {
    "spark.sql.session.timeZone": "UTC",
    # Else Spark puts ${env:HOME} in before it parses, inside quoted names too.
    "spark.sql.variable.substitute": "false",
}


@contextlib.contextmanager
def lend_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Lend a session that shares *spark*'s cluster and nothing else, until the block ends."""
    idle = _IDLE.setdefault(spark, [])
    try:
        session = idle.pop()
    except IndexError:
        session = spark.newSession()
        for name, value in _CONF.items():
            session.conf.set(name, value)
    yield session
    idle.append(session)  # not after an error, which may have left something behind
