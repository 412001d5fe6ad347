"""Certificates for tests: a verifying client accepts good ones and rejects bad ones."""

from __future__ import annotations

import ssl
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pykclient.testing import Certificate, CertificateAuthority, MissingPrerequisiteError
from pykclient.testing.cluster.certificates import HOSTNAMES, write_private

if TYPE_CHECKING:
    from pathlib import Path

NOW, DAY = datetime.now(UTC), timedelta(days=1)


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    """Return an authority with its files in the test's folder."""
    return CertificateAuthority(tmp_path)


def handshake(
    authority: CertificateAuthority, certificate: Certificate, hostname: str = "localhost"
) -> None:
    """Do a handshake in memory between a server and a client that trusts the authority."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(certificate.path, password=certificate.key_password)
    client_context = ssl.create_default_context(cafile=authority.path)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=hostname)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)


@pytest.mark.parametrize("hostname", HOSTNAMES)
def test_a_certificate_is_good_for_its_hosts(
    authority: CertificateAuthority, hostname: str
) -> None:
    handshake(authority, authority.issue("broker", hostnames=HOSTNAMES), hostname)


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ({"hostnames": ["kafka.example.com"]}, "Hostname mismatch"),
        ({"not_before": NOW - 2 * DAY, "not_after": NOW - DAY}, "certificate has expired"),
        ({"not_before": NOW + DAY, "not_after": NOW + 2 * DAY}, "certificate is not yet valid"),
    ],
)
def test_a_bad_certificate_is_bad_for_the_reason_that_was_chosen(
    authority: CertificateAuthority, chosen: dict[str, Any], reason: str
) -> None:
    certificate = authority.issue("broker", **{"hostnames": HOSTNAMES, **chosen})
    with pytest.raises(ssl.SSLCertVerificationError, match=reason):
        handshake(authority, certificate)


def test_another_authoritys_certificate_is_not_trusted(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    other = CertificateAuthority(tmp_path, "other")
    assert other.path != authority.path
    with pytest.raises(ssl.SSLCertVerificationError, match="local issuer"):
        handshake(authority, other.issue("broker", hostnames=HOSTNAMES))


def test_a_key_may_be_encrypted_and_one_that_does_not_fit_is_noticed(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    encrypted = authority.issue("encrypted", hostnames=HOSTNAMES, key_password="canary")
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in encrypted.path.read_bytes()
    assert "canary" not in repr(encrypted)
    handshake(authority, encrypted)
    one, two = authority.issue("one"), authority.issue("two")
    mixed = tmp_path / "mixed.pem"
    write_private(mixed, one.key_pem + two.chain_pem)
    with pytest.raises(ssl.SSLError, match="KEY_VALUES_MISMATCH"):
        handshake(authority, Certificate(mixed, two.chain_pem, one.key_pem))


def test_without_trustme_the_cure_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(MissingPrerequisiteError, match="pip install trustme"):
        CertificateAuthority(tmp_path)


def test_the_files_are_for_their_owner_alone_and_stay_in_the_folder(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    certificate = authority.issue("../bob smith")
    assert b"BEGIN PRIVATE KEY" in certificate.path.read_bytes()
    assert "PRIVATE" not in repr(certificate)
    assert sorted(tmp_path.iterdir()) == sorted([authority.path, certificate.path])
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
