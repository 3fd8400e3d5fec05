"""The bundle that ships: every resource of every target is one that Databricks knows, and every task runs what it names."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("databricks.bundles")

from bundle import (
    Rendered,
    all_tasks,
    built,
    filled,
    joined,
    needed_parameters,
    parameters_of,
    read_parameters,
    render,
    targets,
)
from little import understand
from mirrorlib.delta.address import EVENTS, LEDGER
from mirrorlib.operate.book import EVENT_COLUMNS, LEDGER_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "bundles" / "examples" / "included"
PLACES = [
    *((ROOT, target) for target in ("dev", "staging", "prod")),
    *((EXAMPLE, target) for target in ("dev", "prod")),
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
QUARTZ = re.compile(
    r"[0-9*/,-]+ [0-9*/,-]+ [0-9*/,-]+ [0-9*?/,LW-]+ [0-9A-Z*/,-]+ [0-9A-Z*?/,L#-]+( [0-9*/,-]+)?"
)


@pytest.fixture(params=PLACES, ids=lambda place: "theirs-" * (place[0] == EXAMPLE) + place[1])
def rendered(request: pytest.FixtureRequest) -> Rendered:
    """Give each target, and those of a bundle that includes ours."""
    return render(*request.param, root_of_ours=ROOT)


def test_every_resource_is_built_by_its_class(rendered: Rendered) -> None:
    """Fields, types and words are those that Databricks knows; the same key never stands for two resources."""
    found = {kind: sorted(ones) for kind, ones in rendered.typed.items()}
    jobs = ["check", "export_feed", "incremental_apply", "initial_load", "propagate_keys"]
    jobs += ["self_test", "status"]

    assert jobs == found["jobs"]
    assert {"jobs", "schemas", "volumes", "dashboards"} == found.keys()
    keys = [key for ones in found.values() for key in ones]
    assert len(keys) == len(set(keys))
    assert PLACES == [(root, target) for root in (ROOT, EXAMPLE) for target in targets(root)]


@pytest.mark.parametrize(
    "resource",
    [
        {"jobs": {"j": {"tasks": [{"task_key": "a", "notebok_task": {}}]}}},
        {"jobs": {"j": {"timeout_seconds": "soon"}}},
        {"jobs": {"j": {"trigger": {"periodic": {"interval": 1, "unit": "HOUR"}}}}},
        {"volumes": {"v": {"catalog_name": "c", "schema_name": "s", "name": "v", "volume_type": "MANAGD"}}},
        {"schemas": {"s": {"catalog_name": "c", "name": "s", "grants": [{"principal": "p", "privilges": []}]}}},
        {"dashboards": {"d": {"display_name": "d", "file_pth": "./d.lvdash.json"}}},
    ],
)  # fmt: skip
def test_a_resource_with_a_slip_in_it_is_not_built(resource: dict[str, object]) -> None:
    """Else the test above would prove nothing."""
    with pytest.raises((TypeError, ValueError)):
        built({"resources": resource})


def test_every_task_runs_what_it_names(rendered: Rendered) -> None:
    """Notebooks are there, take what they are handed and are handed what they need; commands understand their arguments."""
    for key, job in rendered.jobs.items():
        defaults = {**parameters_of(job), "input": "*"}
        handed = {one["name"] for one in job["parameters"]}
        used = set(re.findall(r"job\.parameters\.(\w+)", json.dumps(job["tasks"])))
        for task in all_tasks(job):
            if "notebook_task" in task:
                told = task["notebook_task"]
                path = ROOT / "bundles" / told["notebook_path"]
                base = set(told.get("base_parameters", {}))
                assert not base & handed, key  # the job's would count for more
                assert base | (handed - used) <= set(read_parameters(path)), key
                assert needed_parameters(path) <= base | handed, key
                assert "environment_key" not in task, key  # it cannot be handed the wheel
                sdk = {"package": "databricks-sdk==0.56.0"}  # no range: none is documented there
                assert [{"whl": "../dist/*.whl"}, {"pypi": sdk}] == task["libraries"], key
            if "python_wheel_task" in task:
                told = task["python_wheel_task"]
                assert (PROJECT["name"], "mirrorlib-task") == (
                    told["package_name"],
                    told["entry_point"],
                )
                assert "mirrorlib-task" in PROJECT["scripts"]
                assert "" == understand([filled(one, defaults) for one in told["parameters"]]), key
            if "spark_python_task" in task:
                told = task["spark_python_task"]
                name, *given = told["parameters"]
                path = ROOT / "notebooks" / f"{name}.ipynb"
                words = {one.partition("=")[0] for one in given}
                assert (ROOT / "bundles" / told["python_file"]).is_file()
                assert needed_parameters(path) <= words <= set(read_parameters(path)), key
            if "condition_task" not in task:
                clusters = {one["job_cluster_key"] for one in job["job_clusters"]}
                places = {one["environment_key"] for one in job.get("environments", [])}
                assert (
                    task.get("job_cluster_key") in clusters or task["environment_key"] in places
                ), key


def test_every_job_runs_on_serverless_unless_somebody_says_otherwise(rendered: Rendered) -> None:
    """There the environment brings the wheel."""
    for key, job in rendered.jobs.items():
        assert "serverless" == parameters_of(job)["job.parameters.compute"], key
        (environment,) = job["environments"]
        assert ["../dist/*.whl"] == environment["spec"]["dependencies"], key
        runs = [task for task in all_tasks(job) if "condition_task" not in task]
        assert 1 == sum("environment_key" in task for task in runs), key


def test_every_reference_between_tasks_is_to_one_before_it(rendered: Rendered) -> None:
    """And every value between double braces is a parameter of the job, or a loop's."""
    for key, job in rendered.jobs.items():
        known = {f"job.parameters.{one['name']}" for one in job["parameters"]} | {"input"}
        assert set(re.findall(r"\{\{([^{}]+)\}\}", json.dumps(job["tasks"]))) <= known, key
        before: set[str] = set()
        for task in job["tasks"]:
            assert {need["task_key"] for need in task.get("depends_on", [])} <= before, key
            before.add(task["task_key"])
            if "for_each_task" in task:
                assert not {"max_retries", "retry_on_timeout"} & task.keys(), key
                name = task["for_each_task"]["inputs"]
                assert isinstance(json.loads(filled(name, parameters_of(job))), list), key


