"""Log messages tell which client they are of."""

from __future__ import annotations

import logging

import pytest

from pykclient.network.client_log import ClientLog


@pytest.mark.parametrize(
    ("client_id", "message"),
    [("", "lost n1: gone"), ("c1", "[c1] lost n1: gone"), ("100%s", "[100s] lost n1: gone")],
)
def test_a_message_begins_with_the_clients_id_if_it_has_one(
    client_id: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    ClientLog("pykclient.network", client_id).warning("lost %s: %s", "n1", "gone")
    (record,) = caplog.records
    assert (record.name, record.getMessage()) == ("pykclient.network", message)
    assert record.__dict__["client_id"] == client_id


def test_a_level_that_is_off_formats_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pykclient.network")
    ClientLog("pykclient.network", "c1").debug("%s", object())
    assert not caplog.records


def test_a_message_without_arguments_begins_with_it_too(caplog: pytest.LogCaptureFixture) -> None:
    ClientLog("pykclient.network", "50%d").warning("closed")
    assert caplog.records[0].getMessage() == "[50d] closed"
