"""Other engines on the same files: what each needs to load a table and to merge a change file into it.

delta-rs and Spark's AUTO CDC (`auto_cdc_peer.py`) run in this process, Iceberg in one of its own (`iceberg_peer.py`),
with the newest Spark that it supports.
A peer that is not installed is left out, and the results say so.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

from data import COLUMNS, MARKER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
ICEBERG_PYTHON = HERE.parent / ".venv-iceberg/bin/python"


class Peer(Protocol):
    """An engine that keeps tables in a folder."""

    name: str
    lacks: str

    def load(self, table: Path, files: Sequence[Path]) -> None:
        """Make a table of Parquet files."""

    def begin(self, table: Path) -> None:
        """Let a round begin from the table as it was loaded."""

    def merge(self, table: Path, file: Path) -> None:
        """Merge a change file into the table of the round."""

    def digest(self, table: Path) -> tuple[Any, ...] | None:
        """Return what `Bench.digest` would; None where it can read the table of the round itself."""

    def place(self, table: Path) -> Path:
        """Return where the table of the round is."""

    def close(self) -> None:
        """Let go of what it holds."""


class Copied:
    """Delta tables in this process, of which a round changes copies."""

    def digest(self, table: Path) -> tuple[Any, ...] | None:
        """Leave it to the bench, which reads Delta."""
        del table
        return None

    def place(self, table: Path) -> Path:
        """Return the copy."""
        return table.with_name(f"{table.name}-round")

    def close(self) -> None:
        """Nothing is held."""


class DeltaRs(Copied):
    """delta-rs: the same table format without Spark, its feed on."""

    lacks = "no batches in order and exactly once, no deletion vectors"

    def __init__(self) -> None:
        import deltalake

        self.name = f"delta-rs {deltalake.__version__}"

    def load(self, table: Path, files: Sequence[Path]) -> None:
        """Make a table of Parquet files, streamed."""
        import pyarrow.dataset as ds
        from deltalake import write_deltalake

        shutil.rmtree(table, ignore_errors=True)
        rows = ds.dataset(list(map(str, files))).scanner().to_reader()
        write_deltalake(table, rows, configuration={"delta.enableChangeDataFeed": "true"})

    def begin(self, table: Path) -> None:
        """Copy the table: a round changes the copy."""
        shutil.rmtree(self.place(table), ignore_errors=True)
        shutil.copytree(table, self.place(table))

    def merge(self, table: Path, file: Path) -> None:
        """Merge a change file; its keys are each there once."""
        import pyarrow.parquet as pq
        from deltalake import DeltaTable

        merger = DeltaTable(self.place(table)).merge(
            pq.read_table(file), "t.id = s.id", source_alias="s", target_alias="t"
        )
        values = {name: f"s.{name}" for name in COLUMNS}
        merger = merger.when_matched_delete(f"s.{MARKER} = 2").when_matched_update(values)
        merger.when_not_matched_insert(values, f"s.{MARKER} <> 2").execute()


class Iceberg:
    """Iceberg, merge on read, format 3 with its deletion vectors; it answers from a process of its own."""

    lacks = "no change feed with images, no batches in order and exactly once"

    def __init__(self, folder: Path) -> None:
        command = [str(ICEBERG_PYTHON), str(HERE / "iceberg_peer.py"), str(folder / "iceberg")]
        self._child = subprocess.Popen(  # noqa: S603  # our own words
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.name = self._ask()

    def load(self, table: Path, files: Sequence[Path]) -> None:
        """Make a table of Parquet files."""
        self._ask("load", table.name, *map(str, files))

    def begin(self, table: Path) -> None:
        """Roll back to what was loaded."""
        self._ask("begin", table.name)

    def merge(self, table: Path, file: Path) -> None:
        """Merge a change file."""
        self._ask("merge", table.name, str(file))

    def digest(self, table: Path) -> tuple[Any, ...] | None:
        """Return row count and checksum."""
        count, checksum = self._ask("digest", table.name)
        return count, Decimal(checksum)

    def place(self, table: Path) -> Path:
        """Return the table's name: it is in a catalog of the peer's."""
        return table

    def close(self) -> None:
        """End the process."""
        cast("IO[str]", self._child.stdin).close()
        self._child.wait()

    def _ask(self, *words: str) -> Any:  # noqa: ANN401  # what the peer says as JSON
        if words:
            print(json.dumps(words), file=self._child.stdin, flush=True)
        for line in cast("IO[str]", self._child.stdout):
            if line.startswith("answer "):
                return json.loads(line.removeprefix("answer "))
        msg = f"{words or 'Iceberg'}: no answer"
        raise RuntimeError(msg)


def open_peers(folder: Path, spark: SparkSession, *, quick: bool) -> list[Peer]:
    """Open those that are installed; *quick*, AUTO CDC is left out, whose batches take half a CPU minute each."""
    peers: list[Peer] = []
    try:
        peers.append(DeltaRs())
    except ImportError:
        print("delta-rs is not installed: it is left out")
    if ICEBERG_PYTHON.exists():
        peers.append(Iceberg(folder))
    else:
        print("Iceberg is not installed (make bench does): it is left out")
    if quick or spark.version < "4.2":
        print("AUTO CDC is left out: it came with Spark 4.2, and is not for a quick look")
    else:
        from auto_cdc_peer import AutoCdc

        peers.append(AutoCdc(spark))
    return peers
