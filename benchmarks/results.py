"""Write down what was measured: a table of ratios, the machine and the versions, and a plot."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peers import Peer
    from workloads import Result, Side

HERE = Path(__file__).parent
_PACKAGES = ("pyspark", "delta-spark", "pyarrow")
_SHORT = {  # what the plot shows
    "A": "initial load",
    "B": "1 % random",
    "C": "1 % newest",
    "D": "10 % random",
    "E": "10 rows",
    "F": "40 small tables",
}
_HEAD = """# Results

`make bench` on {when}: {machine};
{versions}. Everybody works on the same files in turn, on two cores and with 6 GB of heap, and has to end with equal
tables (row count and checksum). Seconds are the median of the rounds, with the fastest
and the slowest. A ratio says how many times as long somebody else takes: above 1, mirrorlib is faster. mirrorlib's
seconds are those of a whole run, with listing, journal and the proof that nothing was applied twice; the others' are
those of the statement alone.

![Times as long as mirrorlib, by workload](results.svg)

| | workload | who | median s | fastest to slowest | ratio |
|---|---|---|---|---|---|
"""


def write_results(results: list[Result], peers: list[Peer]) -> Path:
    """Write RESULTS.md and results.svg beside it; return the former."""
    path = HERE / "RESULTS.md"
    path.write_text(_head() + "".join(map(_rows, results)) + _lacking(peers), encoding="utf-8")
    _plot(results, HERE / "results.svg")
    return path


def _head() -> str:
    return _HEAD.format(
        when=datetime.now(UTC).date().isoformat(),
        machine=f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}",
        versions=", ".join(f"{name} {version(name)}" for name in _PACKAGES),
    )


def _rows(result: Result) -> str:
    rows = [("mirrorlib", result.our_rounds, result.ours)]
    rows += [(side.name, side.rounds, side.seconds) for side in result.sides]
    lines = []
    for place, (name, rounds, seconds) in enumerate(rows):
        first = f"{result.name} | {result.title}" if not place else " | "
        ratio = "" if not place else f"{seconds / result.ours:.2f}"
        lines.append(
            f"| {first} | {name} | {seconds:.2f} | {min(rounds):.2f} to {max(rounds):.2f} | {ratio} |\n"
        )
    if not result.equal:
        lines.append("| | | **the tables ended different** | | | |\n")
    return "".join(lines)


def _lacking(peers: list[Peer]) -> str:
    if not peers:
        return "\nNo peer was installed.\n"
    lines = "".join(f"- {peer.name}: {peer.lacks}.\n" for peer in peers)
    return f"\nWhat they do not do, and mirrorlib's seconds include:\n\n{lines}"


def _plot(results: list[Result], path: Path) -> None:
    """Draw a group of bars a workload, a bar for everybody else: up where he takes longer, down where he is faster."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "mirrorlib"  # the same figures give the same file
    from matplotlib import pyplot as plt
    from matplotlib.patches import Rectangle

    shown = [(result, _others(result)) for result in results if result.name in _SHORT]
    names = list(dict.fromkeys(_kind(side.name) for _, sides in shown for side in sides))
    figure, axes = plt.subplots(figsize=(9, 4.5))
    for at, (result, sides) in enumerate(shown):
        width = 0.8 / len(sides)
        for place, side in enumerate(sides):
            color, ratio = f"C{names.index(_kind(side.name))}", side.seconds / result.ours
            middle = at + (place - (len(sides) - 1) / 2) * width
            axes.bar(middle, ratio - 1, width, bottom=1, color=color)
            above = ratio >= 1
            axes.annotate(
                f"{ratio:.2g}",
                (middle, ratio),
                ha="center",
                va="bottom" if above else "top",
                fontsize="x-small",
            )
    axes.axhline(1, color="black", linewidth=1)
    axes.set_yscale("log")
    axes.margins(y=0.15)
    axes.set_xticks(range(len(shown)), [f"{one.name}\n{_SHORT[one.name]}" for one, _ in shown])
    axes.set_yticks([0.1, 1, 10], ["0.1 times", "mirrorlib", "10 times"])
    axes.set_ylabel("slower than mirrorlib: above")
    handles = [Rectangle((0, 0), 1, 1, color=f"C{at}") for at in range(len(names))]
    axes.legend(handles, names, fontsize="small", loc="upper left")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _others(result: Result) -> list[Side]:
    """Leave out mirrorlib's own other ways."""
    return [side for side in result.sides if not side.name.startswith(("mirrorlib", "the same"))]


def _kind(name: str) -> str:
    """Leave out what differs from workload to workload."""
    return name.partition(", 4 tables")[0]
