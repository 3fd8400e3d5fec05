"""Receivers, and what is kept of their consumers, on a server of S3's protocol: killed, and with answers that are lost.

The exporters are processes of their own, whose Spark has S3's connector. What they have left in the bucket is
copied to a folder, and judged there as if they had written it there.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pytest

from children import Child
from delivery.receivers import History, Receiver, points_of, receiver_of
from little import SHORT_LIVED
from shared_java import SharedJava

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.timeout(900),  # the first start downloads half a gigabyte of connector
]

SCRIPT = Path(__file__).parents[1] / "export_child.py"
BUCKET = "s3://received"


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Start a server of S3's protocol with a bucket, and let the environment lead to it."""
    from moto.server import ThreadedMotoServer  # takes a second

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    told = {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
    }
    make = urllib.request.Request(f"{address}/received", method="PUT")  # noqa: S310  # our own server
    urllib.request.urlopen(make).close()  # noqa: S310  # the same
    with pytest.MonkeyPatch.context() as patch:
        for name, value in told.items():
            patch.setenv(name, value)
        yield BUCKET
    server.stop()


@pytest.fixture(scope="module")
def java(bucket: str) -> Iterator[SharedJava]:
    """Start a Java process whose Spark reaches the bucket."""
    java = SharedJava(memory="2g", java=SHORT_LIVED, stores=[bucket])
    yield java
    java.kill()
    java.stop()


def run_exporter(
    history: History, receivers: Sequence[Receiver], java: SharedJava, **task: Any
) -> tuple[int, Child]:
    """Let a process deliver to all receivers; return its exit code, and what is left of it."""
    exports = {receiver.name: receiver.options for receiver in receivers}
    runner = Child("", history.target, script=SCRIPT, shared=java, exports=exports, **task)
    try:
        code = runner.follow()
        assert code in {0, -9}, runner.last_words()
        return code, runner
    finally:
        runner.close(whole=False)


def check(history: History, receivers: Sequence[Receiver], prefix: str, folder: Path) -> None:
    """Copy what was received to a folder, and compare it with the source."""
    store = obstore.store.from_url(BUCKET)
    for page in obstore.list(store, prefix=prefix):
        for meta in page:
            if not meta["size"]:
                continue  # what Hadoop takes for a folder
            path = folder / meta["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(obstore.get(store, meta["path"]).bytes())
    for receiver in receivers:
        receiver.check(history)


def left_of_state(prefix: str) -> list[str]:
    """Name what is staged in the state's folder."""
    pages = obstore.list(obstore.store.from_url(BUCKET), prefix=f"{prefix}/staged")
    return [meta["path"] for page in pages for meta in page]


def test_killed_at_any_step_receivers_in_a_bucket_end_equal_to_the_source(
    spark: SparkSession, tmp_path: Path, java: SharedJava
) -> None:
    """Files, a landing zone and a Delta copy, with the consumers' state beside them; Java outlives the exporter."""
    history = History(spark, tmp_path, "orders")
    history.publish(2)
    place, state = f"{BUCKET}/killed", f"{BUCKET}/killed-state"
    kinds = ("lines", "zone", "copy")
    points = list(points_of(place, tmp_path / "killed", kinds, state=state))
    receivers = [receiver for receiver, _ in points]
    park = {receiver.name: point for receiver, point in points}
    code, runner = run_exporter(history, receivers, java, park=park)

    assert (-9, park.keys()) == (code, runner.parked)
    history.publish(1)
    assert 0 == run_exporter(history, receivers, java)[0]
    check(history, receivers, "killed", tmp_path)
    assert [] == left_of_state("killed-state")


@pytest.mark.parametrize("lose, tries", [("denied", 1), ("lost", 60)])
def test_answers_that_are_lost_cost_no_window(
    spark: SparkSession, tmp_path: Path, java: SharedJava, lose: str, tries: int
) -> None:
    """Each first put-if-absent is done: a repeated one meets its own file, one without an answer ends the run."""
    history = History(spark, tmp_path, "dbo/orders", "items")
    history.publish(1)
    place, state = f"{BUCKET}/{lose}", f"{BUCKET}/{lose}-state"
    kinds = ("log", "copy", "past", "lines", "zone")
    receivers = [
        receiver_of(kind, kind, place, tmp_path / lose, state=state, max_versions=1)
        for kind in kinds
    ]
    for _ in range(2):
        history.publish(1)
        assert 0 == run_exporter(history, receivers, java, lose=lose, tries=tries)[0]
    check(history, receivers, lose, tmp_path)
    assert [] == left_of_state(f"{lose}-state")
