"""Certificates for tests as PEM files: an authority and the certificates it signs.

A keystore is one file with a private key and its certificate chain, readable by brokers, Java's
clients (``ssl.keystore.type=PEM``, KIP-651) and OpenSSL. Keys are in PKCS#8, the only format that
Kafka reads; files are readable only by their owner.

Invalid certificates for tests are made the same way: for another host, expired or not yet valid,
from another authority, or with a key that does not match.

Owner: the creator of the authority.
Source: KIP-651; Java class ``DefaultSslEngineFactory``.
"""

from __future__ import annotations

import os
import socket
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from pykclient.testing.cluster.java import MissingPrerequisiteError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from pathlib import Path

    from pykclient.testing.port import Address

HOSTNAMES = ("localhost", "127.0.0.1", "::1")
OWNER_ONLY = 0o600
_NO_HOST = ("client.invalid",)
"""Placeholder host of a client certificate, because a certificate without hosts is invalid."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key in one keystore, the file `path`."""

    path: Path
    chain_pem: bytes
    key_pem: bytes = field(repr=False)
    """Key in PKCS#8, encrypted if `key_password` is set."""
    key_password: str | None = field(default=None, repr=False)


class CertificateAuthority:
    """An authority whose certificates, its own and those it signs, are files in `folder`.

    Raises:
        MissingPrerequisiteError: the package trustme is not installed.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        try:
            import trustme
        except ImportError as error:
            raise MissingPrerequisiteError(
                f"certificates for tests need the package trustme ({error}): pip install trustme"
            ) from error
        self._authority = trustme.CA()
        self._folder = folder
        self.path = folder / f"{name}.pem"
        """Its certificate, usable as a truststore of type PEM."""
        write_private(self.path, self._authority.cert_pem.bytes())

    def issue(
        self,
        name: str,
        *,
        hostnames: Iterable[str] = (),
        not_before: datetime | None = None,
        not_after: datetime | None = None,
        key_password: str | None = None,
    ) -> Certificate:
        """Sign a certificate with the common name `name`, and write the keystore ``<name>.pem``.

        `hostnames` are a server's names and addresses; a client needs none. An older keystore of
        that name is replaced atomically.
        """
        signed = self._authority.issue_cert(
            *(tuple(hostnames) or _NO_HOST),
            common_name=name,
            not_before=not_before,
            not_after=not_after,
        )
        key_pem = _in_pkcs8(signed.private_key_pem.bytes(), key_password)
        chain_pem = b"".join(blob.bytes() for blob in signed.cert_chain_pems)
        path = self._folder / f"{quote(name, safe=' ')}.pem"
        write_private(path, key_pem + chain_pem)
        return Certificate(path, chain_pem, key_pem, key_password)


def presented_certificate(address: Address, *, timeout: float) -> bytes:
    """Return the PEM certificate that a server presents in a TLS handshake. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(address, timeout) as connection,
        context.wrap_socket(connection) as secured,
    ):
        certificate = secured.getpeercert(binary_form=True)
    assert certificate is not None, "a server cannot do a handshake without a certificate"
    return ssl.DER_cert_to_PEM_cert(certificate).encode()


def write_private(path: Path, data: bytes) -> None:
    """Write a file readable only by its owner, replacing an existing one atomically."""
    draft = path.with_name(f"{path.name}.draft")
    draft.touch(OWNER_ONLY)
    draft.write_bytes(data)
    os.replace(draft, path)


def _in_pkcs8(key_pem: bytes, password: str | None) -> bytes:
    from cryptography.hazmat.primitives import serialization

    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    return serialization.load_pem_private_key(key_pem, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
