"""The bundle that ships is sound for every target, and a checker that finds nothing would find what is broken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("databricks.sdk")

from mirrorlib.cli.main import understand
from mirrorlib.delta.find import EVENTS, LEDGER
from mirrorlib.deploy.check import check_bundle
from mirrorlib.deploy.read import read_bundle
from mirrorlib.deploy.render import User, render, target_names
from mirrorlib.errors import BundleError
from mirrorlib.operate.book import EVENT_COLUMNS, LEDGER_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
TARGETS = ["dev", "staging", "prod"]
APPLY, EXPORT, MAIN = "bundles/incremental_apply.yml", "bundles/export_feed.yml", "databricks.yml"
DERIVE, STORAGE = "bundles/propagate_keys.yml", "bundles/storage.yml"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Copy what ships, to be broken."""
    for folder in ("bundles", "notebooks"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for file in (MAIN, "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def change(bundle: Path, file: str, old: str, new: str) -> None:
    """Replace one text of one file."""
    text = (bundle / file).read_text()
    assert 1 <= text.count(old)
    (bundle / file).write_text(text.replace(old, new, 1))


def faults(bundle: Path, target: str = "prod") -> list[str]:
    """Check a target."""
    return [str(fault) for fault in check_bundle(render(read_bundle(bundle), target), understand)]


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_is_sound(target: str) -> None:
    """Nothing is unresolved, unknown, or against a rule."""
    rendered = render(read_bundle(ROOT), target)

    assert () == check_bundle(rendered, understand)
    assert "${" not in json.dumps(rendered.tree)


def test_the_targets_and_the_jobs_are_those_that_the_documents_name() -> None:
    """The default comes first."""
    found = read_bundle(ROOT)

    assert TARGETS == target_names(found)
    jobs = ["check", "export_feed", "incremental_apply", "initial_load", "propagate_keys", "status"]
    assert jobs == sorted(render(found).jobs)


def test_development_is_named_after_its_developer_and_paused() -> None:
    """So are the schemas, and what refers to them."""
    jobs = render(read_bundle(ROOT), "dev", user=User(name="ann.lee@example.com")).jobs
    job = jobs["incremental_apply"]

    assert "[dev ann_lee] mirrorlib incremental apply" == job["name"]
    assert {"PAUSED"} == {
        job[kind]["pause_status"]
        for job in jobs.values()
        for kind in ("trigger", "schedule")
        if kind in job
    }
    assert "/Volumes/dev/dev_ann_lee_mirrors/landing/" == job["trigger"]["file_arrival"]["url"]
    assert "dev_ann_lee_mirrors" in [parameter["default"] for parameter in job["parameters"]]


@pytest.mark.parametrize("target", TARGETS)
def test_a_wheel_that_was_built_again_is_another_wheel(target: str) -> None:
    """Else an environment that has the version takes the older code for it."""
    artifacts = render(read_bundle(ROOT), target).tree["artifacts"]

    assert [True] == [one["dynamic_version"] for one in artifacts.values()]


def test_production_runs_as_its_service_principal_and_is_not_paused() -> None:
    """Each target has one of its own."""
    staging, prod = (render(read_bundle(ROOT), target) for target in ("staging", "prod"))

    assert staging.tree["run_as"] != prod.tree["run_as"]
    assert "pause_status" not in prod.jobs["incremental_apply"]["trigger"]
    assert {"interval": 1, "unit": "HOURS"} == staging.jobs["incremental_apply"]["trigger"][
        "periodic"
    ]


def test_a_given_value_wins_over_the_targets_and_the_default() -> None:
    """As --var does."""
    rendered = render(
        read_bundle(ROOT), "prod", variables={"catalog": "other", "tables": '["dbo/orders"]'}
    )

    assert (
        "/Volumes/other/mirrors/landing/"
        == rendered.jobs["incremental_apply"]["trigger"]["file_arrival"]["url"]
    )
    assert {"name": "each", "default": '["dbo/orders"]'} in rendered.jobs["initial_load"][
        "parameters"
    ]


def test_every_job_waits_its_turn_tries_a_task_again_and_tells_somebody() -> None:
    """Whoever adds a job says all of it; retries are the inner task's, where there is a loop."""
    for key, job in render(read_bundle(ROOT), "prod").jobs.items():
        told = job["email_notifications"]
        assert told["on_failure"] == told["on_duration_warning_threshold_exceeded"], key
        assert job["queue"] == {"enabled": True}, key
        assert ["RUN_DURATION_SECONDS"] == [one["metric"] for one in job["health"]["rules"]], key
        tasks = [task.get("for_each_task", {}).get("task", task) for task in job["tasks"]]
        for task in (task for task in tasks if "condition_task" not in task):
            assert task["max_retries"] == 2, key
            assert 0 < task["timeout_seconds"] < job["timeout_seconds"], key


def test_nothing_that_holds_data_is_destroyed_with_the_bundle() -> None:
    """Neither schemas nor volumes."""
    rendered = render(read_bundle(ROOT), "prod")

    for kind in ("schemas", "volumes"):
        assert all(
            one["lifecycle"] == {"prevent_destroy": True}
            for one in rendered.resources(kind).values()
        )


@pytest.mark.parametrize(
    "file, old, new, told",
    [
        (APPLY, "notebook_task:", "notebok_task:", "jobs.tasks[1].for_each_task.task has no field notebok_task"),
        (MAIN, "unit: HOURS", "unit: HOUR", "unit has to be one of DAYS, HOURS, MINUTES, WEEKS"),
        (APPLY, "timeout_seconds: 14400", "timeout_seconds: soon", "jobs.timeout_seconds has to be of type int, not 'soon'"),
        (APPLY, "right: classic", "", "condition_task lacks the field right"),
        (STORAGE, "volume_type:", "volume_kind:", "volumes has no field volume_kind"),
        (STORAGE, "volume_type: MANAGED", "volume_type: MANAGD", "volumes.volume_type has to be one of EXTERNAL, MANAGED, not 'MANAGD'"),
        (STORAGE, "      schema_name: ${resources.schemas.mirrors.name}\n", "", "volumes lacks the field schema_name"),
        (STORAGE, "comment: Tables", "comment: [Tables]\n      # ", "schemas.comment has to be of type str"),
        (STORAGE, "privileges:", "privilges:", "schemas.grants[0] has no field privilges"),
        (STORAGE, "privileges:", "privilges:", "schemas.grants[0] lacks the field privileges"),
        (STORAGE, "[USE_SCHEMA, SELECT]", "[USE_SCHEMA, SELCT]", "schemas.grants[0].privileges[1] has to be one of "),
        (STORAGE, "- principal: ${var.readers}\n          ", "- ", "schemas.grants[0] lacks the field principal"),
        (STORAGE, "prevent_destroy: true", "prevent_destory: true", "schemas.lifecycle has no field prevent_destory"),
        (STORAGE, "prevent_destroy: true", "prevent_destroy: always", "schemas.lifecycle.prevent_destroy has to be of type bool"),
        (MAIN, "service_principal_name: 00000000-0000-0000-0000-000000000002", "service_principal: 00000000-0000-0000-0000-000000000002", "run_as has no field service_principal"),
        (MAIN, "level: CAN_MANAGE", "level: CAN_MANGE", "permissions[0].level has to be one of CAN_MANAGE, CAN_VIEW, CAN_RUN, not 'CAN_MANGE'"),
        (MAIN, "group_name: ${var.owners}", "grp_name: owners", "permissions[0] has no field grp_name"),
        (MAIN, "group_name: ${var.owners}", "grp_name: owners", "permissions[0] has to name one of group_name, user_name, service_principal_name"),
        (MAIN, "level: CAN_VIEW", "user_name: ann\n    level: CAN_VIEW", "permissions[1] has to name one of"),
        (APPLY, "      queue:", "      permissions: [{user_name: ann, level: CAN_RUN}]\n      queue:", "jobs.permissions[0].level has to be one of CAN_MANAGE, CAN_MANAGE_RUN, CAN_VIEW, IS_OWNER, not 'CAN_RUN'"),
        (STORAGE, "mirrors.lvdash.json", "mirror.lvdash.json", "there is no file bundles/mirror.lvdash.json"),
        (APPLY, 'task_key: compute, outcome: "true"', 'task_key: computed, outcome: "true"', "the task classic depends on computed"),
        (APPLY, "job_cluster_key: main\n              libraries", "job_cluster_key: mine\n              libraries", "runs on the job cluster mine"),
        (APPLY, "environment_key: main\n              disable", "environment_key: mine\n              disable", "runs in the environment mine"),
        (APPLY, "parameters.landing_zone}}", "parameters.zone}}", "{{job.parameters.zone}} names no parameter"),
        (APPLY, 'inputs: "{{job.parameters.each}}"', 'inputs: "{{tasks.plan.values.tables}}"', "{{tasks.plan.values.tables}} names no task"),
        (APPLY, 'inputs: "{{job.parameters.each}}"', "inputs: a, b", "neither a JSON list nor one reference: a, b"),
        (APPLY, 'inputs: "{{job.parameters.each}}"', "inputs: [a, b]", "inputs has to be of type str"),
        (MAIN, "'[\"*\"]'", "'*'", "the parameter each, which classic goes through, is no JSON list"),
        (APPLY, "          for_each_task:", "          max_retries: 1\n          for_each_task:", "classic has max_retries, which belongs to the task inside"),
        (APPLY, "          for_each_task:", "          min_retry_interval_millis: 1\n          for_each_task:", "classic has min_retry_interval_millis, which belongs to the task inside"),
        (APPLY, "          for_each_task:", "          retry_on_timeout: false\n          for_each_task:", "classic has retry_on_timeout, which belongs to the task inside"),
        (APPLY, "task_key: serverless_each", "task_key: classic_each", "two tasks are called classic_each"),
        (APPLY, "incremental_apply.ipynb", "apply.ipynb", "notebooks/apply.ipynb is not there, or is no notebook"),
        (APPLY, 'tables: "{{input}}"', 'table: "{{input}}"', "incremental_apply.ipynb has no parameter table"),
        (APPLY, "{name: each,", "{name: tables,", "the job's parameter tables counts for more than the task's"),
        (APPLY, "- {name: each,", "- {name: colour, default: red}\n        - {name: each,", "no parameter colour, which the job hands over"),
        (EXPORT, '        - {name: consumer, default: "${var.consumer}"}\n', "", "export_feed.ipynb needs the parameter consumer"),
        (DERIVE, '        - {name: sources, default: "${var.derived_from}"}\n', "", "propagate_keys.ipynb needs the parameter sources"),
        (APPLY, "              notebook_task:", "              environment_key: main\n              notebook_task:", "a notebook task takes no environment_key"),
        (APPLY, "package_name: mirrorlib", "package_name: mirrors", "the wheel is of mirrorlib, not of mirrors"),
        (APPLY, "entry_point: mirrorlib-task", "entry_point: task", "task is no entry point of [project.scripts]"),
        (APPLY, '"--table={{input}}"', '"--tabel={{input}}"', "its parameters are not understood: unrecognized arguments: --tabel"),
        (EXPORT, 'name: mode, default: "current"', 'name: mode, default: "newest"', "argument --mode: invalid choice: 'newest'"),
        (EXPORT, 'name: keys, default: ""', "name: keys, default: '[1]'", "argument --key: '[1]' is neither"),
        (APPLY, "max_concurrent_runs: 1", "max_concurrent_runs: 2", "max_concurrent_runs has to be 1"),
        (APPLY, "      timeout_seconds: 14400\n", "", "a production job needs timeout_seconds"),
        (APPLY, "on_failure: ${var.notify}", "on_success: ${var.notify}", "needs somebody who is told of failures"),
        (MAIN, "    run_as:\n      service_principal_name: 00000000-0000-0000-0000-000000000002\n", "", "a production job needs run_as"),
        (MAIN, "    workspace:\n      root_path: /Workspace/Users/00000000-0000-0000-0000-000000000002/.bundle/${bundle.name}/${bundle.target}\n", "", "has to say its root_path"),
        (MAIN, "  prod:\n    mode: production\n", "  prod:\n", "targets.prod: it says root_path and run_as, but no mode: say production, or development"),
        (APPLY, "      trigger: $", '      schedule: {quartz_cron_expression: "0 0 6 * * ?", timezone_id: UTC}\n      trigger: $', "a job has one of schedule and trigger"),
        (MAIN, "    permissions: # beside those above: it has them on its own folder, and a strict validation wants that said\n      - service_principal_name: 00000000-0000-0000-0000-000000000002\n        level: CAN_MANAGE\n", "", "its folder is in the home of 00000000-0000-0000-0000-000000000002, to whom permissions has to give CAN_MANAGE"),
        (STORAGE, "    ledger:", "    mirrors:", "mirrors: schemas and dashboards have the same key"),
        ("bundles/check.yml", "0 0 6 * * ?", "0 6 * * *", "0 6 * * * is no Quartz expression"),
        (MAIN, "landing.volume_path}/", "landing.volume_path}", "the url of file_arrival has to end in /"),
        (MAIN, "min_time_between_triggers_seconds: 60", "min_time_between_triggers_seconds: 5", "has to be 60 or more"),
    ],
)  # fmt: skip
def test_what_is_broken_is_found(bundle: Path, file: str, old: str, new: str, told: str) -> None:
    """Each is something that a workspace refuses late, or that goes wrong without a word."""
    change(bundle, file, old, new)

    found = faults(bundle, "staging" if "HOURS" in old else "prod")

    assert [] != [fault for fault in found if told in fault], found


@pytest.mark.parametrize(
    "file, old, new, told",
    [
        (APPLY, "      queue:", "      name: twice\n      queue:", "bundles/incremental_apply.yml, line 10: the key name stands twice"),
        (EXPORT, "    export_feed:", "    incremental_apply:", "stands in another file too"),
        (MAIN, "bundles/*.yml", "bundle/*.yml", "an include matches no file (found bundle/*.yml)"),
        (MAIN, "bundles/*.yml", "bundles/**/*.yml", "an include with ** is not read recursively"),
        (APPLY, "${var.apply_trigger}", "${var.trigger}", "a reference leads nowhere (found ${var.trigger})"),
        (APPLY, "schemas.mirrors.name", "schemas.mirror.name", "a reference leads nowhere (found ${resources.schemas.mirror.name})"),
        (MAIN, "      catalog: prod", "      catalogue: prod", "a variable is set that is not declared (found catalogue)"),
        (MAIN, "      catalog: prod", "      schema: prod", "the variable catalog has no value"),
        (MAIN, "    default: landing\n", "    default: ${var.landing_volume}\n", "in a circle"),
        (APPLY, "      queue:", "     queue:", "the bundle's file is no YAML"),
        (APPLY, "      queue:", "      edit_mode: {{job.run_id}}\n      queue:", "bundles/incremental_apply.yml, line 10: a key is no text: what stands between braces needs quotes"),
        (MAIN, "bundle:\n", "bundle: mirrorlib\nx:\n", "bundle has to be a mapping"),
        (MAIN, "    default: landing\n", "    default: landing\n  colour: red\n", "variables.colour has to be a mapping"),
        (MAIN, "  prod:\n", "  test: [prod]\n  prod:\n", "targets.test has to be a mapping"),
        (MAIN, "include:\n  - bundles/*.yml", "include: bundles/*.yml", "include has to be a list"),
        (MAIN, "    git:\n      branch: main", "    git: main", "targets.prod.git has to be a mapping"),
    ],
)  # fmt: skip
def test_what_cannot_be_rendered_says_why(
    bundle: Path, file: str, old: str, new: str, told: str
) -> None:
    """With the file and what was found."""
    change(bundle, file, old, new)

    with pytest.raises(BundleError) as caught:
        render(read_bundle(bundle), "prod")

    assert told in str(caught.value)


def test_a_folder_in_ones_own_home_needs_no_permission(bundle: Path) -> None:
    """Whoever deploys is not known to the bundle."""
    change(bundle, MAIN, "Users/00000000-0000-0000-0000-000000000002/", "Users/ann@example.com/")
    prod = read_bundle(bundle)

    told = "its folder is in the home of ann@example.com"
    assert [
        told in str(check_bundle(render(prod, "prod", user=User(name=name)), understand))
        for name in ("bob", "ann@example.com")
    ] == [True, False]


def test_what_stays_here_matches_something() -> None:
    """The Databricks CLI warns of a pattern that matches nothing, and a strict validation fails for a warning."""
    ignored = (ROOT / ".gitignore").read_text().splitlines()

    for pattern in render(read_bundle(ROOT)).tree["sync"]["exclude"]:
        folder = pattern.removesuffix("**")
        assert folder not in ignored
        assert any((ROOT / folder).glob("*.*")), pattern


def test_a_target_that_is_not_there_is_named_with_those_that_are() -> None:
    """A typing error deploys nothing."""
    with pytest.raises(BundleError, match=r"production.*dev, staging, prod"):
        render(read_bundle(ROOT), "production")


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
