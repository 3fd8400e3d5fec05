"""One door to where files lie: a local folder or an object store, behind the same few verbs.

In: a path or URL. Out: a `Store`, whose paths are relative to that root and use "/". Promise: what `put` and `put_new`
write is on disk when they return.
"""

from __future__ import annotations

from mirrorlib.store.local import LocalStore
from mirrorlib.store.objects import ObjectStore
from mirrorlib.store.open import PathOrUrl, copy_file, lend_azure_token, open_store
from mirrorlib.store.protocol import Folder, LentFile, Store, StoredFile, contents, keeps_out

__all__ = [
    "Folder",
    "LentFile",
    "LocalStore",
    "ObjectStore",
    "PathOrUrl",
    "Store",
    "StoredFile",
    "contents",
    "copy_file",
    "keeps_out",
    "lend_azure_token",
    "open_store",
]
