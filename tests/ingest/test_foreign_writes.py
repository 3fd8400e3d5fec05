"""What stands between two batches of ours, as a log tells it; no Spark is asked."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirrorlib.delta.log import FileLog, commit_path
from mirrorlib.errors import ForeignWriteError
from mirrorlib.ingest.batch import foreign_writes
from mirrorlib.ingest.batch.foreign_writes import Standing, Verified, stand
from mirrorlib.store import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

UPKEEP, OURS = "OPTIMIZE", "MERGE"


def test_a_table_whose_upkeep_was_set_back_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row is lost with it, but what comes up to where a run has looked is looked at anew."""
    store = LocalStore(tmp_path)

    def write(*operations: str) -> None:
        for version in range(len(operations), 4):
            store.delete(commit_path(version))
        for version, operation in enumerate(operations):
            said = {"mirrorlib": {"life": "L", "batch": version, "outcome": "applied"}}
            info = {"operation": operation, "userMetadata": json.dumps(said)}
            if operation != OURS:
                info = {"operation": operation}
            store.put(commit_path(version), json.dumps({"commitInfo": info}).encode())

    found = SimpleNamespace(id="T", columns=(), bytes=0, readers=None, vectors=False)
    monkeypatch.setattr(foreign_writes, "find_table", lambda *_: found)
    life = SimpleNamespace(uuid="L")
    plan = SimpleNamespace(
        life="L", batch=1, before={"": 1}, table_version=0, policies=SimpleNamespace(readers=None)
    )
    done = SimpleNamespace(version=1, kind="merge", table_id="T", columns=(), table_bytes=0)
    entry = SimpleNamespace(plan=plan, done=done, position={"": 2})
    work = SimpleNamespace(
        log=FileLog(store),
        spark=None,
        ref=None,
        table="t",
        life=life,
        lives=(life,),
        journal=SimpleNamespace(lives=lambda: (life,), newest=lambda _: None),
        options=SimpleNamespace(allow_foreign_writes=False),
    )

    def look(verified: Verified | None) -> Standing:
        return stand(cast("Any", work), cast("Any", entry), verified)

    write(OURS, OURS, UPKEEP, UPKEEP)
    verified = look(None).verified
    assert Verified(life="L", batch=1, version=3) == verified
    for left in ((OURS, OURS), (OURS, OURS, UPKEEP)):
        write(*left)
        standing = look(verified)
        assert (len(left) - 1,) * 2 == (standing.version, (standing.verified or verified).version)
    write(OURS, OURS)
    verified = look(verified).verified
    write(OURS, OURS, "DELETE", UPKEEP)
    with pytest.raises(ForeignWriteError, match="version 2, DELETE"):
        look(verified)
    write(OURS)
    with pytest.raises(ForeignWriteError, match="set back"):
        look(verified)