def test_every_job_waits_its_turn_tries_a_task_again_and_tells_somebody(rendered: Rendered) -> None:
    """Whoever adds a job says all of it; retries are the inner task's, where there is a loop."""
    for key, job in rendered.jobs.items():
        told = job["email_notifications"]
        assert told["on_failure"] == told["on_duration_warning_threshold_exceeded"] != [], key
        assert (1, {"enabled": True}) == (job["max_concurrent_runs"], job["queue"]), key
        assert ["RUN_DURATION_SECONDS"] == [one["metric"] for one in job["health"]["rules"]], key
        assert len({"schedule", "trigger"} & job.keys()) <= 1, key
        if "schedule" in job:
            assert QUARTZ.fullmatch(job["schedule"]["quartz_cron_expression"]), key
        for task in (task for task in all_tasks(job) if "condition_task" not in task):
            assert task["max_retries"] == 2, key
            assert 0 < task["timeout_seconds"] < job["timeout_seconds"], key


@pytest.mark.parametrize(
    "root, target",
    [place for place in PLACES if place[1] != "dev"],
    ids=["staging", "prod", "theirs"],
)
def test_production_runs_as_its_service_principal_from_a_folder_that_is_its_own(
    root: Path, target: str
) -> None:
    """And may manage that folder, which a strict validation wants said."""
    tree = render(root, target, root_of_ours=ROOT).tree
    name = tree["run_as"]["service_principal_name"]

    assert "production" == tree["mode"]
    assert f"/Users/{name}/" in tree["workspace"]["root_path"]
    managers = [one for one in tree["permissions"] if one["level"] == "CAN_MANAGE"]
    assert {"service_principal_name": name, "level": "CAN_MANAGE"} in managers


