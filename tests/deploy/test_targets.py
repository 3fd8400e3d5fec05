"""A target is laid over its bundle, and its variables, modes and presets are read, as the Databricks CLI does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("databricks.sdk")

from mirrorlib.deploy.read import read_bundle
from mirrorlib.deploy.render import Rendered, User, render
from mirrorlib.errors import BundleError

ROOT = Path(__file__).parents[2]
BASE = """
bundle: {name: small}
variables:
  catalog: {default: dev}
  workers: {default: 4}
  fast: {default: true}
  notify: {type: complex, default: [a@example.com]}
  warehouse: {lookup: {warehouse: Starter}}
permissions: [{group_name: owners, level: CAN_MANAGE}]
run_as: {user_name: ann}
resources:
  schemas:
    s:
      catalog_name: ${var.catalog}
      name: s
      grants: [{principal: readers, privileges: [SELECT]}]
  jobs:
    j:
      name: j
      tags: {team: mine}
      parameters: [{name: a, default: "1"}, {name: b, default: "2"}]
      schedule: {quartz_cron_expression: "0 0 6 * * ?", timezone_id: UTC}
      job_clusters: [{job_cluster_key: c, new_cluster: {num_workers: "${var.workers}", spark_version: "16"}}]
      tasks:
        - {task_key: one, max_retries: 1, libraries: [{whl: a.whl}]}
        - {task_key: two, max_retries: 1}
"""


def rendered(folder: Path, target: str, user: User | None = None, **given: str) -> Rendered:
    """Render a bundle whose only target says this."""
    (folder / "databricks.yml").write_text(f"{BASE}\ntargets:\n  t:\n{target}")
    return render(read_bundle(folder), variables=given, user=user)


def of_tasks(job: dict[str, Any], field: str) -> dict[str, Any]:
    """Give one field of each task."""
    return {task["task_key"]: task.get(field) for task in job["tasks"]}


def test_a_targets_lists_are_put_behind_the_bundles(tmp_path: Path) -> None:
    """Permissions are added to; who runs the jobs is one, the target's."""
    tree = rendered(
        tmp_path,
        """
    permissions: [{user_name: bob, level: CAN_VIEW}]
    run_as: {service_principal_name: robot}
""",
    ).tree

    assert [
        {"group_name": "owners", "level": "CAN_MANAGE"},
        {"user_name": "bob", "level": "CAN_VIEW"},
    ] == tree["permissions"]
    assert {"service_principal_name": "robot"} == tree["run_as"]


def test_what_has_a_key_is_changed_where_it_stands(tmp_path: Path) -> None:
    """Tasks, clusters, parameters and grants: the others stay, and of the one what is not said again."""
    found = rendered(
        tmp_path,
        """
    resources:
      schemas:
        s:
          grants: [{principal: readers, privileges: [USE_SCHEMA, SELECT]}, {principal: robot, privileges: [MODIFY]}]
      jobs:
        j:
          parameters: [{name: b, default: "3"}]
          job_clusters: [{job_cluster_key: c, new_cluster: {num_workers: 8}}]
          tasks: [{task_key: one, max_retries: 5, libraries: [{whl: b.whl}]}, {task_key: three}]
""",
    )
    job = found.jobs["j"]

    assert {"one": 5, "two": 1, "three": None} == of_tasks(job, "max_retries")
    assert [{"whl": "a.whl"}, {"whl": "b.whl"}] == of_tasks(job, "libraries")["one"]
    assert [{"name": "a", "default": "1"}, {"name": "b", "default": "3"}] == job["parameters"]
    assert [{"num_workers": 8, "spark_version": "16"}] == [
        one["new_cluster"] for one in job["job_clusters"]
    ]
    assert [
        {"principal": "readers", "privileges": ["SELECT", "USE_SCHEMA"]},
        {"principal": "robot", "privileges": ["MODIFY"]},
    ] == found.resources("schemas")["s"]["grants"]


@pytest.mark.parametrize("value", ["prod", "{default: prod}", "{default: prod, description: all}"])
def test_a_targets_variable_may_be_said_in_full(tmp_path: Path, value: str) -> None:
    """Or by its value alone."""
    found = rendered(tmp_path, f"    variables: {{catalog: {value}}}\n")

    assert ("prod", "prod") == (
        found.variables["catalog"],
        found.resources("schemas")["s"]["catalog_name"],
    )


def test_a_targets_value_drops_a_lookup(tmp_path: Path) -> None:
    """It would be asked for in vain."""
    found = rendered(tmp_path, "    variables: {warehouse: abc}\n")

    assert "abc" == found.variables["warehouse"]


@pytest.mark.parametrize(
    "name, text, expected",
    [
        ("workers", "8", 8),
        ("fast", "false", False),
        ("catalog", "8", "8"),
        ("notify", '["b@example.com"]', ["b@example.com"]),
    ],
)
def test_a_given_text_is_read_as_what_the_default_is(
    tmp_path: Path, name: str, text: str, expected: object
) -> None:
    """A number for a number, JSON for what is complex."""
    found = rendered(tmp_path, "    default: true\n", None, **{name: text})

    assert expected == found.variables[name]


@pytest.mark.parametrize(
    "name, text, told",
    [
        ("workers", "many", "the variable workers has to be like 4 (found many)"),
        ("workers", "true", "the variable workers has to be like 4 (found true)"),
        ("fast", "1", "the variable fast has to be like True (found 1)"),
        ("notify", "b@example.com", "has to be a list or a mapping, as JSON"),
    ],
)
def test_a_given_text_of_another_kind_is_refused(
    tmp_path: Path, name: str, text: str, told: str
) -> None:
    """With what was expected."""
    with pytest.raises(BundleError) as caught:
        rendered(tmp_path, "    default: true\n", None, **{name: text})

    assert told in str(caught.value)


