"""A peer that disconnects on ApiVersions is sent an older version, which is remembered."""

from __future__ import annotations

import pytest

from pykclient.network.broker.fallback import (
    ADDRESSES_MAX,
    KEPT_MS,
    NEWEST,
    ApiVersionsFallback,
)
from pykclient.protocol.api_keys import ApiKey
from tests.network.scripted_network import BOOTSTRAP, ScriptedNetwork
from tests.network.scripted_port import ALL_RANGES

ADDRESS = ("proxy", 9092)
OTHER = ("broker", 9092)
NOW_MS = 1_000


def hung_up(*versions: int) -> ApiVersionsFallback:
    """Return a fallback after a peer has disconnected on these versions."""
    fallback = ApiVersionsFallback()
    for version in versions:
        assert fallback.version(ADDRESS, NOW_MS) == version
        fallback.on_hung_up(ADDRESS, version)
    return fallback


def test_older_versions_are_tried_in_turn_and_then_the_newest_again() -> None:
    fallback = hung_up(NEWEST, 3, 0, NEWEST)
    assert fallback.version(ADDRESS, NOW_MS) == 3
    assert fallback.version(OTHER, NOW_MS) == NEWEST


@pytest.mark.parametrize("listed_max", [0, NEWEST - 1])
def test_the_version_that_works_stays_where_the_peer_lists_no_newer_one(listed_max: int) -> None:
    fallback = hung_up(NEWEST)
    fallback.on_accepted(ADDRESS, listed_max, NOW_MS)
    assert fallback.version(ADDRESS, NOW_MS + 10 * KEPT_MS) == 3


def test_a_newer_version_that_is_listed_is_tried_again_after_a_while() -> None:
    fallback = hung_up(NEWEST)
    fallback.on_accepted(ADDRESS, NEWEST, NOW_MS)
    assert fallback.version(ADDRESS, NOW_MS + KEPT_MS - 1) == 3
    assert fallback.version(ADDRESS, NOW_MS + KEPT_MS) == NEWEST


def test_an_address_that_never_hung_up_is_not_remembered() -> None:
    fallback = ApiVersionsFallback()
    fallback.on_accepted(ADDRESS, 0, NOW_MS)
    assert fallback.version(ADDRESS, NOW_MS) == NEWEST


def test_addresses_are_bounded() -> None:
    fallback = ApiVersionsFallback()
    for number in range(ADDRESSES_MAX + 1):
        fallback.on_hung_up(("proxy", number), NEWEST)
    assert fallback.version(("proxy", 0), NOW_MS) == NEWEST
    assert fallback.version(("proxy", 1), NOW_MS) == 3


# In the client.


def test_a_peer_that_hangs_up_is_sent_version_3_then_0() -> None:
    network = ScriptedNetwork()
    network.send()
    for version in (NEWEST, 3, 0):
        network.turn(1_000)
        peer = network.port.peers[-1]
        peer.accept()
        network.turn()
        assert peer.requests[0].header.api_version == version
        if version:
            peer.hang_up()
            network.turn()
            # It has not yet failed with all versions: that is no failure to reach it.
            assert network.client.last_error(BOOTSTRAP[0].id) is None
            # A call that ends meanwhile reports it, as there may be no time for all versions.
            assert "hung up during the Kafka handshake" in network.client.describe_failures()
    peer.respond_versions({**ALL_RANGES, int(ApiKey.API_VERSIONS): (0, 0)})
    network.turn()
    assert network.client.is_ready(BOOTSTRAP[0].id, network.now_ms)
    assert "hung up" not in network.client.describe_failures()
    peer.hang_up()
    network.turn()
    network.send()
    network.turn(1_000)
    network.turn(1_000)
    assert network.peer is not peer
    network.peer.accept()
    network.turn()
    assert network.peer.requests[0].header.api_version == 0


def test_a_peer_that_hangs_up_before_anything_was_sent_is_sent_the_newest() -> None:
    network = ScriptedNetwork()
    network.send()
    network.turn()
    network.port.peers[-1].hang_up()
    network.turn(1_000)
    network.turn(1_000)
    peer = network.port.peers[-1]
    peer.accept()
    network.turn()
    assert peer.requests[0].header.api_version == NEWEST
