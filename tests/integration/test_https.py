"""Requests by http and https end in time, with a response or a specific error."""

from __future__ import annotations

import socket
import ssl
import time
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import ConnectionFailedError, DecodeError, KafkaError, TlsError
from pykclient.network.io.https import (
    BODY_BYTES_MAX,
    RESPONSE_BYTES_MAX,
    HttpEndpoint,
    HttpRequest,
    HttpResponse,
    shown_url,
)
from pykclient.testing.cluster.certificates import CertificateAuthority
from tests.integration.identity_server import Fault, IdentityServer, Reply

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHORT_MS = 300
LONG_MS = 20_000
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


@pytest.fixture
def server(tmp_path: Path, authority: CertificateAuthority) -> Iterator[IdentityServer]:
    with IdentityServer(tmp_path, authority) as found:
        yield found


def trusting(authority: CertificateAuthority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.path)


def post(
    url: str, context: ssl.SSLContext | None = None, *, timeout_ms: int = LONG_MS
) -> HttpResponse:
    endpoint = HttpEndpoint(url, None if context is None else lambda: context)
    request = HttpRequest(b"a=1&b=", FORM)
    return endpoint.post(request, connect_timeout_ms=LONG_MS, timeout_ms=timeout_ms)


def test_a_request_is_sent_and_its_response_read_whatever_its_status(
    server: IdentityServer, authority: CertificateAuthority
) -> None:
    server.reply = Reply(418, b"body", {"Content-Type": "Text/Plain; charset=x"})
    url = f"{server.token_url}?tenant=1"
    assert post(url, trusting(authority)) == HttpResponse(418, "text/plain", b"body")
    (request,) = server.requests
    assert request.form == {"a": "1", "b": ""}
    assert request.path.endswith("/token?tenant=1")
    assert request.headers["host"] == server.origin.removeprefix("https://")


def test_redirects_are_not_followed(
    server: IdentityServer, authority: CertificateAuthority
) -> None:
    server.reply = Reply(302, b"", {"Location": server.token_url})
    assert post(server.token_url, trusting(authority)).status == 302
    assert len(server.requests) == 1


@pytest.mark.parametrize("fault", [Fault.NO_RESPONSE, Fault.DRIP])
def test_one_deadline_is_for_all_of_a_request(
    server: IdentityServer, authority: CertificateAuthority, fault: Fault
) -> None:
    server.reply = fault
    begun_s = time.monotonic()
    with pytest.raises(ConnectionFailedError, match=f"did not respond within {SHORT_MS} ms"):
        post(server.token_url, trusting(authority), timeout_ms=SHORT_MS)
    assert time.monotonic() - begun_s < LONG_MS / 2000


@pytest.mark.parametrize(
    ("reply", "error", "reason"),
    [
        (Fault.HANG_UP, ConnectionFailedError, "hung up without a response"),
        (Fault.GARBAGE, DecodeError, "is not HTTP: BadStatusLine"),
        (Fault.ENDLESS_HEADER, DecodeError, "is not HTTP: LineTooLong"),
        (Fault.ENDLESS_BODY, DecodeError, f"has more than {BODY_BYTES_MAX} bytes"),
        (Fault.ENDLESS_CONTINUES, DecodeError, f"has more than {RESPONSE_BYTES_MAX} bytes"),
        (Fault.TINY_CHUNKS, DecodeError, f"has more than {RESPONSE_BYTES_MAX} bytes"),
        (Reply(200, bytes(BODY_BYTES_MAX + 1)), DecodeError, "has more than"),
        (
            Reply(200, b"half", {"Content-Length": "9"}),
            ConnectionFailedError,
            "hung up in the middle",
        ),
    ],
)
def test_what_is_no_response_is_an_error_that_says_so(
    server: IdentityServer,
    authority: CertificateAuthority,
    reply: Reply | Fault,
    error: type[KafkaError],
    reason: str,
) -> None:
    server.reply = reply
    with pytest.raises(error, match=reason):
        post(server.token_url, trusting(authority))


def test_a_body_of_the_largest_size_is_read(
    server: IdentityServer, authority: CertificateAuthority
) -> None:
    server.reply = Reply(200, bytes(BODY_BYTES_MAX))
    assert len(post(server.token_url, trusting(authority)).body) == BODY_BYTES_MAX


def test_a_server_that_is_not_to_be_trusted_gets_no_request(
    server: IdentityServer, tmp_path: Path, authority: CertificateAuthority
) -> None:
    with pytest.raises(TlsError, match="give its authority in https_ca_location"):
        post(server.token_url, ssl.create_default_context())
    (tmp_path / "other").mkdir()
    with IdentityServer(tmp_path / "other", authority, hostname="other.example.com") as other:
        with pytest.raises(TlsError, match="use a host name in the URL that the certificate has"):
            post(other.token_url, trusting(authority))
        assert other.requests == []
    (tmp_path / "plain").mkdir()
    with IdentityServer(tmp_path / "plain") as plain:
        with pytest.raises(TlsError, match="wrong version number; is it https"):
            post(plain.token_url.replace("http", "https"), trusting(authority))
        assert plain.requests == []
    assert server.requests == []


def test_a_server_that_is_away_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    with pytest.raises(ConnectionFailedError, match=rf"127\.0\.0\.1:{port} cannot be reached"):
        post(f"http://127.0.0.1:{port}/token")
    with pytest.raises(ConnectionFailedError, match=r"a\.\.b:443 cannot be reached"):
        post("https://a..b/token", ssl.create_default_context())


def test_no_secret_of_a_url_is_shown() -> None:
    found = shown_url("https://user:secret@host:8443/a/b?key=secret#secret")
    assert found == "https://host:8443/a/b"