def test_a_documented_variable_can_be_set() -> None:
    """The one that ships as a number."""
    job = render(read_bundle(ROOT), variables={"concurrency": "8"}).jobs["incremental_apply"]

    assert {8} == {
        task["for_each_task"]["concurrency"] for task in job["tasks"] if "for_each_task" in task
    }


@pytest.mark.parametrize(
    "name, display_name, expected",
    [
        ("Ann.Lee@example.com", "", "ann_lee"),
        ("_ann--m.lee_@example.com", "Ann", "ann_m_lee"),
        ("Zoë.Ünal@example.com", "", "zoë_ünal"),
        ("5b0d6d0e-6f0b-4f5a-9c1c-7e3b8a4d2f61", "CI Deployer (dev)", "ci_deployer_dev"),
        ("5b0d6d0e-6f0b-4f5a-9c1c-7e3b8a4d2f61", "", "5b0d6d0e_6f0b_4f5a_9c1c_7e3b8a4d2f61"),
    ],
)
def test_a_short_name_is_that_of_the_databricks_cli(
    name: str, display_name: str, expected: str
) -> None:
    """Both would else make schemas of their own, side by side."""
    assert expected == User(name=name, display_name=display_name).short_name


def test_presets_name_tag_and_pause_what_is_deployed(tmp_path: Path) -> None:
    """In any mode; a job's own tags and pauses count for more."""
    found = rendered(
        tmp_path,
        """
    presets:
      name_prefix: "[${bundle.target}] "
      trigger_pause_status: PAUSED
      jobs_max_concurrent_runs: 2
      tags: {team: theirs, cost: "7"}
""",
    )
    job = found.jobs["j"]

    assert ("[t] j", 2) == (job["name"], job["max_concurrent_runs"])
    assert {"team": "mine", "cost": "7"} == job["tags"]
    assert "PAUSED" == job["schedule"]["pause_status"]
    assert "t_s" == found.resources("schemas")["s"]["name"]


def test_development_takes_its_presets_from_the_target_where_it_says_some(tmp_path: Path) -> None:
    """A prefix of one's own, with one's name in it."""
    found = rendered(
        tmp_path,
        """
    mode: development
    presets: {name_prefix: "${workspace.current_user.short_name}_", tags: {cost: "7"}}
""",
        User(name="Ann.Lee@example.com"),
    )
    job = found.jobs["j"]

    assert ("ann_lee_j", 4) == (job["name"], job["max_concurrent_runs"])
    assert {"dev": "ann_lee", "team": "mine", "cost": "7"} == job["tags"]
    assert "PAUSED" == job["schedule"]["pause_status"]


@pytest.mark.parametrize(
    "target, told",
    [
        ("mode: prodution", "the mode of the target t has to be development or production (found prodution)"),
        ("permisions: []", "a bundle has no such key (found targets.t.permisions)"),
        ("artifacts: {w: {biuld: make}}", "a bundle has no such key (found targets.t.artifacts.w.biuld)"),
        ("synk: {}", "a bundle has no such key (found targets.t.synk)"),
        ("workspace: {rootpath: /a}", "a bundle has no such key (found targets.t.workspace.rootpath)"),
        ("git: {brnch: main}", "a bundle has no such key (found targets.t.git.brnch)"),
        ("presets: {prefix: a}", "a bundle has no such key (found targets.t.presets.prefix)"),
        ("cluster_id: abc", "a key is not supported here (found targets.t.cluster_id)"),
        ("presets: {source_linked_deployment: true}", "source_linked_deployment is not supported"),
        ("presets: {trigger_pause_status: OFF_}", "trigger_pause_status has to be PAUSED or UNPAUSED (found OFF_)"),
        ("{mode: development, presets: {trigger_pause_status: UNPAUSED}}", "in development triggers are paused"),
        ("{mode: development, presets: {name_prefix: mine}}", "name_prefix has to hold the developer's name (found mine)"),
        ("variables: {warehouse: {lookup: {warehouse: a, cluster: b}}}", "has to name one kind of resource"),
        ("resources: {jobs: {k: }}", "the resource jobs.k has to be a mapping (found None)"),
        ("variables: {colour: red}", "a variable is set that is not declared (found colour)"),
        ("resources: {jobs: {j: {tasks: none}}}", "a target says tasks as another kind of value"),
    ],
)  # fmt: skip
def test_what_a_target_cannot_say_is_refused(tmp_path: Path, target: str, told: str) -> None:
    """Nothing that is misspelt is passed over."""
    with pytest.raises(BundleError) as caught:
        rendered(tmp_path, f"    {target}\n")

    assert told in str(caught.value)


@pytest.mark.parametrize(
    "more, told",
    [
        ("resorces: {}", "a bundle has no such key (found resorces)"),
        (
            "artifacts: {w: {dynamc_version: true}}",
            "a bundle has no such key (found artifacts.w.dynamc_version)",
        ),
        ("experimental: {python_wheel_wrapper: true}", "not supported here (found experimental)"),
    ],
)
def test_a_file_with_a_key_that_nothing_reads_is_refused(
    tmp_path: Path, more: str, told: str
) -> None:
    """It is named with the file."""
    (tmp_path / "databricks.yml").write_text(f"{BASE}\n{more}\n")

    with pytest.raises(BundleError) as caught:
        read_bundle(tmp_path)

    assert told in str(caught.value)
    assert "databricks.yml" in str(caught.value)
