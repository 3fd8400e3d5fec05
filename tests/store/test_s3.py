"""S3 as a store: a real server of its protocol, from the listing to a whole mirror."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

import mirrorlib
from mirrorlib.connectors import connectors_for
from mirrorlib.store import open_store
from oracle import ChangeFile, assert_same_rows, multiset, replay, replay_feed, state_at
from promises import check_promises

CHILD = Path(__file__).with_name("s3_child.py")
PATIENCE = 900  # seconds: the first start downloads half a gigabyte of connector
FILES = (
    [{"id": 1, "v": "a"}, {"id": 2, "v": "a"}, {"id": 3, "v": "a"}],
    [
        {"id": 1, "v": "b", "__rowMarker__": 1},
        {"id": 2, "v": None, "__rowMarker__": 2},
        {"id": 4, "v": "b", "__rowMarker__": 4},
    ],
    [{"id": 4, "v": "c", "__rowMarker__": 1}, {"id": 2, "v": "c", "__rowMarker__": 0}],
)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Start a server and give its address."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Make a bucket, and let the environment lead to it."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    name = request.node.name.replace("_", "-")[:60].strip("-")
    make = urllib.request.Request(f"{endpoint}/{name}", method="PUT")  # noqa: S310  # our own server
    urllib.request.urlopen(make).close()  # noqa: S310  # the same
    return f"s3://{name}"


def test_the_store_keeps_every_promise(bucket: str) -> None:
    """Put-if-absent is the server's own."""
    check_promises(open_store(f"{bucket}/somewhere"))


def test_a_folder_of_many_pages_is_listed_whole(bucket: str) -> None:
    """A page holds a thousand names; the newest plan is on the first."""
    store = open_store(f"{bucket}/many")
    names = [f"{number:04d}.json" for number in range(1_100)]
    for name in names:
        store.put(f"f/{name}", b"")

    listed = store.list_folder("f")

    assert listed is not None
    assert names == [file.name for file in listed.files]
    assert tuple(names[:2]) == store.first_names("f", 2)


def test_a_zone_is_published_and_checked(bucket: str) -> None:
    """Metadata first, then numbered files; a strict reader finds nothing."""
    table = mirrorlib.LandingZoneWriter(f"{bucket}/zone").table("dbo/orders", keys="id")
    for rows in FILES:
        table.write(pa.Table.from_pylist(rows))

    assert [] == list(mirrorlib.check(f"{bucket}/zone").findings)
    listed = open_store(f"{bucket}/zone").list_folder("dbo.schema/orders")
    assert listed is not None
    assert [1, 2, 3] == [int(f.name[:20]) for f in listed.files if f.name.endswith(".parquet")]


@pytest.mark.slow
def test_a_zone_in_a_bucket_becomes_a_table_in_a_bucket(bucket: str) -> None:
    """Zone, table and journal in S3: file by file, by both roads, as the oracle says; the feed too."""
    task = json.dumps({"zone": f"{bucket}/zone", "target": f"{bucket}/target", "files": FILES})

    ran = subprocess.run(
        [sys.executable, str(CHILD), task],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        text=True,
    )

    assert 0 == ran.returncode, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    files = [change_file(rows) for rows in FILES]
    expected = replay(files, keys=["id"]).multiset
    assert_same_rows(expected, multiset(found["rows"]))
    states = replay_feed(found["feed"])
    assert_same_rows(expected, state_at(states, max(states)))
    state = mirrorlib.status(f"{bucket}/target").tables[0]
    assert ("current", 3, "") == (state.state, state.position, state.reason)


def change_file(rows: list[dict[str, object]]) -> ChangeFile:
    """Give a file to the oracle."""
    data = tuple({k: v for k, v in row.items() if k != "__rowMarker__"} for row in rows)
    markers = tuple(int(str(row.get("__rowMarker__", 0))) for row in rows)
    return ChangeFile(columns=("id", "v"), rows=data, markers=markers)


def test_a_url_says_which_connector_spark_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of PySpark's own Hadoop version; local paths need none, and no credential gets into a conf."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert ((), {}) == (connectors_for("/data/zone").packages, connectors_for("x").conf)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    found = connectors_for("s3://bucket/zone", "abfss://c@a.dfs.core.windows.net/t")

    assert ["hadoop-aws", "hadoop-azure"] == [name.split(":")[1] for name in found.packages]
    assert "http://127.0.0.1:1" == found.conf["spark.hadoop.fs.s3a.endpoint"]
    assert "secret" not in str(found)
