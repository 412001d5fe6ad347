"""TLS between a connection and its port: a server in memory, certificates made on the fly."""

from __future__ import annotations

import datetime
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykclient.admin.config import AdminConfig
from pykclient.errors import DisconnectedError, KafkaError, TlsError
from pykclient.network.io.plain_probe import CORRELATION_ID
from pykclient.network.io.ssl_factory import SslFactory
from pykclient.network.io.tls import UNREAD_REPLIES_BYTES_MAX, TlsPort, TlsState, TlsStream
from pykclient.protocol.message import encode_response
from pykclient.protocol.messages.api_versions import ApiVersionsResponse
from tests.network.tls_peer import JoinedPort, PlainPeer, Sink, TlsPeer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOST, PORT = "kafka.example", 9093
NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def pem_of(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


def server_context(certificate: trustme.LeafCert, **changes: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    for name, value in changes.items():
        setattr(context, name, value)
    return context


class Scene:
    """A client of `settings` and a server of `context`, joined."""

    def __init__(
        self, context: ssl.SSLContext | None, *, piece_bytes: int = 1 << 20, **settings: Any
    ) -> None:
        config = AdminConfig.from_settings(
            bootstrap_servers="h:1", security_protocol="SSL", **settings
        )
        peer: Callable[[], TlsPeer | PlainPeer] = lambda: (  # noqa: E731
            PlainPeer(None) if context is None else TlsPeer(context, piece_bytes)
        )
        self.below = JoinedPort(peer)
        self.port = TlsPort(self.below, SslFactory(config))

    def connect(self, host: str = HOST, *, room: int = 1 << 16) -> Sink:
        sink = Sink(room)
        self.port.open(sink, host, PORT, attempt=0)
        self.port.wait(0)
        return sink

    def peer(self, index: int = -1) -> TlsPeer:
        peer = self.below.peers[index]
        assert isinstance(peer, TlsPeer)
        return peer


@pytest.fixture
def scene(authority: trustme.CA) -> Scene:
    context = server_context(authority.issue_cert(HOST, "127.0.0.1", "::1"))
    return Scene(context, ssl_truststore_certificates=pem_of(authority))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    piece_bytes=st.integers(100, 70_000),
    room=st.integers(1, 70_000),
    response=st.binary(max_size=50_000),
    parts=st.lists(st.binary(max_size=40_000), max_size=5),
)
def test_bytes_pass_in_both_directions(
    authority: trustme.CA, piece_bytes: int, room: int, response: bytes, parts: list[bytes]
) -> None:
    context = server_context(authority.issue_cert(HOST))
    scene = Scene(context, piece_bytes=piece_bytes, ssl_truststore_certificates=pem_of(authority))
    sink = scene.connect(room=room)
    assert (sink.opened_count, sink.error) == (1, None)
    scene.port.write(sink, parts)
    scene.peer().send(response)
    scene.port.wait(0)
    assert bytes(scene.peer().received) == b"".join(parts)
    assert bytes(sink.data) == response
    scene.port.close(sink)
    assert scene.peer().has_said_goodbye
    assert scene.below.streams == []


def test_all_that_has_come_is_decrypted_at_once(scene: Scene) -> None:
    """Data that stayed inside OpenSSL would wait for a socket event that never comes."""
    sink = scene.connect(room=1_000)
    scene.peer().send(bytes(1_000_000))
    scene.port.wait(0)
    assert len(sink.data) == 1_000_000


def test_what_the_port_below_has_not_sent_is_unsent(scene: Scene) -> None:
    sink = scene.connect()
    scene.below.takes_bytes = False
    scene.port.write(sink, [bytes(100_000)])
    assert scene.port.unsent_bytes(sink) > 100_000
    scene.below.takes_bytes = True
    scene.port.wait(0)
    assert scene.port.unsent_bytes(sink) == 0
    assert len(scene.peer().received) == 100_000


@pytest.mark.promise("a broker's certificate is verified, including its host name or address")
@pytest.mark.parametrize("host", [HOST, f"{HOST}.", "127.0.0.1", "::1"])
def test_names_and_addresses_of_the_certificate_are_accepted(scene: Scene, host: str) -> None:
    assert scene.connect(host).error is None


@pytest.mark.promise("a broker's certificate is verified, including its host name or address")
@pytest.mark.parametrize(
    ("names", "times", "is_trusted", "reason"),
    [
        (["other.example"], {}, True, r"Hostname mismatch.*the certificate is for other hosts"),
        (["10.0.0.1"], {}, True, r"mismatch.*the certificate is for other hosts"),
        ([HOST], {}, False, r"local issuer.*give the authority in ssl_truststore_location"),
        (
            [HOST],
            {"not_before": NOW - 9 * DAY, "not_after": NOW - DAY},
            True,
            r"expired.*check this machine's clock",
        ),
        (
            [HOST],
            {"not_before": NOW + DAY, "not_after": NOW + 9 * DAY},
            True,
            r"not yet valid.*check this machine's clock",
        ),
    ],
)
def test_a_certificate_that_is_not_to_be_trusted_is_refused(
    authority: trustme.CA, names: list[str], times: Any, is_trusted: bool, reason: str
) -> None:
    context = server_context(authority.issue_cert(*names, **times))
    trusted = authority if is_trusted else trustme.CA()
    sink = Scene(context, ssl_truststore_certificates=pem_of(trusted)).connect()
    assert sink.opened_count == 0
    with pytest.raises(
        TlsError, match=f"{HOST}:{PORT}: the certificate was not accepted: .*{reason}"
    ):
        raise_of(sink)
    assert sink.error is not None
    assert sink.error.is_refusal


def raise_of(sink: Sink) -> None:
    assert sink.error is not None
    raise sink.error


def test_a_truststore_may_hold_the_brokers_own_certificate_alone_as_for_java() -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert(HOST)
    own = certificate.cert_chain_pems[0].bytes().decode()
    assert Scene(server_context(certificate), ssl_ca_pem=own).connect().error is None


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl_endpoint_identification_algorithm": ""},
        {"enable_ssl_certificate_verification": False, "ssl_truststore_certificates": None},
    ],
)
def test_verification_is_switched_off_by_settings_only(
    authority: trustme.CA, settings: dict[str, Any]
) -> None:
    context = server_context(authority.issue_cert("other.example"))
    trust = {"ssl_truststore_certificates": pem_of(authority)}
    assert Scene(context, **{**trust, **settings}).connect().error is None


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_broker_that_wants_a_certificate_gets_it_or_refuses(
    authority: trustme.CA, version: str
) -> None:
    context = server_context(authority.issue_cert(HOST), verify_mode=ssl.CERT_REQUIRED)
    authority.configure_trust(context)
    common: dict[str, Any] = {
        "ssl_truststore_certificates": pem_of(authority),
        "ssl_enabled_protocols": version,
    }
    client = authority.issue_cert("client@example.com")
    stranger = trustme.CA().issue_cert("client@example.com")
    assert Scene(context, **common, **identity_of(client)).connect().error is None
    for shown, reason in (
        ({}, "requires a client certificate.*ssl_keystore_location"),
        (identity_of(stranger), "does not trust the client's certificate"),
    ):
        sink = Scene(context, **common, **shown).connect()
        with pytest.raises(TlsError, match=reason):
            raise_of(sink)


