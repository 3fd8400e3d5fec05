"""Parameters are read strictly, whoever hands them over; each notebook passes on what its library function takes."""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import inspect
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

pytest.importorskip("papermill")

import mirrorlib
from mirrorlib.cli.main import make_parser
from mirrorlib.delivery.run import export_tables
from mirrorlib.derived.run import derive_table
from mirrorlib.errors import ParameterError, StoppedError
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.report import ApplyReport, TableReport
from mirrorlib.ingest.run import apply_zone
from mirrorlib.platform import notebook
from mirrorlib.platform.notebook import Place, find_home, finish, host_of, resolve
from mirrorlib.platform.parameters import read_options
from mirrorlib.store import open_store
from papers import FOLDER, NAMES, cells

KEYS = dict[str, list[str]] | list[str] | None
TOOL = Path(__file__).parents[2] / "tools" / "notebooks.py"


def report(*states: Any) -> ApplyReport:
    """Give a report of tables in these states."""
    tables = tuple(
        TableReport(
            table=f"t{place}",
            state=state,
            reason="" if state == "current" else "something is wrong.",
        )
        for place, state in enumerate(states)
    )
    return ApplyReport(landing_zone="zone", target="target", tables=tables, seconds=1.0)


@dataclass
class Widgets:
    """Databricks' widgets: text, and a job's value counts for more than the default."""

    job: dict[str, str]
    made: dict[str, str] = field(default_factory=dict)

    def text(self, name: str, default: str) -> None:
        """Make one."""
        assert isinstance(default, str)
        self.made[name] = self.job.get(name, default)

    def get(self, name: str) -> str:
        """Return its value."""
        return self.made[name]


def databricks(job: dict[str, str], **cell: object) -> tuple[dict[str, Any], list[str]]:
    """Give the names of a notebook on Databricks, and what it has exited with."""
    exits: list[str] = []
    names = {
        "dbutils": SimpleNamespace(
            widgets=Widgets(job), notebook=SimpleNamespace(exit=exits.append)
        ),
        **cell,
    }
    return names, exits


# Kinds


@pytest.mark.parametrize(
    "value, kind, expected",
    [
        ("a", str, "a"),
        (" /data \n", str, "/data"),
        ("", str | None, None),
        (None, str | None, None),
        ("a", str | None, "a"),
        ("7", int, 7),
        (7, int, 7),
        ("-1", int, -1),
        ("", int | None, None),
        ("7", int | None, 7),
        ("2.5", float, 2.5),
        (2, float, 2.0),
        ("True", bool, True),
        ("false", bool, False),
        (False, bool, False),
        ("keep", Literal["utc", "keep"], "keep"),
        ("", Literal["move", "delete"] | None, None),
        ("now", Literal["snapshot", "now"] | int, "now"),
        ("12", Literal["snapshot", "now"] | int, 12),
        ("[]", list[str], []),
        ("", list[str], []),
        ("dbo/*", list[str], ["dbo/*"]),
        ("[a-m]*", list[str], ["[a-m]*"]),
        ('["a", "b"]', list[str], ["a", "b"]),
        (["a"], list[str], ["a"]),
        ('["id"]', KEYS, ["id"]),
        ("id", KEYS, ["id"]),
        ("", KEYS, None),
        ('{"dbo/orders": ["id", "at"], "a": []}', KEYS, {"dbo/orders": ["id", "at"], "a": []}),
        ("/lake/orders", list[Place], ["/lake/orders"]),
    ],
)
def test_a_value_and_its_text_are_read_alike(value: object, kind: object, expected: object) -> None:
    """Databricks hands over text, Fabric and papermill text or values."""
    found = resolve({"given": value}, given=kind)["given"]

    assert (expected, type(expected)) == (found, type(found))


