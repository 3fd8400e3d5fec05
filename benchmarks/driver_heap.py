"""Show that a load larger than the driver's heap works: land 4 GB, apply with a heap of 1 GB.

Half of it is an initial load without markers; the other half has markers, so it is folded too.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import mirrorlib

_FILES = 16
_ROWS = 2_000_000  # a file; 128 bytes a row that no codec makes smaller


def main() -> None:
    """Land, apply, count."""
    folder = Path(
        tempfile.mkdtemp(prefix="mirrorlib-heap-", dir=sys.argv[1] if len(sys.argv) > 1 else None)
    )
    try:
        landed = land(folder / "zone" / "t")
        spark = mirrorlib.local_spark(cores=2, memory="1g")
        began = time.perf_counter()
        report = mirrorlib.apply(
            spark, str(folder / "zone"), str(folder / "tables"), max_files=_FILES // 2
        )
        print(report)
        count = spark.read.format("delta").load(str(folder / "tables" / "t")).count()
        seconds = time.perf_counter() - began
        print(
            f"{landed / 1e9:.1f} GB of Parquet, 1 GB heap: {count:,} rows in {seconds:.0f} s; "
            f"right: {count == _FILES * _ROWS}"
        )
        spark.stop()
    finally:
        shutil.rmtree(folder)


def land(folder: Path) -> int:
    """Write the files; return their bytes."""
    folder.mkdir(parents=True)
    (folder / "_metadata.json").write_text(json.dumps({"keyColumns": ["id"]}))
    source = Path("/dev/urandom").open("rb")  # noqa: SIM115  # closed below, after all files
    for number in range(_FILES):
        ids = pa.array(range(number * _ROWS, (number + 1) * _ROWS), pa.int64())
        noise = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(120), _ROWS, [None, pa.py_buffer(source.read(120 * _ROWS))]
        )
        rows = pa.table({"id": ids, "noise": noise})
        if number >= _FILES // 2:
            rows = rows.append_column("__rowMarker__", pa.repeat(pa.scalar(4, pa.int32()), _ROWS))
        pq.write_table(
            rows, folder / f"{number + 1:020d}.parquet", compression="none", use_dictionary=False
        )
    source.close()
    return sum(path.stat().st_size for path in folder.glob("*.parquet"))


if __name__ == "__main__":
    main()
