"""Say where a zone, tables and a journal of one's own lie: in one folder, and a schema where tables are a catalog's.

In: a folder or a URL, and a schema, `CATALOG.SCHEMA`. Out: `Home`, whose places are what the library's functions take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mirrorlib.errors import ParameterError
from mirrorlib.names import parse_name
from mirrorlib.store.volumes import is_volume


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Places that are nobody else's.

    Raises:
        ParameterError: the schema is not named by two words, or there is none and the folder can hold no Delta table.

    """

    folder: str
    schema: str | None = None

    def __post_init__(self) -> None:
        """See that tables have a place."""
        if self.schema is not None and len(self.schema.split(".")) != len(("catalog", "schema")):
            msg = "the parameter schema has to be CATALOG.SCHEMA"
            raise ParameterError(msg, found=self.schema)
        if self.schema is None and is_volume(self.folder):
            msg = "a volume can hold no Delta table, and no schema is named for it"
            step = "Name one, CATALOG.SCHEMA, in the parameter schema."
            raise ParameterError(msg, found=self.folder, next_step=step)

    @property
    def landing(self) -> str:
        """Return the landing zone."""
        return f"{self.folder}/landing"

    @property
    def state(self) -> str | None:
        """Return where progress lies; None where that is beside the tables."""
        return f"{self.folder}/state" if self.schema else None

    @property
    def tables(self) -> dict[str, Any]:
        """Return the target as `apply`, `export`, `status` and the others take it."""
        catalog, _, schema = (self.schema or "").partition(".")
        target = schema or f"{self.folder}/tables"
        return {"target": target, "catalog": catalog or None, "state": self.state}

    def table(self, name: str) -> str:
        """Return the address of a table, "dbo/orders", or of one that is made of others, "large"."""
        table = parse_name(name)
        return f"{self.schema}.{table.table}" if self.schema else f"{self.folder}/tables/{table}"
