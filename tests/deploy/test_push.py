"""`mirrorlib deploy` sends a bundle through databricks-sdk's own client; the workspace is one on this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("databricks.sdk")

from mirrorlib.cli.main import main
from mirrorlib.deploy.owner import deployment_of
from mirrorlib.deploy.read import read_bundle
from mirrorlib.deploy.render import User, render
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
    left = ["dashboards.ledger", f"permissions of the folder {home}"]
    assert (0, left) == (code, said["left"])
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
    readers = {"data-readers": {"USE_SCHEMA", "SELECT"}}
    assert {"dev.dev_ann_mirrors": readers} == workspace.grants
    assert ["data-readers"] == [one["place"] for one in said["sent"] if one["kind"] == "grant"]


def test_deployed_again_nothing_is_there_twice(
    workspace: Workspace, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs are found by their names, and set anew; another wheel of the same name has another place.

    What somebody else has granted stays.
    """
    deploy(capsys, wheel)
    wheel.write_bytes(b"another wheel")
    theirs = {"auditors": {"SELECT"}}
    workspace.grants["dev.dev_ann_mirrors"].update(theirs)

    _, said = deploy(capsys, wheel, "--var", 'tables=["dbo/orders"]')

    assert 6 == len(workspace.jobs)
    assert {"updated"} == {one["done"] for one in said["sent"] if one["kind"] == "job"}
    assert {"was there"} == {
        one["done"] for one in said["sent"] if one["kind"] in {"schema", "volume"}
    }
    assert 2 == len([path for path in workspace.files if path.endswith(".whl")])
    assert theirs["auditors"] == workspace.grants["dev.dev_ann_mirrors"]["auditors"]
    assert {"USE_SCHEMA", "SELECT"} == workspace.grants["dev.dev_ann_mirrors"]["data-readers"]
    assert '["dbo/orders"]' in [one["default"] for one in workspace.jobs[3]["parameters"]]


def test_a_volume_is_managed_and_granted_and_who_may_run_may_manage_runs(
    workspace: Workspace, wheel: Path, tmp_path: Path
) -> None:
    """As with the Databricks CLI: a volume's type may be left out, and a bundle's CAN_RUN is a job's CAN_MANAGE_RUN."""
    (tmp_path / "databricks.yml").write_text(
        "bundle: {name: small}\n"
        "permissions: [{user_name: bob, level: CAN_RUN}]\n"
        "targets: {dev: {default: true}}\n"
        "resources:\n"
        "  schemas: {s: {catalog_name: c, name: s}}\n"
        "  volumes:\n"
        "    v:\n"
        "      {catalog_name: c, schema_name: s, name: v, grants: [{principal: bob, privileges: [READ_VOLUME]}]}\n"
        "  jobs:\n"
        "    j: {name: j, max_concurrent_runs: 1, permissions: [{group_name: all, level: CAN_VIEW}]}\n"
    )

    assert 0 == main(["deploy", str(tmp_path), "--wheel", str(wheel), "--json"])

    assert "MANAGED" == workspace.volumes["c.s.v"]["volume_type"]
    assert {"c.s.v": {"bob": {"READ_VOLUME"}}} == workspace.grants
    assert [
        {"user_name": "bob", "permission_level": "CAN_MANAGE_RUN"},
        {"group_name": "all", "permission_level": "CAN_VIEW"},
    ] == workspace.permissions["1"]


