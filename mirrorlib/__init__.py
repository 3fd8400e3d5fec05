"""Bring open mirroring landing zones to Delta tables on any Spark, exactly once.

Every name is imported when it is first used: importing this package costs nothing and needs no Spark.
"""

from __future__ import annotations

# `typing` is slower to import than all of this, and a type checker needs the name alone.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from mirrorlib.delivery.consumers import drop_consumer, rewind_consumer
    from mirrorlib.delivery.consumers import list_consumers as consumers
    from mirrorlib.delivery.report import ConsumersReport, ExportReport
    from mirrorlib.delivery.run import export_tables as export
    from mirrorlib.delivery.sink import Delivery, Sink
    from mirrorlib.derived.changelog import key_feed
    from mirrorlib.derived.maintain import maintain_current_view, read_current_view
    from mirrorlib.derived.report import DeriveReport
    from mirrorlib.derived.run import derive_table as derive
    from mirrorlib.errors import *  # each is public
    from mirrorlib.events import Event
    from mirrorlib.feed.declared_keys import key_statements, read_table
    from mirrorlib.feed.enable import enable_by_default, enable_feed
    from mirrorlib.feed.read import read_feed
    from mirrorlib.feed.stream import stream_feed
    from mirrorlib.ingest.options import Options
    from mirrorlib.ingest.preview import plan_zone as plan
    from mirrorlib.ingest.rebuild import rebuild_table as rebuild
    from mirrorlib.ingest.rebuild import undo_rebuild
    from mirrorlib.ingest.report import ApplyReport, BatchReport, PlanReport, TableReport
    from mirrorlib.ingest.reset import reset_table as reset
    from mirrorlib.ingest.run import apply_zone as apply
    from mirrorlib.journal.streams import Stream, WindowPlan
    from mirrorlib.keys.declare import key_by, propagate, union_keyed
    from mirrorlib.keys.foundry import FoundrySchema, from_foundry_schema, to_foundry_schema
    from mirrorlib.keys.read import KeysReport, explain_keys, keys_of, require_keys
    from mirrorlib.keys.tags import untag
    from mirrorlib.keys.value import Keys
    from mirrorlib.keys.view import current_view
    from mirrorlib.landing.check.report import CheckReport, Finding
    from mirrorlib.landing.check.zone import check_zone as check
    from mirrorlib.landing.publish.table import LandingTable, Published
    from mirrorlib.landing.publish.writer import LandingZoneWriter
    from mirrorlib.operate.book import write_ledger
    from mirrorlib.operate.ledger import LedgerReport
    from mirrorlib.operate.ledger import read_ledger as ledger
    from mirrorlib.operate.lineage import LineageReport, lineage
    from mirrorlib.operate.listeners.listen import listen
    from mirrorlib.operate.overview import Overview
    from mirrorlib.operate.overview import read_overview as overview
    from mirrorlib.operate.rounds import watch
    from mirrorlib.operate.status import StatusReport
    from mirrorlib.operate.status import read_status as status
    from mirrorlib.operate.trace.files import WhereReport
    from mirrorlib.operate.trace.where import where_is
    from mirrorlib.operate.upkeep import optimize_tables as optimize
    from mirrorlib.operate.upkeep import vacuum_tables as vacuum
    from mirrorlib.operate.verify.consumer import verify_consumer
    from mirrorlib.operate.verify.report import VerifyReport
    from mirrorlib.operate.verify.tables import verify_tables as verify
    from mirrorlib.platform import demo as demo  # a module that is public, not a name
    from mirrorlib.platform import notebook as notebook  # the same
    from mirrorlib.platform.session import local_spark
    from mirrorlib.streaming.query import register_sources, stream_apply
    from mirrorlib.version import VERSION as __version__

__all__ = [
    "ApplyReport",
    "BatchReport",
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
    "Options",
    "OutcomeUnknownError",
    "Overview",
    "ParameterError",
    "PlanReport",
    "Published",
    "SchemaError",
    "Sink",
    "SnapshotError",
    "StatusReport",
    "StoppedError",
    "StoreError",
    "Stream",
    "TableBusyError",
    "TableNameError",
    "TableReport",
    "VerifyReport",
    "WhereReport",
    "WindowPlan",
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
    "listen",
    "local_spark",
    "maintain_current_view",
    "optimize",
    "overview",
    "plan",
    "propagate",
    "read_current_view",
    "read_feed",
    "read_table",
    "rebuild",
    "register_sources",
    "require_keys",
    "reset",
    "rewind_consumer",
    "status",
    "stream_apply",
    "stream_feed",
    "to_foundry_schema",
    "undo_rebuild",
    "union_keyed",
    "untag",
    "vacuum",
    "verify",
    "verify_consumer",
    "watch",
    "where_is",
    "write_ledger",
]


def _public() -> dict[str, tuple[str, str]]:
    """Read off this file, by name, which module has what: its imports above are the one list, for type checkers too."""
    import pkgutil
    import re  # not ast, of which Python 3.11 lets no two threads parse at the same time

    source = (pkgutil.get_data(__name__, "__init__.py") or b"").decode()
    block = source.partition("\nif TYPE_CHECKING:\n")[2].partition("\n__all__")[0]
    block = re.sub(r"  #.*", "", block)
    imports = re.findall(r"^ +from (\S+) import (?:\(([^)]*)\)|(.+))$", block, re.MULTILINE)
    names = (
        (module, one.split()) for module, *some in imports for one in ",".join(some).split(",")
    )
    found = {words[-1]: (module, words[0]) for module, words in names if words}
    return {name: ("mirrorlib.errors", name) for name in __all__} | found


def __getattr__(name: str) -> object:
    found = None if name.startswith("__") and name not in __all__ else _public().get(name)
    if found is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    module, attribute = found
    try:
        value: object = getattr(__import__(module, fromlist=[attribute]), attribute)
    except ModuleNotFoundError as exc:
        if exc.name != "pyspark":
            raise
        from mirrorlib.errors import LocalSparkError
        from mirrorlib.extras import how_to_install

        msg = f"{name} needs Spark, and the Python package pyspark is not installed"
        raise LocalSparkError(msg, next_step=how_to_install("local")) from exc
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
