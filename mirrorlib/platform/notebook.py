"""Let one notebook run on Databricks, on Fabric, under papermill and by hand.

In: the notebook's own names, `globals()`. Out: its parameters as the library takes them, a session,
and at its end a failed run where a table was stopped. Databricks hands parameters over as widgets,
which are text; Fabric and papermill put a cell with values behind the one that is tagged `parameters`.
A widget counts for more than what the cell says.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from mirrorlib.delta.lock import find_place
from mirrorlib.errors import ParameterError, StoppedError, first_few
from mirrorlib.events import Observer
from mirrorlib.ingest.options import Options
from mirrorlib.names import parse_name
from mirrorlib.operate.overview import Overview, read_overview
from mirrorlib.platform.parameters import Kind, Place, read_options, read_parameter
from mirrorlib.platform.progress import show_in_cell
from mirrorlib.platform.session import local_spark, platform_spark
from mirrorlib.store import lend_azure_token
from mirrorlib.store.volumes import is_volume
from mirrorlib.tabular import Report
from mirrorlib.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Utilities: TypeAlias = Any  # what `dbutils` and `notebookutils` are
_ONELAKE = "onelake.dfs.fabric.microsoft.com"
# SQLite would take the path for one of the driver's own disk, which goes with the session, or lock and write in place
# on a mount of OneLake.
_SQLITE = re.compile(r"jdbc:sqlite:(//)?(\./)?(/lakehouse/default/)?(Files|Tables)(/|$)")
_EXIT_LIMIT = 1_000_000  # characters that every host takes as a notebook's value


def host_of(names: Mapping[str, object]) -> Literal["databricks", "fabric", "local"]:
    """Say where the notebook runs."""
    if "dbutils" in names:
        return "databricks"
    return "local" if _fabric(names) is None else "fabric"


def resolve(names: MutableMapping[str, Any], /, **kinds: Kind) -> dict[str, Any]:
    """Read the notebook's parameters, each as the kind that is asked for; nothing is guessed.

    From here on OneLake is opened, on Fabric, with the token of whoever runs the notebook.

    Args:
        names: the notebook's `globals()`.
        kinds: each parameter's type: `str` has to be given, `str | None` is None when it is empty,
            `int`, `float` and `bool` may be numbers and flags or their text, `Literal[…]` is one of
            its words, `list[str]` is a JSON list, one bare name, or empty, `list[Place]` the same
            of places, one at least, and `dict[str, list[str]]` a JSON mapping of tables to lists.

    Raises:
        ParameterError: one is missing or cannot be read so; it is named with what is expected.

    Example:
        >>> given = {"target": "/data", "max_files": "7", "tables": '["dbo/*"]'}
        >>> resolve(given, target=str, max_files=int | None, tables=list[str])
        {'target': '/data', 'max_files': 7, 'tables': ['dbo/*']}

    """
    need(names, "Parameters", *kinds)
    utilities = names.get("dbutils")
    said = {name: _said(utilities, name, names[name]) for name in kinds}
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        if kind is Options:
            found |= read_options(said[name], name)
        else:
            found[name] = read_parameter(name, said[name], kind)
    fabric = _fabric(names)
    if utilities is None and fabric is not None:
        known = ("AZURE_STORAGE_", "AZURE_CLIENT_", "AZURE_FEDERATED_")  # as whom to open OneLake
        if not any(name.startswith(known) for name in os.environ):
            lend_azure_token(lambda: str(fabric.credentials.getToken("storage")))
        _place(found, kinds, fabric)
    return found


def get_spark(names: Mapping[str, Any], given: Mapping[str, Any]) -> SparkSession:
    """Return the platform's session, or start one on this machine that reaches what the parameters name."""
    several = (value if isinstance(value, list) else [value] for value in given.values())
    places = [place for values in several for place in values if isinstance(place, str)]
    spark: SparkSession = names.get("spark") or platform_spark() or local_spark(stores=places)
    # A cluster may keep an older wheel of the same name: whoever looks at a run sees what it ran on.
    sys.stdout.write(f"mirrorlib {VERSION}, Spark {spark.version}, {host_of(names)}\n")
    return spark


def need(names: Mapping[str, Any], cell: str, *wanted: str) -> None:
    """See that a notebook has what an earlier cell of it makes: cells may be run in any order, and more than once.

    Raises:
        ParameterError: it has not; the cell to be run is named, by the heading that is above it.

    """
    if missing := [name for name in wanted if name not in names]:
        msg = f"there is no {first_few(missing)} yet"
        raise ParameterError(msg, next_step=f'Run the cell below "{cell}" first, then this one.')


def progress(names: Mapping[str, Any]) -> AbstractContextManager[Observer]:
    """Show below a cell how far each table is, while it runs; printed on Fabric, where nobody has seen it redrawn."""
    return show_in_cell(live=host_of(names) != "fabric")


