"""Bring open mirroring landing zones to Delta tables on any Spark, exactly once.

`apply` brings every table up to date, `plan` says what it would do, `status` says where every table
stands, `ledger` how it came there (`write_ledger` keeps that in tables, `plot_ledger` draws it), `overview` all of
that at once, `reset` begins a table anew;
`read_feed` and `stream_feed` give what changed in a table and
`enable_feed` and `enable_by_default` let it be recorded; `export` delivers it to `consumers`, and
`vacuum` leaves them what they have still to read; `watch` runs `apply` or `export` again and again;
`LandingZoneWriter` publishes into a landing zone
and `check` reviews one; `key_by` says what the keys of a changelog are, `keys_of` which of them are still
true after any transformation and `explain_keys` why, `current_view` and `maintain_current_view` resolve
it, `untag` goes before Spark's own writers; `derive` makes tables of tables, `lineage` says where each comes
from, and `read_table` reads one with its keys; `local_spark` starts a Spark session on this machine. Every name
is imported when it is first used: importing this package costs nothing and needs no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirrorlib.delivery.consumers import ConsumersReport, drop_consumer, rewind_consumer
    from mirrorlib.delivery.consumers import list_consumers as consumers
    from mirrorlib.delivery.report import ExportReport
    from mirrorlib.delivery.run import export_tables as export
    from mirrorlib.delivery.sink import Delivery, Sink
    from mirrorlib.derived.changelog import key_feed
    from mirrorlib.derived.report import DeriveReport
    from mirrorlib.derived.run import derive_table as derive
    from mirrorlib.derived.views.maintain import maintain_current_view, read_current_view
    from mirrorlib.errors import (
        BundleError,
        ChangeFileError,
        ComputeError,
        FeedError,
        FeedExpiredError,
        FileChangedError,
        ForeignWriteError,
        JournalError,
        KeysError,
        KeysLostError,
        LandingZoneError,
        LocalSparkError,
        MarkerError,
        MetadataError,
        MirrorError,
        OutcomeUnknownError,
        ParameterError,
        SchemaError,
        StoppedError,
        StoreError,
        TableBusyError,
        TableNameError,
    )
    from mirrorlib.feed.enable import enable_by_default, enable_feed
    from mirrorlib.feed.keyed import read_table
    from mirrorlib.feed.read import read_feed
    from mirrorlib.feed.statements import key_statements
    from mirrorlib.feed.stream import stream_feed
    from mirrorlib.ingest.preview import plan_zone as plan
    from mirrorlib.ingest.report import (
        ApplyReport,
        BatchReport,
        Event,
        PlanReport,
        TableReport,
    )
    from mirrorlib.ingest.reset import reset_table as reset
    from mirrorlib.ingest.run import apply_zone as apply
    from mirrorlib.keys.declare import key_by, propagate, union_keyed
    from mirrorlib.keys.foundry import FoundrySchema, from_foundry_schema, to_foundry_schema
    from mirrorlib.keys.read import KeysReport, explain_keys, keys_of, require_keys
    from mirrorlib.keys.tags import untag
    from mirrorlib.keys.value import Keys
    from mirrorlib.keys.view import current_view
    from mirrorlib.landing.check.report import CheckReport, Finding
    from mirrorlib.landing.check.zone import check_zone as check
    from mirrorlib.landing.publish.published import Published
    from mirrorlib.landing.publish.table import LandingTable
    from mirrorlib.landing.publish.writer import LandingZoneWriter
    from mirrorlib.operate.book import write_ledger
    from mirrorlib.operate.ledger import LedgerReport
    from mirrorlib.operate.ledger import read_ledger as ledger
    from mirrorlib.operate.lineage import LineageReport, lineage
    from mirrorlib.operate.overview import Overview
    from mirrorlib.operate.overview import read_overview as overview
    from mirrorlib.operate.plots import plot_ledger
    from mirrorlib.operate.rounds import watch
    from mirrorlib.operate.status import StatusReport
    from mirrorlib.operate.status import read_status as status
    from mirrorlib.operate.vacuum import vacuum_tables as vacuum
    from mirrorlib.platform.session import local_spark
    from mirrorlib.version import VERSION as __version__

__all__ = [
    "ApplyReport",
    "BatchReport",
    "BundleError",
    "ChangeFileError",
    "CheckReport",
    "ComputeError",
    "ConsumersReport",
    "Delivery",
    "DeriveReport",
    "Event",
    "ExportReport",
    "FeedError",
    "FeedExpiredError",
    "FileChangedError",
    "Finding",
    "ForeignWriteError",
    "FoundrySchema",
    "JournalError",
    "Keys",
    "KeysError",
    "KeysLostError",
    "KeysReport",
    "LandingTable",
    "LandingZoneError",
    "LandingZoneWriter",
    "LedgerReport",
    "LineageReport",
    "LocalSparkError",
    "MarkerError",
    "MetadataError",
    "MirrorError",
    "OutcomeUnknownError",
    "Overview",
    "ParameterError",
    "PlanReport",
    "Published",
    "SchemaError",
    "Sink",
    "StatusReport",
    "StoppedError",
    "StoreError",
    "TableBusyError",
    "TableNameError",
    "TableReport",
    "__version__",
    "apply",
    "check",
    "consumers",
    "current_view",
    "derive",
    "drop_consumer",
    "enable_by_default",
    "enable_feed",
    "explain_keys",
    "export",
    "from_foundry_schema",
    "key_by",
    "key_feed",
    "key_statements",
    "keys_of",
    "ledger",
    "lineage",
    "local_spark",
    "maintain_current_view",
    "overview",
    "plan",
    "plot_ledger",
    "propagate",
    "read_current_view",
    "read_feed",
    "read_table",
    "require_keys",
    "reset",
    "rewind_consumer",
    "status",
    "stream_feed",
    "to_foundry_schema",
    "union_keyed",
    "untag",
    "vacuum",
    "watch",
    "write_ledger",
]

_ELSEWHERE = {
    "ApplyReport": "mirrorlib.ingest.report:ApplyReport",
    "BatchReport": "mirrorlib.ingest.report:BatchReport",
    "CheckReport": "mirrorlib.landing.check.report:CheckReport",
    "DeriveReport": "mirrorlib.derived.report:DeriveReport",
    "Event": "mirrorlib.ingest.report:Event",
    "Finding": "mirrorlib.landing.check.report:Finding",
    "ConsumersReport": "mirrorlib.delivery.consumers:ConsumersReport",
    "Delivery": "mirrorlib.delivery.sink:Delivery",
    "ExportReport": "mirrorlib.delivery.report:ExportReport",
    "LedgerReport": "mirrorlib.operate.ledger:LedgerReport",
    "LandingTable": "mirrorlib.landing.publish.table:LandingTable",
    "LandingZoneWriter": "mirrorlib.landing.publish.writer:LandingZoneWriter",
    "Overview": "mirrorlib.operate.overview:Overview",
    "PlanReport": "mirrorlib.ingest.report:PlanReport",
    "Published": "mirrorlib.landing.publish.published:Published",
    "Sink": "mirrorlib.delivery.sink:Sink",
    "StatusReport": "mirrorlib.operate.status:StatusReport",
    "TableReport": "mirrorlib.ingest.report:TableReport",
    "__version__": "mirrorlib.version:VERSION",
    "check": "mirrorlib.landing.check.zone:check_zone",
    "consumers": "mirrorlib.delivery.consumers:list_consumers",
    "drop_consumer": "mirrorlib.delivery.consumers:drop_consumer",
    "enable_by_default": "mirrorlib.feed.enable:enable_by_default",
    "enable_feed": "mirrorlib.feed.enable:enable_feed",
    "ledger": "mirrorlib.operate.ledger:read_ledger",
    "local_spark": "mirrorlib.platform.session:local_spark",
    "overview": "mirrorlib.operate.overview:read_overview",
    "plan": "mirrorlib.ingest.preview:plan_zone",
    "plot_ledger": "mirrorlib.operate.plots:plot_ledger",
    "read_feed": "mirrorlib.feed.read:read_feed",
    "read_table": "mirrorlib.feed.keyed:read_table",
    "reset": "mirrorlib.ingest.reset:reset_table",
    "rewind_consumer": "mirrorlib.delivery.consumers:rewind_consumer",
    "status": "mirrorlib.operate.status:read_status",
    "stream_feed": "mirrorlib.feed.stream:stream_feed",
    "vacuum": "mirrorlib.operate.vacuum:vacuum_tables",
    "watch": "mirrorlib.operate.rounds:watch",
    "write_ledger": "mirrorlib.operate.book:write_ledger",
    "FoundrySchema": "mirrorlib.keys.foundry:FoundrySchema",
    "Keys": "mirrorlib.keys.value:Keys",
    "KeysReport": "mirrorlib.keys.read:KeysReport",
    "current_view": "mirrorlib.keys.view:current_view",
    "explain_keys": "mirrorlib.keys.read:explain_keys",
    "from_foundry_schema": "mirrorlib.keys.foundry:from_foundry_schema",
    "key_by": "mirrorlib.keys.declare:key_by",
    "LineageReport": "mirrorlib.operate.lineage:LineageReport",
    "key_feed": "mirrorlib.derived.changelog:key_feed",
    "key_statements": "mirrorlib.feed.statements:key_statements",
    "lineage": "mirrorlib.operate.lineage:lineage",
    "keys_of": "mirrorlib.keys.read:keys_of",
    "maintain_current_view": "mirrorlib.derived.views.maintain:maintain_current_view",
    "propagate": "mirrorlib.keys.declare:propagate",
    "read_current_view": "mirrorlib.derived.views.maintain:read_current_view",
    "require_keys": "mirrorlib.keys.read:require_keys",
    "to_foundry_schema": "mirrorlib.keys.foundry:to_foundry_schema",
    "union_keyed": "mirrorlib.keys.declare:union_keyed",
    "untag": "mirrorlib.keys.tags:untag",
}


def __getattr__(name: str) -> object:
    if name in {
        "apply",
        "derive",
        "export",
    }:  # packages that can be called: see `mirrorlib.calling`
        return import_module(f"mirrorlib.{name}")
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    module, _, attribute = _ELSEWHERE.get(name, f"mirrorlib.errors:{name}").partition(":")
    value: object = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
