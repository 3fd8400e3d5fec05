"""Delete in OneLake, a request for each file: it refuses the bulk requests by which obstore deletes on Azure.

In: the URL of a place in OneLake, and who lends a bearer token. Out: a function that deletes. Without a lender the
token is that of azure-identity's default: of whoever has signed in, or is named by `AZURE_CLIENT_…`. Source: issue 701
of arrow-rs-object-store; "Delete Blob" of Azure's Blob service.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from mirrorlib.errors import StoreError
from mirrorlib.extras import needed

_AT_ONCE = 16
_REPEATS = 3
_PATIENCE = 30.0  # seconds for one answer, as obstore's
_PASSING = {408, 429, 500, 502, 503, 504}  # answers that another try may not get


def deletes_in_onelake(
    url: str, lent: Callable[[], str] | None
) -> Callable[[Sequence[str]], None] | None:
    """Return what deletes files by their paths below a URL; None where that is not in OneLake."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host.endswith(".fabric.microsoft.com"):
        return None
    folder = "/".join(name for name in (parts.username, parts.path.strip("/")) if name)
    return partial(delete_each, f"https://{host.replace('.dfs.', '.blob.', 1)}/{folder}", lent)


def delete_each(place: str, lent: Callable[[], str] | None, paths: Sequence[str]) -> None:
    """Delete files by their paths below an address of the Blob service; nothing happens for one that is not there.

    Raises:
        StoreError: nobody lends a token, and azure-identity is not installed.
        OSError: a file was not deleted.

    """
    token = (lent or _own_token)()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        urls = (f"{place}/{quote(path)}" for path in paths)
        list(pool.map(partial(_delete, token), urls))


def _delete(token: str, url: str) -> None:
    headers = {"Authorization": f"Bearer {token}", "x-ms-version": "2023-11-03"}
    request = Request(url, method="DELETE", headers=headers)  # noqa: S310  # `deletes_in_onelake` says https
    for _ in range(_REPEATS - 1):
        try:
            return _answered(request)
        except HTTPError as exc:
            if exc.code not in _PASSING:
                raise
        except OSError:  # a lost connection
            continue
    return _answered(request)


def _answered(request: Request) -> None:
    try:
        urlopen(request, timeout=_PATIENCE).close()  # noqa: S310  # as above
    except HTTPError as exc:
        if exc.code != HTTPStatus.NOT_FOUND:
            raise


def _own_token() -> str:
    with needed("fabric", "azure-identity", StoreError):
        from azure.identity import DefaultAzureCredential
    return DefaultAzureCredential().get_token("https://storage.azure.com/.default").token
