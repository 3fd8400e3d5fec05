"""One door to where files lie: a local folder or an object store, behind the same few verbs.

In: a path or URL. Out: a `Store`, whose paths are relative to that root and use "/". Promises:
`put` replaces a file as a whole, `put_new` writes a file as a whole or not at all and says which,
both are on disk when they return; listings are sorted by name. Everything that talks to Spark
(`uri`) or to pyarrow (`open_file`) starts from the same root.

The local listing is ours, not obstore's: its local store omits names such as ``x.parquet#123`` and
fails a whole listing on one odd name.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import io
import os
import secrets
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast
from urllib.parse import unquote, urlsplit

import obstore
import obstore.store
from obstore.exceptions import AlreadyExistsError

from mirrorlib.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Buffer


_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file as a listing shows it.

    Attributes:
        path: relative to the store's root.
        size: bytes.
        modified: aware UTC.
        etag: what the store says identifies this content; changes when the file is replaced.

    """

    path: str
    size: int
    modified: datetime
    etag: str

    @property
    def name(self) -> str:
        """Return the last segment of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """One level of a listing: the names of its folders and its files, each sorted by name."""

    folders: tuple[str, ...]
    files: tuple[StoredFile, ...]


class Store(Protocol):
    """What mirrorlib asks of a place that holds files. All paths are relative to `url`; `""` is the root."""

    @property
    def url(self) -> str:
        """Return the root, as recorded in the journal."""

    def list_folder(self, folder: str) -> Folder | None:
        """List one level, sorted by name; None when there is no such folder."""

    def first_names(self, folder: str, count: int) -> tuple[str, ...]:
        """Return the first *count* file names of a folder in byte order, listing no more where the store can."""

    def stat(self, path: str) -> StoredFile | None:
        """Return the file at *path*, None when there is none."""

    def read(self, path: str) -> bytes | None:
        """Return the whole file, None when there is none."""

    def open_file(self, path: str) -> BinaryIO:
        """Open the file at *path* for reading at random places."""

    def open_new(self, path: str) -> BinaryIO:
        """Open a file for writing piece by piece; what it holds counts only once it is closed."""

    def put(self, path: str, data: bytes) -> None:
        """Write the file, replacing what is there as a whole."""

    def put_new(self, path: str, data: bytes) -> bool:
        """Write the file unless there is one already; False when there was."""

    def move_new(self, source: str, target: str, data: bytes | None = None) -> bool:
        """Give a file another name unless that is taken; False when it is, or when there is no such file.

        *data* is what the file holds, when that is at hand: not every store can rename.
        """

    def delete(self, path: str) -> None:
        """Remove the file; nothing happens when there is none."""

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with all that is in it; nothing happens when there is none."""

    def uri(self, path: str) -> str:
        """Return what Spark has to be told to read the same file or folder."""


