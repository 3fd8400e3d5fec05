"""A local session that cannot start says in one line what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirrorlib.errors import LandingZoneError, LocalSparkError
from mirrorlib.platform.session import (
    _last_words,
    java_version,
    local_spark,
    refuse_passing_catalog,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.zones import ZoneWriter


def fake_java(folder: Path, version: str) -> None:
    """Put a command into a folder that calls itself a Java of that version, as Java does."""
    command = folder / "bin" / "java"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    command.chmod(0o755)


@pytest.mark.parametrize(
    "version,major", [("17.0.15", 17), ("21", 21), ("1.8.0_452", 8), ("26-ea", 26)]
)
def test_the_version_of_java_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, major: int
) -> None:
    """Java 8 calls itself 1.8, early access versions have no dots."""
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert major == java_version()


def test_an_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version found and the package to install stand in the message."""
    fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(
        LocalSparkError, match=r"no Java 17 or newer .found Java 11.*openjdk-17-jre-headless"
    ):
        local_spark()


@pytest.mark.parametrize("where", ["JAVA_HOME", "PATH"])
def test_a_missing_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Spark would say so in a page of text."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv(where, str(tmp_path))

    with pytest.raises(LocalSparkError, match=r"no Java .*Install Java 17 or newer"):
        local_spark()


def test_what_java_says_is_told_with_advice_where_that_fits() -> None:
    """A user without a name has no folder for jars, and no use for Maven Central."""
    told = [
        _last_words([b"loading settings\n", line])
        for line in (b":: UNRESOLVED DEPENDENCIES ::\n", b"IOException: Invalid UID\n")
    ]

    maven = " Delta's jars come from Maven Central: is it in reach?"
    assert f"It said: :: UNRESOLVED DEPENDENCIES ::.{maven}" == told[0]
    assert "It said: IOException: Invalid UID." == told[1]


def test_missing_packages_are_named_with_the_extra_that_has_them() -> None:
    """The bare package has no Spark: a cluster's own is used there."""
    program = (
        "import sys\n"
        "from mirrorlib.platform.session import local_spark\n"
        "from mirrorlib.errors import LocalSparkError\n"
        "sys.modules.update(pyspark=None, delta=None)\n"
        "try: local_spark()\n"
        "except LocalSparkError as error: print(error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert "pyspark and delta is not installed. Install it: pip install delta-spark==" in said
    assert "or in a clone: pip install '.[local]'." in said


def test_a_catalog_that_ends_with_its_session_is_refused(spark: SparkSession) -> None:
    """The next command would find the journal, and none of its tables."""
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.lasting", "a.Catalog")
    for catalog in ("Spark_Catalog", "x"):
        with pytest.raises(LandingZoneError, match="no such catalog that outlives it") as refused:
            refuse_passing_catalog(session, catalog)
        assert f"--catalog {catalog}" in str(refused.value)
        assert "Give a path as the target" in str(refused.value)

    refuse_passing_catalog(session, "lasting")


@pytest.mark.thorough
def test_a_command_s_own_spark_takes_no_catalog(zone: ZoneWriter, tmp_path: Path) -> None:
    """It is told before anything is written, as wrong usage."""
    zone.table("orders", keys=["id"]).file([{"id": 1}])
    places = ["default", "--catalog", "spark_catalog", "--state", str(tmp_path / "state")]
    for command in (["apply", str(zone)], ["plan", str(zone)]):
        done = subprocess.run(
            [sys.executable, "-m", "mirrorlib.cli", *command, *places],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert (2, "") == (done.returncode, done.stdout)
        assert done.stderr.startswith("mirrorlib: the Spark that is started on this machine has no")

    assert [zone.root] == list(tmp_path.iterdir())


@pytest.mark.thorough
def test_memory_that_spark_cannot_start_with_is_told() -> None:
    """No error of Java's: what to give it instead."""
    program = """if True:
        from mirrorlib import LocalSparkError, local_spark
        try:
            local_spark(memory="300m")
        except LocalSparkError as exc:
            print(exc)
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith("Spark needs more memory to start. Give it more: --memory 1g")


@pytest.mark.smoke
@pytest.mark.thorough
def test_a_local_session_is_silent_and_carries_any_file_name(tmp_path: Path) -> None:
    """Nothing but the program's own lines is printed, even under LC_ALL=C; failures are exceptions.

    Rows go through its own Python, whichever the PATH calls `python3`. What it writes has the rights that the umask leaves.
    """
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    program = f"""if True:
        from mirrorlib import local_spark
        conf = {{"spark.sql.shuffle.partitions": "3"}}
        spark = local_spark(cores=1, memory="1g", conf=conf)
        path = {str(tmp_path)!r} + "/ä 日`$" + "{{env:HOME}}"
        spark.sql("CREATE TABLE delta.`" + path.replace("`", "``") + "` (`${{x}}` BIGINT) "
                  "USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
        print(ascii(spark.read.format("delta").load(path).columns))
        print(spark.conf.get("spark.sql.session.timeZone"))
        print(spark.conf.get("spark.sql.shuffle.partitions"))
        try:
            spark.sql("SELECT raise_error('x')").collect()
        except Exception:
            print("raised")
        print(spark.sparkContext.parallelize([1]).map(lambda one: one + 1).collect())
    """
    told = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    path = os.pathsep.join([str(other.parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**told, "LC_ALL": "C", "PATH": path},
        umask=0o027,
        check=False,
    )

    assert ("['${x}']\nUTC\n3\nraised\n[2]\n", "", 0) == (
        done.stdout,
        done.stderr,
        done.returncode,
    )
    assert {"bin", "ä 日`${env:HOME}"} == {folder.name for folder in tmp_path.iterdir()}
    log = tmp_path / "ä 日`${env:HOME}" / "_delta_log"
    assert [0o750, 0o640] == [path.stat().st_mode & 0o777 for path in (log, log / f"{0:020d}.json")]
