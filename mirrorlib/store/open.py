"""Open the store that a path or URL names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import obstore.store

from mirrorlib.errors import LandingZoneError, first_line
from mirrorlib.store.local import LocalStore
from mirrorlib.store.objects import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrorlib.store.protocol import Store


def open_store(url: str, options: Mapping[str, str] | None = None) -> Store:
    """Return the store for a local path, a `file:` URL, or any URL that obstore knows (`s3://`, `abfss://`, `gs://` …).

    Args:
        url: Where the files lie.
        options: What obstore is told of an object store beside its URL: credentials, an endpoint.

    Raises:
        LandingZoneError: the URL is none that can be opened.

    """
    scheme = urlsplit(url).scheme
    if scheme == "file":
        return LocalStore(Path(unquote(urlsplit(url).path)))
    if (
        len(scheme) <= 1 or "://" not in url
    ):  # one letter is a Windows drive, no "//" a name with a colon
        return LocalStore(Path(url))
    more: dict[str, Any] = dict(options or {})
    try:
        return ObjectStore(url, obstore.store.from_url(url, **more))
    except Exception as exc:  # obstore raises ValueError, its own errors and, for odd URLs, pyo3's
        msg = f"cannot open {url}"
        step = "Use a local path or a URL of s3, abfss, gs or file."
        raise LandingZoneError(msg, found=first_line(exc), next_step=step) from exc
