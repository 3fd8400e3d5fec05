"""Say how to install what an extra names: by the libraries' own names, one wording for every error.

In: an extra. Out: a sentence. mirrorlib itself, the distribution `mirrorlib-delta`, is installed from a clone or from
its wheel: what a package index has under its plain name is somebody else's.
"""

from __future__ import annotations

import shlex
from typing import Literal

Extra = Literal["databricks", "kafka", "local", "openlineage", "otel", "page", "postgres"]

_NEEDED: dict[Extra, tuple[str, ...]] = {
    "databricks": ("databricks-sdk>=0.56",),
    "kafka": ("confluent-kafka>=2.4",),
    "local": ("delta-spark==4.4.0", "pyspark==4.2.0"),
    "openlineage": ("openlineage-python>=1.54",),
    "otel": ("opentelemetry-sdk>=1.45", "opentelemetry-exporter-otlp-proto-http>=1.45"),
    "page": ("jinja2>=3.1", "waitress>=3"),
    "postgres": ("psycopg[binary]>=3.1",),
}


def how_to_install(extra: Extra) -> str:
    """Name what to install for an extra, and the extra itself for those who have a clone."""
    command = shlex.join(["pip", "install", *_NEEDED[extra]])
    return f"Install it: {command}, or in a clone: pip install '.[{extra}]'."