def test_each_production_target_has_a_service_principal_of_its_own() -> None:
    """Whoever gets into one gets into no other."""
    names = {
        render(*place, root_of_ours=ROOT).tree["run_as"]["service_principal_name"]
        for place in PLACES
        if place[1] != "dev"
    }

    assert len(names) == 3


def test_a_trigger_is_what_its_platform_takes() -> None:
    """A folder ends in a slash, and is looked at once a minute at most; staging has a clock."""
    prod, staging = (
        render(ROOT, target).jobs["incremental_apply"]["trigger"] for target in ("prod", "staging")
    )

    assert "/Volumes/prod/mirrors/landing/" == prod["file_arrival"]["url"]
    assert prod["file_arrival"]["min_time_between_triggers_seconds"] >= 60
    assert {"interval": 1, "unit": "HOURS"} == staging["periodic"]


def test_a_given_value_wins_over_the_targets_and_the_default() -> None:
    """As --var does."""
    given = {"catalog": "other", "tables": '["dbo/orders"]', "concurrency": 8}
    jobs = render(ROOT, "prod", variables=given).jobs

    assert (
        "/Volumes/other/mirrors/landing/"
        == jobs["incremental_apply"]["trigger"]["file_arrival"]["url"]
    )
    assert {"name": "each", "default": '["dbo/orders"]'} in jobs["initial_load"]["parameters"]
    loops = [
        task["for_each_task"]
        for task in jobs["incremental_apply"]["tasks"]
        if "for_each_task" in task
    ]
    assert {8} == {loop["concurrency"] for loop in loops}


def test_nothing_that_holds_data_is_destroyed_with_the_bundle(rendered: Rendered) -> None:
    """Neither schemas nor volumes."""
    for kind in ("schemas", "volumes"):
        for one in rendered.tree["resources"][kind].values():
            assert {"prevent_destroy": True} == one["lifecycle"]


def test_a_wheel_that_was_built_again_is_another_wheel(rendered: Rendered) -> None:
    """Else an environment that has the version takes the older code for it."""
    assert [True] == [one["dynamic_version"] for one in rendered.tree["artifacts"].values()]


def test_files_that_are_named_are_there(rendered: Rendered) -> None:
    """A dashboard's, and a match for what stays here: a strict validation fails for a pattern without one."""
    for one in rendered.tree["resources"]["dashboards"].values():
        assert (ROOT / "bundles" / one["file_path"]).is_file()
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    for pattern in rendered.tree["sync"]["exclude"]:
        folder = pattern.removesuffix("**").removeprefix("mirrorlib/")
        assert folder not in ignored
        assert any((ROOT / folder).glob("*.*")), pattern


def test_a_bundle_that_includes_ours_says_variables_alone() -> None:
    """As the example does, whose jobs are ours with its values."""
    mine = render(EXAMPLE, "prod", root_of_ours=ROOT)

    assert render(ROOT, "prod").jobs.keys() == mine.jobs.keys()
    assert (
        "/Volumes/theirs/mirrors/landing/"
        == mine.jobs["incremental_apply"]["trigger"]["file_arrival"]["url"]
    )
    with pytest.raises(AssertionError):
        joined({"resources": {"jobs": {"check": 1}}}, {"resources": {"jobs": {"check": 2}}})


def test_the_dashboards_queries_run_on_the_tables_that_the_status_job_keeps(
    spark: SparkSession,
) -> None:
    """Each shows the columns that its widgets name."""
    for name, columns in ((LEDGER, LEDGER_COLUMNS), (EVENTS, EVENT_COLUMNS)):
        spark.createDataFrame([], columns).createOrReplaceTempView(name)
    dashboard = json.loads((ROOT / "bundles" / "mirrors.lvdash.json").read_text())

    found = {
        one["name"]: spark.sql("".join(one["queryLines"])).columns for one in dashboard["datasets"]
    }

    for page in dashboard["pages"]:
        for part in page["layout"]:
            for query in part["widget"]["queries"]:
                for field in query["query"]["fields"]:
                    assert field["expression"].split("`")[1] in found[query["query"]["datasetName"]]
