"""`--readers plain`: tables that every reader of Delta can read, and remember it. What reads what: tests/docs/test_readers.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import mirrorlib
from mirrorlib.delta import sessions
from mirrors import Killed, Mirror, at, die

if TYPE_CHECKING:
    from mirrorlib.journal.entries import Readers

pytestmark = pytest.mark.slow

PROPERTY = "mirrorlib.readers"
PURGE = [  # the statements of docs/readers.md
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')",
    "REORG TABLE {t} APPLY (PURGE)",
    "ALTER TABLE {t} DROP FEATURE deletionVectors",
]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every commit count as one of many rows: those of few leave no deletion vectors in any table."""
    monkeypatch.setattr(sessions, "_SMALL_ROWS", 0)


def detail(mirror: Mirror) -> tuple[set[str], str | None]:
    """Return what a reader has to know, and whom the table remembers to be for."""
    row = mirror.spark.sql(f"DESCRIBE DETAIL {mirror.sql}").collect()[0]
    wanted = {"deletionVectors", "typeWidening", "columnMapping"} & set(row["tableFeatures"])
    return wanted, row["properties"].get(PROPERTY)


def publish_types(mirror: Mirror, *kinds: pa.DataType) -> None:
    """Publish a file for each type, whose value the types before it do not hold."""
    for number, kind in enumerate(kinds, start=mirror.table.last + 1):
        value = 2 ** (kind.bit_width - 2)
        mirror.table.file(pa.table({"id": [number], "n": pa.array([value], kind)}))


@pytest.mark.thorough
@pytest.mark.smoke
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("readers", ["plain", None], ids=str)
def test_a_plain_table_gets_no_deletion_vectors(fresh: Mirror, readers: Readers | None) -> None:
    """By no commit of a later run that does not ask, nor by OPTIMIZE; another table gets some."""
    fresh.publish()
    fresh.assert_current(readers=readers)
    for _ in range(3):
        fresh.publish()
        fresh.assert_current()
    fresh.do("OPTIMIZE {t}")
    fresh.publish()
    fresh.assert_current()

    fresh.assert_feed()
    assert (readers is None) == bool(list(fresh.path.glob("deletion_vector_*.bin")))
    assert (({"deletionVectors"}, None) if readers is None else (set(), "plain")) == detail(fresh)


@pytest.mark.thorough
def test_a_plain_table_is_rewritten_for_a_type_until_it_forgets(fresh: Mirror) -> None:
    """So `plan` says; once its owner takes the property away, a type is widened in place again."""
    publish_types(fresh, pa.int16())
    fresh.run(readers="plain")
    publish_types(fresh, pa.int32())
    planned = mirrorlib.plan(fresh.spark, str(fresh.zone), fresh.target).tables[0]
    report = fresh.run()

    assert "rewrites the table for n from smallint to int" == planned.schema_changes[0]
    assert ("current", set()) == (report.state, detail(fresh)[0])

    fresh.do(f"ALTER TABLE {{t}} UNSET TBLPROPERTIES ('{PROPERTY}')")
    publish_types(fresh, pa.int64())
    report = fresh.run()

    assert ("current", ({"typeWidening"}, None)) == (report.state, detail(fresh))
    rows = fresh.spark.read.format("delta").load(str(fresh.path)).collect()
    assert {(1, 2**14), (2, 2**30), (3, 2**62)} == {tuple(row) for row in rows}


@pytest.mark.thorough
@pytest.mark.parametrize("step", ["plan", "create"])
def test_a_run_that_was_killed_has_said_what_the_table_is_for(fresh: Mirror, step: str) -> None:
    """The plan remembers it while there is no table."""
    fresh.publish()
    with pytest.raises(Killed):
        fresh.apply(readers="plain", observe=at(step, "after", die))
    fresh.assert_current()

    assert (set(), "plain") == detail(fresh)


