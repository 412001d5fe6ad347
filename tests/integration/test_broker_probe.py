"""The probe ends in time with the right error, whatever listens at the address."""

from __future__ import annotations

import time

import pytest

from pykclient.errors.base import (
    ConnectionFailedError,
    DecodeError,
    DisconnectedError,
    FrameTooLargeError,
    UnsupportedVersionError,
)
from pykclient.testing.cluster.probe import fetch_metadata
from pykclient.testing.port import Address
from tests.integration.loopback_server import (
    Behaviour,
    LoopbackServer,
    hangs_up,
    is_kafka_before_2_1,
    is_silent,
    sends_random_bytes,
    speaks_http,
    unused_address,
)

TIMEOUT_S = 20.0


def address_of(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port))


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (hangs_up, DisconnectedError),
        # Read as a size, "HTTP" is about 1.2 GB.
        (speaks_http, FrameTooLargeError),
        (sends_random_bytes, DecodeError),
        (is_kafka_before_2_1, UnsupportedVersionError),
    ],
)
def test_what_is_no_kafka_of_ours_is_named(behaviour: Behaviour, error: type[Exception]) -> None:
    with LoopbackServer(behaviour) as server, pytest.raises(error):
        fetch_metadata(address_of(server.address), timeout=TIMEOUT_S)


def test_a_port_where_nobody_listens_is_named() -> None:
    unused = unused_address()
    with pytest.raises(ConnectionFailedError, match=f"the broker at {unused}"):
        fetch_metadata(address_of(unused), timeout=TIMEOUT_S)


def test_silence_ends_in_time() -> None:
    with LoopbackServer(is_silent) as server:
        before_s = time.monotonic()
        with pytest.raises(ConnectionFailedError):
            fetch_metadata(address_of(server.address), timeout=0.2)
        assert time.monotonic() - before_s < TIMEOUT_S
