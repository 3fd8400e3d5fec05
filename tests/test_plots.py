"""The plots' figures, and a picture that every host can show."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mirrorlib.errors import MirrorError
from mirrorlib.operate.ledger import Applied, LedgerReport
from mirrorlib.operate.overview import _draw_rows, plot_ledger, seconds_of

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


def batch(hours: float, inserts: int = 0, deletes: int = 0, **seconds: float) -> Applied:
    """Give a batch that ended so many hours after the first."""
    moment = (BEGAN + timedelta(hours=hours)).isoformat()
    return Applied(
        table="dbo/orders", life=1, batch=1, outcome="applied", kind="merge", files=1, bytes=1, first_file="1", last_file="1",
        inserts=inserts, updates=0, deletes=deletes, upserts=0, version=1, seconds=seconds, waited_seconds=3.0,
        planned_at=moment, finished_at=moment, cause=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "hours, places", [([], []), ([0], [20]), ([0, 0], [20]), ([0, 0.5, 20.5, 40], [0, 20, 39])]
)
def test_rows_are_added_up_in_equal_slices_of_time(hours: list[float], places: list[int]) -> None:
    """Every batch is in one of them, the first and the last too; none, one, or all at once are no trouble."""
    figure = pytest.importorskip("matplotlib.figure")
    axes = figure.Figure().subplots()

    _draw_rows(axes, [batch(one, inserts=3, deletes=2) for one in hours])

    bars = [[bar.get_height() for bar in group] for group in axes.containers]
    assert len(hours) * 3 == sum(bars[0] if hours else [])
    assert len(hours) * 2 == sum(
        group.get_height() for group in (axes.containers[2] if hours else [])
    )
    assert places == [place for place, height in enumerate(bars[0] if hours else []) if height]


def test_seconds_are_those_of_an_average_batch() -> None:
    """A stage that a batch has not had took it no time."""
    assert {"commit": 2.0, "stage": 0.5} == seconds_of(
        [batch(0, commit=3.0, stage=1.0), batch(1, commit=1.0)]
    )


@pytest.mark.parametrize("batches", [(), (batch(0, 5, commit=1.0), batch(1, 0, 2, commit=2.0))])
def test_a_picture_is_shown_and_saved(batches: tuple[Applied, ...], tmp_path: Path) -> None:
    """As PNG, and in HTML for hosts that know no PNG; a ledger without batches too."""
    pytest.importorskip("matplotlib")

    picture = plot_ledger(LedgerReport(target="/t", batches=batches))
    picture.save(tmp_path / "lag.png")

    assert b"\x89PNG" == (tmp_path / "lag.png").read_bytes()[:4] == picture._repr_png_()[:4]
    assert "data:image/png;base64,iVBOR" in picture._repr_html_()


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a bare machine."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    with pytest.raises(MirrorError, match=r"pip install 'matplotlib>=3.8'"):
        plot_ledger(LedgerReport(target="/t", batches=()))