@pytest.mark.thorough
def test_a_table_that_was_reset_is_plain_as_before(fresh: Mirror) -> None:
    """Its content is replaced, and its property stays; so does what later batches do."""
    publish_types(fresh, pa.int16())
    fresh.run(readers="plain")
    fresh.reset()
    fresh.run()
    publish_types(fresh, pa.int32())

    assert "current" == fresh.run().state
    assert (set(), "plain") == detail(fresh)


@pytest.mark.thorough
def test_a_table_with_vectors_is_refused_and_goes_on_unasked(mirror: Mirror) -> None:
    """Nothing is applied by the refused run; a reset does not take features from a table, so it is refused after one, too."""
    mirror.publish()
    mirror.assert_foreseen("deletionVectors", readers="plain")
    mirror.assert_failed("SchemaError", "deletionVectors", "docs/readers.md", readers="plain")
    mirror.assert_holds(2)

    mirror.assert_current()
    assert ({"deletionVectors"}, None) == detail(mirror)

    mirror.reset()
    mirror.assert_failed("SchemaError", "deletionVectors", readers="plain")
    mirror.assert_current()


@pytest.mark.thorough("added")
@pytest.mark.smoke
@pytest.mark.parametrize("at_once", [True, False], ids=["new", "added"])
def test_a_name_that_needs_column_mapping_is_told(fresh: Mirror, at_once: bool) -> None:
    """Readers without it have to refuse the table: by reader version 2, some read NULLs instead."""
    fresh.table.file([{"id": 1, **({"a b": 2} if at_once else {})}])
    warned = fresh.run(readers="plain").warnings
    if not at_once:
        fresh.table.file([{"id": 1, "a b": 2}])
        warned = fresh.run().warnings

    assert "column mapping is turned on for a b" in " ".join(warned)
    assert ({"columnMapping"}, "plain") == detail(fresh)
    row = fresh.spark.sql(f"DESCRIBE DETAIL {fresh.sql}").collect()[0]
    assert 3 == row["minReaderVersion"]


@pytest.mark.thorough
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("asked", ["option", "property"])
def test_a_table_that_is_purged_becomes_plain(mirror: Mirror, asked: str) -> None:
    """As docs/readers.md says: what its owner does on the way is no foreign write, and its feed stays whole."""
    for _ in range(2):
        mirror.publish()
        mirror.assert_current()
    for statement in PURGE:
        mirror.do(statement)

    if asked == "property":
        mirror.do(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{PROPERTY}' = 'plain')")
    mirror.publish()
    mirror.assert_current(**({"readers": "plain"} if asked == "option" else {}))
    mirror.publish()
    mirror.assert_current()
    mirror.assert_feed()
    assert (set(), "plain") == detail(mirror)


@pytest.mark.thorough
def test_a_plain_table_that_was_given_vectors_is_refused(fresh: Mirror) -> None:
    """A table that remembers it and was given vectors all the same is refused, until it forgets."""
    publish_types(fresh, pa.int16())
    fresh.run(readers="plain")
    fresh.do("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    publish_types(fresh, pa.int16())

    fresh.assert_failed("SchemaError", "deletionVectors")

    fresh.do(f"ALTER TABLE {{t}} UNSET TBLPROPERTIES ('{PROPERTY}')")
    assert "current" == fresh.run().state


@pytest.mark.thorough
def test_a_table_whose_widened_types_are_taken_out_becomes_plain(fresh: Mirror) -> None:
    """With the vectors, which it has never used; its rows are as before."""
    for kind in (pa.int16(), pa.int32()):
        publish_types(fresh, kind)
        fresh.run()
    fresh.assert_failed("SchemaError", "deletionVectors, typeWidening", readers="plain")
    for statement in (*PURGE, "ALTER TABLE {t} DROP FEATURE typeWidening"):
        fresh.do(statement)

    publish_types(fresh, pa.int64())
    assert "current" == fresh.run(readers="plain").state
    assert (set(), "plain") == detail(fresh)
    rows = fresh.spark.read.format("delta").load(str(fresh.path)).collect()
    assert {(1, 2**14), (2, 2**30), (3, 2**62)} == {tuple(row) for row in rows}