def picture(given: Mapping[str, Any], spark: SparkSession | None = None) -> Overview:
    """Show what came, when, and what stands: the page of a notebook's target, or what a derived table is made of."""
    target, catalog, state = given["target"], given.get("catalog"), given.get("state")
    # Of a table that is made of others: mirrors whose state is there are in their schema.
    if "sources" in given and "/" not in target and spark is not None:
        root = find_place(spark, given["sources"][0], state=state).root
        target, catalog = root.place, root.catalog
    return read_overview(target, catalog=catalog, state=state, spark=spark, allow_new=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """A zone, tables and a journal of one's own: in one folder, and a schema where tables are a catalog's."""

    folder: str
    schema: str | None = None

    @property
    def landing(self) -> str:
        """Return the landing zone."""
        return f"{self.folder}/landing"

    @property
    def state(self) -> str | None:
        """Return where progress lies; None where that is beside the tables."""
        return f"{self.folder}/state" if self.schema else None

    @property
    def tables(self) -> dict[str, Any]:
        """Return the target as `apply`, `export`, `status` and the others take it."""
        catalog, _, schema = (self.schema or "").partition(".")
        target = schema or f"{self.folder}/tables"
        return {"target": target, "catalog": catalog or None, "state": self.state}

    def table(self, name: str) -> str:
        """Return the address of a table, "dbo/orders", or of one that is made of others, "large"."""
        table = parse_name(name)
        return f"{self.schema}.{table.table}" if self.schema else f"{self.folder}/tables/{table}"


def find_home(names: Mapping[str, Any], own: str, given: Mapping[str, Any]) -> Home:
    """Choose a place of its own for a notebook that publishes itself.

    By default it is on the disk of this machine until its Python ends, and, in Fabric, in the default lakehouse.

    Raises:
        ParameterError: the folder has to be named, or the two cannot be used together.

    """
    host, fabric, folder, schema = host_of(names), _fabric(names), given["folder"], given["schema"]
    if folder is None and fabric is not None and host == "fabric":
        folder = _onelake_address(fabric.runtime.context, "folder", f"Files/{own}")
    if folder is None and host == "databricks":
        msg = "the parameter folder has to name a place that every worker reaches"
        step = f"Name a folder of a volume, dbfs:/Volumes/CATALOG/SCHEMA/VOLUME/{own}, and in schema CATALOG.SCHEMA."
        raise ParameterError(msg, next_step=step)
    if schema is not None and len(schema.split(".")) != len(("catalog", "schema")):
        msg = "the parameter schema has to be CATALOG.SCHEMA"
        raise ParameterError(msg, found=schema)
    if schema is None and folder is not None and is_volume(folder):
        msg = "a volume can hold no Delta table, and no schema is named for it"
        step = "Name one, CATALOG.SCHEMA, in the parameter schema."
        raise ParameterError(msg, found=folder, next_step=step)
    return Home(folder=(folder or f"{_own_disk().name}/{own}").rstrip("/"), schema=schema)


@cache
def _own_disk() -> TemporaryDirectory[str]:
    """Make a folder that goes away with this Python."""
    return TemporaryDirectory(prefix="mirrorlib-")


def finish(names: Mapping[str, Any], report: Report) -> None:
    """End the notebook with its report as its value, or fail it. Call it in the last cell, alone.

    Raises:
        StoppedError: the report is not well; it was shown by the cell before.

    """
    check(report)
    text = json.dumps(report.to_dict(), ensure_ascii=False, default=str)
    value = text if len(text) <= _EXIT_LIMIT else json.dumps({"ok": True})
    if (utilities := names.get("dbutils") or _fabric(names)) is not None:
        utilities.notebook.exit(value)
    else:
        sys.stdout.write("The run is well.\n")


def check(report: Report) -> None:
    """Raise what a report that is not well comes to, for hosts that look at nothing else.

    Raises:
        StoppedError: the report is not well.

    """
    if not report.ok:
        msg = "the run is not well"
        raise StoppedError(msg, found=first_few(report.notes()) or "no table is well")


def _fabric(names: Mapping[str, Any]) -> Utilities:
    """Return Fabric's utilities, which it sets in a notebook and lets be imported elsewhere."""
    found = names.get("notebookutils")
    if found is None and importlib.util.find_spec("notebookutils") is not None:
        found = importlib.import_module("notebookutils")
    return found


def _place(given: dict[str, Any], kinds: Mapping[str, Kind], utilities: Utilities) -> None:
    """Make OneLake's addresses of places in the default lakehouse."""
    about = utilities.runtime.context if given else {}
    for name, value in given.items():
        if isinstance(value, str):
            given[name] = _onelake_address(about, name, value)
        elif kinds.get(name) == list[Place]:
            given[name] = [_onelake_address(about, name, place) for place in value]


def _onelake_address(about: Mapping[str, str | None], name: str, value: str) -> str:
    """Return the address of `Files/…` or `Tables/…`, behind a receiver's kind or not; any other value as it is."""
    kind, colon, rest = value.partition(":")
    place = rest if colon and kind.isalpha() else value
    if _SQLITE.match(value):
        msg = f"the parameter {name} puts a file of SQLite into a lakehouse, which is no disk"
        step = "Name files:Files/…, delta:Tables/… or a server, jdbc:postgresql://…."
        raise ParameterError(msg, found=value, next_step=step)
    if place.partition("/")[0] not in {"Files", "Tables"}:  # of a lakehouse
        return value
    workspace = about.get("defaultLakehouseWorkspaceId") or about.get("currentWorkspaceId")
    lakehouse = about.get("defaultLakehouseId")
    if not (workspace and lakehouse):
        msg = f"the parameter {name} is a place of the default lakehouse, and the notebook has none"
        step = f"Attach a lakehouse, or say the address: abfss://WORKSPACE@{_ONELAKE}/LAKEHOUSE.Lakehouse/{place}."
        raise ParameterError(msg, found=value, next_step=step)
    return f"{value.removesuffix(place)}abfss://{workspace}@{_ONELAKE}/{lakehouse}/{place}"


def _said(utilities: Utilities, name: str, default: object) -> object:
    """Ask Databricks' widget for its value; it is made with the cell's when there is none."""
    if utilities is None:
        return default
    text = "" if default is None else default if isinstance(default, str) else json.dumps(default)
    utilities.widgets.text(name, text)
    return utilities.widgets.get(name)
