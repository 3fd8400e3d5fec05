"""Tests whose server is missing are not left out in silence where it was promised."""

from __future__ import annotations

import pytest

import servers


def test_what_is_promised_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure says what is missing; a machine that promises nothing leaves such tests out."""
    monkeypatch.setenv(servers.PROMISED, "postgresql kafka")
    with pytest.raises(pytest.fail.Exception, match="promises kafka: it cannot be fetched"):
        servers.lack("kafka", "it cannot be fetched")
    with pytest.raises(pytest.skip.Exception, match="azurite: npm install it"):
        servers.lack("azurite", "npm install it")
    monkeypatch.setitem(servers._CLIENTS, "kafka", "no_such_module")
    with pytest.raises(pytest.UsageError, match="no_such_module is not installed"):
        servers.check_clients()
    monkeypatch.delenv(servers.PROMISED)
    servers.check_clients()
    with pytest.raises(pytest.skip.Exception):
        servers.lack("kafka", "it cannot be fetched")
