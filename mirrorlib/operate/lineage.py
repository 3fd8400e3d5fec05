"""Tell where the tables of a target come from and go to, with the keys on each way, from what lies beside them.

In: a target. Out: `LineageReport`: landing zones → mirrors → derived tables → consumers. No Spark: journals,
records of derived tables and the registry of consumers say it all, as of each table's last run. Derived tables and
their sources that lie in other targets are followed there.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal

from mirrorlib.delta.key_property import KEYS_PROPERTY, stored_keys
from mirrorlib.delta.table import refer
from mirrorlib.derived.report import read_records
from mirrorlib.derived.sources import CONSUMER, MODE
from mirrorlib.errors import MirrorError
from mirrorlib.journal.disk import find_journals
from mirrorlib.journal.entries import zone_of
from mirrorlib.journal.registry import registries
from mirrorlib.keys.value import Keys
from mirrorlib.names import parse_name
from mirrorlib.store import PathOrUrl, Store, open_store
from mirrorlib.store.target import STATE_FOLDER, Target, targets_above
from mirrorlib.tabular import PartReport, noted


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A way that rows take.

    Attributes:
        kind: apply (a zone to its mirror), derive (a table to one that is made of it), export (to a consumer).
        source: a zone's URL or a table's address.
        target: a table's address, or a receiver's URL.
        name: of the mirror's table, the derived table, or the consumer.
        keys: key columns at its end; for an export, by which it goes.
        primary: whether they are a primary key there.
        lost: what was lost on the way, where and why.
        how: how a derived table was brought up to date last; the mode of an export.

    """

    kind: Literal["apply", "derive", "export"]  # the order of the data's way, and of the alphabet
    source: str
    target: str
    name: str
    keys: tuple[str, ...]
    primary: bool = False
    lost: tuple[str, ...] = ()
    how: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LineageReport(PartReport):
    """Where the tables of a target come from and go to."""

    columns: ClassVar = ("from", "by", "to", "keys")
    target: str
    edges: tuple[Edge, ...]

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row a way; what lies below the target is told from there."""
        return [
            (
                edge.source.removeprefix(f"{self.target}/"),
                f"{edge.kind} {edge.name}",
                edge.target.removeprefix(f"{self.target}/"),
                f"{', '.join(edge.keys) or 'none'}{' (primary)' if edge.primary else ''}",
            )
            for edge in self.edges
        ]

    def notes(self) -> list[str]:
        """Say where keys were lost, then what is missing."""
        none = [] if self.edges or self.failures else ["Nothing is known of the tables there."]
        lost = [f"{edge.name}: {text}." for edge in self.edges for text in edge.lost]
        return [*none, *dict.fromkeys(lost), *self.failures]


def lineage(
    target: PathOrUrl, *, catalog: str | None = None, state: PathOrUrl | None = None
) -> LineageReport:
    """Tell where the tables of a target come from and go to, and which keys they have on the way.

    *target* may be the path of one table, too; it, *catalog* and *state* mean the same as for `export`.

    Raises:
        StoreError: the target cannot be listed.

    """
    place = Target.of(target, catalog=catalog, state=state)
    waiting, seen, edges, gaps = [place], set[str](), list[Edge](), list[str]()
    target_at = cache(_target_at)  # many tables lie in one

    def above(address: str) -> list[Target]:
        """Return the targets that a table may belong to, where they have a state."""
        return [*filter(None, (target_at(root) for root, _ in targets_above(address)))]

    if catalog is None and state is None:
        waiting += above(place.place)
    while waiting:
        here = waiting.pop(0)
        if here.state in seen:
            continue
        seen.add(here.state)
        store = open_store(here.state)
        found = [*_mirrors(here, store, gaps), *_derived(store), *_exports(here, store, gaps)]
        edges += found
        ends = [end for e in found if e.kind == "derive" for end in (e.source, e.target)]
        waiting += [root for end in dict.fromkeys(ends) for root in above(end)]
    told = tuple(_sorted(edges))
    return LineageReport(target=place.shown, edges=told, failures=tuple(gaps))


def _target_at(root: str) -> Target | None:
    """Return the target that a folder is, where it has a state."""
    with contextlib.suppress(MirrorError):
        if open_store(root).list_folder(STATE_FOLDER) is not None:
            return Target.of(root, catalog=None, state=None)
    return None


def _mirrors(place: Target, state: Store, gaps: list[str]) -> Iterator[Edge]:
    for name, journal in find_journals(state).items():
        with noted(gaps):
            # Of a life that has planned nothing yet, as after a reset, what the one before has done holds.
            planned = ((life, journal.newest(life)) for life in reversed(journal.lives()))
            life, entry = next((one for one in planned if one[1]), (None, None))
            if life is None or entry is None:
                continue
            done = journal.last_done(life, entry.plan, entry.done)
            keys = Keys(partition=entry.plan.policies.keys)
            if done is not None:  # what the table itself is said to have
                keys = stored_keys({KEYS_PROPERTY: done.keys}) or Keys()
            yield Edge(
                kind="apply",
                source=zone_of(journal.read_status(), entry) or entry.plan.zone,
                target=refer(place, name).address,
                name=str(name),
                keys=keys.partition,
                primary=bool(keys.primary),
            )


def _derived(state: Store) -> Iterator[Edge]:
    for record in read_records(state):
        lost = tuple(
            f"{one['operator']} lost the {one['lost']}: {one['why']}" for one in record["losses"]
        )
        for source in record["sources"]:
            yield Edge(
                kind="derive",
                source=source["address"],
                target=record["address"],
                name=record["name"],
                keys=tuple(record["keys"]["partition"]),
                primary=bool(record["keys"]["primary"]),
                lost=lost,
                how=record["how"],
            )


def _exports(place: Target, state: Store, gaps: list[str]) -> Iterator[Edge]:
    """Give the consumers of a target's tables; a derived table elsewhere is one as well."""
    for registry in registries(state):
        with noted(gaps):
            if (stream := registry.newest_stream()) is None:
                continue
            entry = registry.newest(stream)
            yield Edge(
                kind="derive" if registry.consumer.startswith(CONSUMER) else "export",
                source=refer(place, parse_name(registry.table)).address,
                target=stream.to,
                name=registry.consumer.removeprefix(CONSUMER),
                keys=entry.plan.keys if entry is not None else (),
                how=stream.mode,
            )


def _sorted(edges: list[Edge]) -> list[Edge]:
    """Put ways in the order of the data's; a derived table that tells of itself is told by that, once.

    It knows its sources by their addresses, its source's registry by a bare name that may be one of another schema.
    """
    told = {(one.target, one.name) for one in edges if one.kind == "derive" and one.how != MODE}
    some = [one for one in edges if one.how != MODE or (one.target, one.name) not in told]
    edges_by_way = {(one.kind, one.source, one.target, one.name): one for one in reversed(some)}
    left = [edges_by_way[way] for way in sorted(edges_by_way)]
    found: list[Edge] = []
    ends = Counter(edge.target for edge in left if edge.kind != "export")
    while left:
        edge = next((edge for edge in left if not ends[edge.source]), left[0])
        ends[edge.target] -= edge.kind != "export"
        found.append(edge)
        left.remove(edge)
    return found
