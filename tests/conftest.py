"""Fixtures that every test may ask for: one Spark session for all, one landing zone for each."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

# `from oracle import …` works in every test, and in the scripts beside them, wherever pytest is started.
sys.path.insert(0, str(Path(__file__).parent))

import servers
import shared_java
from computes import COMPUTE, confine, let_nobody_configure
from connecting import CONNECT_MODE, connect
from little import LITTLE, SHORT_LIVED
from zones import ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# PySpark gives a timestamp as a naive datetime in the zone of the Python process.
os.environ["TZ"] = "UTC"
time.tzset()
# The processes that Spark runs Python in have to be this one's.
os.environ["PYSPARK_PYTHON"] = sys.executable


_JAVA = pytest.StashKey[shared_java.SharedJava]()

_STARTERS = ("PYTEST_", "SPARK", "PYSPARK")  # what pytest and a starting Spark set

# How long an example takes says something about the machine, not about the code.
settings.register_profile("patient", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=25)
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    """Start one Java process for all workers, if there are workers; try less in the quick suite."""
    servers.check_clients()
    settings.load_profile("patient" if config.getoption("thorough") else "quick")
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        config.stash[_JAVA] = shared_java.SharedJava(memory="5g", java="-XX:+UseParallelGC")
        os.environ[shared_java.PLACE] = str(config.stash[_JAVA].place)
        os.environ["SPARK_SUBMIT_OPTS"] = SHORT_LIVED  # of the commands that tests run


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the workers' Java process."""
    java = config.stash.get(_JAVA, None)
    if java is not None:
        java.stop()
        del os.environ[shared_java.PLACE]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the tests be run in less time."""
    parser.addoption("--thorough", action="store_true", help="run what is marked thorough, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files that take long, so that the workers end at about the same time."""
    if not config.getoption("thorough"):
        config.hook.pytest_deselected(items=[item for item in items if is_thorough(item)])
        items[:] = [item for item in items if not is_thorough(item)]
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)


def is_thorough(item: pytest.Item) -> bool:
    """Say whether a test, or this case of it, is marked thorough."""
    case = item.callspec.id if hasattr(item, "callspec") else ""
    cases = [pattern for mark in item.iter_markers("thorough") for pattern in mark.args or ("*",)]
    return any(fnmatchcase(case, pattern) for pattern in cases)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start the one session; tests that do not ask for it never import pyspark."""
    import mirrorlib  # tests without Spark run in seconds

    shared = os.environ.get(shared_java.PLACE)
    session = (
        shared_java.attach(shared)
        if shared
        else mirrorlib.local_spark(cores=2, memory="3g", conf=LITTLE)
    )
    # What a test reads itself needs no adapting; what mirrorlib does in sessions of its own is as it is.
    session.conf.set("spark.sql.adaptive.enabled", "false")
    let_nobody_configure(session)
    if COMPUTE == "connect":
        os.environ[CONNECT_MODE] = "1"
        session = connect(session)
        session.conf.set("spark.sql.session.timeZone", "UTC")
        confine(session)
    yield session
    if not shared:
        session.stop()


@pytest.fixture
def callbacks(spark: SparkSession) -> Iterator[None]:
    """Let a stream's batches come to this process, though others share its Java."""
    shared = os.environ.get(shared_java.PLACE)
    if shared is None or COMPUTE == "connect":
        yield
        return
    with shared_java.called_back(spark, shared):
        yield


@pytest.fixture(scope="session")
def rounds(pytestconfig: pytest.Config) -> Callable[[int], int]:
    """Cut how often something random is tried: the whole suite tries all, the quick one a part."""
    return lambda all_of_them: (
        all_of_them if pytestconfig.getoption("thorough") else -(-all_of_them // 4)
    )


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Let no test leave a variable or a lent token behind: only whichever test runs next would notice."""
    before = dict(os.environ)
    yield
    if (store := sys.modules.get("mirrorlib.store")) is not None:
        store.lend_azure_token(None)
    left = {name for name in before.keys() ^ os.environ.keys() if not name.startswith(_STARTERS)}
    for name in left:
        os.environ.pop(name, None)
    assert not left


@pytest.fixture
def zone(tmp_path: Path) -> ZoneWriter:
    """Give a landing zone in an empty folder."""
    return ZoneWriter(tmp_path / "zone")


@pytest.fixture
def target(tmp_path: Path) -> str:
    """Name a target folder that does not exist yet."""
    return str(tmp_path / "target")


@pytest.fixture
def signals() -> Iterator[None]:
    """Put signal handlers back: the command line is meant to have its process to itself."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
