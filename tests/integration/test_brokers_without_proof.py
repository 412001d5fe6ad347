"""Brokers that do not prove that they have the password, as SCRAM has them do.

Goal: no client goes on with a server that may be another one, and its call ends within a moment
with the reason and the place. Method: a fake broker whose responses to SaslAuthenticate are those
of the table; the message of the client is in the request, with its nonce.
"""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from pykclient import Admin, Consumer, Producer, TopicPartition
from pykclient.errors import AuthenticationError
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from pykclient.testing import ClusterSecurity, FakeKafka
from pykclient.testing.fake.faults import respond_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.protocol.message import Request

    Reply = Callable[[str], bytes]

REFUSED_WITHIN_S: Final = 2.0
TIMEOUT_S: Final = 60.0
SALT: Final = base64.b64encode(b"salt").decode()
NOT_TRUSTED: Final = "authentication by SCRAM-SHA-256 failed: the broker is not to be trusted: "


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeKafka]:
    security = ClusterSecurity(listeners=("SASL_PLAINTEXT",), mechanisms=("SCRAM-SHA-256",))
    with FakeKafka(security=security) as fake:
        yield fake


def first(iterations: object, nonce: str = "{nonce}more") -> Reply:
    """Build a first message of the server; `{nonce}` stands for the client's."""
    return lambda clients: f"r={nonce},s={SALT},i={iterations}".format(nonce=clients).encode()


def final(message: bytes) -> Reply:
    """Return a last message of the server, behind a good first one."""
    return lambda clients: message if not clients else first(4096)(clients)


def nonce_of(request: Request) -> str:
    """Return the client's nonce in its first message; empty for the next one."""
    assert isinstance(request, SaslAuthenticateRequest)
    text = request.auth_bytes.decode()
    return text.rpartition(",r=")[2] if text.startswith("n,,") else ""


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (first(4095), "it requires '4095' iterations of SCRAM, but 4096 to 1000000 are supported"),
        (first(1_000_001), "it requires '1000001' iterations of SCRAM, but 4096 to 1000000"),
        (first(2**31 - 1), "it requires '2147483647' iterations of SCRAM, but 4096 to 1000000"),
        (first(-4096), "it requires '-4096' iterations of SCRAM, but 4096 to 1000000"),
        (first(4096, "another"), "its nonce does not begin with the client's"),
        (first(4096, "{nonce}"), "its nonce does not begin with the client's"),
        (first(4096, ""), "its nonce does not begin with the client's"),
        (lambda _: b"", "its SCRAM message lacks the fields r, s, i"),
        (final(b""), "it accepted the password without proving that it knows it"),
        (final(b"v=" + base64.b64encode(bytes(32))), "its proof that it has the password is wrong"),
        (final(b"v="), "its SCRAM message has invalid base64"),
        (final(b"ok"), "its SCRAM message lacks the fields v"),
    ],
)
@pytest.mark.parametrize("make", [Admin, Consumer, Producer])
def test_a_broker_that_proves_nothing_is_refused(
    fake: FakeKafka, make: Callable[..., Any], reply: Reply, reason: str
) -> None:
    def respond(request: Request) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(auth_bytes=reply(nonce_of(request)))

    with fake.control() as cluster:
        cluster.faults.clear()
        cluster.faults.add(respond_with(respond), ApiKey.SASL_AUTHENTICATE, times=None)
    begun_s = time.monotonic()
    with pytest.raises(AuthenticationError) as caught, make(dict(fake.client_settings())) as client:
        use(client)
    assert time.monotonic() - begun_s < REFUSED_WITHIN_S
    assert f"{NOT_TRUSTED}{reason}" in str(caught.value)
    assert fake.bootstrap_servers in str(caught.value)


def use(client: Any) -> None:
    if isinstance(client, Producer):
        client.send("t", b"secret").result(timeout=TIMEOUT_S)
    elif isinstance(client, Consumer):
        client.assign([TopicPartition("t", 0)])
        client.poll(timeout=TIMEOUT_S)
    else:
        client.list_topics()
