"""Name what a local Spark needs to read and write the stores that URLs name.

In: URLs. Out: Maven packages and Spark confs. Spark has connectors of its own, which PySpark leaves out;
everything else here goes through obstore. Both are opened by the same environment variables
(`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL` …): credentials are never
copied into a conf, where an event log would show them. A cluster brings its own connectors.
"""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

_HADOOP = re.compile(r"hadoop-client-api-([0-9.]+)\.jar")
_MODULES = {
    "s3": "hadoop-aws",
    "s3a": "hadoop-aws",
    "abfs": "hadoop-azure",
    "abfss": "hadoop-azure",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Connectors:
    """What to start Spark with: packages as `group:artifact:version`, and confs."""

    packages: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)


def connectors_for(*urls: str) -> Connectors:
    """Choose connectors by the URLs' schemes; local paths need none.

    The packages have the version of PySpark's own Hadoop, which they have to match. What lies among
    PySpark's jars already is not asked for again.
    """
    schemes = {urlsplit(url).scheme for url in urls if "://" in url}
    modules = sorted({_MODULES[scheme] for scheme in schemes if scheme in _MODULES})
    if not modules:
        return Connectors()
    jars = [path.name for path in _spark_jars().glob("hadoop-*.jar")]
    version = next((found[1] for jar in jars if (found := _HADOOP.fullmatch(jar))), None)
    packages = [
        f"org.apache.hadoop:{module}:{version}"
        for module in modules
        if version is not None and not any(jar.startswith(f"{module}-") for jar in jars)
    ]
    conf = _s3_conf(os.environ) if "hadoop-aws" in modules else {}
    return Connectors(packages=tuple(packages), conf=conf)


def _spark_jars() -> Path:
    found = importlib.util.find_spec("pyspark")
    places = (found.submodule_search_locations if found else None) or [""]
    return Path(places[0]) / "jars"


def _s3_conf(variables: Mapping[str, str]) -> dict[str, str]:
    """Translate what obstore reads of the environment and Spark's connector does not."""
    conf = {}
    endpoint = variables.get("AWS_ENDPOINT_URL") or variables.get("AWS_ENDPOINT")
    region = variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION")
    if endpoint:
        conf["spark.hadoop.fs.s3a.endpoint"] = endpoint
        conf["spark.hadoop.fs.s3a.path.style.access"] = "true"
    if region:
        conf["spark.hadoop.fs.s3a.endpoint.region"] = region
    return conf
