"""Arguments that several commands share, and how values are read. How they are spelled: `Command.add_to`."""

from __future__ import annotations

import argparse
import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from inspect import cleandoc
from typing import NoReturn, TypeAlias, get_args, get_type_hints

from mirrorlib.ingest.options import Options

Arguments: TypeAlias = Mapping[str, str]  # what each means, by how it is spelled
Reader: TypeAlias = Callable[[str], object]

JSON: Arguments = {"--json": "print JSON"}
TABLES: Arguments = {
    "--table* NAME": "only this table; a glob such as 'dbo/*' too; may be repeated",
}
PLACE: Arguments = {"LANDING_ZONE": "folder or URL that holds the table folders", **TABLES}
TARGET: Arguments = {
    "TARGET": "root path or URL of the Delta tables; with --catalog, a schema's name",
    "--catalog NAME": "the tables are this Spark catalog's, CATALOG.TARGET.table, where a platform brings the session",
    "--state PATH": "where the journal lives (default: TARGET/_mirrorlib; with --catalog it has to be given)",
    **JSON,
}
EVENTS: Arguments = {
    "--events* TO": "add what happens to this file, a line of JSON each, or tell openlineage or otel; may be repeated"
}
MEMORY: Arguments = {"--memory SIZE": "heap of the local Spark (default: 2g)"}
# How the value of an option is called, where its kind says less.
_CALLED = {
    "settle": "SECONDS", "backfill_interval": "SECONDS", "retention": "DAYS", "max_loss": "SHARE", "moved_from": "URL",
    "partial_updates": "WHAT",
}  # fmt: skip
_UNITS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}  # seconds
DEFAULTS: Mapping[str, object] = {one.name: one.default for one in fields(Options)}


def rounds(what: str) -> Arguments:
    """Say how many tables a run takes at once, and whether runs follow each other."""
    return {
        "--parallelism N": "tables at once (default: cores, at most 8)",
        "--watch SECONDS": f"keep {what}, pausing this long in between, until Ctrl-C",
        **EVENTS,
        "--alert COMMAND": "run this, with the event as JSON on its input, when a table stops, and when it goes on",
    }


def words_of(name: str) -> tuple[str, ...]:
    """Return the words of which one of `Options` is one."""
    kind = get_type_hints(Options)[name]
    words = [one for part in (kind, *get_args(kind)) for one in get_args(part)]
    return tuple(dict.fromkeys(one for one in words if isinstance(one, str)))


def _options() -> Iterator[tuple[str, str]]:
    """Spell what `Options` has, and say of each what is said there, with its default."""
    told = cleandoc(Options.__doc__ or "").partition("Attributes:")[2]
    texts = dict(re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", told, re.MULTILINE))
    for name, default in DEFAULTS.items():
        if name not in {"tables", "parallelism"}:
            text = " ".join(texts.get(name, "").split()).rstrip(".").replace("*", "")
            flag = f"--{'quiet_updates' if name == 'quiet' else name}".replace("_", "-")
            if isinstance(default, bool):
                yield flag, text
            else:
                kind = "WORD" if words_of(name) else _CALLED.get(name, "N")
                usual = f" (default: {str(default).removesuffix('.0')})" if default else ""
                yield f"{flag} {kind}", text + usual


# What `apply` and `plan` share, in the order of `--help`.
ZONE: Arguments = {**PLACE, **TARGET, **dict(_options()), **MEMORY}


def positive(text: str) -> int:
    """Read a whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        refuse(text, "not a whole number from 1 on")
    return int(text)


def bound(text: str) -> str | int:
    """Read a version; a word or a moment is left to be read with the table's name at hand."""
    return int(text) if text.removeprefix("-").isdecimal() else text


def seconds(text: str) -> float:
    """Read how long something is: in seconds, or in words, "1 day"."""
    number, _, unit = text.strip().partition(" ")
    length = _UNITS.get(unit.strip().lower().removesuffix("s") or "second", math.nan)
    with contextlib.suppress(ValueError):
        if 0 <= (found := float(number) * length) < math.inf:
            return found
    return refuse(text, "not a number of seconds, minutes, hours, days or weeks")


def given(text: str) -> str | None:
    """Read what a job's parameter, which may be empty, does not say then."""
    return text or None


def named(text: str) -> str:
    """Read what names something; a variable that is not set does not."""
    return text if text.strip() else refuse(text, "no name: give one, or leave the option out")


def size(text: str) -> int:
    """Read a size in bytes, with k, m or g behind it or not."""
    shifts = {"k": 10, "m": 20, "g": 30}
    unit = text[-1:].lower()
    return positive(text[:-1] if unit in shifts else text) << shifts.get(unit, 0)


def _heap(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]*[mMgG]", text):
        refuse(text, "not a size such as 2g or 900m")
    return text


def refuse(text: str, what: str) -> NoReturn:
    """Say what is wrong with a value."""
    msg = f"{text!r} is {what}"
    raise argparse.ArgumentTypeError(msg)


# By kind, and by name where the kind says less; any other value is text.
READERS: Mapping[str, Reader] = {
    "A,B": lambda text: tuple(filter(None, map(str.strip, named(text).split(",")))),
    "ID": named,
    "DAYS": positive,
    "MINUTES": positive,
    "N": positive,
    "SECONDS": seconds,
    "SHARE": float,
    "SIZE": _heap,
    "snapshot|now|N": bound,
    "max_bytes": size,
    "rewrite_limit": size,
    "catalog": given,
    "state": given,
}
