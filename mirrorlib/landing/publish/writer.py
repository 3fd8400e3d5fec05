"""Publish tables into a landing zone, as `mirrorlib.LandingZoneWriter`.

In: rows with or without markers. Out: change files that Fabric and mirrorlib read alike, as `docs/publish.md` promises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from mirrorlib.errors import SchemaError, TableNameError
from mirrorlib.landing.publish.declare import PublishFormat, Wanted, partner_bytes
from mirrorlib.landing.publish.table import LandingTable
from mirrorlib.names import SCHEMA_SUFFIX, as_names, is_ignored, named_twice, parse_visible
from mirrorlib.store import Store, open_store


class LandingZoneWriter:
    """A landing zone to publish into. Nothing is written before the first rows are."""

    def __init__(
        self,
        landing_zone: str | Path | Store,
        *,
        source: str | None = None,
        source_version: str | None = None,
        source_information: Mapping[str, str] | None = None,
        partner: str = "mirrorlib",
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """Name the zone.

        Args:
            landing_zone: A folder; a URL of `s3://`, `abfss://` (OneLake included) or `gs://`; or a
                Databricks volume from outside a workspace, `dbfs:/Volumes/catalog/schema/volume/…`.
            source: What is mirrored ("PostgreSQL"): goes to `_partnerEvents.json`, which Fabric
                recommends; None writes none.
            source_version: Its version.
            source_information: What else is to be known of it, by name: `additionalInformation`.
            partner: Who publishes, the same in every zone.
            storage_options: Credentials and the like, as obstore, or databricks-sdk, names them. In OneLake, files are
                deleted by a `bearer_token` among them, else by whom AZURE_… variables name.

        Raises:
            LandingZoneError: this is no place.
            StoreError: it cannot be opened.

        """
        if isinstance(landing_zone, str | Path):
            landing_zone = open_store(landing_zone, storage_options)
        self._zone = landing_zone
        self._partner = None
        if source is not None:
            self._partner = partner_bytes(partner, source, source_version, source_information)

    def table(
        self,
        name: str,
        *,
        keys: Sequence[str] | str = (),
        file_format: PublishFormat | None = None,
        partition_by: Sequence[str] | str = (),
    ) -> LandingTable:
        """Name a table; what is left out is as the table's metadata has it, or the format's default.

        Args:
            name: "orders", or "dbo/orders" for the folder `dbo.schema/orders`.
            keys: The key columns; they cannot change later.
            file_format: "parquet" (default), or "csv".
            partition_by: Columns whose values name partition folders, each with numbers of its own. Nothing orders
                files of two folders: the values of a key's rows must never change.

        Raises:
            TableNameError: no table folder can have this name.
            SchemaError: no partition folder can be named by this column, or a column is named twice.
            ValueError: there is no such file format.

        """
        found = parse_visible(name)
        if (found.schema or found.table).endswith(SCHEMA_SUFFIX):
            msg = "a name that ends in .schema is that of a schema's folder, which holds tables"
            step = "Name the table alone, or as schema/table, such as dbo/orders."
            raise TableNameError(msg, table=name, next_step=step)
        # A word that is not known would be taken for the default, and stay so for the table's life.
        words = get_args(PublishFormat)
        if file_format is not None and file_format not in words:
            msg = f"file_format is {file_format!r}; it has to be one of {', '.join(words)}"
            raise ValueError(msg)
        keys, by = as_names(keys), as_names(partition_by)
        _check_columns(keys, by, table=name)
        wanted = Wanted(keys=keys or None, file_format=file_format, partition_by=by or None)
        return LandingTable(self._zone, found, wanted, self._partner)


def _check_columns(keys: Sequence[str], partition_by: Sequence[str], *, table: str) -> None:
    """Refuse columns that are named twice, and a partition column whose folder every reader would ignore."""
    for twice in filter(None, map(named_twice, (keys, partition_by))):
        msg = "the column is named twice"
        raise SchemaError(msg, table=table, column=twice, next_step="Name it once.")
    for name in filter(is_ignored, partition_by):
        msg = "readers ignore folders whose name begins with _ or ."
        step = "Rename the column, or partition by another."
        raise SchemaError(msg, table=table, column=name, next_step=step)
