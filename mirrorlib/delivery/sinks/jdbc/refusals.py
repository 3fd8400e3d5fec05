"""Tell what PostgreSQL refuses as errors that name the table, and neither a value nor a password.

In: psycopg's errors. Out: `MirrorError`s, and `UnfitError` for a value that PostgreSQL has not.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.delivery.sinks.jdbc.database import UnfitError, duplicate_key, null_key
from mirrorlib.errors import (
    LandingZoneError,
    MirrorError,
    SchemaError,
    StoreError,
    TableBusyError,
    first_line,
)
from mirrorlib.extras import how_to_install

try:
    import psycopg
    from psycopg import errors
except ImportError as exc:
    MISSING = "the Python package psycopg is not installed"
    raise LandingZoneError(MISSING, next_step=how_to_install("postgres")) from exc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PRIMARY = "_pkey"  # what PostgreSQL calls a primary key, after its table
_LONGEST_NAME = 63
# Classes of SQLSTATE whose messages speak of names and settings; all others may quote a value.
_SPEAKING = ("08", "0A", "25", "28", "2B", "3D", "3F", "42", "53", "54", "55", "57", "58")
_LOST = ("08", "57")
_BUSY = (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure)


@dataclass(frozen=True, slots=True)
class Refusals:
    """What a server says, told.

    Attributes:
        server: host and port.
        password: never to be told.

    """

    server: str
    password: str

    @contextlib.contextmanager
    def translated(self, table: str, keys: Sequence[str]) -> Iterator[None]:
        """Turn what psycopg raises into errors that say what is wrong, where, and what to do."""
        try:
            yield
        except psycopg.Error as exc:
            # What psycopg says may quote a row, so it does not travel along.
            raise self._explained(exc, table, keys) from None

    def _explained(self, exc: psycopg.Error, table: str, keys: Sequence[str]) -> Exception:
        state = exc.sqlstate or ""
        if isinstance(exc, psycopg.IntegrityError):
            return _broken(exc, table, keys)
        if isinstance(exc, _BUSY):
            msg = f"somebody keeps the table, or a row of it, locked on the PostgreSQL server {self.server}"
            return TableBusyError(msg, table=table)
        if isinstance(exc, psycopg.DataError):
            return UnfitError(f"SQLSTATE {state}")
        lost = isinstance(exc, (psycopg.OperationalError, psycopg.InterfaceError))
        if lost and (not state or state[:2] in _LOST):
            return self._lost(exc, table)
        found = exc.diag.message_primary if state[:2] in _SPEAKING else None
        msg = f"the PostgreSQL server {self.server} refuses"
        step = "Correct that there; the next run goes on from here."
        return StoreError(msg, table=table, found=found or f"SQLSTATE {state}", next_step=step)

    def _lost(self, exc: psycopg.Error, table: str) -> MirrorError:
        msg = f"the PostgreSQL server {self.server} cannot be reached, or has ended the connection"
        step = "See that it runs and lets you in, then run again: whether the last window was committed is asked first."
        said = exc.diag.message_primary or first_line(exc)
        found = said.replace(self.password, "***") if self.password else said
        return StoreError(msg, table=table, found=found, next_step=step)


def _broken(exc: psycopg.IntegrityError, table: str, keys: Sequence[str]) -> MirrorError:
    """Tell which constraint is broken: the primary key that we have made, or one of somebody else's."""
    diag = exc.diag
    if isinstance(exc, errors.NotNullViolation) and diag.column_name in keys:
        return null_key(table, str(diag.column_name))
    held = (diag.table_name or "").encode()[: _LONGEST_NAME - len(_PRIMARY)]
    primary = held.decode(errors="ignore") + _PRIMARY
    if isinstance(exc, errors.UniqueViolation) and diag.constraint_name == primary:
        return duplicate_key(table, keys)
    msg = "a constraint that the table has in the database refuses a row"
    found = diag.constraint_name or diag.column_name
    step = "Take it off there; the next run goes on from here."
    return SchemaError(msg, table=table, found=found, next_step=step)
