"""Say what becomes of a test whose server cannot be had: it is left out, or it fails where the server was promised.

`MIRRORLIB_SERVERS` names, with blanks in between, the servers that a machine promises to have: `postgresql`,
`kafka`, `azurite`, `chromium`, a browser.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import NoReturn

import pytest

PROMISED = "MIRRORLIB_SERVERS"


_CLIENTS = {"chromium": "playwright", "kafka": "confluent_kafka", "postgresql": "psycopg"}


def lack(server: str, reason: str) -> NoReturn:
    """Leave a test out, or let it fail where its server was promised."""
    if server in _promised():
        pytest.fail(f"{PROMISED} promises {server}: {reason}", pytrace=False)
    pytest.skip(f"{server}: {reason}")


def check_clients() -> None:
    """See that the Python clients of promised servers are installed: tests are left out where they are not."""
    for server in _promised():
        module = _CLIENTS.get(server)
        if module is not None and find_spec(module) is None:
            msg = f"{PROMISED} promises {server}, and {module} is not installed"
            raise pytest.UsageError(msg)


def _promised() -> list[str]:
    return os.environ.get(PROMISED, "").split()