def identity_of(certificate: trustme.LeafCert) -> dict[str, Any]:
    chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
    return {
        "ssl_keystore_key": certificate.private_key_pem.bytes().decode(),
        "ssl_keystore_certificate_chain": chain.decode(),
    }


@pytest.mark.parametrize(
    ("peer", "kind", "reason"),
    [
        (PlainPeer(None), DisconnectedError, "hung up during the TLS handshake; is its listener"),
        (PlainPeer(b"HTTP/1.1 400 Bad Request\r\n\r\n"), TlsError, "does not speak TLS"),
        (PlainPeer(b"\0\0\0\4\0\0\0\0"), TlsError, "does not speak TLS"),
    ],
)
def test_a_peer_without_tls_is_named_with_the_setting(
    authority: trustme.CA, peer: PlainPeer, kind: type[KafkaError], reason: str
) -> None:
    scene = Scene(None, ssl_truststore_certificates=pem_of(authority))
    scene.below.peer_of = lambda: peer
    sink = scene.connect()
    with pytest.raises(kind, match=f"{reason}.*Check security_protocol"):
        raise_of(sink)


def hanging_up_then(scene: Scene, reply: bytes | None) -> Sink:
    """Connect to a peer that disconnects on the handshake; `reply` is its answer to later bytes."""
    peers = iter([PlainPeer(None), PlainPeer(reply)])
    scene.below.peer_of = lambda: next(peers)
    return scene.connect()


