"""How the commits of windows are marked, and found again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from mirrorlib.commit import last_commit
from mirrorlib.commit.last_commit import LastCommit, read_last_commit
from mirrorlib.delta.log import LOG, FileLog, commit_path
from mirrorlib.journal.streams import Stream
from mirrorlib.store import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from mirrorlib.commit.mark import Mark


def stream(uuid: str, began_at: str, ordinal: int = 1) -> Stream:
    """Begin a stream."""
    told: dict[str, Any] = {"mode": "changes", "net": False, "start_at": None, "table_id": "T"}
    told |= {"consumer": "lake", "table": "t", "to": "delta:x", "on_expired": "fail"}
    return Stream(**told, uuid=uuid, began_at=began_at, ordinal=ordinal)


def test_a_stream_has_one_mark_whatever_its_log_tells_and_later_ones_are_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta skips what it knows: a window that comes twice, never one of a stream that began behind a lost state."""
    monkeypatch.setattr(last_commit, "claim_table", lambda *_: None)
    log, nothing = FileLog(LocalStore(tmp_path)), {"complete": False}

    def mark(one: Stream, number: int, **found: Any) -> Mark:
        last, some = LastCommit(log=log, newest=9, **found), cast("Any", object())
        return last.next_mark(some, some, some, "app", one, number, {})

    one = stream("one", "2026-01-01T00:00:00.000001+00:00")
    two = stream("two", "2026-01-01T00:00:05.000001+00:00")  # the state was lost
    behind = stream("behind", "2020-01-01T00:00:00.000001+00:00", 2)  # by a clock that is wrong
    first = mark(one, 1)
    assert mark(one, 7).version == mark(one, 7, facts=first.facts).version
    assert mark(one, 7).version == mark(one, 7, **nothing).version
    assert mark(one, 10**9).version < mark(two, 1, facts=first.facts).version
    assert mark(two, 1, facts=first.facts).version == mark(two, 1, **nothing).version < 2**63
    assert mark(one, 10**9).version < mark(behind, 1, facts=first.facts).version
    assert mark(stream("late", "2100-01-01T00:00:00+00:00"), 2**32 - 1).version < 2**63


class Reading(LocalStore):
    """A store that counts what is read."""

    count = 0

    def read(self, path: str, *, most: int | None = None) -> bytes | None:
        """Count it."""
        self.count += 1
        return super().read(path, most=most)


def test_versions_that_left_the_log_long_ago_are_not_asked_for_one_by_one(tmp_path: Path) -> None:
    """The look back goes on in greater steps, and ends in the first gap."""
    (tmp_path / LOG).mkdir()
    for version in range(19_800, 20_001):
        ours = {"mirrorlib": {"stream": "s", "window": 7}} if version == 19_850 else {}
        said = {"commitInfo": {"operation": "VACUUM END", "userMetadata": json.dumps(ours)}}
        (tmp_path / commit_path(version)).write_text(json.dumps(said))
    store = Reading(tmp_path)

    found = read_last_commit(FileLog(store))

    assert (19_850, 7, True) == (found.version, found.window_of("s"), found.complete)
    assert store.count < 600
    (tmp_path / commit_path(19_850)).unlink()
    store.count = 0
    assert (-1, False) == (
        read_last_commit(FileLog(store)).version,
        read_last_commit(FileLog(store)).complete,
    )
    assert store.count < 1200
