"""Connections to identity servers: proxies, client certificates, files that change, and echoes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pykclient.admin.config import AdminConfig
from pykclient.errors import AuthenticationError, ConfigError, ConnectionFailedError, TlsError
from pykclient.network.io.http_proxy import Proxy, proxy_of
from pykclient.network.sasl.login import token_source
from pykclient.testing.cluster.certificates import CertificateAuthority
from tests.integration.http_proxy import HttpProxy
from tests.integration.identity_server import IdentityServer, Reply

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pykclient.network.sasl.login import TokenSource

CANARY = "canary-5d20-of-twenty-seven"
HOST = "identity.example.com"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


@pytest.fixture
def identity(tmp_path: Path, authority: CertificateAuthority) -> Iterator[IdentityServer]:
    with IdentityServer(tmp_path, authority, hostname=HOST) as found:
        found.clients = {"client": CANARY}
        yield found


@pytest.fixture
def local(tmp_path: Path, authority: CertificateAuthority) -> Iterator[IdentityServer]:
    """Provide a server reached by its own name, which may require a certificate."""
    (tmp_path / "local").mkdir()
    with IdentityServer(tmp_path / "local", authority) as found:
        found.clients = {"client": CANARY}
        yield found


def source_of(url: str, authority: CertificateAuthority, **changes: object) -> TokenSource:
    settings: Mapping[str, object] = {
        "bootstrap_servers": "localhost:9092",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": url,
        "sasl_oauthbearer_client_credentials_client_id": "client",
        "sasl_oauthbearer_client_credentials_client_secret": CANARY,
        "https_ca_location": authority.path,
        **changes,
    }
    return token_source(
        AdminConfig.from_settings(
            {name: value for name, value in settings.items() if value is not None}
        )
    )


# Proxies.


@pytest.mark.parametrize("credentials", [None, ("user", "p@ss:word")])
def test_a_token_is_fetched_through_a_tunnel_of_the_proxy(
    identity: IdentityServer,
    authority: CertificateAuthority,
    monkeypatch: pytest.MonkeyPatch,
    credentials: tuple[str, str] | None,
) -> None:
    url = identity.token_url.replace("localhost", HOST)
    with HttpProxy(credentials) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("p@ss", "p%40ss"))
        assert source_of(url, authority).fetch().principal == "client"
        port = identity.token_url.split(":")[2].partition("/")[0]
        assert proxy.requests == [("CONNECT", f"{HOST}:{port}")]
    assert "proxy-authorization" not in identity.requests[0].headers


def test_a_token_is_fetched_by_http_through_the_proxy(
    tmp_path: Path, authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with IdentityServer(tmp_path) as plain, HttpProxy(("user", "word")) as proxy:
        plain.clients = {"client": CANARY}
        monkeypatch.setenv("http_proxy", proxy.url)
        url = plain.token_url.replace("localhost", HOST)
        assert source_of(url, authority).fetch().principal == "client"
        assert proxy.requests == [("POST", url)]


def test_what_a_proxy_refuses_is_an_error_that_names_it(
    identity: IdentityServer, authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = identity.token_url.replace("localhost", HOST)
    with HttpProxy(("user", CANARY)) as proxy:
        place = proxy.url.rpartition("@")[2]
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:other-{CANARY}@{place}")
        with pytest.raises(
            ConnectionFailedError, match=rf"the proxy {place} responded with status 407 .* HTTPS_PR"
        ) as caught:
            source_of(url, authority).fetch()
        assert CANARY not in str(caught.value)
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        proxy.status = 503
        with pytest.raises(
            ConnectionFailedError, match=f"status 503 to the request to connect to {HOST}:"
        ):
            source_of(url, authority).fetch()
    with pytest.raises(ConnectionFailedError, match=rf"through the proxy {place}: connection ref"):
        source_of(url, authority).fetch()
    assert identity.requests == []


def test_a_proxy_cannot_pass_for_the_server(
    local: IdentityServer, authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tunnel leads to a server with the certificate of another name."""
    with HttpProxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(TlsError, match="use a host name in the URL that the certificate has"):
            source_of(local.token_url.replace("localhost", HOST), authority).fetch()
    assert local.requests == []


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("https://h.example.com/t", {"HTTPS_PROXY": "http://p:3128"}, Proxy("p", 3128)),
        ("https://h.example.com/t", {"https_proxy": "p:3128"}, Proxy("p", 3128)),
        ("https://h.example.com/t", {"ALL_PROXY": "http://p"}, Proxy("p", 1080)),
        ("https://h.example.com/t", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://h.example.com/t", {"http_proxy": "http://p:1"}, Proxy("p", 1)),
        (
            "https://h.example.com/t",
            {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a,.example.com"},
            None,
        ),
        ("https://h.example.com/t", {"HTTPS_PROXY": "http://p:1", "no_proxy": "*"}, None),
        *(
            (f"{scheme}://{host}/t", {"ALL_PROXY": "http://p:1"}, None)
            for scheme in ("http", "https")
            for host in (
                *("localhost", "127.0.0.9", "[::1]:8080", "169.254.169.254"),
                "metadata.google.internal",
            )
        ),
    ],
)
def test_the_environment_names_the_proxy(
    url: str,
    environment: dict[str, str],
    proxy: Proxy | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_of(url) == proxy


@pytest.mark.parametrize("place", ["socks5://p:1", "https://p:1", "http://", "http://p:port"])
def test_a_proxy_that_cannot_be_used_is_refused(
    place: str, authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", place)
    with pytest.raises(ConfigError, match="HTTPS_PROXY "):
        source_of(f"https://{HOST}/token", authority)


# Certificates.


@pytest.mark.parametrize("is_java", [True, False])
def test_a_client_certificate_is_shown(
    local: IdentityServer, authority: CertificateAuthority, is_java: bool
) -> None:
    local.demand_certificates(authority)
    with pytest.raises((TlsError, ConnectionFailedError)):
        source_of(local.token_url, authority).fetch()
    place = authority.issue("client").path
    options = f'ssl.keystore.type="PEM" ssl.keystore.location="{place}"'
    by_java: dict[str, object] = {"sasl_jaas_config": f"{MODULE} required {options};"}
    by_own: dict[str, object] = {"https_certificate_location": place}
    given = by_java if is_java else by_own
    assert source_of(local.token_url, authority, **given).fetch().principal == "client"
    assert local.requests[-1].credentials == ("client", CANARY)


def test_a_certificate_authenticates_a_client_without_a_secret(
    local: IdentityServer, authority: CertificateAuthority
) -> None:
    """RFC 8705: the request contains only the id."""
    local.demand_certificates(authority)
    local.reply = Reply.of({"access_token": "t", "expires_in": 9})
    source = source_of(
        local.token_url,
        authority,
        sasl_oauthbearer_client_credentials_client_secret=None,
        https_certificate_location=authority.issue("client").path,
    )
    source.fetch()
    (request,) = local.requests
    assert request.form == {"grant_type": "client_credentials", "client_id": "client"}
    assert request.credentials is None


def test_files_are_read_again_when_they_change(
    local: IdentityServer,
    authority: CertificateAuthority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "other").mkdir()
    other = CertificateAuthority(tmp_path / "other")
    local.demand_certificates(authority)
    trusted, shown = tmp_path / "trusted.pem", tmp_path / "shown.pem"
    trusted.write_bytes(other.path.read_bytes())
    shown.write_bytes(other.issue("client").path.read_bytes())
    source = source_of(
        local.token_url, authority, https_ca_location=trusted, https_certificate_location=shown
    )
    with pytest.raises(TlsError, match="give its authority in https_ca_location"):
        source.fetch()
    trusted.write_bytes(authority.path.read_bytes())
    with pytest.raises((TlsError, ConnectionFailedError)):
        source.fetch()
    shown.write_bytes(authority.issue("client").path.read_bytes())
    source.fetch()
    trusted.write_text("half a file")
    with caplog.at_level(logging.ERROR):
        source.fetch()
    assert (
        "has changed and cannot be used, so the last state stays in use: https_ca_location"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"https_certificate_location": "absent.pem"}, "cannot be read: no such file"),
        ({"https_certificate_location": __file__}, "is not a keystore in PEM, PKCS#12 or JKS"),
        ({"https_key_location": "key.pem"}, "give it in https.certificate.location"),
        (
            {
                "https_certificate_location": "a",
                "sasl_jaas_config": f'{MODULE} required ssl.keystore.location="b";',
            },
            "are two sources; give one",
        ),
        (
            {"sasl_jaas_config": f'{MODULE} required ssl.keystore.key="b";'},
            "belong together; give both",
        ),
        (
            {"sasl_jaas_config": f'{MODULE} required ssl.keystore.type="BKS";'},
            "is one of PEM, PKCS12, JKS",
        ),
    ],
)
def test_certificates_that_cannot_be_used_are_refused_when_the_client_is_made(
    authority: CertificateAuthority, changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        source_of(f"https://{HOST}/token", authority, **changes)
    assert reason in str(caught.value).replace("_", ".")


# Echoes.


@pytest.mark.parametrize("shift", range(260, 310, 7))
@pytest.mark.parametrize("status", [200, 400])
def test_a_secret_that_comes_back_is_hidden_wherever_the_text_is_cut(
    local: IdentityServer, authority: CertificateAuthority, shift: int, status: int
) -> None:
    padding = "x" * shift
    said = f"{padding}{CANARY}"
    if status == 200:
        local.reply = Reply.of({said: 1}, 200)
    else:
        local.reply = Reply.of({"error": "no", "error_description": said}, status)
    with pytest.raises(AuthenticationError) as caught:
        source_of(local.token_url, authority).fetch()
    assert "canary" not in str(caught.value)


def test_the_header_that_comes_back_is_hidden(
    local: IdentityServer, authority: CertificateAuthority
) -> None:
    source = source_of(local.token_url, authority)
    source.fetch()
    header = local.requests[0].headers["authorization"]
    local.reply = Reply.of({"error": f"bad header {header}"}, 401)
    with pytest.raises(AuthenticationError, match="bad header Basic <hidden>"):
        source.fetch()
