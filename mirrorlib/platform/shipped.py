"""Find what the wheel ships beside the package: examples and notebooks."""

from __future__ import annotations

from pathlib import Path

from mirrorlib.errors import LandingZoneError


def find_shipped(kind: str, name: str) -> Path:
    """Find one of the "examples" or "notebooks", in an installed wheel or in a clone; `LandingZoneError` in neither."""
    package = Path(__file__).parents[1]
    for folder in (package / f"_{kind}", package.parent / kind):
        if (path := folder / name).exists():
            return path
    msg, step = f"the {kind} are not installed", "Install its wheel again, or work in a clone."
    raise LandingZoneError(msg, file=name, next_step=step)
