"""Our own records: the same bytes as ever, read back whole or refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirrorlib.errors import JournalError, StoreError
from mirrorlib.journal.disk import Journal
from mirrorlib.names import parse_name
from mirrorlib.store import LocalStore
from mirrorlib.store.records import read_record, record_bytes

WRITTEN = """{
  "format": 1,
  "columns": [
    {
      "name": "ä\\n",
      "nullable": true
    }
  ],
  "partitionBy": []
}
"""
VALUE = {"columns": [{"name": "ä\n", "nullable": True}], "partitionBy": []}


def test_a_record_has_the_bytes_that_lie_in_zones(tmp_path: Path) -> None:
    """Two writers of one schema know by them that they are one; what people, or others, have indented is read, too."""
    assert WRITTEN.encode() == record_bytes(VALUE)

    for indent in (None, 1, 2):
        (tmp_path / "r.json").write_text(json.dumps({"format": 1, **VALUE}, indent=indent))
        assert VALUE == read_record(LocalStore(tmp_path), "r.json", dict, "it")
    assert read_record(LocalStore(tmp_path), "none.json", dict, "it") is None


@pytest.mark.parametrize(
    "text, found",
    [
        ('{"format": 2, "a": 1}', "found format 2"),
        ('{"a": 1}', "found no 'format'"),
        ('{"format": 1}', "found no 'a'"),
        ("", "Expecting value"),
        ("[]", "'list' object"),
        ("[" * 100_000, "recursion"),
        ("\udcff", "invalid start byte"),
    ],
)
def test_a_record_that_cannot_be_read_is_refused_by_name(
    tmp_path: Path, text: str, found: str
) -> None:
    """With what was found, and what to do: of another format, that is to take another mirrorlib, not to reset."""
    file = tmp_path / "r.json"
    file.write_text(text, "utf-8", "surrogateescape")

    with pytest.raises(StoreError, match=found) as caught:
        read_record(LocalStore(tmp_path), "r.json", lambda said: said["a"], "it", step="Reset it.")

    assert ("it cannot be read", str(file)) == (caught.value.reason, caught.value.file)
    newer = "format 2" in found
    assert (newer, not newer) == (
        "or a newer one" in str(caught.value),
        "Reset" in str(caught.value),
    )


def test_a_journal_of_another_format_is_refused_and_left(tmp_path: Path) -> None:
    """By its table and file, with the mirrorlib that is needed."""
    journal = Journal(LocalStore(tmp_path), parse_name("dbo/orders"))
    life = journal.begin_life("first seen", "/zone", 1)
    (file,) = tmp_path.rglob("000001.json")
    newer = file.read_text().replace('"format": 1', '"format": 2')
    file.write_text(newer)

    for read in (journal.lives, lambda: journal.begin_life("reset", "/zone", life.ordinal)):
        with pytest.raises(JournalError, match=r"lives/000001.json.*format 2.*newer") as caught:
            read()

        assert ("dbo/orders", newer) == (caught.value.table, file.read_text())
