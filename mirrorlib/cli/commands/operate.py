"""`mirrorlib status`, `serve`, `ledger`, `where-is`, `lineage`, `verify`: how tables stand, and what was applied."""

from __future__ import annotations

import argparse
import contextlib
import sys
from functools import partial

import mirrorlib
from mirrorlib.cli.arguments import EVENTS, MEMORY, PLACE, TABLES, TARGET, bound, given, refuse
from mirrorlib.cli.command import Command, call
from mirrorlib.cli.run import start_spark
from mirrorlib.errors import MirrorError
from mirrorlib.operate.ledger import LAST
from mirrorlib.store.target import Target
from mirrorlib.tabular import Report


def _status(arguments: argparse.Namespace) -> Report:
    if arguments.html is None:
        return call(mirrorlib.status, arguments)
    overview = call(mirrorlib.overview, arguments)
    overview.save(arguments.html)
    sys.stderr.writelines(f"{failure}\n" for failure in overview.failures)
    return overview.status


def _serve(arguments: argparse.Namespace) -> bool:
    from mirrorlib.operate.page.serve import serve_page

    call(serve_page, arguments, tell=partial(print, "Shown until Ctrl-C:", flush=True))
    return True


def _ledger(arguments: argparse.Namespace) -> Report:
    if arguments.to is None:
        return call(mirrorlib.ledger, arguments)
    return call(mirrorlib.write_ledger, arguments, spark=start_spark(arguments, arguments.to))


def _verify(arguments: argparse.Namespace) -> Report:
    if arguments.consumer is not None:
        from mirrorlib.delivery.consumers import known_streams
        from mirrorlib.delivery.sinks.open import place_of

        target = Target.of(arguments.target, catalog=arguments.catalog, state=arguments.state)
        known = known_streams(target, arguments.consumer, arguments.tables)
        places = []
        for one in known:
            with contextlib.suppress(MirrorError):  # as its table will say
                places.append(place_of(one.present_stream().to))
        return call(mirrorlib.verify_consumer, arguments, spark=start_spark(arguments, *places))
    if arguments.to is not None:
        arguments.refuse("argument --to: means nothing without --consumer")
    return call(mirrorlib.verify, arguments, spark=start_spark(arguments))


def _where_is(arguments: argparse.Namespace) -> Report:
    key = dict(arguments.keys)
    if len(key) < len(arguments.keys):
        arguments.refuse("argument --key: names a column twice")
    if not key and (arguments.after is not None or arguments.show_values):
        arguments.refuse("arguments --after, --show-values: are about changes of a --key")
    spark = start_spark(arguments) if key else None
    return call(mirrorlib.where_is, arguments, key=key or None, spark=spark)


def _pair(text: str) -> tuple[str, str]:
    """Read a key column and its value, which may be anything."""
    name, sign, value = text.partition("=")
    return (name, value) if sign else refuse(text, "not COLUMN=VALUE")


LEDGER = Command(
    more="With --to, what is new is added to two Delta tables, mirrorlib_ledger and mirrorlib_events, by Spark.",
    arguments={
        **TARGET,
        **TABLES,
        "--last N": f"show so many batches a table (default: {LAST})",
        "--to PLACE": "where the two Delta tables are: a path with a slash in it, a URL, or catalog.schema",
        "--allow-new": "a target to which nothing was applied yet is no error: for jobs that run by a clock",
        **MEMORY,
    },
    defaults={"last": LAST},
    readers={"to": given},
    either=("tables", "to"),
    run=_ledger,
)
LINEAGE = Command(
    more="Landing zones, mirrors, derived tables and consumers, as of their last runs. Needs no Spark.",
    arguments=TARGET,
    run=lambda arguments: call(mirrorlib.lineage, arguments),
)
VERIFY = Command(
    more="The files that were applied are folded by other code than apply's, and compared with each table as it is; "
    "where some are gone, from the version on that was found equal last. With --consumer, what that one received is "
    "compared with the tables, and LANDING_ZONE may be '-'. Exit code 1: something differs, or could not be verified.",
    arguments={
        **PLACE,
        **TARGET,
        "--consumer NAME": "compare what this consumer has received: Delta, files, a landing zone, a database",
        "--to URL": "where it receives, if that has a password: those are kept nowhere",
        "--sample SHARE": "look at this share of the keys only (default: 1)",
        "--show-values": "tell all values of rows that differ, not only their keys",
        "--mark": "where files are gone, take the table for right as it is, and verify what comes from now on",
        **EVENTS,
        **MEMORY,
    },
    defaults={"sample": 1.0},
    either=("consumer", "mark"),
    run=_verify,
)
WHERE_IS = Command(
    more="Of a file, or of each change of a key, which takes Spark: what published, applied and received it, and when.",
    arguments={
        **TARGET,
        "TABLE": "the table, 'dbo/orders'",
        "--file N": "a change file's number, its name, or a path that ends with it",
        "--key* COLUMN=VALUE": "a key column and its value, which is all behind the first '='; once for each of them",
        "--after N": "changes of the key after this version or moment (default: all that are there)",
        "--show-values": "tell the key's rows before and after each change",
        **MEMORY,
    },
    readers={"file": str, "keys": _pair, "after": bound},
    either=("file", "keys"),
    run=_where_is,
)
STATUS = Command(
    more="States: current, behind (files wait), blocked (a file is missing), failed (something is wrong), "
    "waiting (no metadata or data yet), gone (its folder is no longer there).",
    arguments={
        **TARGET,
        "--html PAGE": "write a page of it to this file, too, with charts and consumers",
    },
    run=_status,
)
SERVE = Command(
    more="It is the page of `status --html`, read anew while somebody looks at it.",
    arguments={
        **{name: text for name, text in TARGET.items() if name != "--json"},
        "--port N": "listen on this port of 127.0.0.1 (default: 8765)",
        "--every N": "look at the target again after so many seconds (default: 10)",
    },
    defaults={"port": 8765, "every": 10},
    readers={"port": int},  # 0 is any that is free
    run=_serve,
)
