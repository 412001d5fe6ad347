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
from pykclient.testing.broker_probe import Address, ask_metadata
from tests.integration.loopback_server import (
    Behaviour,
    KafkaBefore21,
    LoopbackServer,
    hangs_up,
    is_silent,
    sends_random_bytes,
    speaks_http,
    unused_address,
)

TIMEOUT_S = 20.0


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (hangs_up, DisconnectedError),
        # Read as a size, "HTTP" is about 1.2 GB.
        (speaks_http, FrameTooLargeError),
        (sends_random_bytes, DecodeError),
        (KafkaBefore21(), UnsupportedVersionError),
    ],
)
def test_what_is_no_kafka_of_ours_is_named(behaviour: Behaviour, error: type[Exception]) -> None:
    with LoopbackServer(behaviour) as server, pytest.raises(error):
        ask_metadata(Address("127.0.0.1", server.port), timeout=TIMEOUT_S)


def test_a_port_where_nobody_listens_is_named() -> None:
    host, _, port = unused_address().rpartition(":")
    with pytest.raises(ConnectionFailedError, match=f"the broker at {host}:{port}"):
        ask_metadata(Address(host, int(port)), timeout=TIMEOUT_S)


def test_silence_ends_in_time() -> None:
    with LoopbackServer(is_silent) as server:
        before_s = time.monotonic()
        with pytest.raises(ConnectionFailedError):
            ask_metadata(Address("127.0.0.1", server.port), timeout=0.2)
        assert time.monotonic() - before_s < TIMEOUT_S
