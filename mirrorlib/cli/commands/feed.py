"""`mirrorlib feed` and `enable-feed`: print what changed in a table, for people or as JSON lines; have it recorded."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

import mirrorlib
from mirrorlib.cli.arguments import JSON, MEMORY, TABLES, TARGET, bound
from mirrorlib.cli.command import Command, call, say_json
from mirrorlib.cli.run import start_spark
from mirrorlib.platform.show import show_report

_SHOWN = 100


def _feed(arguments: argparse.Namespace) -> bool:
    from mirrorlib.delta.address import find_feed_table
    from mirrorlib.delta.sessions import configured
    from mirrorlib.feed.changes import first_changes
    from mirrorlib.feed.declared_keys import find_mirror
    from mirrorlib.feed.owners import stored_columns
    from mirrorlib.feed.window import BEYOND

    address, its_keys = call(find_mirror, arguments, place=arguments.target)
    spark = start_spark(arguments)
    table = find_feed_table(spark, address)
    commits = table.commits
    keys = tuple(arguments.keys or its_keys or stored_columns(commits, commits.newest))
    after = arguments.after
    if after is None:
        after = (commits.newest if arguments.until is None else commits.first) - 1
    given = {"spark": spark, "table": address, "after": after, "keys": keys}
    with configured(spark, {BEYOND: "true"} if arguments.allow_out_of_range else {}):
        frame = call(mirrorlib.read_feed, arguments, **given)
    changes = first_changes(frame, arguments.table, keys, arguments.limit or _SHOWN)
    if arguments.json:
        for change in changes.changes:
            say_json(asdict(change), in_one_line=True)
        sys.stderr.writelines(f"{note}\n" for note in changes.notes())
    else:
        show_report(changes)
    # What reads lines would not notice that there are more, unless it asked for so many.
    return not (arguments.json and changes.more and arguments.limit is None)


FEED = Command(
    more="An update is one line: what was before, what is now. Moments are yyyy-MM-dd[ HH:mm:ss[.SSS]] in UTC.",
    arguments={
        **TARGET,
        "TABLE": "the table, 'dbo/orders'",
        "--after N": "changes after this version or moment; -1 for all (default: the newest's, or all with --until)",
        "--until N": "up to this one (default: the newest version)",
        "--allow-out-of-range": "a version or moment beyond the last commit is that one, and no error",
        "--net": "what is different between the two, not what happened",
        "--limit N": f"changes at most (default: {_SHOWN})",
        "--key* COLUMN": "a key column, for a table that names none itself; may be repeated",
        **MEMORY,
    },
    readers={"after": bound, "until": bound},
    run=_feed,
)
ENABLE_FEED = Command(
    more="Mirrors have it on; of other Delta tables changes are recorded from the commit on that this makes.",
    arguments={
        "TARGET": "a Delta table's path, or a folder of them; with --catalog, a schema's name",
        "--catalog NAME": "tables of this Spark catalog",
        **TABLES,
        "--days N": "how long changes are to be readable (default: 7, unless the table says otherwise)",
        **MEMORY,
        **JSON,
    },
    run=lambda arguments: call(
        mirrorlib.enable_feed, arguments, spark=start_spark(arguments), place=arguments.target
    ),
)
