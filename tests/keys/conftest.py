"""Fixtures of the tests of keys: the same session as everybody's, or a Spark Connect client beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from connecting import CONNECT_MODE, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def client(spark: SparkSession) -> Iterator[SparkSession]:
    """Connect to a Spark Connect server; PySpark 3.5 comes without one."""
    if spark.version < "4":
        pytest.skip("this Spark has no Spark Connect server")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONNECT_MODE, "1")
        session = connect(spark)
    yield session
    session.stop()


@pytest.fixture(params=["classic", "connect"])
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Give both kinds of session, one after the other."""
    found: SparkSession = request.getfixturevalue(
        "spark" if request.param == "classic" else "client"
    )
    if request.param == "connect":
        monkeypatch.setenv(CONNECT_MODE, "1")
    return found
