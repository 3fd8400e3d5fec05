"""What the status page draws: figures in slices of time, and places of tables that are made of each other."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mirrorlib.operate.ledger import Applied
from mirrorlib.operate.page.render import SLICES, Chart, cut, draw, lay_out, rows_over_time
from mirrorlib.tabular import duration
from pages import NOW, batch, edge


@pytest.mark.parametrize(
    "minutes, places",
    [([], []), ([0], [0]), ([0, 0], [0]), ([60], [0]), ([60, 30, 1, 0], [0, 30, 59])],
)
def test_rows_are_added_up_in_equal_slices_of_time(minutes: list[float], places: list[int]) -> None:
    """From the first batch until now; each is in one of them, the first and the last too."""
    slices = cut([batch(minutes=one, inserts=3, deletes=2) for one in minutes], NOW)

    rows, _, _ = draw(slices, 0)

    assert SLICES == len(slices)
    assert [len(minutes) * part for part in (3.0, 0, 2, 0)] == [
        *map(sum, zip(*rows.values, strict=True))
    ]
    assert places == [place for place, values in enumerate(rows.values) if sum(values)]


def test_a_batch_ahead_of_our_clock_is_no_trouble() -> None:
    """It counts as one of now."""
    batches = [batch(minutes=9), batch(minutes=-60, inserts=1)]

    rows, _, _ = draw(cut(batches, NOW), 0)

    assert 1 == rows.values[-1][0]


def test_the_lag_is_the_longest_and_the_seconds_are_those_of_an_average_batch() -> None:
    """What waits now is the lag of now; a stage that a batch has not had took it no time."""
    batches = [
        batch(waited_seconds=5.0, seconds={"stage": 1.0, "commit": 3.0}),
        batch(waited_seconds=0.0, seconds={"commit": 1.0}),
    ]

    _, lag, stages = draw(cut(batches, NOW), 90.0)

    assert ([5.0], [90.0]) == (lag.values[0], lag.values[-1])
    assert ["stage", "commit"] == stages.legend
    assert [0.5, 2.0] == stages.values[0]


def chart(*values: tuple[float, ...], ages: bool = False) -> Chart:
    """Give a chart of some slices."""
    shown = duration if ages else "{:,.1f}".format
    return Chart(title="t", legend=("a", "b"), values=values, shown=shown, shift=7, ages=ages)


def test_bars_stand_on_each_other() -> None:
    """The highest one reaches the top; colours go round; round figures are marked."""
    found = chart((10, 30), (0, 0), (0, 4))

    assert [(0, 7, 75.0, 25.0), (0, 0, 0.0, 75.0), (2, 0, 90.0, 10.0)] == [*found.bars()]
    assert [(50.0, "20.0"), (75.0, "10.0")] == found.lines()
    assert [] == [*chart((0, 0)).bars()] == chart((0, 0)).lines()


def test_seconds_and_days_are_seen_in_one_chart() -> None:
    """Heights of ages go by their powers."""
    (_, _, _, day), (_, _, _, second) = chart((86400,), (1,), ages=True).bars()

    assert 100 == day
    assert 5 < second < 10
    assert ["1 s", "60 s", "60 min", "24 h"] == [
        text for _, text in chart((86400,), ages=True).lines()
    ]


def test_each_table_has_its_rows_over_time() -> None:
    """By slice."""
    batches: list[Applied] = [
        batch("a", 60, inserts=1),
        batch("a", 60, updates=2),
        batch("b", 0, deletes=4),
    ]

    assert {"a": {0: 3}, "b": {59: 4}} == rows_over_time(cut(batches, NOW + timedelta(seconds=1)))


def test_a_table_lies_right_of_all_that_it_is_made_of() -> None:
    """And near to them; tables of one column have rows of their own."""
    ways = [
        edge("a", "x"),
        edge("b", "x"),
        edge("b", "y"),
        edge("x", "z"),
        edge("b", "z"),
        edge("y", "z"),
    ]

    assert {"a": (0, 0), "b": (0, 1), "x": (1, 0.5), "y": (1, 1.5), "z": (2, 1)} == lay_out(ways)
    assert {} == lay_out([])
