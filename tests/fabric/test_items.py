"""Fabric items: the same bytes every time, every id one of theirs, and published by fabric-cicd as they are."""

from __future__ import annotations

import ast
import base64
import json
import re
import threading
import tomllib
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from bundle import read_parameters
from mirrorlib.cli.main import main
from mirrorlib.errors import LandingZoneError, ParameterError
from mirrorlib.fabric.items import item_id, write_items
from mirrorlib.platform.notebook import Place, resolve

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
GUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
HERE = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Give a small wheel: an archive, whose bytes are no text."""
    path = tmp_path / "mirrorlib_delta-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo("mirrorlib/data.bin"), bytes(range(256)))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """Read every file of a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_items_are_the_same_every_time_and_leave_others_alone(
    wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Written again, over an older generation, beside items of somebody else's."""
    out, other = tmp_path / "out", tmp_path / "other"
    (out / "Theirs.Notebook").mkdir(parents=True)
    (out / "mirrorlib status.Notebook").mkdir()
    (out / "mirrorlib status.Notebook" / "old.py").touch()

    code = main(["fabric-items", str(out), "--wheel", str(wheel), "--every", "5"])
    write_items(other, wheel, every=5)

    assert (0, contents(out)) == (code, contents(other))
    assert (out / "Theirs.Notebook").exists()
    assert "mirrorlib incremental apply" in capsys.readouterr().out


def test_every_id_is_that_of_an_item_or_means_this_workspace(wheel: Path, tmp_path: Path) -> None:
    """Any other would be one of the workspace in which it was made."""
    write_items(tmp_path / "out", wheel)
    known = {
        json.loads(path.read_text())["config"]["logicalId"]
        for path in (tmp_path / "out").glob("*/.platform")
    }

    found = {
        guid
        for name, content in contents(tmp_path / "out").items()
        if not name.endswith(".whl")
        for guid in GUID.findall(content.decode())
    }

    assert 12 == len(known)
    assert found <= {*known, HERE}


@pytest.mark.parametrize(
    "name",
    [
        "initial_load",
        "incremental_apply",
        "export_feed",
        "propagate_keys",
        "check_landing_zone",
        "status",
        "self_test",
        "tour",
    ],
)
def test_a_notebook_says_the_same_in_fabrics_form(wheel: Path, tmp_path: Path, name: str) -> None:
    """Cell by cell, one of them that of the parameters; it is Python."""
    write_items(tmp_path / "out", wheel)
    text = (
        tmp_path / "out" / f"mirrorlib {name.replace('_', ' ')}.Notebook" / "notebook-content.py"
    ).read_text()

    ast.parse(text)
    cells = [
        cell
        for cell in json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
        if cell["cell_type"] == "code"
    ]
    found = re.findall(
        r"^# (PARAMETERS CELL|CELL) \*{20}\n\n(.*?)\n\n# METADATA", text, re.DOTALL | re.MULTILINE
    )
    assert ["".join(cell["source"]) for cell in cells] == [source for _, source in found]
    assert ["PARAMETERS CELL", *["CELL"] * (len(cells) - 1)] == [kind for kind, _ in found]
    assert f'"environmentId": "{item_id("Environment", "mirrorlib")}"' in text


@pytest.mark.parametrize(
    "more, expected", [([], "Tables"), (["--target", "Tables/dbo"], "Tables/dbo")]
)
def test_tables_lie_where_a_lakehouse_with_schemas_looks_for_them(
    wheel: Path, tmp_path: Path, more: list[str], expected: str
) -> None:
    """At Tables/SCHEMA/TABLE: the zone's `.schema` folder gives the schema, or the target does."""
    assert 0 == main(["fabric-items", str(tmp_path / "out"), "--wheel", str(wheel), *more])

    out = tmp_path / "out"
    assert "defaultSchema" in (out / "mirrorlib.Lakehouse" / "lakehouse.metadata.json").read_text()
    found = [json.loads(path.read_text()) for path in out.glob("*/pipeline-content.json")]
    assert [expected] * 2 == [
        one["properties"]["parameters"]["target"]["defaultValue"] for one in found
    ]


@pytest.mark.parametrize("name", ["initial_load", "incremental_apply"])
def test_a_pipeline_hands_a_notebook_what_its_cell_knows(
    wheel: Path, tmp_path: Path, name: str
) -> None:
    """For each name or glob once; everything that it names is a parameter of the pipeline."""
    write_items(tmp_path / "out", wheel, tables=["dbo/*"])
    told = json.loads(
        (
            tmp_path
            / "out"
            / f"mirrorlib {name.replace('_', ' ')}.DataPipeline"
            / "pipeline-content.json"
        ).read_text()
    )
    (loop,) = told["properties"]["activities"]
    (run,) = loop["typeProperties"]["activities"]

    handed = run["typeProperties"]["parameters"]
    assert set(handed) <= set(read_parameters(NOTEBOOKS / f"{name}.ipynb"))
    assert "@item()" == handed["tables"]["value"]["value"]
    parameters = told["properties"]["parameters"]
    assert ["dbo/*"] == parameters["tables"]["defaultValue"]
    assert {*handed} == {*parameters}
    assert (
        item_id("Notebook", f"mirrorlib {name.replace('_', ' ')}")
        == run["typeProperties"]["notebookId"]
    )


def test_nothing_is_scheduled_unless_it_is_asked_for(wheel: Path, tmp_path: Path) -> None:
    """A schedule that is written replaces the one that is there, which an upgrade is not to switch off."""
    file = tmp_path / "out" / "mirrorlib incremental apply.DataPipeline" / ".schedules"
    write_items(tmp_path / "out", wheel)
    assert not file.exists()
    write_items(tmp_path / "out", wheel, every=5)
    (told,) = json.loads(file.read_text())["schedules"]

    assert (True, 5) == (told["enabled"], told["configuration"]["interval"])


def test_an_environment_asks_for_what_the_tests_on_its_spark_run_with(
    wheel: Path, tmp_path: Path
) -> None:
    """One version, and it is one that the package takes."""
    write_items(tmp_path / "out", wheel)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    held = tmp_path / "out" / "mirrorlib.Environment" / "Libraries" / "PublicLibraries"
    (asked,) = re.findall("- (.*==.*)", (held / "environment.yml").read_text())
    assert asked in project["optional-dependencies"]["local35"]
    (floor,) = (one for one in project["dependencies"] if one.startswith("obstore"))
    assert Version(asked.partition("==")[2]) in Requirement(floor).specifier


def test_a_wheel_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """Before anything is written."""
    with pytest.raises(LandingZoneError, match="make wheel"):
        write_items(tmp_path / "out", tmp_path / "none.whl")

    assert not (tmp_path / "out").exists()


def test_places_in_the_default_lakehouse_become_onelakes_addresses() -> None:
    """On Fabric only; names that begin alike are names."""
    context = {"currentWorkspaceId": "w", "defaultLakehouseId": "l"}
    names = {
        "notebookutils": SimpleNamespace(runtime=SimpleNamespace(context=context)),
        "a": "Files/landing",
        "b": "Tables",
        "c": "Filesystem",
        "d": 3,
        "e": ["Tables/orders", "/items"],
        "f": ["Tables/orders"],
    }

    found = resolve(names, a=str, b=str, c=str, d=int, e=list[Place], f=list[str])

    root = "abfss://w@onelake.dfs.fabric.microsoft.com/l"
    assert {
        "a": f"{root}/Files/landing",
        "b": f"{root}/Tables",
        "c": "Filesystem",
        "d": 3,
        "e": [f"{root}/Tables/orders", "/items"],
        "f": ["Tables/orders"],
    } == found


@pytest.mark.parametrize(
    "value, expected",
    [
        ("files:Files/out", "files:{root}/Files/out"),
        ("files:Files/out?format=json", "files:{root}/Files/out?format=json"),
        ("zone:Files/zone", "zone:{root}/Files/zone"),
        ("delta:Tables/copy", "delta:{root}/Tables/copy"),
        ("delta:dbo.Tables", "delta:dbo.Tables"),
        ("abfss://other@host/l/Files", "abfss://other@host/l/Files"),
    ],
)
def test_a_receiver_in_the_default_lakehouse_has_its_address_too(value: str, expected: str) -> None:
    """Behind its kind; else Spark's driver would write into a folder of its own."""
    context = {"currentWorkspaceId": "w", "defaultLakehouseId": "l"}
    names = {
        "notebookutils": SimpleNamespace(runtime=SimpleNamespace(context=context)),
        "to": value,
    }

    root = "abfss://w@onelake.dfs.fabric.microsoft.com/l"
    assert {"to": expected.format(root=root)} == resolve(names, to=str)


@pytest.mark.parametrize(
    "value",
    [
        "jdbc:sqlite:Files/x.db",
        "jdbc:sqlite:./Tables/x.db",
        "jdbc:sqlite:///lakehouse/default/Files/x.db",
    ],
)
def test_a_lakehouse_holds_no_file_of_sqlite(value: str) -> None:
    """It would lie on the driver's own disk, and go with the session; a file that is meant to is let through."""
    context = {"currentWorkspaceId": "w", "defaultLakehouseId": "l"}
    utilities = SimpleNamespace(runtime=SimpleNamespace(context=context))
    elsewhere = "jdbc:sqlite:/tmp/x.db"

    assert {"to": elsewhere} == resolve({"notebookutils": utilities, "to": elsewhere}, to=str)
    with pytest.raises(ParameterError, match=r"to puts a file of SQLite into .*Name files:Files/"):
        resolve({"notebookutils": utilities, "to": value}, to=str)


def test_a_place_of_the_default_lakehouse_needs_one() -> None:
    """What is not there has no address; other places need none."""
    context = {"currentWorkspaceId": "w", "defaultLakehouseId": None}
    names = {
        "notebookutils": SimpleNamespace(runtime=SimpleNamespace(context=context)),
        "to": "files:Files/out",
        "state": "/lake/state",
    }

    assert {"state": "/lake/state"} == resolve(names, state=str)
    with pytest.raises(ParameterError, match=r"to is a place .* has none .*Attach a lakehouse"):
        resolve(names, to=str)


class Fabric(BaseHTTPRequestHandler):
    """As much of Fabric's API as a publication asks for."""

    items: dict[str, dict[str, Any]]
    published: list[str]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = (
        True  # else each answer waits 40 ms for the client to acknowledge its headers
    )

    def _serve(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        path = urlsplit(self.path).path
        status, said = self._answer(path, body)
        told = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def _answer(self, path: str, body: Any) -> tuple[int, Any]:
        if self.command == "POST" and path.endswith("/items"):
            made = f"11111111-1111-1111-1111-{len(self.items):012d}"
            self.items[made] = {"description": "", "folderId": "", **body, "id": made}
            return 201, self.items[made]
        if self.command == "POST" and path.endswith("/updateDefinition"):
            self.items[path.split("/")[-2]].update(body)
            return 200, {}
        if path.endswith("/publish"):
            self.published.append(path.split("/")[-3])
            return 200, {}
        if path.endswith("/items"):
            return 200, {
                "value": [
                    {name: value for name, value in item.items() if name != "definition"}
                    for item in self.items.values()
                ]
            }
        if "/lakehouses/" in path:
            return 200, {
                "properties": {
                    "sqlEndpointProperties": {
                        "connectionString": "x",
                        "id": "y",
                        "provisioningStatus": "Success",
                    }
                }
            }
        if path.endswith(("/folders", "/environments/")):
            return 200, {"value": []}
        return 200, {"value": [], "displayName": "workspace", "capacityId": "c", "properties": {}}

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815  # the base's names

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def parts_of(item: dict[str, Any]) -> dict[str, bytes]:
    """Return the files of an item that has arrived."""
    parts = item["definition"]["parts"]
    return {part["path"]: base64.b64decode(part["payload"]) for part in parts}


@pytest.mark.filterwarnings("ignore")  # its dependencies warn of each other
def test_fabric_cicd_publishes_them_and_they_name_each_other(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the quick start says, to an API on this machine: what arrives has the ids that the workspace gave."""
    pytest.importorskip("fabric_cicd")
    from fabric_cicd import constants

    write_items(tmp_path / "fabric", wheel, every=5)
    monkeypatch.chdir(tmp_path)
    handler = type("Served", (Fabric,), {"items": {}, "published": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    for name in ("DEFAULT_API_ROOT_URL", "FABRIC_API_ROOT_URL"):
        monkeypatch.setattr(constants, name, f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("FABRIC_CICD_RETRY_API_MAX_DURATION_SECONDS", "10")
    claims = base64.urlsafe_b64encode(b'{"exp": 9999999999, "upn": "someone"}').decode().rstrip("=")
    token = SimpleNamespace(token=f"e30.{claims}.x", expires_on=9_999_999_999)
    credential = SimpleNamespace(get_token=lambda *_, **__: token)
    monkeypatch.setattr("azure.identity.AzureCliCredential", lambda: credential)
    page = (ROOT / "docs" / "start" / "fabric.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    text = text.replace("your workspace's id", "22222222-2222-2222-2222-222222222222")
    try:
        exec(compile(text, "fabric.md", "exec"), {})  # noqa: S102  # that is the test
    finally:
        server.shutdown()
        server.server_close()

    items = {(item["type"], item["displayName"]): item for item in handler.items.values()}
    assert 12 == len(items)
    pipeline = parts_of(items["DataPipeline", "mirrorlib incremental apply"])
    notebook = items["Notebook", "mirrorlib incremental apply"]["id"]
    assert notebook.encode() in pipeline["pipeline-content.json"]
    folder = tmp_path / "fabric"
    scheduled = folder / "mirrorlib incremental apply.DataPipeline" / ".schedules"
    assert scheduled.read_bytes() == pipeline[".schedules"]
    (text,) = (
        content
        for name, content in parts_of(items["Notebook", "mirrorlib status"]).items()
        if name.startswith("notebook-content")
    )
    assert items["Lakehouse", "mirrorlib"]["id"].encode() in text
    assert items["Environment", "mirrorlib"]["id"].encode() in text
    assert {"enableSchemas": True} == items["Lakehouse", "mirrorlib"]["creationPayload"]
    environment = parts_of(items["Environment", "mirrorlib"])
    assert wheel.read_bytes() == environment[f"Libraries/CustomLibraries/{wheel.name}"]
    for name in ("Libraries/PublicLibraries/environment.yml", "Setting/Sparkcompute.yml"):
        assert (folder / "mirrorlib.Environment" / name).read_bytes() == environment[name]
    assert [items["Environment", "mirrorlib"]["id"]] == handler.published
    assert [items["Environment", "mirrorlib"]["id"]] == handler.published
