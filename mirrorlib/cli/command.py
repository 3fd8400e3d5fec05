"""A command of the command line: arguments in, one call of the library, a report, errors and JSON out."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from mirrorlib.cli.arguments import DEFAULTS, READERS, Arguments, Reader, words_of
from mirrorlib.errors import MirrorError
from mirrorlib.platform.show import show_progress
from mirrorlib.tabular import Report

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command; its own `--help` says *more* than that of all, which is `main`'s."""

    more: str = ""
    arguments: Arguments  # what it takes, as `add_to` reads it
    # By name, where an argument has one that is not the library's, or where a value is not read as its kind.
    defaults: Mapping[str, object] = field(default_factory=dict)
    readers: Mapping[str, Reader] = field(default_factory=dict)
    either: tuple[str, ...] = ()  # the names of options of which one can be given at most
    # Does it, and returns the report that is to be shown, or, where it was shown, whether all is well.
    run: Callable[[argparse.Namespace], Report | bool]

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments, which are spelled as `--help` shows them.

        `TABLE` goes by its place; `--net` is a switch; `--last N` has a value, of a kind that says how it is read;
        `--mode changes|current` has one of these words, `--ntz WORD` one of the library's. Behind a name stands `*`
        where it may come often, and there is a list under its plural; `!` is for one that has to be given.
        """
        defaults = {**DEFAULTS, **self.defaults}
        group = parser.add_mutually_exclusive_group() if self.either else parser
        for spelled, text in self.arguments.items():
            word, _, kind = spelled.partition(" ")
            flag = word.rstrip("*!")
            count = word.removeprefix(flag)
            name = flag.strip("-").lower().replace("-", "_")
            name = f"{name.removesuffix('s')}s" if count == "*" else name
            name = "quiet" if name == "quiet_updates" else name
            details: dict[str, Any] = {
                "help": text,
                "default": defaults.get(name, parser.get_default(name)),
            }
            if not flag.startswith("-"):
                parser.add_argument(name, metavar=flag, nargs=count or None, **details)
                continue
            if not kind:
                is_on = details["default"] = bool(details["default"])
                details["action"] = argparse.BooleanOptionalAction if is_on else "store_true"
            elif kind == "WORD":
                details["choices"] = words_of(name)
            elif kind.islower():
                details["choices"] = tuple(kind.split("|"))
                if details["default"] is None:  # a job's parameter may be empty
                    shown = f"{{{','.join(details['choices'])}}}"
                    details |= {"type": lambda text: text or None, "metavar": shown}
                    details["choices"] = (*details["choices"], None)
            else:
                known = {**READERS, **self.readers}
                details |= {"metavar": kind, "type": known.get(name, known.get(kind, str))}
            if count == "*":
                details |= {"action": "append", "default": []}
            elif count == "!":
                details["required"] = True
            place = group if name in self.either else parser
            place.add_argument(flag, dest=name, **details)


def call(function: Callable[_P, _R], arguments: argparse.Namespace, **more: object) -> _R:
    """Call what the library has for a command, with *more*, and those arguments that it has parameters of."""
    known = inspect.signature(function).parameters
    given = {name: value for name, value in vars(arguments).items() if name in known}
    return function(**{**given, **more})  # type: ignore[call-arg]  # as they were just looked up


def call_shown(function: Callable[_P, _R], arguments: argparse.Namespace, **more: object) -> _R:
    """Call it likewise, and show how far each table is."""
    with show_progress(quiet=arguments.json) as observe:
        return call(function, arguments, observe=observe, **more)


class UnprintedError(Exception):
    """What was asked for has ended, and its outcome could not be printed: no reason to do it again unseen."""


def drop_output() -> None:
    """Let what could not be printed go, which is tried again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """See that what a block prints has left the process when it ends, or raise `UnprintedError`."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as exc:
        drop_output()
        msg = f"what was asked for has ended, and its outcome could not be printed (found {exc}): see what was done"
        raise UnprintedError(msg) from exc


def say_json(value: dict[str, Any], *, in_one_line: bool = False) -> None:
    """Print JSON; *in_one_line* is for what is read line by line."""
    indent = None if in_one_line else 2
    with printing():
        sys.stdout.write(json.dumps(value, indent=indent, default=str) + "\n")


def say(arguments: argparse.Namespace, told: dict[str, Any], *lines: str) -> bool:
    """Print what was done, for people or as JSON; all is well then."""
    if arguments.json:
        say_json({"ok": True, **told})
    else:
        with printing():
            sys.stdout.writelines(f"{line}\n" for line in lines)
    return True


def say_error(error: MirrorError, *, as_json: bool) -> None:
    """Print an error for people to standard error, and for machines as JSON too."""
    if as_json:
        with contextlib.suppress(UnprintedError):
            say_json({"ok": False, **error.to_dict()}, in_one_line=True)
    sys.stderr.write(f"mirrorlib: {error}\n")
