"""One door to where files lie: a local folder or an object store, behind the same few verbs.

In: a path or URL. Out: a `Store`, whose paths are relative to that root and use "/". Promises:
`put` replaces a file as a whole, `put_new` writes a file as a whole or not at all and says which,
both are on disk when they return; listings are sorted by name. Everything that talks to Spark
(`uri`) or to pyarrow (`open_file`) starts from the same root.
"""

from __future__ import annotations

from mirrorlib.store.local import LocalStore
from mirrorlib.store.objects import ObjectStore
from mirrorlib.store.open import PathOrUrl, copy_file, lend_azure_token, open_store
from mirrorlib.store.protocol import Folder, LentFile, Store, StoredFile, contents, has_no_put_new

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
    "has_no_put_new",
    "lend_azure_token",
    "open_store",
]
