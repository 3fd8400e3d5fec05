"""How the commits of windows are marked, and found again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from mirrorlib.commit import last_commit
from mirrorlib.commit.last_commit import LastCommit
from mirrorlib.delta.log import FileLog
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