def test_production_runs_as_its_principal(
    workspace: Workspace, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And lies where its root path says."""
    deploy(capsys, wheel, "--target", "prod", "--force")

    (principal,) = {job["run_as"]["service_principal_name"] for job in workspace.jobs.values()}
    assert all(
        f"/Workspace/Users/{principal}/.bundle/mirrorlib/prod/" in path for path in workspace.files
    )


JOBS = """
bundle: {name: small}
targets: {dev: {default: true, git: {branch: main}}}
variables: {pool: {lookup: {instance_pool: big}}}
permissions: [{user_name: ann@example.com, level: CAN_MANAGE}, {user_name: bob, level: CAN_VIEW}]
resources:
  jobs:
    caller:
      name: caller
      max_concurrent_runs: 1
      tasks: [{task_key: a, run_job_task: {job_id: "${resources.jobs.zcalled.id}"}}]
    zcalled: {name: called, max_concurrent_runs: 1}
"""


LIBRARIES = """
bundle: {name: small}
targets: {dev: {default: true}}
resources:
  jobs:
    j:
      name: j
      max_concurrent_runs: 1
      environments: [{environment_key: main, spec: {environment_version: "4", dependencies: LIST}}]
      tasks:
        - task_key: one
          existing_cluster_id: abc
          libraries: [{whl: ./dist/mirrorlib-0.1.0-py3-none-any.whl}, {whl: "/Volumes/c/s/v/theirs-1.0-py3-none-any.whl"}]
          condition_task: {op: EQUAL_TO, left: "1", right: "1"}
"""
REMOTE = [
    "/Workspace/Shared/a-1.0-py3-none-any.whl",
    "dbfs:/Volumes/c/s/v/b-1.0-py3-none-any.whl",
    "https://packages.example.com/c-1.0-py3-none-any.whl",
    "d @ https://packages.example.com/d-1.0-py3-none-any.whl",
    "-r /Workspace/Shared/requirements.txt",
    "--index-url https://packages.example.com",
    "pandas",
]


def test_the_bundles_wheel_alone_is_replaced(
    workspace: Workspace, wheel: Path, tmp_path: Path
) -> None:
    """What lies elsewhere, by a path or an address, is left to its task."""
    listed = json.dumps(["./dist/*.whl", *REMOTE])
    (tmp_path / "databricks.yml").write_text(LIBRARIES.replace("LIST", listed))

    assert 0 == main(["deploy", str(tmp_path), "--wheel", str(wheel)])

    (place,) = (path for path in workspace.files if path.endswith(".whl"))
    job = workspace.jobs[1]
    assert [place, *REMOTE] == job["environments"][0]["spec"]["dependencies"]
    theirs = "/Volumes/c/s/v/theirs-1.0-py3-none-any.whl"
    assert [{"whl": place}, {"whl": theirs}] == job["tasks"][0]["libraries"]


@pytest.mark.parametrize(
    "old, new, other",
    [
        ("LIST", "[./dist/*.whl, ./libs/*.whl]", "libs/*.whl"),
        ("LIST", "[./dist/other-1.0-py3-none-any.whl]", "dist/other-1.0-py3-none-any.whl"),
        ("LIST", '["-r ./requirements.txt"]', "-r ./requirements.txt"),
        ("LIST", '["--editable=src"]', "--editable=src"),
        ("LIST", "[./src]", "./src"),
        ("[{whl: ./dist", "[{requirements: requirements.txt}, {whl: ./dist", "requirements.txt"),
        ("[{whl: ./dist", "[{jar: ./x.jar}, {whl: ./dist", "./x.jar"),
        ('condition_task: {op: EQUAL_TO, left: "1", right: "1"}', "spark_python_task: {python_file: ./x.py}", "./x.py"),
    ],
    ids=["wheels", "wheel", "requirements", "editable", "folder", "list", "jar", "script"],
)  # fmt: skip
def test_another_file_of_this_machine_is_refused(
    workspace: Workspace,
    wheel: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    other: str,
) -> None:
    """It would vanish; a check lets it through, for it may be of a bundle that the Databricks CLI deploys."""
    text = LIBRARIES.replace(old, new).replace("LIST", "[pandas]")
    (tmp_path / "databricks.yml").write_text(text)
    command = ["deploy", str(tmp_path), "--wheel", str(wheel)]

    assert [0, 2] == [main([*command, "--check"]), main(command)]

    told = (
        f"the job j needs a file beside the wheel of mirrorlib, which alone is sent (found {other})"
    )
    assert told in capsys.readouterr().err
    assert {"GET"} == {request.partition(" ")[0] for request in workspace.asked}


def test_a_job_that_runs_another_is_told_its_id(
    workspace: Workspace, wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is sent behind it; the next deployment finds both."""
    (tmp_path / "databricks.yml").write_text(JOBS)

    for _ in range(2):
        assert 0 == main(["deploy", str(tmp_path), "--wheel", str(wheel)]), capsys.readouterr().err

        assert ["called", "caller"] == [job["name"] for job in workspace.jobs.values()]
        assert 1 == workspace.jobs[2]["tasks"][0]["run_job_task"]["job_id"]


def test_whoever_deploys_owns_the_jobs_and_is_given_no_less(
    workspace: Workspace, wheel: Path, tmp_path: Path
) -> None:
    """A permission beside the owner's own would contradict it."""
    (tmp_path / "databricks.yml").write_text(JOBS)

    main(["deploy", str(tmp_path), "--wheel", str(wheel)])

    assert [{"user_name": "bob", "permission_level": "CAN_VIEW"}] == workspace.permissions["1"]


@pytest.mark.parametrize(
    "old, new, told",
    [
        ("name: called,", "name: called, description: '${var.pool}',", "the lookup of pool asks for (found <lookup of instance_pool big>). Give it: --var pool=ID"),
        ("name: called,", "name: called, description: 'of ${resources.jobs.caller.id}',", "the job zcalled needs an id that is not known"),
    ],
)  # fmt: skip
def test_an_id_that_only_the_workspace_can_tell_is_not_made_up(
    workspace: Workspace,
    wheel: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    told: str,
) -> None:
    """Nothing is sent; a value that is given needs no lookup."""
    (tmp_path / "databricks.yml").write_text(JOBS.replace(old, new))
    command = ["deploy", str(tmp_path), "--wheel", str(wheel)]

    assert 2 == main(command)

    assert told in capsys.readouterr().err
    assert {"GET"} == {request.partition(" ")[0] for request in workspace.asked}
    assert (0 if "pool" in new else 2) == main([*command, "--var", "pool=abc"])


def test_two_jobs_of_one_name_are_not_chosen_from(
    workspace: Workspace, wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them may be somebody else's."""
    (tmp_path / "databricks.yml").write_text(JOBS)
    workspace.jobs = {5: {"name": "called"}, 6: {"name": "called"}}

    assert 2 == main(["deploy", str(tmp_path), "--wheel", str(wheel)])

    assert "the workspace has 2 jobs of one name (found called)" in capsys.readouterr().err
    assert {5, 6} == set(workspace.jobs)


def test_staging_and_prod_in_one_workspace_do_not_take_each_others_jobs(
    workspace: Workspace, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their names are the same, and the tables another's: nothing is sent, whatever is forced; each is updated by its own."""
    deploy(capsys, wheel, "--target", "staging")
    before, asked = json.dumps(workspace.jobs), len(workspace.asked)

    code, said = deploy(capsys, wheel, "--target", "prod", "--force")

    assert (2, before) == (code, json.dumps(workspace.jobs))
    assert (
        "another deployment made it (found mirrorlib check, of mirrorlib.staging."
        in said["message"]
    )
    assert "names of their own" in said["next_step"]
    assert {"GET"} == {request.partition(" ")[0] for request in workspace.asked[asked:]}
    _, again = deploy(capsys, wheel, "--target", "staging")
    assert {"updated"} == {one["done"] for one in again["sent"] if one["kind"] == "job"}


def test_a_job_that_does_not_say_whose_it_is_is_taken_over_by_force_alone(
    workspace: Workspace, wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one that an earlier mirrorlib has deployed; from then on it says so, beside its own tags."""
    (tmp_path / "databricks.yml").write_text(
        JOBS.replace("{name: called,", "{name: called, tags: {team: ours},")
    )
    workspace.jobs = {1: {"name": "called"}}
    command = ["deploy", str(tmp_path), "--wheel", str(wheel)]

    assert 2 == main(command)

    told = capsys.readouterr().err
    assert "does not say which deployment made it (found called)" in told
    assert "take it over with --force" in told
    assert {1: {"name": "called"}} == workspace.jobs
    assert [0, 0] == [main([*command, "--force"]), main(command)]
    tags = workspace.jobs[1]["tags"]
    assert ["mirrorlib_bundle", "team"] == sorted(tags)
    assert tags["mirrorlib_bundle"].startswith("small.dev.")


def test_a_name_in_another_case_is_another_jobs(
    workspace: Workspace, wheel: Path, tmp_path: Path
) -> None:
    """The workspace's list looks past case."""
    (tmp_path / "databricks.yml").write_text(JOBS)
    workspace.jobs = {1: {"name": "Called"}}

    assert 0 == main(["deploy", str(tmp_path), "--wheel", str(wheel), "--force"])

    assert ["Called", "called", "caller"] == [job["name"] for job in workspace.jobs.values()]


def test_two_jobs_of_a_bundle_need_two_names(
    workspace: Workspace, wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second would else be written over the first."""
    (tmp_path / "databricks.yml").write_text(JOBS.replace("name: called", "name: caller"))

    assert 2 == main(["deploy", str(tmp_path), "--wheel", str(wheel)])

    assert (
        "have one name, by which they could not be found again (found caller)"
        in capsys.readouterr().err
    )
    assert {} == workspace.jobs


@pytest.mark.parametrize("name, target", [("small", "dev"), ("grün/1", "dev"), ("a" * 60, "dev")])
def test_a_deployments_name_is_a_tag_on_every_cloud(tmp_path: Path, name: str, target: str) -> None:
    """Google's, the strictest, has 63 letters, digits, dots, lines and hyphens; another folder is another deployment."""
    text = f"bundle: {{name: {name}}}\ntargets: {{{target}: {{}}}}\n"
    (tmp_path / "databricks.yml").write_text(text)
    bundle = read_bundle(tmp_path)

    ann, bob = (deployment_of(render(bundle, user=User(name=one))) for one in ("ann", "bob"))

    assert ann != bob
    assert re.fullmatch(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,61}[A-Za-z0-9]", ann)


@pytest.mark.parametrize(
    "head, more, code",
    [
        ("ref: refs/heads/work", (), 2),
        ("ref: refs/heads/work", ("--force",), 0),
        ("ref: refs/heads/work", ("--check",), 0),
        ("ref: refs/heads/main", (), 0),
        ("3d3c42e5aac5ba805825da76410c181273ba90b1", (), 0),
    ],
)
def test_a_target_is_deployed_from_its_branch(
    workspace: Workspace,
    wheel: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    head: str,
    more: tuple[str, ...],
    code: int,
) -> None:
    """Unless it is forced, or only checked; a worktree counts too, and a single commit is on no branch."""
    (tmp_path / "databricks.yml").write_text(JOBS)
    (tmp_path / "git" / "worktree").mkdir(parents=True)
    (tmp_path / "git" / "worktree" / "HEAD").write_text(f"{head}\n")
    (tmp_path / ".git").write_text("gitdir: git/worktree\n")

    assert code == main(["deploy", str(tmp_path), "--wheel", str(wheel), *more])

    assert (code == 2) == (
        "is deployed from the branch main (found work)" in capsys.readouterr().err
    )
    assert (code == 2 or "--check" in more) == (not workspace.jobs)


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
        (
            ("--run", "check", "--param", "zone=z"),
            "the job check has no such parameter (found zone)",
        ),
    ],
)
def test_what_the_bundle_lacks_is_refused(
    workspace: Workspace,
    wheel: Path,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    told: str,
) -> None:
    """Before anything is sent: the workspace was only asked who it is that asks."""
    code, said = deploy(capsys, wheel, *more)

    assert 2 == code
    assert told in said["message"]
    assert {"GET"} == {request.partition(" ")[0] for request in workspace.asked}


@pytest.mark.parametrize(
    "refused, told",
    [
        ("/api/2.0/preview/scim/v2/Me", "the question who you are"),
        ("/api/2.2/jobs/create", "the job check"),
        ("/api/2.1/unity-catalog/permissions", "the grants of dev.dev_ann_mirrors"),
    ],
)
def test_what_the_workspace_refuses_is_named(
    workspace: Workspace,
    wheel: Path,
    capsys: pytest.CaptureFixture[str],
    refused: str,
    told: str,
) -> None:
    """With its own word for it."""
    workspace.refused = refused

    code, said = deploy(capsys, wheel)

    assert 2 == code
    assert f"for, {told} (found not for you)" in said["message"]


def test_a_wheel_that_is_not_there_is_told_before_anything_is_sent(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt path."""
    code, said = deploy(capsys, Path("/nowhere.whl"))

    assert 2 == code
    assert "there is no such wheel (found /nowhere.whl)" in said["message"]
    assert {"GET"} == {request.partition(" ")[0] for request in workspace.asked}


def test_a_run_that_takes_longer_goes_on(
    workspace: Workspace, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was refused: the run is named, for whoever looks after it."""
    workspace.result = ""

    code, said = deploy(capsys, wheel, "--run", "check", "--timeout", "1")

    told = "run 1 of check has not ended after 0:00:01, and goes on https://run"
    assert (1, False, told) == (code, said["ok"], said["failed"])


def test_a_notebook_in_the_source_format_is_sent_as_one(
    workspace: Workspace, wheel: Path, tmp_path: Path
) -> None:
    """Its text, with its language; it lies there without its ending, as every notebook."""
    source = "# Databricks notebook source\nprint(1)\n"
    (tmp_path / "etl.py").write_text(source)
    task = 'condition_task: {op: EQUAL_TO, left: "1", right: "1"}'
    text = LIBRARIES.replace(task, "notebook_task: {notebook_path: etl.py}")
    (tmp_path / "databricks.yml").write_text(text.replace("LIST", "[pandas]"))

    assert 0 == main(["deploy", str(tmp_path), "--wheel", str(wheel)])

    (place,) = (path for path in workspace.files if path.endswith("/etl"))
    assert ("SOURCE", source.encode()) == workspace.files[place]
    assert place == workspace.jobs[1]["tasks"][0]["notebook_task"]["notebook_path"]


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