def test_a_listener_without_tls_that_hangs_up_is_known_by_its_response_in_plain_text(
    scene: Scene,
) -> None:
    response = encode_response(ApiVersionsResponse(), 0, CORRELATION_ID)
    sink = hanging_up_then(scene, bytes(response))
    with pytest.raises(TlsError, match=r"responds in plain text, .* set security_protocol"):
        raise_of(sink)
    scene.port.close(sink)
    assert scene.below.streams == []


@pytest.mark.parametrize(
    "reply",
    [
        None,
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        bytes(encode_response(ApiVersionsResponse(), 0, CORRELATION_ID + 1)),
        bytes([255]) + bytes(encode_response(ApiVersionsResponse(), 0, CORRELATION_ID))[1:],
    ],
)
def test_a_peer_that_hangs_up_and_does_not_speak_in_plain_text_may_be_tried_again(
    scene: Scene, reply: bytes | None
) -> None:
    """E.g. a broker with TLS that is shutting down, or a load balancer without brokers."""
    with pytest.raises(DisconnectedError, match="hung up during the TLS handshake"):
        raise_of(hanging_up_then(scene, reply))


def test_a_peer_that_has_spoken_tls_before_gets_nothing_in_plain_text(scene: Scene) -> None:
    scene.port.close(scene.connect())
    sink = hanging_up_then(scene, bytes(encode_response(ApiVersionsResponse(), 0, CORRELATION_ID)))
    with pytest.raises(DisconnectedError, match="hung up during the TLS handshake"):
        raise_of(sink)
    assert len(scene.below.peers) == 2


def test_a_connection_that_is_given_up_gives_up_its_probe(scene: Scene) -> None:
    silent = PlainPeer(b"")
    peers = iter([PlainPeer(None), silent])
    scene.below.peer_of = lambda: next(peers)
    sink = scene.connect()
    assert sink.error is None
    scene.port.close(sink)
    assert scene.below.streams == []


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_the_next_connection_to_an_address_resumes_the_session(
    authority: trustme.CA, version: str
) -> None:
    context = server_context(authority.issue_cert(HOST))
    scene = Scene(
        context,
        ssl_truststore_certificates=pem_of(authority),
        ssl_enabled_protocols=version,
    )
    first = scene.connect()
    scene.peer().send(b"x")
    scene.port.wait(0)
    scene.port.close(first)
    assert scene.connect().error is None
    assert [scene.peer(0).is_resumed, scene.peer(1).is_resumed] == [False, True]


def test_a_session_of_before_a_renewal_is_not_resumed(
    authority: trustme.CA, tmp_path: Path
) -> None:
    """It belongs to the former certificates, and OpenSSL rejects it with the new ones."""
    place = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(place))
    scene = Scene(server_context(authority.issue_cert(HOST)), ssl_truststore_location=place)
    former = scene.connect()
    scene.peer().send(b"x")
    scene.port.wait(0)
    place.write_bytes(place.read_bytes() + b"\n")
    assert scene.connect().error is None
    scene.port.close(former)
    assert scene.connect().error is None
    assert not scene.peer().is_resumed