def open_store(url: str, options: Mapping[str, str] | None = None) -> Store:
    """Return the store for a local path, a `file:` URL, or any URL that obstore knows (`s3://`, `abfss://`, `gs://` …).

    Args:
        url: Where the files lie.
        options: What obstore is told of an object store beside its URL: credentials, an endpoint.

    Raises:
        StoreError: the URL's scheme is not known.

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
        raise StoreError(
            msg, found=str(exc), next_step="use a local path or a URL of s3, abfss, gs or file"
        ) from exc


class LocalStore:
    """Files below a local folder, FUSE mounts included; put-if-absent by a hard link, as POSIX makes it atomic."""

    def __init__(self, root: Path) -> None:
        """Take *root* as it is; it need not exist yet."""
        self._root = Path(os.path.abspath(root.expanduser()))  # noqa: PTH100  # resolve() would follow links, which may change

    @property
    def url(self) -> str:
        """Return the absolute path."""
        return str(self._root)

    def list_folder(self, folder: str) -> Folder | None:
        """List one level with one system call per file, sorted by name."""
        with _told("list", self._path(folder)):
            try:
                with os.scandir(self._path(folder)) as entries:
                    found = sorted(entries, key=lambda entry: entry.name)
            except (FileNotFoundError, NotADirectoryError):
                return None
            folders = tuple(entry.name for entry in found if _is_folder(entry))
            files = [
                self._stored(f"{folder}/{entry.name}".lstrip("/"), entry)
                for entry in found
                if not _is_folder(entry)
            ]
            return Folder(folders=folders, files=tuple(file for file in files if file is not None))

    def first_names(self, folder: str, count: int) -> tuple[str, ...]:
        """Pick the smallest names; drafts of `put` are left out."""
        with _told("list", self._path(folder)):
            try:
                names = os.listdir(self._path(folder))  # noqa: PTH208  # names only, thousands of them
            except (FileNotFoundError, NotADirectoryError):
                return ()
            return tuple(
                heapq.nsmallest(count, (name for name in names if not name.startswith(".")))
            )

    def stat(self, path: str) -> StoredFile | None:
        """Return the file's size, time and identity."""
        return self._stored(path, self._path(path))

    def read(self, path: str) -> bytes | None:
        """Return the whole file, None when there is none."""
        with _told("read", self._path(path)):
            try:
                return self._path(path).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def open_file(self, path: str) -> BinaryIO:
        """Open the file; the operating system reads what is asked for."""
        with _told("open", self._path(path)):
            return _told_file(self._path(path).open("rb"), self._path(path))

    def open_new(self, path: str) -> BinaryIO:
        """Open the file itself: only its writer knows its name before it is closed."""
        with _told("write", self._path(path)):
            self._path(path).parent.mkdir(parents=True, exist_ok=True)
            return self._path(path).open("wb")

    def put(self, path: str, data: bytes) -> None:
        """Write beside, flush, rename."""
        with self._written(path, data) as draft:
            draft.replace(self._path(path))

    def put_new(self, path: str, data: bytes) -> bool:
        """Write beside, flush, link: the link is made only where no name is."""
        with self._written(path, data) as draft:
            try:
                os.link(draft, self._path(path))
            except FileExistsError:
                return False
            return True

    def move_new(self, source: str, target: str, data: bytes | None = None) -> bool:
        """Link the new name, then remove the old one; a crash in between leaves both."""
        del data
        old, new = self._path(source), self._path(target)
        with _told("write", new):
            new.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(old, new)
            except (FileExistsError, FileNotFoundError):
                return False
            _flush_folder(new.parent)
            old.unlink(missing_ok=True)
            return True

    def delete(self, path: str) -> None:
        """Remove the file; nothing happens when there is none."""
        with _told("delete", self._path(path)):
            self._path(path).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        """Remove the tree."""
        with _told("delete", self._path(folder)), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._path(folder))

    def uri(self, path: str) -> str:
        """Return the absolute path: Hadoop takes it literally, while a `file:` URL would be decoded."""
        return str(self._path(path))

    def _path(self, path: str) -> Path:
        return self._root / path if path else self._root

    @contextlib.contextmanager
    def _written(self, path: str, data: bytes) -> Iterator[Path]:
        final = self._path(path)
        draft = final.with_name(f".{secrets.token_hex(8)}.tmp")
        with _told("write", final):
            final.parent.mkdir(parents=True, exist_ok=True)
            try:
                with draft.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                yield draft
            finally:
                draft.unlink(missing_ok=True)
            _flush_folder(final.parent)

    def _stored(self, path: str, entry: os.DirEntry[str] | Path) -> StoredFile | None:
        with _told("look at", entry):
            try:
                stat = entry.stat()
            except OSError as exc:
                if exc.errno in _NO_FILE:  # removed since it was listed, or a link to nowhere
                    return None
                raise
            return StoredFile(
                path=path,
                size=stat.st_size,
                modified=datetime.fromtimestamp(stat.st_mtime, UTC),
                etag=f"{stat.st_ino:x}-{stat.st_mtime_ns:x}-{stat.st_size:x}",
            )


