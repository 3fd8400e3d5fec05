"""What a job may say: a small one is sound, and each thing that is wrong with it is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("databricks.sdk")

from mirrorlib.cli.main import understand
from mirrorlib.deploy.build import build_wheel
from mirrorlib.deploy.check import check_bundle
from mirrorlib.deploy.quartz import is_quartz
from mirrorlib.deploy.read import read_bundle
from mirrorlib.deploy.render import render
from mirrorlib.errors import BundleError

ROOT = Path(__file__).parents[2]
SMALL = """
bundle: {name: small}
targets: {dev: {default: true}}
resources:
  schemas:
    s: {catalog_name: c, name: s}
  jobs:
    other: {name: other, max_concurrent_runs: 1}
    j:
      name: j
      max_concurrent_runs: 1
      parameters:
        - {name: each, default: '["a"]'}
      job_clusters:
        - {job_cluster_key: small, new_cluster: {spark_version: "16", num_workers: 1}}
      environments:
        - {environment_key: main, spec: {environment_version: "4", dependencies: [./dist/*.whl]}}
      tasks:
        - task_key: first
          condition_task: {op: EQUAL_TO, left: "{{job.run_id}}", right: "1"}
        - task_key: wheel
          depends_on: [{task_key: first, outcome: "true"}]
          environment_key: main
          python_wheel_task: {package_name: mirrorlib, entry_point: mirrorlib-task, parameters: [check, zone]}
        - task_key: loop
          depends_on: [{task_key: wheel}]
          for_each_task:
            inputs: "{{job.parameters.each}}"
            task:
              task_key: inner
              job_cluster_key: small
              libraries: [{whl: ./dist/*.whl}]
              python_wheel_task:
                package_name: mirrorlib
                entry_point: mirrorlib-task
                parameters: [check, "{{input}}", "--json"]
        - task_key: book
          job_cluster_key: small
          libraries: [{whl: ./dist/*.whl}]
          notebook_task:
            notebook_path: ./book.ipynb
            base_parameters: {run: "{{job.run_id}}"}
        - task_key: last
          depends_on: [{task_key: loop}]
          run_job_task: {job_id: "${resources.jobs.other.id}"}
        - task_key: judge
          depends_on: [{task_key: last}]
          condition_task: {op: EQUAL_TO, left: "{{tasks.wheel.values.z}}", right: "1"}
"""
Book = dict[str, list[dict[str, Any]]]
BOOK: Book = {
    "cells": [
        {
            "cell_type": "code",
            "metadata": {"tags": ["parameters"]},
            "source": "run = ''\neach = ''",
        },
        {"cell_type": "code", "metadata": {}, "source": "import mirrorlib"},
    ]
}


SOURCE = """# Databricks notebook source
dbutils.widgets.text("run", "")
# MAGIC %sql SELECT 1

# COMMAND ----------

dbutils.widgets.dropdown(name, "a", ["a"])
import mirrorlib
"""


def alone(text: str) -> str:
    """Take the cluster and the wheel from the task of the notebook."""
    wheel = "          libraries: [{whl: ./dist/*.whl}]\n          notebook"
    return text.replace(f"          job_cluster_key: small\n{wheel}", "          notebook")


def found_in(folder: Path, text: str, book: Book = BOOK) -> list[str]:
    """Check a bundle that says this."""
    (folder / "databricks.yml").write_text(text)
    (folder / "book.ipynb").write_text(json.dumps(book))
    (folder / "plain.ipynb").write_text(json.dumps(BOOK).replace("import mirrorlib", "1"))
    (folder / "book.py").write_text(SOURCE)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return [str(fault) for fault in check_bundle(render(read_bundle(folder)), understand)]


def test_the_small_job_is_sound(tmp_path: Path) -> None:
    """So that what is found below is what was broken."""
    assert [] == found_in(tmp_path, SMALL)


@pytest.mark.parametrize(
    "old, new, told",
    [
        ("{{job.parameters.each}}", "{{job.paramters.each}}", "{{job.paramters.each}} is nothing that a job knows"),
        ("{{job.parameters.each}}", "{{job.run_id}}", "the loop loop cannot go through {{job.run_id}}"),
        ("      environments:\n", "      environments:\n        - {environment_key: main, spec: {dependencies: [./a.whl]}}\n", "two environments are called main"),
        ("[{task_key: wheel}]", "[wheel]", "depends_on[0] has to be a mapping, not 'wheel'"),
        ("{{input}}", "{{inputs}}", "{{inputs}} is nothing that a job knows"),
        ("{{tasks.wheel.values.z}}", "{{input}}", "{{input}} stands outside of a loop, in the task judge"),
        ("{{tasks.wheel.values.z}}", "{{input.a}}", "{{input.a}} stands outside of a loop, in the task judge"),
        ("{{tasks.wheel.values.z}}", "{{tasks.book.values.z}}", "{{tasks.book.values.z}} names a task that judge does not wait for"),
        ("{{tasks.wheel.values.z}}", "{{tasks.wheel.value.z}}", "{{tasks.wheel.value.z}} is nothing that a job knows"),
        ("[{task_key: wheel}]", "[{task_key: loop}]", "tasks depend on each other in a circle: loop"),
        ("[{task_key: first, outcome", "[{task_key: judge, outcome", "tasks depend on each other in a circle: "),
        ('outcome: "true"', 'outcome: "ture"', "depends on the outcome ture of first: it is true or false"),
        ("[{task_key: wheel}]", '[{task_key: wheel, outcome: "true"}]', "depends on an outcome of wheel, which is no condition"),
        ("          environment_key: main\n", "", "the task wheel: it names no cluster, and tasks of its kind on serverless compute need an environment"),
        ("dependencies: [./dist/*.whl]", "dependencies: [./libs/*.whl, ./dist/other-1.0-py3-none-any.whl, mirrorlib-plots]", "the environment main lacks the wheel"),
        ("              libraries: [{whl: ./dist/*.whl}]\n", "              libraries: [{whl: /Volumes/a/b/c/other-1.0-py3-none-any.whl}]\n", "the task inner: it runs on a cluster, and lacks the wheel in its libraries"),
        ("dependencies: [./dist/*.whl]", "dependencies: [pandas]", "the environment main lacks the wheel"),
        ("              libraries: [{whl: ./dist/*.whl}]\n", "", "the task inner: it runs on a cluster, and lacks the wheel in its libraries"),
        ("          libraries: [{whl: ./dist/*.whl}]\n          notebook", "          notebook", "the task book: it runs on a cluster, and lacks the wheel"),
        ("          job_cluster_key: small\n          libraries: [{whl: ./dist/*.whl}]\n          notebook", "          notebook", "the task book: it names no cluster, and tasks of its kind on serverless compute cannot be handed the wheel"),
        ("          environment_key: main\n", "          environment_key: main\n          libraries: [{whl: ./dist/*.whl}]\n", "a task of an environment takes no libraries"),
        ("run_job_task: {job_id", 'condition_task: {op: EQUAL_TO, left: "1", right: "1"}\n          run_job_task: {job_id', "the task last has to be of one kind, not of 2"),
        ("./book.ipynb\n            base_parameters: {run:", "./book.py\n            base_parameters: {ran:", "book.py has no parameter ran in its cell of parameters"),
        ("./book.ipynb", "./book.sql", "book.sql is not there, or is no notebook"),
        ('"${resources.jobs.other.id}"', "7", "the task last runs the job 7, which is not in the bundle"),
        ("jobs.other.id", "jobs.j.id", "jobs run each other in a circle: j"),
        ("              libraries: [{whl: ./dist/*.whl}]", '              libraries: [{pypi: {package: "mirrorlib==1.0"}}]', "the task inner asks for mirrorlib==1.0: on PyPI that is somebody else's package; hand over the bundle's wheel"),
        ("dependencies: [./dist/*.whl]", 'dependencies: ["Mirrorlib[kafka]>=0.1 ; python_version > \'3\'"]', "the environment main asks for Mirrorlib[kafka]>=0.1"),
        ("dependencies: [./dist/*.whl]", "dependencies: [./dist/*.whl, mirrorlib]", "the environment main asks for mirrorlib: on PyPI"),
        ("entry_point: mirrorlib-task, parameters", "entry_point: mirrorlib, parameters", "the task wheel: mirrorlib returns an exit code, which Databricks drops: take mirrorlib-task, which raises"),
        ("parameters: [check, zone]", "named_parameters: {state: zone}", "the task wheel: it has named_parameters, but a command is words in their order: use parameters"),
        ("parameters: [check, zone]", "parameters: [check, zone], named_parameters: {json: ''}", "the task wheel: it has named_parameters"),
        ("      name: j\n", "      name: j\n      trigger: {table_update: {table_names: [], condition: ANY_UPDATED}}\n", "table_update needs table_names"),
        ("  schemas:\n    s: {catalog_name: c, name: s}", "  pipelines:\n    s: {name: s}", "the checker knows no resources of the kind pipelines"),
        ("dev: {default: true}", "dev: {default: true, run_as: {user_name: ann}}", "targets.dev: it says run_as, but no mode"),
        ("dev: {default: true}", "dev: {default: true, workspace: {root_path: /Workspace/Shared/small}}", "targets.dev: it says root_path, but no mode"),
        ("    s: {catalog_name: c", "    j: {catalog_name: c", "j: schemas and jobs have the same key"),
        ("other: {name: other,", "other: {name: other, parameters: [{name: a, default: b}],", "no task uses the parameter a"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_job_is_found(tmp_path: Path, old: str, new: str, told: str) -> None:
    """A workspace would refuse it at the deployment or at the run, or run something else."""
    assert 1 <= SMALL.count(old)

    found = found_in(tmp_path, SMALL.replace(old, new, 1))

    assert [] != [fault for fault in found if told in fault], found


@pytest.mark.parametrize(
    "old, new",
    [
        ("./book.ipynb", "./plain.ipynb"),
        ("./book.ipynb", "book.ipynb"),
        ("./book.ipynb", "./book.py"),
        ('run_job_task: {job_id: "${resources.jobs.other.id}"}', "sql_task: {warehouse_id: w, query: {query_id: q}}"),
        ("libraries: [{whl: ./dist/*.whl}]", 'libraries: [{pypi: {package: "mirrorlib==1.0", repo: "https://packages.example.com"}}]'),
        ("dependencies: [./dist/*.whl]", 'dependencies: ["mirrorlib @ https://packages.example.com/mirrorlib-1.0-py3-none-any.whl"]'),
        ("dependencies: [./dist/*.whl]", "dependencies: [./dist/*.whl, mirrorlib-plots]"),
        ("dependencies: [./dist/*.whl]", "dependencies: [/Volumes/a/b/c/mirrorlib-1.0-py3-none-any.whl]"),
        ("dependencies: [./dist/*.whl]", "dependencies: [./dist/mirror*-1.0-py3-none-any.whl, ./libs/other-1.0-py3-none-any.whl]"),
        ("{{job.parameters.each}}", "{{tasks.wheel.values.list}}"),
        ("{{input}}", "{{input.name}}"),
        ("dev: {default: true}", "dev: {default: true, mode: development, run_as: {user_name: someone@example.com}}"),
    ],
)  # fmt: skip
def test_what_is_right_is_let_through(tmp_path: Path, old: str, new: str) -> None:
    """A notebook without mirrorlib needs no wheel; a package may come from an index or an address of one's own; a loop goes through values."""
    text = SMALL.replace(old, new, 1)
    if "plain" in new:
        text = text.replace(
            "          libraries: [{whl: ./dist/*.whl}]\n          notebook", "          notebook"
        )

    assert [] == found_in(tmp_path, text)


def test_a_notebooks_lines_for_its_host_are_passed_over(tmp_path: Path) -> None:
    """One that installs the wheel itself needs no cluster; cells of SQL or of the shell say nothing of parameters."""
    cells = [
        "%pip install /Volumes/a/b/c.whl",
        "%sql\nSELECT 1",
        "!ls",
        "if True:\n    !ls\nimport mirrorlib",
    ]
    text = alone(SMALL)
    own = [*BOOK["cells"], *({"cell_type": "code", "metadata": {}, "source": one} for one in cells)]

    assert [] == found_in(tmp_path, text, {"cells": own})
    needing = {
        "cell_type": "code",
        "metadata": {},
        "source": "%%time\np = resolve(run=str, each=str, other=str)",
    }
    own[0] = {**own[0], "source": "run = ''\neach = ''\nother = ''"}
    assert [
        "jobs.j: the task book: book.ipynb needs the parameter other, which nobody hands over"
    ] == found_in(tmp_path, text, {"cells": [*own, needing]})


@pytest.mark.parametrize("source", ["run = f()", "run = {[]: 1}", "run ="])
def test_a_cell_of_parameters_that_is_not_of_literals_is_a_fault(
    tmp_path: Path, source: str
) -> None:
    """Whoever runs the notebook with other values would not know what they replace."""
    book = {"cells": [{**BOOK["cells"][0], "source": source}, BOOK["cells"][1]]}

    told = "the task book: book.ipynb: its cell of parameters holds more than literals"
    assert [f"jobs.j: {told}"] == found_in(tmp_path, SMALL, book)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("0 0 6 * * ?", True),
        ("0 0/15 6-18 ? * MON-FRI", True),
        ("0 0 0 L * ? 2027", True),
        ("0 0 12 15W JAN,JUL ?", True),
        ("0 0 12 ? * 6#3", True),
        ("0 0 12 ? * FRIL", True),
        ("0 0 25 * * ?", False),
        ("99 99 99 99 99 ?", False),
        ("0 60 0 * * ?", False),
        ("0 0 0 32 * ?", False),
        ("0 0 0 ? * 8", False),
        ("0 0 0 ? FOO *", False),
        ("0 0/0 0 * * ?", False),
        ("0 0 6 * * *", False),
        ("0 0 6 ? * ?", False),
        ("0 6 * * *", False),
        ("0 0 6 * * ? 1066", False),
    ],
)  # fmt: skip
def test_a_clock_is_read_field_by_field(text: str, expected: bool) -> None:
    """Each has its bounds, words and signs; exactly one of the days is a question mark."""
    assert expected == is_quartz(text)


@pytest.mark.parametrize(
    "artifacts, told",
    [
        ("{}", "names no command that builds a wheel"),
        ("{w: {type: whl, build: python3 -c 'import nothing_there'}}", "the wheel cannot be built (found "),
        ("{w: {type: whl, build: python3 -c 1}}", "has left no wheel in dist"),
        ("{w: {type: whl}, x: }", "names no command that builds a wheel"),
        ("{w: {type: whl, build: 1, path: ./x}}", "the artifact w is built elsewhere than in the bundle's folder (found ./x)"),
        ("{w: {type: whl, build: a}, x: {type: whl, build: b}}", "builds several wheels, of which one can be sent (found w, x)"),
    ],
)  # fmt: skip
def test_a_wheel_that_is_not_built_says_why(tmp_path: Path, artifacts: str, told: str) -> None:
    """What the command says is in the error."""
    text = f"bundle: {{name: small}}\ntargets: {{dev: {{}}}}\nartifacts: {artifacts}\n"
    (tmp_path / "databricks.yml").write_text(text)

    with pytest.raises(BundleError) as caught:
        build_wheel(render(read_bundle(tmp_path)))

    assert told in str(caught.value)
