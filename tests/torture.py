"""Kill runners at random moments, by the hundred: `python tests/torture.py 300 [SEED]`.

Every twenty kills make a fresh target of their own dice, so that a failure can be run again by its
seed. Stops at the first target that comes out wrong, and leaves its folder.
"""

# ruff: noqa: T201  # it prints what it does

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

import mirrorlib
from children import kill_at_random, make_archive, throw_dice

KILLS_PER_TARGET = 20


def main(kills: int, seed: int) -> int:
    """Kill that many runners; say where each was."""
    spark = mirrorlib.local_spark(cores=2, conf={"spark.sql.shuffle.partitions": "2"})
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    java = make_archive(folder / "archive")
    for done in range(0, kills, KILLS_PER_TARGET):
        count = min(KILLS_PER_TARGET, kills - done)
        place = folder / str(seed)
        began = time.monotonic()
        try:
            moments = kill_at_random(spark, place, kills=count, dice=throw_dice(seed), java=java)
        except BaseException:
            print(f"seed {seed} came out wrong; its zone and target are in {place}")
            raise
        print("\n".join(f"  killed {moment}" for moment in moments))
        seconds = time.monotonic() - began
        print(f"{done + count} kills, seed {seed}: right, {seconds:.0f} s", flush=True)
        seed += 1
    spark.stop()
    return 0


if __name__ == "__main__":
    first = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(10**6)
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100, first))