def test_a_host_that_no_certificate_can_be_for_is_refused(scene: Scene) -> None:
    """A broker may advertise any host: the error closes only this connection."""
    sink = scene.connect(".kafka.example")
    with pytest.raises(TlsError, match=r"TLS cannot verify a host of this name.*advertised"):
        raise_of(sink)


def test_an_end_without_goodbye_is_an_end(scene: Scene) -> None:
    sink = scene.connect()
    scene.below.hang_up(scene.below.streams[0])
    assert isinstance(sink.error, DisconnectedError)
    scene.port.write(sink, [b"late"])  # as with every port, this does nothing then
    scene.port.close(sink)


def test_damaged_records_end_the_connection_with_the_reason_and_may_be_tried_again(
    scene: Scene,
) -> None:
    sink = scene.connect()
    stream = scene.below.streams[0]
    scene.below.give(stream, b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(DisconnectedError, match="the TLS connection broke: "):
        raise_of(sink)
    assert isinstance(stream, TlsStream)
    assert stream.state is TlsState.CLOSED


def test_a_peer_that_wants_replies_without_reading_them_is_given_up(scene: Scene) -> None:
    sink = scene.connect()
    stream = scene.below.streams[0]
    assert isinstance(stream, TlsStream)
    scene.below.takes_bytes = False
    # As with a request for new keys: reading makes OpenSSL write something.
    for _ in range(UNREAD_REPLIES_BYTES_MAX // 65_536 + 2):
        stream._outgoing.write(bytes(65_536))
        if sink.error is None:
            scene.peer().send(b"x")
            scene.port.wait(0)
    with pytest.raises(DisconnectedError, match="without reading the replies"):
        raise_of(sink)


def test_files_that_change_are_read_again_and_broken_ones_are_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = trustme.CA(), trustme.CA()
    place = tmp_path / "authority.pem"
    old.cert_pem.write_to_path(str(place))
    context = server_context(old.issue_cert(HOST))
    scene = Scene(context, ssl_truststore_location=place)
    assert scene.connect().error is None
    place.write_text("half a fi")
    assert scene.connect().error is None
    assert "cannot be used; the last state stays" in caplog.text
    new.cert_pem.write_to_path(str(place))
    sink = scene.connect()
    with pytest.raises(TlsError, match="ssl_truststore_location"):
        raise_of(sink)
    new.issue_cert(HOST).configure_cert(context)
    assert scene.connect().error is None


@pytest.mark.promise("a broker's certificate is verified, including its host name or address")
@pytest.mark.parametrize("is_revoked", [True, False])
def test_a_revoked_certificate_is_refused(
    authority: trustme.CA, tmp_path: Path, is_revoked: bool
) -> None:
    certificate = authority.issue_cert(HOST)
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    leaf = x509.load_pem_x509_certificate(certificate.cert_chain_pems[0].bytes())
    key: Any = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    builder = x509.CertificateRevocationListBuilder(issuer.subject, NOW - DAY, NOW + DAY)
    if is_revoked:
        revoked = x509.RevokedCertificateBuilder(leaf.serial_number, NOW - DAY).build()
        builder = builder.add_revoked_certificate(revoked)
    place = tmp_path / "revoked.pem"
    signed = builder.sign(key, hashes.SHA256())
    place.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    sink = Scene(
        server_context(certificate),
        ssl_truststore_certificates=pem_of(authority),
        ssl_crl_location=place,
    ).connect()
    if not is_revoked:
        assert sink.error is None
        return
    with pytest.raises(TlsError, match=r"the certificate is revoked \(ssl_crl_location\)"):
        raise_of(sink)
