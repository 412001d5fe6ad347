"""Fake brokers authenticate their clients as Kafka's own do.

Goal: what an application sees of security on fake brokers holds on real ones. Method: each script
goes to Kafka and to a fake broker that is secured alike, and each step must have the same
result: errors with their messages, lifetimes, closed connections.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from pykclient.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.testing import ClusterSecurity, FakeKafka
from pykclient.testing.fake.authentication import RECEIVE_BYTES_MAX
from tests.integration.conftest import REAUTH_MS, SECURITY
from tests.integration.sasl_line import CLOSED, TIMEOUT_S, Line, bearer, claims_of
from tests.soak import OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing import KafkaCluster

    Cluster = FakeKafka | KafkaCluster
    Script = Callable[["Cluster"], Iterator[object]]

pytestmark = [pytest.mark.kafka, OWN_BROKERS]

USER, PASSWORD = next(iter(SECURITY.users.items()))
OTHER, OTHER_PASSWORD = list(SECURITY.users.items())[1]


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeKafka]:
    """Fake brokers with the same listeners, mechanisms and users as the shared real one."""
    security = ClusterSecurity(
        listeners=SECURITY.listeners, mechanisms=SECURITY.mechanisms, users=SECURITY.users
    )
    with FakeKafka(security=security) as fake:
        yield fake


def line(cluster: Cluster, listener: str = "SASL_PLAINTEXT") -> Line:
    return Line(cluster.client_settings(listener))


def served(line: Line) -> object:
    """Return whether the broker responds to a request that requires authentication."""
    response = line.send(MetadataRequest(topics=[]), MetadataResponse, 9)
    return CLOSED if response is None else len(response.brokers)


def error_of_another_request(line: Line) -> object:
    """Return the result of a request sent instead of a token."""
    response = line.send(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 3)
    return CLOSED if response is None else response.error_code


def good_passwords(cluster: Cluster) -> Iterator[object]:
    for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
        with line(cluster, listener) as one:
            yield from (one.versions(), one.handshake("PLAIN"), one.plain(USER, PASSWORD))
            yield served(one)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            for user, password in SECURITY.users.items():
                with line(cluster, listener) as one:
                    yield one.handshake(mechanism)
                    yield one.scram(mechanism, user, password)
                    yield served(one)


def wrong_passwords(cluster: Cluster) -> Iterator[object]:
    for user in (USER, "mallory"):
        with line(cluster) as one:
            yield from (one.handshake("PLAIN"), one.plain(user, "wrong"), served(one))
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            with line(cluster) as one:
                yield one.handshake(mechanism)
                yield one.scram(mechanism, user, "wrong")
                yield served(one)


def tokens_of_plain_that_are_none(cluster: Cluster) -> Iterator[object]:
    for token in (b"", b"\0\0", b"\0alice\0", b"\0\0secret", b"alice", b"a\0b\0c\0d\0e", b"\xff\0"):
        with line(cluster) as one:
            one.handshake("PLAIN")
            response = one.authenticate(token)
            yield token, response and (response.error_code, response.error_message), served(one)
    with line(cluster) as one:
        yield one.handshake("PLAIN"), one.plain(USER, PASSWORD, authorization=USER)
    with line(cluster) as one:
        yield one.handshake("PLAIN"), one.plain(USER, PASSWORD, authorization="root")


def messages_of_scram_that_are_none(cluster: Cluster) -> Iterator[object]:
    for message in (
        b"",
        b"n,,n=,r=abc",
        b"n,,n=alice",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,a=root,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=mallory,r=abc",
        b"\xff",
    ):
        with line(cluster) as one:
            one.handshake("SCRAM-SHA-256")
            response = one.authenticate(message)
            yield message, response and (response.error_code, response.error_message), served(one)
    for message in (b"", b"c=biws,r=abc,p=AAAA", b"c=biws,p=AAAA", b"x" * 1000):
        with line(cluster) as one:
            one.handshake("SCRAM-SHA-256")
            first = one.authenticate(b"n,,n=alice,r=abc")
            assert first is not None
            nonce, salt, iterations = first.auth_bytes.decode().split(",")
            yield nonce.startswith("r=abc"), salt.startswith("s="), iterations
            response = one.authenticate(message)
            yield message, response and (response.error_code, response.error_message), served(one)


def requests_out_of_turn(cluster: Cluster) -> Iterator[object]:
    with line(cluster) as one:
        yield served(one)
    with line(cluster) as one:
        yield from (one.versions(), one.versions())
    with line(cluster) as one:
        yield from (one.versions(), served(one))
    with line(cluster) as one:
        yield one.authenticate(b"\0alice\0alice-secret")
    with line(cluster) as one:
        yield from (one.handshake("PLAIN"), one.handshake("PLAIN"))
    with line(cluster) as one:
        yield one.handshake("PLAIN")
        yield from (error_of_another_request(one), served(one))
    with line(cluster) as one:
        yield from (one.handshake("GSSAPI"), served(one))
    with line(cluster) as one:
        yield one.send_bare(bytes(RECEIVE_BYTES_MAX + 1))


def tokens_without_a_header(cluster: Cluster) -> Iterator[object]:
    with line(cluster) as one:
        yield one.handshake("PLAIN", 0)
        yield one.send_bare(f"\0{USER}\0{PASSWORD}".encode())
        yield served(one)
    with line(cluster) as one:
        yield one.handshake("PLAIN", 0)
        yield one.send_bare(f"\0{USER}\0wrong".encode())


def listeners_without_sasl_and_clients_that_are_in(cluster: Cluster) -> Iterator[object]:
    with line(cluster, "SSL") as one:
        yield from (served(one), one.handshake("PLAIN"), one.plain(USER, PASSWORD), served(one))
    with line(cluster) as one:
        yield from (one.handshake("PLAIN"), one.plain(USER, PASSWORD))
        yield from (one.handshake("PLAIN"), one.plain(USER, PASSWORD), served(one), one.versions())


def authentication_again(cluster: Cluster) -> Iterator[object]:
    for version in (0, 1, 2):
        with line(cluster, "REAUTH") as one:
            one.handshake("PLAIN")
            response = one.authenticate(f"\0{USER}\0{PASSWORD}".encode(), version)
            yield response and response.session_lifetime_ms
    with line(cluster, "REAUTH") as one:
        yield from (one.handshake("PLAIN"), one.plain(USER, PASSWORD))
        yield from (one.handshake("PLAIN"), one.plain(USER, PASSWORD), served(one))
        yield from (one.handshake("PLAIN"), served(one))
    with line(cluster, "REAUTH") as one:
        yield from (one.handshake("PLAIN"), one.plain(USER, PASSWORD))
        yield from (one.handshake("PLAIN"), one.plain(OTHER, OTHER_PASSWORD), served(one))
    with line(cluster, "REAUTH") as one:
        yield from (one.handshake("PLAIN"), one.plain(USER, PASSWORD))
        yield from (one.handshake("PLAIN"), one.plain(USER, "wrong"), served(one))
    with line(cluster, "REAUTH") as one:
        yield from (one.handshake("SCRAM-SHA-256"), one.scram("SCRAM-SHA-256", USER, PASSWORD))
        yield from (one.handshake("SCRAM-SHA-256"), one.scram("SCRAM-SHA-256", USER, "wrong"))
    with line(cluster, "REAUTH") as one:
        yield from (one.handshake("PLAIN"), one.plain(USER, PASSWORD))
        yield from (one.handshake("SCRAM-SHA-256"), one.plain(USER, PASSWORD))
    with line(cluster, "REAUTH") as one:
        yield from (one.handshake("PLAIN"), one.plain(USER, PASSWORD))
        yield from (one.handshake("PLAIN"), error_of_another_request(one), served(one))


def tokens_without_a_signature(cluster: Cluster) -> Iterator[object]:
    good = claims_of(USER, lasts_s=1_000_000)
    with line(cluster) as one:
        yield one.handshake("OAUTHBEARER")
        response = one.authenticate(bearer(good))
        assert response is not None
        yield response.error_code, response.auth_bytes, response.session_lifetime_ms > 999_000_000
        yield served(one)
    for message in (
        bearer(claims_of(USER, lasts_s=-10)),
        bearer({"sub": USER}),
        bearer({**good, "sub": 5}),
        bearer({**good, "exp": "soon"}),
        bearer({**good, "iat": good["exp"]}),
        bearer(good, algorithm="HS256"),
        b"n,,\x01auth=Bearer a.b.c\x01\x01",
    ):
        with line(cluster) as one:
            one.handshake("OAUTHBEARER")
            response = one.authenticate(message)
            yield response and (response.error_code, response.auth_bytes)
            response = one.authenticate(b"\x01")
            yield response and (response.error_code, response.error_message), served(one)
    for message in (b"", b"n,,\x01\x01", b"n,,auth=Bearer a"):
        with line(cluster) as one:
            one.handshake("OAUTHBEARER")
            response = one.authenticate(message)
            yield message, response and (response.error_code, response.error_message), served(one)


def clients_without_tls(cluster: Cluster) -> Iterator[object]:
    """Yield the first byte of the alert, and the end of the connection."""
    for listener in ("SSL", "SASL_SSL", "MTLS"):
        servers = cluster.client_settings(listener)["bootstrap_servers"]
        host, _, port = servers.split(",")[0].rpartition(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as stranger:
            stranger.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\0\xff\xff")
            stranger.settimeout(TIMEOUT_S)
            yield stranger.recv(100)


SCRIPTS: list[Script] = [
    good_passwords,
    wrong_passwords,
    tokens_of_plain_that_are_none,
    messages_of_scram_that_are_none,
    requests_out_of_turn,
    tokens_without_a_header,
    listeners_without_sasl_and_clients_that_are_in,
    authentication_again,
    tokens_without_a_signature,
    clients_without_tls,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_what_comes_of_each_step_is_the_same(
    script: Script, any_secured_kafka_cluster: KafkaCluster, fake: FakeKafka
) -> None:
    with fake.control() as cluster:
        is_about_sessions = script is authentication_again
        cluster.connections_max_reauth_ms = REAUTH_MS if is_about_sessions else 0
    expected: list[Any] = list(script(any_secured_kafka_cluster))
    assert list(script(fake)) == expected
    assert len(expected) > 1
