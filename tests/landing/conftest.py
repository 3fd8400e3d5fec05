"""What tests of landing zones are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirrorlib.errors import StoreError
from mirrorlib.store import Folder, LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def close_folder(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a folder be one that nobody may list, as root may list all."""

    def close(closed: str) -> None:
        real = LocalStore.list_folder

        def list_folder(store: LocalStore, folder: str) -> Folder | None:
            if folder == closed:
                msg = "permission denied"
                raise StoreError(msg)
            return real(store, folder)

        monkeypatch.setattr(LocalStore, "list_folder", list_folder)

    return close
