"""Delete in OneLake, a request for each file: it refuses the bulk requests by which obstore deletes on Azure.

In: the URL of a place in OneLake, and who lends a bearer token. Out: a function that deletes. Without a lender the
token is `AZURE_STORAGE_TOKEN`, else that of azure-identity's default: of whoever has signed in, or is named by
`AZURE_CLIENT_…`. Source: issue 701 of arrow-rs-object-store; "Delete Blob" of Azure's Blob service.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from mirrorlib.errors import MirrorError, StoreError, first_line
from mirrorlib.extras import needed
from mirrorlib.store.protocol import tries

_AT_ONCE = 16
_PATIENCE = 30.0  # seconds after which nothing is tried again
_TIMEOUT = 30.0  # seconds for one answer, as obstore's
# Answers that another try may not get; None is a lost connection.
_PASSING = {None, 408, 429, 500, 502, 503, 504}


def deletes_in_onelake(
    url: str, lent: Callable[[], str] | None
) -> Callable[[Sequence[str]], None] | None:
    """Return what deletes files by their paths below a URL; None where that is not in OneLake."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host.endswith(".fabric.microsoft.com"):
        return None
    path = parts.path.strip("/")
    # obstore takes a name in Azure's own URLs as it stands, and decodes one in those of the web.
    folder = path if parts.username is None else f"{parts.username}/{quote(path)}"
    return partial(delete_each, f"https://{host.replace('.dfs.', '.blob.', 1)}/{folder}", lent)


def delete_each(place: str, lent: Callable[[], str] | None, paths: Sequence[str]) -> None:
    """Delete files by their paths below an address of the Blob service; nothing happens for one that is not there.

    Raises:
        StoreError: nobody lends a token, and azure-identity is not installed or has none.
        OSError: a file was not deleted.

    """
    token = (lent or _own_token)()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        urls = (f"{place}/{quote(path)}" for path in paths)
        list(pool.map(partial(_delete, token), urls))


def _delete(token: str, url: str) -> None:
    headers = {"Authorization": f"Bearer {token}", "x-ms-version": "2023-11-03"}
    request = Request(url, method="DELETE", headers=headers)  # noqa: S310  # `deletes_in_onelake` says https
    for _ in tries(_PATIENCE):
        try:
            urlopen(request, timeout=_TIMEOUT).close()  # noqa: S310  # as above
        except OSError as exc:
            status = exc.code if isinstance(exc, HTTPError) else None
            if status == HTTPStatus.NOT_FOUND:
                return
            if status not in _PASSING:
                raise
            failure = exc
        else:
            return
    raise failure


def _own_token() -> str:
    if token := os.environ.get("AZURE_STORAGE_TOKEN"):
        return token
    try:
        return str(_credential().get_token("https://storage.azure.com/.default").token)
    except MirrorError:
        raise
    except Exception as exc:  # azure-identity's own errors have pages for those who debug it
        msg = "nobody is signed in who may delete in OneLake"
        step = "Sign in (az login), or set AZURE_TENANT_ID, AZURE_CLIENT_ID and its secret."
        raise StoreError(msg, found=first_line(exc), next_step=step) from exc


@cache
def _credential() -> Any:  # noqa: ANN401  # the type is an extra's
    """Make the one that keeps its tokens."""
    with needed("fabric", "azure-identity", StoreError):
        from azure.identity import DefaultAzureCredential
    return DefaultAzureCredential()
