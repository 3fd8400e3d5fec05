"""Say what came of a command: errors for people, and JSON for machines."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirrorlib.errors import MirrorError


def say_json(value: dict[str, Any], *, in_one_line: bool = False) -> None:
    """Print JSON; *in_one_line* is for what is read line by line."""
    indent = None if in_one_line else 2
    sys.stdout.write(json.dumps(value, indent=indent, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def say_error(error: MirrorError, *, as_json: bool, in_one_line: bool = False) -> None:
    """Print an error for people to standard error, and for machines as JSON too."""
    if as_json:
        say_json({"ok": False, **error.to_dict()}, in_one_line=in_one_line)
    sys.stderr.write(f"mirrorlib: {error}\n")
