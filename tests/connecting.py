"""A Spark Connect server inside the tests' own Java process, and a client of it in this Python process."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_MODE = (
    "SPARK_CONNECT_MODE_ENABLED"  # while it is set, Spark's functions make a client's columns
)
_PORT = "spark.connect.grpc.binding.port"


def connect(spark: SparkSession) -> SparkSession:
    """Start the server, unless another worker of the test run has, and give a session of its client."""
    from pyspark.sql.connect.session import SparkSession as Client

    java = spark.sparkContext._jvm
    assert java is not None
    conf = java.org.apache.spark.SparkEnv.get().conf()
    conf.setIfMissing(_PORT, str(_free_port()))
    java.org.apache.spark.sql.connect.service.SparkConnectService.start(
        spark.sparkContext._jsc.sc()  # type: ignore[attr-defined]  # py4j's
    )
    client: SparkSession = Client.builder.remote(f"sc://localhost:{conf.get(_PORT)}").create()  # type: ignore[assignment]  # it stands for one
    return client


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