class ObjectStore:
    """Files in an object store, through obstore; put-if-absent is the store's own conditional put."""

    def __init__(self, url: str, store: obstore.store.ObjectStore) -> None:
        """Take an obstore store whose prefix is the root that *url* names."""
        self._url = url.rstrip("/")
        self._store = store

    @property
    def url(self) -> str:
        """Return the URL without a slash at its end."""
        return self._url

    def list_folder(self, folder: str) -> Folder | None:
        """List one level with as many requests as the store has pages."""
        with _told("list", f"{self._url}/{folder}"):
            result = obstore.list_with_delimiter(self._store, prefix=folder or None)
            files = tuple(
                sorted((_listed(meta) for meta in result["objects"]), key=lambda file: file.path)
            )
            folders = tuple(
                sorted(
                    prefix.rstrip("/").rpartition("/")[2] for prefix in result["common_prefixes"]
                )
            )
            return Folder(folders=folders, files=files) if files or folders else None

    def first_names(self, folder: str, count: int) -> tuple[str, ...]:
        """Read one page: object stores list in byte order."""
        with _told("list", f"{self._url}/{folder}"):
            page = next(
                iter(obstore.list(self._store, prefix=folder, chunk_size=max(count, 50))), []
            )
            return tuple(sorted(meta["path"].rpartition("/")[2] for meta in page)[:count])

    def stat(self, path: str) -> StoredFile | None:
        """Return the object's size, time and identity, by one HEAD request."""
        with _told("look at", f"{self._url}/{path}"):
            try:
                return _listed(obstore.head(self._store, path))
            except FileNotFoundError:
                return None

    def read(self, path: str) -> bytes | None:
        """Return the whole object, None when there is none."""
        with _told("read", f"{self._url}/{path}"):
            try:
                return obstore.get(self._store, path).bytes().to_bytes()
            except FileNotFoundError:
                return None

    def open_file(self, path: str) -> BinaryIO:
        """Open the object; ranges are fetched as they are asked for."""
        with _told("open", f"{self._url}/{path}"):
            file = cast("BinaryIO", obstore.open_reader(self._store, path))
            return _told_file(file, f"{self._url}/{path}")

    def open_new(self, path: str) -> BinaryIO:
        """Upload in parts; the object appears when the file is closed."""
        with _told("write", f"{self._url}/{path}"):
            file = cast("BinaryIO", obstore.open_writer(self._store, path))
            return cast("BinaryIO", _Upload(file, f"{self._url}/{path}"))

    def put(self, path: str, data: bytes) -> None:
        """Write the object, replacing what is there."""
        with _told("write", f"{self._url}/{path}"):
            obstore.put(self._store, path, data, mode="overwrite")

    def put_new(self, path: str, data: bytes) -> bool:
        """Write the object under the condition that there is none."""
        with _told("write", f"{self._url}/{path}"):
            try:
                obstore.put(self._store, path, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    def move_new(self, source: str, target: str, data: bytes | None = None) -> bool:
        """Write the object under its new name, then remove the old one: no store renames if absent everywhere."""
        content = self.read(source) if data is None else data
        if content is None or not self.put_new(target, content):
            return False
        self.delete(source)
        return True

    def delete(self, path: str) -> None:
        """Remove the object; nothing happens when there is none."""
        with _told("delete", f"{self._url}/{path}"), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, path)

    def delete_folder(self, folder: str) -> None:
        """Remove every object below the prefix, a page at a time."""
        with _told("delete", f"{self._url}/{folder}"):
            for page in obstore.list(self._store, prefix=folder):
                obstore.delete(self._store, [meta["path"] for meta in page])

    def uri(self, path: str) -> str:
        """Return the URL that Spark's own connectors know; S3's is `s3a`."""
        url = f"s3a{self._url[2:]}" if self._url.startswith("s3://") else self._url
        return f"{url}/{path}" if path else url


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Say whether an entry is a folder; a link in a circle is none, and no reason to list nothing."""
    try:
        return entry.is_dir()
    except OSError:
        return False


class _ToldFile(io.RawIOBase):
    """A file whose reads fail as the store's own calls do: a lost connection is no damaged file."""

    def __init__(self, file: BinaryIO, place: object) -> None:
        self._file = file
        self._place = place

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        with _told("read", self._place):
            return bytes(self._file.read() if size < 0 else self._file.read(size))

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        with _told("read", self._place):
            return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


class _Upload(io.RawIOBase):
    """An object under way, as a Python file: obstore's own writer lacks what pyarrow asks for."""

    def __init__(self, file: BinaryIO, place: object) -> None:
        self._file = file
        self._place = place

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        with _told("write", self._place):
            self._file.write(data)
        return memoryview(data).nbytes

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _told("write", self._place):
                self._file.close()


def _told_file(file: BinaryIO, place: object) -> BinaryIO:
    return cast("BinaryIO", _ToldFile(file, place))


def _listed(meta: obstore.ObjectMeta) -> StoredFile:
    modified = meta["last_modified"]
    etag = meta.get("e_tag") or f"{modified.timestamp()}-{meta['size']}"
    return StoredFile(path=meta["path"], size=meta["size"], modified=modified, etag=etag)


@contextlib.contextmanager
def _told(verb: str, place: object) -> Iterator[None]:
    """Turn what a store raises into one kind of error that names the place."""
    try:
        yield
    except (OSError, obstore.exceptions.BaseError) as exc:
        msg = f"cannot {verb} {os.fspath(place) if isinstance(place, os.PathLike) else place}"
        raise StoreError(
            msg,
            found=str(exc),
            next_step="see that the place is reachable and may be read and written",
        ) from exc


def _flush_folder(folder: Path) -> None:
    """Make a rename or link survive a power cut; not every mount lets a folder be flushed."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
