"""Reach a Databricks Unity Catalog volume, from inside or outside a workspace, through databricks-sdk's Files API.

In: `dbfs:/Volumes/catalog/schema/volume/…` (or `volumes:/Volumes/…`) and what the SDK's client takes:
host, token, profile …; without any, its own configuration and environment. Out: a `Store`. Promises:
put-if-absent is the API's own (`overwrite=false`); the API cannot rename, so moving is writing once
more. The SDK is in the extra `databricks`, and is imported when a volume is opened.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, BinaryIO, cast

from mirrorlib.errors import StoreError, first_line
from mirrorlib.extras import how_to_install, needed
from mirrorlib.store.protocol import (
    Folder,
    Store,
    StoredFile,
    check_size,
    contents,
    translated,
    write_new,
)

_OLDEST = 0, 38  # an SDK before it uploads an empty file where it repeats a request
_PATIENCE = 10.0  # seconds
_VOLUME = re.compile(r"(dbfs|volumes):/*(?P<path>Volumes/.*)", re.DOTALL)


def is_volume(url: str) -> bool:
    """Tell whether a URL names a volume; the bare path `/Volumes/…` is a local mount."""
    return _VOLUME.fullmatch(url) is not None


def open_volume(url: str, options: Mapping[str, str] | None = None) -> Store:
    """Open a folder of a volume."""
    with needed("databricks", "databricks-sdk", StoreError):
        from databricks.sdk import WorkspaceClient, version
    if tuple(map(int, version.__version__.split(".")[:2])) < _OLDEST:
        msg, step = "the Python package databricks-sdk is too old", how_to_install("databricks")
        raise StoreError(msg, found=version.__version__, next_step=step)
    more: dict[str, Any] = dict(options or {})
    try:
        client = WorkspaceClient(**more)
    except ValueError as exc:  # what the SDK raises for a configuration that is not enough
        msg = f"cannot open {url}"
        step = "Set DATABRICKS_HOST and DATABRICKS_TOKEN, or give host and token."
        raise StoreError(msg, found=first_line(exc, 400), next_step=step) from exc
    path = _VOLUME.sub(r"/\g<path>", url)
    return VolumeStore(path.rstrip("/"), client.files)


class VolumeStore(Store):
    """Files in a Databricks volume; every call is one of the Files API."""

    at_once = 2  # no more, as each is in memory as a whole

    def __init__(self, root: str, files: Any) -> None:  # noqa: ANN401  # the SDK's type is an extra's
        """Take the folder's path, `/Volumes/…`, and the client's `files`."""
        from databricks.sdk import errors

        self.url = f"dbfs:{root}"
        self._root = root
        self._files = files
        self._errors: Any = errors

    def list_folder(self, folder: str) -> Folder | None:
        """List one level, as many requests as the API has pages."""
        folders, files = [], []
        with translated("list", f"{self.url}/{folder}"), suppress(self._errors.NotFound):
            entries = self._files.list_directory_contents(self._path(folder))
            for entry in sorted(entries, key=lambda entry: str(entry.name)):
                if entry.is_directory:
                    folders.append(entry.name)
                else:
                    path = f"{folder}/{entry.name}".lstrip("/")
                    modified = datetime.fromtimestamp((entry.last_modified or 0) / 1000, UTC)
                    files.append(_stored(path, int(entry.file_size or 0), modified))
            return Folder(folders=tuple(folders), files=tuple(files))
        return None

    def stat(self, path: str) -> StoredFile | None:
        """Return the file's size and time, by one HEAD request."""
        with translated("look at", f"{self.url}/{path}"), suppress(self._errors.NotFound):
            found = self._files.get_metadata(self._path(path))
            modified = parsedate_to_datetime(found.last_modified)
            return _stored(path, int(found.content_length), modified)
        return None

    def read(self, path: str, *, most: int | None = None) -> bytes | None:
        """Return the whole file, None when there is none."""
        with translated("read", f"{self.url}/{path}"), suppress(self._errors.NotFound):
            found = self._files.download(self._path(path))
            with closing(found.contents) as body:
                check_size(found.content_length, most, self._path(path))
                return bytes(body.read())
        return None

    def open_file(self, path: str) -> BinaryIO:
        """Read the whole file and open that."""
        data = self.read(path)
        if data is None:
            msg = f"cannot open {self._path(path)}"
            raise StoreError(msg, found="no such file")
        return io.BytesIO(data)

    def open_new(self, path: str) -> BinaryIO:
        """Collect what is written; the file appears when it is closed."""
        return cast("BinaryIO", _Upload(self, path))

    def put(self, path: str, data: bytes) -> None:
        """Write the file, replacing what is there."""
        with translated("write", f"{self.url}/{path}"):
            self._upload(path, data, overwrite=True)

    def put_new(self, path: str, data: bytes) -> bool:
        """Write the file under the condition that there is none."""
        with translated("write", f"{self.url}/{path}"):
            upload = partial(self._upload, path, data, overwrite=False)
            conflict = self._errors.ResourceConflict
            return write_new(upload, conflict, partial(self.stat, path), _PATIENCE)

    def delete(self, path: str) -> None:
        """Remove the file; nothing happens when there is none."""
        with translated("delete", f"{self.url}/{path}"), suppress(self._errors.NotFound):
            self._files.delete(self._path(path))

    def delete_folder(self, folder: str) -> None:
        """Remove the tree, the innermost files first."""
        listed = contents(self, folder)
        for inner in listed.folders:
            self.delete_folder(f"{folder}/{inner}".lstrip("/"))
        for file in listed.files:
            self.delete(file.path)
        with translated("delete", f"{self.url}/{folder}"), suppress(self._errors.NotFound):
            self._files.delete_directory(self._path(folder))

    def uri(self, path: str) -> str:
        """Return the path that a cluster's Spark knows."""
        return self._path(path)

    def _upload(self, path: str, data: bytes, *, overwrite: bool) -> None:
        """Upload; the folder is made when the API says that it is missing."""
        place = self._path(path)
        try:
            self._files.upload(place, io.BytesIO(data), overwrite=overwrite)
        except self._errors.NotFound:
            self._files.create_directory(place.rpartition("/")[0])
            self._files.upload(place, io.BytesIO(data), overwrite=overwrite)

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


class _Upload(io.BytesIO):
    """A file under way: the API takes it as a whole."""

    def __init__(self, store: VolumeStore, path: str) -> None:
        super().__init__()
        self._store = store
        self._path = path

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._store.put(self._path, data)


def _stored(path: str, size: int, modified: datetime) -> StoredFile:
    """The API tells no identity: size and second of change have to do."""
    etag = f"{int(modified.timestamp())}-{size}"
    return StoredFile(path=path, size=size, modified=modified, etag=etag)
