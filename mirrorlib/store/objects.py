"""Files in an object store: S3, Azure, Google Cloud, and whatever else obstore knows.

obstore repeats a request that met a lost connection, a 5xx or "too many requests", within the bounds
that `open` states. Here the few calls are repeated whose broken answer it takes for the last word.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import BinaryIO, TypeVar, cast

import obstore
import obstore.store
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError

from mirrorlib.store.protocol import (
    Folder,
    Store,
    StoredFile,
    check_size,
    translated,
    translated_file,
    tries,
    write_new,
)

_T = TypeVar("_T")
_REPEATS = 3
_PATIENCE = 120.0  # seconds after which nothing is repeated any more
_PAGE = 1000  # objects: as many as one request lists, or removes
_END = 1024  # bytes of a copy that are looked at


# Azure is not among them: accounts with a hierarchical namespace list in another order, and nothing in
# a URL tells them. Nor are S3's directory buckets, which list in no order.
_SEEKING = (obstore.store.S3Store, obstore.store.GCSStore, obstore.store.MemoryStore)


class ObjectStore(Store):
    """Files in an object store, through obstore; put-if-absent is the store's own conditional put."""

    at_once = 16

    def __init__(
        self,
        url: str,
        store: obstore.store.ObjectStore,
        delete: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        """Take an obstore store whose prefix is the root that *url* names, and what deletes where obstore cannot."""
        self.url = url.rstrip("/")
        self._store = store
        self._delete = delete or partial(obstore.delete, store)
        bucket = self.url.partition("://")[2].partition("/")[0]
        # Whether the store lists in byte order from a name on, as far as it has shown.
        self.seeks = isinstance(store, _SEEKING) and not bucket.endswith("--x-s3")

    def list_folder(self, folder: str) -> Folder | None:
        """List one level with as many requests as the store has pages."""
        with translated("list", f"{self.url}/{folder}"):
            prefix = folder or None
            result = _repeated(lambda: obstore.list_with_delimiter(self._store, prefix=prefix))
            found = [_listed(meta) for meta in result["objects"]]
            # The folder itself, which consoles and Hadoop make an object of no bytes for, is none of its files.
            files = sorted((f for f in found if f.path != folder), key=lambda file: file.path)
            inner = (path.rstrip("/") for path in result["common_prefixes"])
            folders = sorted(path.rpartition("/")[2] for path in inner)
            there = found or folders
            return Folder(folders=tuple(folders), files=tuple(files)) if there else None

    def files_after(
        self, folder: str, name: str, *, before: str = "", count: int | None = None
    ) -> tuple[StoredFile, ...] | None:
        """Read pages from *name* on, and believe them only as long as they come in order."""
        if not self.seeks:
            return None
        with translated("list", f"{self.url}/{folder}"):
            return _repeated(lambda: self._read_after(folder, name, before, count))

    def _read_after(
        self, folder: str, name: str, before: str, count: int | None
    ) -> tuple[StoredFile, ...] | None:
        place = f"{folder}/" if folder else ""
        found: list[StoredFile] = []
        last = name
        for page in obstore.list(self._store, prefix=folder or None, offset=f"{place}{name}"):
            beyond = False
            for meta in page:  # to its end: what comes behind may show that there is no order
                below = meta["path"].removeprefix(place)
                if below <= last:
                    self.seeks = False
                    return None
                last = below
                beyond = beyond or bool(before and below >= before) or len(found) == count
                if not beyond and "/" not in below:
                    found.append(_listed(meta))
            if beyond:
                break
        return tuple(found)

    def first_names(self, folder: str, count: int) -> tuple[str, ...]:
        """Read one page, as object stores list in byte order; all of a store that is known not to."""
        if isinstance(self._store, _SEEKING) and not self.seeks:
            return super().first_names(folder, count)
        with translated("list", f"{self.url}/{folder}"):
            size = max(count, 50)
            page = _repeated(
                lambda: next(iter(obstore.list(self._store, prefix=folder, chunk_size=size)), [])
            )
            paths = sorted(meta["path"] for meta in page if meta["path"] != folder)
            return tuple(path.rpartition("/")[2] for path in paths[:count])

    def stat(self, path: str) -> StoredFile | None:
        """Return the object's size, time and identity, by one HEAD request."""
        with translated("look at", f"{self.url}/{path}"), contextlib.suppress(FileNotFoundError):
            return _listed(obstore.head(self._store, path))
        return None

    def read(self, path: str, *, most: int | None = None) -> bytes | None:
        """Return the whole object, None when there is none."""
        with translated("read", f"{self.url}/{path}"), contextlib.suppress(FileNotFoundError):
            found = obstore.get(self._store, path)
            check_size(found.meta["size"], most, f"{self.url}/{path}")
            return found.bytes().to_bytes()
        return None

    def open_file(self, path: str) -> BinaryIO:
        """Open the object; ranges are fetched as they are asked for."""
        with translated("open", f"{self.url}/{path}"):
            file = cast("BinaryIO", obstore.open_reader(self._store, path))
            return translated_file(file, "read", f"{self.url}/{path}")

    def open_new(self, path: str) -> BinaryIO:
        """Upload in parts; the object appears when the file is closed."""
        with translated("write", f"{self.url}/{path}"):
            file = cast("BinaryIO", obstore.open_writer(self._store, path))
            return translated_file(file, "write", f"{self.url}/{path}")

    def put(self, path: str, data: bytes) -> None:
        """Write the object, replacing what is there."""
        with translated("write", f"{self.url}/{path}"):
            obstore.put(self._store, path, data, mode="overwrite")

    def put_new(self, path: str, data: bytes) -> bool:
        """Write the object under the condition that there is none."""
        with translated("write", f"{self.url}/{path}"):
            write = partial(
                obstore.put, self._store, path, data, mode="create", use_multipart=False
            )
            return write_new(write, AlreadyExistsError, partial(self.stat, path), _PATIENCE)

    def copy(self, source: str, target: str) -> bool:
        """Let the store copy the object; Azure may answer before it has, or fail to, and obstore does not tell."""
        azure = isinstance(self._store, obstore.store.AzureStore)
        with translated("write", f"{self.url}/{target}"):
            try:
                end = self._end_of(source) if azure else None
                _repeated(lambda: obstore.copy(self._store, source, target))
            except FileNotFoundError:  # removed since it was listed
                return False
            if not azure:
                return True
            for _ in tries(_PATIENCE):
                with contextlib.suppress(FileNotFoundError, GenericError):
                    if self._end_of(target) == end:
                        return True
        self.delete(target)
        return False

    def _end_of(self, path: str) -> tuple[int, bytes]:
        """Return the object's size and its last bytes: what is told of a copy may be there before these are."""
        size = obstore.head(self._store, path)["size"]
        if size == 0:
            return 0, b""
        last = obstore.get_range(self._store, path, start=max(0, size - _END), end=size)
        return size, bytes(last)

    def delete(self, path: str) -> None:
        """Remove the object; nothing happens when there is none."""
        with translated("delete", f"{self.url}/{path}"), contextlib.suppress(FileNotFoundError):
            _repeated(lambda: self._delete([path]))

    def delete_folder(self, folder: str) -> None:
        """Remove every object below the prefix, a page at a time; and directories, which some Azure accounts have."""
        with translated("delete", f"{self.url}/{folder}"):
            _repeated(lambda: self._delete_below(folder))
        if folder and isinstance(self._store, obstore.store.AzureStore):
            self._delete_directories(folder)

    def _delete_below(self, folder: str) -> None:
        for page in obstore.list(self._store, prefix=folder, chunk_size=_PAGE):
            paths = [meta["path"] for meta in page]
            try:
                self._delete(paths)
            except FileNotFoundError:
                # Another was first; or it is Hadoop's stand-in for a folder, whose name has a slash behind.
                for path in paths:
                    self.delete(path)

    def _delete_directories(self, folder: str) -> None:
        """Remove directories, innermost first: they would be listed for ever, each as one that is to be removed."""
        with contextlib.suppress(BaseError, OSError):  # one that is filled meanwhile stays
            found = obstore.list_with_delimiter(self._store, prefix=folder)
            for inner in found["common_prefixes"]:
                self._delete_directories(inner)
            self._delete([folder])

    def uri(self, path: str) -> str:
        """Return the URL that Spark's own connectors know; S3's is `s3a`."""
        url = f"s3a{self.url[2:]}" if self.url.startswith("s3://") else self.url
        return f"{url}/{path}" if path else url


def _repeated(call: Callable[[], _T]) -> _T:
    """Make a call that does no harm when it is made again, a few times while it fails."""
    begun = time.monotonic()
    for _ in range(_REPEATS - 1):
        try:
            return call()
        except GenericError:
            if time.monotonic() - begun > _PATIENCE:
                raise
    return call()


def _listed(meta: obstore.ObjectMeta) -> StoredFile:
    modified = meta["last_modified"]
    etag = meta.get("e_tag")
    if etag is None:
        etag = f"{modified.timestamp()}-{meta['size']}"
    elif not etag.endswith('"'):  # Azure quotes it in a HEAD's answer, and not in a listing
        etag = f'"{etag}"'
    return StoredFile(path=meta["path"], size=meta["size"], modified=modified, etag=etag)
