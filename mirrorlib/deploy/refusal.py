"""Say what a workspace refused in our own words, in place of the SDK's error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mirrorlib.errors import BundleError, first_line


@contextmanager
def name_refusals(what: str) -> Iterator[None]:
    """Say what the workspace refused, in place of the SDK's own error."""
    from databricks.sdk.errors import OperationFailed
    from databricks.sdk.errors.base import DatabricksError

    try:
        yield
    except (DatabricksError, OperationFailed, TimeoutError) as exc:
        msg = f"the workspace refuses, or does not answer for, {what}"
        step = "Correct it, and deploy again: what was sent stays, and is not sent twice."
        found = first_line(exc).partition(". Config: ")[0]  # the SDK adds who it was
        raise BundleError(msg, found=found, next_step=step) from exc
