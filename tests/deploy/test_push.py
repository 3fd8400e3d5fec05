"""`mirrorlib deploy` sends a bundle through databricks-sdk's own client; the workspace is one on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("databricks.sdk")

from mirrorlib.cli import main
from workspace import Workspace, serve

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # the SDK keeps its connections
    pytest.mark.filterwarnings("ignore::DeprecationWarning:google"),
]


@pytest.fixture
def workspace(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    """Serve an empty workspace, and let the SDK find it."""
    with serve(Workspace()) as one:
        monkeypatch.setenv("DATABRICKS_HOST", one.host)
        monkeypatch.setenv("DATABRICKS_TOKEN", "secret")
        monkeypatch.setenv("DATABRICKS_CONFIG_FILE", "/nowhere")
        yield one


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Give a file that is sent as the wheel."""
    path = tmp_path / "mirrorlib-0.1.0-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path


def deploy(
    capsys: pytest.CaptureFixture[str], wheel: Path, *more: str
) -> tuple[int, dict[str, Any]]:
    """Deploy what ships; give the exit code and what was said."""
    code = main(["deploy", str(ROOT), "--wheel", str(wheel), "--json", *more])
    return code, json.loads(capsys.readouterr().out)


def test_a_deployment_leaves_what_the_bundle_says(
    workspace: Workspace, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Schemas, volumes, the wheel, notebooks as notebooks, and jobs that name the workspace's places."""
    code, said = deploy(capsys, wheel)

    home = "/Workspace/Users/ann@example.com/.bundle/mirrorlib/dev"
    assert (0, ["dashboards.mirrors"]) == (code, said["left"])
    assert {"dev.dev_ann_mirrors", "dev.dev_ann_mirrors_copies"} == set(workspace.schemas)
    assert {"dev.dev_ann_mirrors.landing", "dev.dev_ann_mirrors.state"} == set(workspace.volumes)
    notebook = (ROOT / "notebooks" / "incremental_apply.ipynb").read_bytes()
    assert ("JUPYTER", notebook) == workspace.files[f"{home}/files/notebooks/incremental_apply"]
    (place,) = (path for path in workspace.files if path.endswith(".whl"))
    assert ("AUTO", b"a wheel") == workspace.files[place]
    job = next(
        one
        for one in workspace.jobs.values()
        if one["name"] == "[dev ann] mirrorlib incremental apply"
    )
    classic, serverless = (task["for_each_task"]["task"] for task in job["tasks"][1:])
    assert f"{home}/files/notebooks/incremental_apply" == classic["notebook_task"]["notebook_path"]
    assert [{"whl": place}] == classic["libraries"]
    assert [place] == job["environments"][0]["spec"]["dependencies"]
    assert "mirrorlib-task" == serverless["python_wheel_task"]["entry_point"]
    assert ("PAUSED", 1) == (job["trigger"]["pause_status"], job["max_concurrent_runs"])
    assert {
        "group_name": "data-engineering",
        "permission_level": "CAN_MANAGE",
    } in workspace.permissions["1"]


def test_deployed_again_nothing_is_there_twice(
    workspace: Workspace, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs are found by their names, and set anew; another wheel of the same name has another place."""
    deploy(capsys, wheel)
    wheel.write_bytes(b"another wheel")

    _, said = deploy(capsys, wheel, "--var", 'tables=["dbo/orders"]')

    assert 6 == len(workspace.jobs)
    assert {"updated"} == {one["done"] for one in said["sent"] if one["kind"] == "job"}
    assert {"was there"} == {
        one["done"] for one in said["sent"] if one["kind"] in {"schema", "volume"}
    }
    assert 2 == len([path for path in workspace.files if path.endswith(".whl")])
    assert '["dbo/orders"]' in [one["default"] for one in workspace.jobs[3]["parameters"]]


def test_production_runs_as_its_principal(
    workspace: Workspace, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And lies where its root path says."""
    deploy(capsys, wheel, "--target", "prod")

    (principal,) = {job["run_as"]["service_principal_name"] for job in workspace.jobs.values()}
    assert all(
        f"/Workspace/Users/{principal}/.bundle/mirrorlib/prod/" in path for path in workspace.files
    )


@pytest.mark.parametrize("result, code", [("SUCCESS", 0), ("FAILED", 1), ("CANCELED", 1)])
def test_a_job_is_run_and_awaited(
    workspace: Workspace, wheel: Path, capsys: pytest.CaptureFixture[str], result: str, code: int
) -> None:
    """With its parameters; a run that does not succeed is the command's exit code."""
    workspace.result = result

    found, said = deploy(capsys, wheel, "--run", "check", "--param", "compute=classic")

    assert (code, code == 0) == (found, said["ok"])
    assert [{"compute": "classic"}] == [run["job_parameters"] for run in workspace.runs.values()]
    assert result in (said["run"] or said["failed"])


@pytest.mark.parametrize(
    "more, told",
    [
        (("--target", "test"), "the bundle has no such target (found test)"),
        (("--var", "colour=red"), "a variable is set that is not declared (found colour)"),
        (("--var", "tables=all"), "is no JSON list"),
        (("--run", "load"), "the bundle has no such job (found load)"),
    ],
)
def test_what_the_bundle_lacks_is_refused(
    workspace: Workspace,
    wheel: Path,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, str],
    told: str,
) -> None:
    """Before anything is sent, where that can be known."""
    code, said = deploy(capsys, wheel, *more)

    assert 2 == code
    assert told in said["message"]
    assert more[0] == "--run" or not workspace.jobs


def test_what_the_workspace_refuses_is_named(
    workspace: Workspace, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its own word for it."""
    workspace.refused = "/api/2.2/jobs/create"

    code, said = deploy(capsys, wheel)

    assert 2 == code
    assert "for, the job check (found not for you)" in said["message"]


def test_without_a_workspace_the_error_says_how_to_name_one(
    wheel: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the SDK says of its own configuration."""
    for name in ("DATABRICKS_HOST", "DATABRICKS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", "/nowhere")

    code, said = deploy(capsys, wheel)

    assert 2 == code
    assert "DATABRICKS_HOST" in said["next_step"]


def test_check_needs_no_workspace(capsys: pytest.CaptureFixture[str]) -> None:
    """For a pull request."""
    assert 0 == main(["deploy", str(ROOT), "--check", "--target", "prod"])
    assert "incremental_apply" in capsys.readouterr().out
