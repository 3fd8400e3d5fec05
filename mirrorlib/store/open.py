"""Open the store that a path or URL names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

import obstore.store

from mirrorlib.errors import LandingZoneError, first_line
from mirrorlib.store.local import LocalStore
from mirrorlib.store.objects import ObjectStore
from mirrorlib.store.onelake import deletes_in_onelake
from mirrorlib.store.volumes import is_volume, open_volume

if TYPE_CHECKING:
    from obstore.store import AzureBearerToken, RetryConfig

    from mirrorlib.store.protocol import Store, StoredFile

# How long obstore goes on repeating a request that met a lost connection, a 5xx or "too many requests": ten times by
# itself, after pauses that grow from 0.1 s, which are over in some seconds.
# How long one request may take is obstore's own default, 30 s, which a variable may change
# (AWS_TIMEOUT, AZURE_TIMEOUT): stating it here would put every other such variable out of effect.
RETRIES: RetryConfig = {"retry_timeout": timedelta(minutes=2)}

# Whose buckets a URL names, by its scheme: two clouds may have one of the same name.
_BUCKETS = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
_LARGEST_COPY = 5 << 30  # bytes: S3 copies no larger object by one request
# Until a lent token is asked for again, which obstore does five minutes earlier; who lends it keeps it.
_LENT_FOR = timedelta(minutes=6)
_STEP = "Use a local path or a URL of s3, abfss, gs or file."
_lenders: list[Callable[[], str]] = []

PathOrUrl: TypeAlias = str | os.PathLike[str]  # a local path, or the URL of a place


def open_store(url: PathOrUrl, options: Mapping[str, str] | None = None) -> Store:
    """Return the store for a local path, a `file:` URL, or any URL that obstore knows (`s3://`, `abfss://`, `gs://` …).

    `dbfs:/Volumes/…` is a Databricks volume, through its API: its mount, `/Volumes/…`, has no put-if-absent.

    Args:
        url: Where the files lie.
        options: What obstore is told of an object store beside its URL: credentials, an endpoint.

    Raises:
        LandingZoneError: the URL is none that can be opened, or credentials are in it: they would be in every
            journal, commit, report and list of processes that names the place.

    """
    url = os.fspath(url)
    if not url:
        msg = "a place has no name"
        raise LandingZoneError(msg, next_step="Give a path or a URL; a variable may be empty.")
    if is_volume(url):
        return open_volume(url, options)
    parts = _split(url)
    # One letter is a Windows drive, no "/" behind the colon a name with one.
    if len(parts.scheme) <= 1 or not (parts.path.startswith("/") or "://" in url):
        return LocalStore(Path(url))
    place = url.partition("://")[2]  # of jdbc:… too
    # A secret key may have a slash in it. What stands behind a "#" would be left out here, and not by Spark.
    if re.match(r"(?![^@/]*:\d+/)[^@/]*:.*@", place) or re.search("[?#]", url):
        msg = "the URL of a place has a password, a query or a # in it, as credentials are written"
        step = "Give credentials by the store's own variables, such as AWS_SECRET_ACCESS_KEY, and folders other names."
        raise LandingZoneError(msg, found=f"{parts.scheme}://…", next_step=step)
    if not re.fullmatch(r"[\w.$-]*", parts.username or "", re.ASCII):
        msg = "a workspace cannot be named so: neither its store nor Spark would find it"
        step = "Name workspace and lakehouse by their ids."
        raise LandingZoneError(msg, found=f"{parts.scheme}://…@{parts.hostname}", next_step=step)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        return LocalStore(Path(unquote(parts.path)))
    more: dict[str, Any] = {"retry_config": RETRIES, **(options or {})}
    # Which obstore decodes, and Spark does not; but where a browser would.
    literal = url if parts.scheme in {"http", "https"} else url.replace("%", "%25")
    try:
        store = obstore.store.from_url(literal, **more)
        lent = _lenders and not options and isinstance(store, obstore.store.AzureStore)
        if lent:
            store = obstore.store.from_url(literal, credential_provider=_lent, **more)
        given = [str(more[name]) for name in ("bearer_token", "token") if name in more]
        lend = _lenders[0] if lent else partial(str, given[0]) if given else None
        return ObjectStore(url, store, deletes_in_onelake(url, lend))
    except Exception as exc:  # obstore raises ValueError, its own errors and, for odd URLs, pyo3's
        msg = f"cannot open {url}"
        raise LandingZoneError(msg, found=first_line(exc), next_step=_STEP) from exc


def copy_file(source: Store, file: StoredFile, target: Store, name: str) -> bool:
    """Let one store copy a file from one place of its own to another; False where these are two, or it cannot."""
    if isinstance(source, LocalStore) and isinstance(target, LocalStore):
        return target.copy_from(source, file.path, name)
    here, there = _split(source.url), _split(target.url)
    cloud, other = (_BUCKETS.get(url.scheme) for url in (here, there))
    if cloud is None or not here.netloc or (cloud, here.netloc) != (other, there.netloc):
        return False
    if file.size > _LARGEST_COPY:
        return False
    old, new = (f"{url.path}/{at}".lstrip("/") for url, at in ((here, file.path), (there, name)))
    return open_store(f"{here.scheme}://{here.netloc}").copy(old, new)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as exc:
        # What stands before an @ may be credentials.
        msg, found = f"cannot open {url.rpartition('@')[2]}", first_line(exc).rpartition("@")[2]
        raise LandingZoneError(msg, found=found, next_step=_STEP) from None


def lend_azure_token(lend: Callable[[], str] | None) -> None:
    """Open Azure's places with a bearer token, which *lend* gives anew as often as it is asked; None ends it.

    Runs outlive tokens: one that is read once, from the environment, ends after an hour at most.
    """
    _lenders[:] = [lend] if lend else []


def _lent() -> AzureBearerToken:
    return {"token": _lenders[0](), "expires_at": datetime.now(UTC) + _LENT_FOR}
