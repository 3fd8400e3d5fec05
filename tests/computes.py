"""Compute that lets nobody configure a session but by the few settings that Databricks serverless documents.

`MIRRORLIB_COMPUTE=serverless` lets a whole test run go on such compute, the processes that it starts too, and
`MIRRORLIB_COMPUTE=connect` on a client of Spark Connect that can, besides, neither read settings nor make a session.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Set = Callable[[object, str, object], None]

COMPUTE = os.environ.get("MIRRORLIB_COMPUTE")
SERVERLESS = COMPUTE is not None
_CLIENTS = (
    "spark.python.",
    "spark.sql.execution.",
    "spark.sql.session.",
)  # what the client itself asks for
STATIC = "spark.sql.warehouse.dir"  # Spark itself lets nobody set it
MARKS = "spark.databricks.delta.write."
SETTABLE = {
    "spark.sql.shuffle.partitions",
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.legacy.timeParserPolicy",
}


def refusing(usual: Set, refused: Callable[[str], bool] = lambda name: name not in SETTABLE) -> Set:
    """Make a session's way to set a value that refuses some names as Spark refuses a static one."""

    def take(conf: object, name: str, value: object) -> None:
        usual(conf, STATIC if refused(name) else name, value)

    return take


def hiding(usual: Callable[..., object] | None) -> Callable[..., object]:
    """Make a session's way to tell a value that hides all others, or, of nothing, one that is not there at all."""

    def tell(conf: object, name: str = "", *default: object) -> object:
        from pyspark.errors import PySparkException

        if usual is None or not name.startswith(_CLIENTS):
            raise PySparkException(message=f"[CONFIG_NOT_AVAILABLE] {name} is not available.")
        return usual(conf, name, *default)

    return tell


def confine(client: SparkSession, patch: Callable[[object, str, object], None] = setattr) -> None:
    """Let a client of Spark Connect set and read nothing but what serverless documents, and make no session."""
    conf = type(client.conf)
    patch(conf, "set", refusing(conf.set))
    patch(conf, "get", hiding(conf.get))
    patch(type(client), "cloneSession", hiding(None))


def let_nobody_configure(spark: SparkSession) -> None:
    """Let every session of this process refuse settings where the environment says so."""
    if COMPUTE == "serverless":
        own, kind = spark.conf, type(spark.conf)
        usual, refuse = kind.set, refusing(kind.set)

        def take(conf: object, name: str, value: object) -> None:  # tests may set what they like
            (usual if conf is own else refuse)(conf, name, value)

        kind.set = take  # type: ignore[method-assign]  # for the rest of the process


def said_by(info: Mapping[str, Any]) -> dict[str, Any]:
    """Read what a commit says of itself: as `userMetadata`, or by a condition where no session carries that."""
    said = info.get("userMetadata")
    if not said and (
        found := re.search(r"mirrorlib:([\w=-]+)", str(info.get("operationParameters")))
    ):
        said = base64.urlsafe_b64decode(found[1]).decode()
    told: dict[str, Any] = json.loads(said or "{}").get("mirrorlib", {})
    return told