@pytest.mark.parametrize(
    "value, kind, told",
    [
        ("", str, "a text that is not empty (found str '')"),
        (3, str, "a text that is not empty (found int 3)"),
        ("7.0", int, "a whole number (found str '7.0')"),
        (True, int, "a whole number (found bool True)"),
        ("x", int | None, "a whole number (found str 'x')"),
        ("9" * 5000, int, "a whole number (found str '9"),
        (False, float, "a number (found bool False)"),
        ("nan", float, "a number (found str 'nan')"),
        ("yes", bool, "true or false (found str 'yes')"),
        (1, bool, "true or false (found int 1)"),
        ("", bool, "true or false (found str '')"),
        ("Keep", Literal["utc", "keep"], "one of utc, keep (found str 'Keep')"),
        (
            "soon",
            Literal["snapshot", "now"] | int,
            "one of snapshot, now or a whole number (found str 'soon')",
        ),
        ('["a", 1]', list[str], "a JSON list of texts"),
        ('["a"', list[str], "a JSON list of texts"),
        ("[orders]", list[str], "a JSON list of texts"),
        ("[" * 99_999, list[str], "a JSON list of texts"),
        (7, list[str], "a JSON list of texts"),
        ("[]", list[Place], "at least one place"),
        ('{"a": "id"}', KEYS, "a JSON mapping of tables to lists, such as"),
        ('{"a": ["id"}', KEYS, "a JSON mapping of tables to lists, such as"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_expected(
    value: object, kind: object, told: str
) -> None:
    """Nothing is guessed: "yes" is no flag, 1 neither."""
    with pytest.raises(ParameterError) as caught:
        resolve({"given": value}, given=kind)

    assert f"the parameter given has to be {told}" in str(caught.value)


def test_a_parameter_that_the_cell_lacks_is_named() -> None:
    """As when a host has thrown the cell away."""
    with pytest.raises(ParameterError, match=r'no b, c yet.*Run the cell below "Parameters"'):
        resolve({"a": 1}, a=int, b=int, c=int)


# Hosts


def test_on_databricks_a_widget_counts_for_more_than_the_cell() -> None:
    """The cell's values are the widgets' defaults, as text."""
    names, _ = databricks(
        {"strict": "true", "last": "5"}, target="t", strict=False, last=100, note=None
    )

    found = resolve(names, target=str, strict=bool, last=int, note=str | None)

    assert {"target": "t", "strict": True, "last": 5, "note": None} == found
    assert "databricks" == host_of(names)


def test_on_databricks_the_report_is_the_notebooks_value() -> None:
    """As JSON, for the task that comes next."""
    names, exits = databricks({})

    finish(names, report("current"))

    assert [json.loads(json.dumps(report("current").to_dict()))] == [
        json.loads(value) for value in exits
    ]


def test_a_report_that_is_not_well_is_no_value_but_an_error() -> None:
    """An exit would make the run a success."""
    names, exits = databricks({})

    with pytest.raises(StoppedError, match=r"t1 is failed: something is wrong"):
        finish(names, report("current", "failed"))

    assert [] == exits


def test_on_fabric_onelake_is_opened_with_the_notebooks_own_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is asked for again while a run goes on: a token lives for an hour."""
    tokens = map("token {}".format, count(1))
    asked: list[str] = []

    def token(audience: str) -> str:
        asked.append(audience)
        return next(tokens)

    utilities = SimpleNamespace(credentials=SimpleNamespace(getToken=token))
    names = {"notebookutils": utilities, "spark": SimpleNamespace(version="3.5.5")}
    monkeypatch.setattr("mirrorlib.store.open._LENT_FOR", timedelta(0))

    with onelake() as (options, given):
        assert {} == resolve(names)
        assert [] == asked
        for name, value in options.items():
            monkeypatch.setenv(name, value)
        store = open_store("az://workspace/lakehouse")
        found = [store.stat("Files/a") for _ in range(2)]

    assert [None, None] == found
    assert ("fabric", {"storage"}) == (host_of(names), set(asked))
    assert ["Bearer token 1", "Bearer token 2"] == given


def test_who_is_named_in_the_environment_opens_onelake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The notebook's token is not asked for."""
    utilities = SimpleNamespace(credentials=SimpleNamespace(getToken=pytest.fail))
    names = {"notebookutils": utilities, "spark": SimpleNamespace(version="3.5.5")}
    monkeypatch.setenv("AZURE_STORAGE_TOKEN", "mine")

    with onelake() as (options, given):
        resolve(names)
        for name, value in options.items():
            monkeypatch.setenv(name, value)
        assert open_store("az://workspace/lakehouse").stat("Files/a") is None

    assert ["Bearer mine"] == given


@contextlib.contextmanager
def onelake() -> Iterator[tuple[dict[str, str], list[str]]]:
    """Serve an account in which nothing lies: give what leads to it, and what it is shown."""
    shown: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            shown.append(self.headers["Authorization"])
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield (
            {
                "AZURE_STORAGE_ACCOUNT_NAME": "onelake",
                "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{server.server_port}/onelake",
                "AZURE_ALLOW_HTTP": "true",
            },
            shown,
        )
        server.shutdown()


def test_a_report_too_long_for_a_host_is_cut_to_a_word() -> None:
    """The cell before has shown it whole."""
    names, exits = databricks({})

    finish(names, report(*["current"] * 20_000))

    assert ['{"ok": true}'] == exits


# The shipped notebooks


def defaults(name: str) -> dict[str, object]:
    """Read the cell of parameters, without running it."""
    (cell,) = (cell for cell in cells(name) if "parameters" in cell.metadata.get("tags", ()))
    return {
        ast.unparse(statement.targets[0]): ast.literal_eval(statement.value)
        for statement in ast.parse(cell.source).body
        if isinstance(statement, ast.Assign)
    }


def kinds(name: str) -> dict[str, Any]:
    """Find the kinds that a notebook asks for."""
    (call,) = (
        node
        for cell in cells(name)
        if cell.cell_type == "code"
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "notebook.resolve"
    )
    return {
        str(one.arg): eval(ast.unparse(one.value), {"Literal": Literal, "notebook": notebook})  # noqa: S307  # our own notebooks
        for one in call.keywords
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_a_kind_and_a_default_of_that_kind(name: str) -> None:
    """But for places, which have no default."""
    assert [*defaults(name)] == [*kinds(name)]
    for parameter, default in defaults(name).items():
        if parameter in {"landing_zone", "target", "consumer", "name", "sources"} or (
            name,
            parameter,
        ) == ("export_feed", "to"):
            assert default in ("", "[]")
        else:
            resolve({parameter: default}, **{parameter: kinds(name)[parameter]})


EVERY = {one.name for one in fields(Options)}
OMITTED = {
    "check_landing_zone": {"parallelism"},  # nothing but reading: as many as there are cores
}


@pytest.mark.parametrize(
    "name, function",
    [
        ("initial_load", apply_zone),
        ("incremental_apply", apply_zone),
        ("export_feed", export_tables),
        ("propagate_keys", derive_table),
        ("check_landing_zone", mirrorlib.check),
    ],
)
def test_a_notebooks_parameters_are_its_functions(
    name: str, function: Callable[..., object]
) -> None:
    """Their names, and what is done when nobody sets them; what a notebook leaves out is left out on purpose.

    The session and the transformation are the notebook's own; nobody looks on at, stops, or approves a run from within.
    """
    known = inspect.signature(function).parameters
    given = {
        "landing_zone": "z",
        "target": "t",
        "consumer": "c",
        "to": "x",
        "name": "n",
        "sources": "s",
    }

    found = resolve({**defaults(name), **given}, **kinds(name))

    for parameter, value in found.items():
        usual = known[parameter].default
        assert (
            usual is inspect.Parameter.empty
            or parameter == "to"
            or (usual or None) == (value or None)
        )
    by_options = EVERY if "options" in kinds(name) else set()
    left_out = {*known} - {*found} - by_options
    own = {"spark", "observe", "stop", "transform", "approve"}
    assert left_out == {*own, *OMITTED.get(name, ())} & {*known}


SAMPLES: dict[str, object] = {
    "insert_policy": "upsert", "evolution": "strict", "ntz": "keep", "max_files": 5, "max_bytes": 7, "parallelism": 2,
    "retry": True, "allow_foreign_writes": True, "allow_empty": True, "quiet": True, "conditional_updates": True,
    "moved_from": "/old", "rewrite_limit": 9, "settle": 0.5, "start_at": 4, "on_gone": "drop", "cleanup": "move",
    "retention": 30, "plain_folders": "append", "plain_evolution": "rescue", "include_existing": False,
    "allow_overwrites": True, "listing": "full", "backfill_interval": 60.0, "readers": "plain",
    "partial_updates": "nulls", "snapshots": True, "max_loss": 0.25,
}  # fmt: skip
FLAGS = {"quiet": "--quiet-updates", "tables": "--table"}


def test_every_option_of_apply_is_one_everywhere() -> None:
    """As a value, a parameter of the function, an argument of the command: whoever adds one adds it to `Options` first."""
    parameters = {*inspect.signature(apply_zone).parameters}
    known = {flag for action in command("apply")._actions for flag in action.option_strings}

    assert EVERY == parameters - {
        "spark",
        "landing_zone",
        "target",
        "catalog",
        "state",
        "approve",
        "observe",
        "stop",
    }
    assert EVERY == {*SAMPLES, "tables"}, "give the new option a sample here"
    assert set() == {
        name for name in EVERY if FLAGS.get(name, f"--{name.replace('_', '-')}") not in known
    }


@pytest.mark.parametrize("name", ["initial_load", "incremental_apply"])
def test_a_notebook_and_a_job_take_every_option(name: str) -> None:
    """By a parameter of its own, or in `options`; the job hands that over to both kinds of tasks."""
    own = {one: value for one, value in SAMPLES.items() if one in kinds(name)}
    more = {one: value for one, value in SAMPLES.items() if one not in own}
    places = {"landing_zone": "z", "target": "t", "tables": "[]", "catalog": "", "state": ""}
    given = {**places, **own, "options": json.dumps(more)}

    found = resolve(given, **kinds(name))

    assert SAMPLES == {one: found[one] for one in SAMPLES}
    job = (FOLDER.parent / "bundles" / f"{name}.yml").read_text()
    assert '{name: options, default: "${var.options}"}' in job
    assert '"--options={{job.parameters.options}}"' in job
    arguments = command("apply").parse_args(["z", "t", "--options", json.dumps(SAMPLES)])
    assert SAMPLES == read_options(arguments.options)
    assert {} == read_options(" \n")


@pytest.mark.parametrize(
    "text, told",
    [
        ("[]", "a JSON mapping of options"),
        ('{"max_byte": 1}', "max_byte is no option of `apply`"),
        ('{"quiet": 1}', "the parameter quiet has to be true or false"),
    ],
)
def test_wrong_options_are_told(text: str, told: str) -> None:
    """Before anything is touched."""
    with pytest.raises(ParameterError, match=re.escape(told)):
        resolve({"max_files": "", "options": text}, max_files=int | None, options=Options)


def command(name: str) -> argparse.ArgumentParser:
    """Give the parser of a command."""
    (commands,) = (
        one for one in make_parser()._actions if isinstance(one, argparse._SubParsersAction)
    )
    found: argparse.ArgumentParser = commands.choices[name]
    return found


OURS = {"spark", "transform", "observe"}  # nobody hands them over
FUNCTIONS = {
    "initial_load": "apply",
    "incremental_apply": "apply",
    "export_feed": "export",
    "propagate_keys": "derive",
    "check_landing_zone": "check",
    "status": "overview",
}
OTHERS: dict[
    str, tuple[str, object]
] = {  # of each parameter the text of a widget, and what arrives
    "landing_zone": ("/zone", "/zone"),
    "target": ("/tables", "/tables"),
    "catalog": ("main", "main"),
    "state": ("/state", "/state"),
    "tables": ('["dbo/*", "items"]', ["dbo/*", "items"]),
    "insert_policy": ("upsert", "upsert"),
    "evolution": ("strict", "strict"),
    "ntz": ("keep", "keep"),
    "conditional_updates": ("true", True),
    "plain_folders": ("append", "append"),
    "start_at": ("4", 4),
    "include_existing": ("false", False),
    "max_files": ("5", 5),
    "quiet": ("true", True),
    "on_gone": ("drop", "drop"),
    "cleanup": ("move", "move"),
    "retention": ("30", 30),
    "listing": ("full", "full"),
    "parallelism": ("2", 2),
    "options": ('{"settle": 0}', {"settle": 0.0}),
    "consumer": ("lake", "lake"),
    "to": ("delta:/copy", "delta:/copy"),
    "mode": ("scd2", "scd2"),
    "net": ("true", True),
    "start": ("7", 7),
    "on_expired": ("snapshot", "snapshot"),
    "keys": ('{"items": ["id"]}', {"items": ["id"]}),
    "max_versions": ("3", 3),
    "name": ("silver", "silver"),
    "sources": ('["/a", "/b"]', ["/a", "/b"]),
    "rebuild": ("true", True),
    "last": ("9", 9),
    "allow_new": ("true", True),
    "strict": ("true", True),
    "deep": ("true", True),
}


@pytest.mark.parametrize("name", [one for one in NAMES if one in FUNCTIONS])
def test_what_a_job_hands_over_arrives_at_the_function(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each parameter, with another value than its default; the cells run as they ship."""
    function = FUNCTIONS[name]
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(mirrorlib, function, lambda *_, **given: calls.append(given))
    wanted = {parameter: OTHERS[parameter] for parameter in defaults(name)}
    names, _ = databricks({key: text for key, (text, _) in wanted.items()}, **defaults(name))
    names |= {"spark": SimpleNamespace(version="4"), "transform": None}

    for cell in cells(name):
        if cell.cell_type == "code" and re.search(
            rf"\b(notebook\.resolve|mirrorlib\.{function})\(", cell.source
        ):
            exec(cell.source, names)  # noqa: S102  # that is the test

    (given,) = calls
    expected = {key: value for key, (_, value) in wanted.items()}
    expected |= expected.pop("options", {})  # type: ignore[arg-type, call-overload]  # a mapping
    assert expected == {key: given[key] for key in given if key not in OURS}
    own = {key: default for key, default in defaults(name).items() if key != "options"}
    assert [] == [key for key, default in own.items() if default == expected[key]]


def test_the_tour_has_a_place_of_its_own_on_each_platform() -> None:
    """The default lakehouse's, in Fabric; on Databricks it says what to name; and a volume needs a schema beside it."""
    given: dict[str, Any] = {"folder": None, "schema": None}
    context = {"currentWorkspaceId": "w", "defaultLakehouseId": "l"}
    fabric = {"notebookutils": SimpleNamespace(runtime=SimpleNamespace(context=context))}
    volume = {"folder": "dbfs:/Volumes/c/s/v/tour/", "schema": "c.s"}

    lakehouse = find_home(fabric, "tour", given)
    with pytest.raises(ParameterError, match=r"dbfs:/Volumes/CATALOG/SCHEMA/VOLUME/tour"):
        find_home(databricks({})[0], "tour", given)
    with pytest.raises(ParameterError, match="can hold no Delta table"):
        find_home({}, "tour", {**volume, "schema": None})
    with pytest.raises(ParameterError, match=r"CATALOG\.SCHEMA"):
        find_home({}, "tour", {**volume, "schema": "s"})
    home = find_home(databricks({})[0], "tour", volume)

    assert "abfss://w@onelake.dfs.fabric.microsoft.com/l/Files/tour" == lakehouse.folder
    assert Path(find_home({}, "tour", given).folder).parent.is_dir()
    assert ("dbfs:/Volumes/c/s/v/tour/landing", "c.s.orders") == (
        home.landing,
        home.table("dbo/orders"),
    )
    state = "dbfs:/Volumes/c/s/v/tour/state"
    assert {"target": "s", "catalog": "c", "state": state} == home.tables


# Cells in any order


def headings(name: str) -> list[tuple[str, str]]:
    """Give the code cells of a notebook, each with the heading that it is below."""
    heading, found = "", []
    for cell in cells(name):
        if cell.cell_type == "code":
            found.append((heading, cell.source))
        elif "## " in cell.source:
            heading = cell.source.partition("## ")[2].partition("\n")[0]
    return found


def made_by(source: str) -> set[str]:
    """Name what a cell makes, or asks an earlier one for."""
    tree = ast.parse(source)
    stored = (ast.Name, ast.FunctionDef, ast.ClassDef, ast.ExceptHandler, ast.alias)
    made = {
        getattr(node, "id", "") or getattr(node, "asname", "") or getattr(node, "name", "")
        for node in ast.walk(tree)
        if isinstance(node, stored) and not isinstance(getattr(node, "ctx", None), ast.Load)
    }
    return made | {
        arg.arg for node in ast.walk(tree) if isinstance(node, ast.arguments) for arg in node.args
    }


def needs(source: str) -> list[tuple[str, tuple[str, ...]]]:
    """Give what a cell asks earlier ones for, by their headings."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    asked = [call.args[1:] for call in calls if ast.unparse(call.func) == "notebook.need"]
    return [
        (ast.literal_eval(heading), tuple(map(ast.literal_eval, names)))
        for heading, *names in asked
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_asks_for_what_it_takes_from_earlier_ones(name: str) -> None:
    """By the heading of the cell that makes it, or of one that asks for it; so no cell ends in a NameError."""
    every = headings(name)

    def known(source: str) -> set[str]:
        found = made_by(source)
        for heading, names in needs(source):
            makers = [one for title, one in every if title == heading and {*names} <= made_by(one)]
            assert makers, (heading, names)
            found |= {*names, *known(makers[0])}
        return found

    for _, source in every[2:]:
        used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        assert set() == used - known(source) - {*dir(builtins)}


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_that_is_run_first_says_which_one_to_run(name: str) -> None:
    """Whichever it is; the cell of parameters, and one that only defines something, just run."""
    (first, *rest), above = headings(name), ["Parameters"]
    exec(first[1], {})  # noqa: S102  # that is the test
    for heading, source in rest:
        above.append(heading)
        if source.startswith("def "):
            continue
        with pytest.raises(ParameterError, match=r"Run the cell below") as told:
            exec(source, {})  # noqa: S102  # that is the test
        (named,) = re.findall(r'below "(.*)" first', str(told.value))
        assert named in above


@pytest.mark.parametrize("name", NAMES)
def test_links_of_notebooks_lead_to_pages(name: str) -> None:
    """Beside the notebooks, as a clone and a deployed bundle have them; each notebook has one that helps."""
    text = "".join(cell.source for cell in cells(name) if cell.cell_type == "markdown")
    links = re.findall(r"\]\((\.\./docs/[^)#]+)", text)

    assert links
    assert [] == [link for link in links if not (FOLDER / link).is_file()]


@pytest.mark.parametrize("name", NAMES)
def test_every_notebook_ends_in_a_cell_that_may_fail(name: str) -> None:
    """It shows nothing, as Fabric asks for: what exits takes the place of a cell's output."""
    assert cells(name)[-1].source.endswith('"report")\nnotebook.finish(globals(), report)')


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_have_no_magic(name: str) -> None:
    """Fabric's pipelines allow few, and none is the same everywhere."""
    for cell in cells(name):
        if cell.cell_type == "code":
            ast.parse(cell.source)


# Their form


def test_notebooks_are_in_their_one_form(tmp_path: Path) -> None:
    """Outputs, counts, other ids and other metadata are found, and removed; the form is the same every time."""
    clean = (FOLDER / "status.ipynb").read_text()
    dirty = json.loads(clean)
    code = next(cell for cell in dirty["cells"] if cell["cell_type"] == "code")
    code["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "secret"}]
    code["execution_count"], code["id"] = 7, "other"
    dirty["metadata"]["papermill"] = {"version": "2"}
    path = tmp_path / "status.ipynb"
    path.write_text(json.dumps(dirty))

    checked = subprocess.run(
        [sys.executable, str(TOOL), "--check", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    repaired = subprocess.run(
        [sys.executable, str(TOOL), str(path)], capture_output=True, text=True, check=False
    )

    assert (1, 0) == (checked.returncode, repaired.returncode)
    assert "make format" in checked.stderr
    assert clean == path.read_text()


def test_a_notebook_with_two_cells_of_parameters_is_refused(tmp_path: Path) -> None:
    """Papermill would take the first, Fabric another."""
    twice = json.loads((FOLDER / "status.ipynb").read_text())
    for cell in twice["cells"]:
        cell["metadata"] = {"tags": ["parameters"]}
    path = tmp_path / "status.ipynb"
    path.write_text(json.dumps(twice))

    checked = subprocess.run(
        [sys.executable, str(TOOL), "--check", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert 1 == checked.returncode
    assert "cells are tagged parameters" in checked.stderr
