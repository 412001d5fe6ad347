"""Certificates for tests, as PEM files: an authority, and what it has signed.

A keystore is one file with a private key and the chain of its certificate, which a broker, Java's
clients (``ssl.keystore.type=PEM``, KIP-651) and OpenSSL read alike. Keys are in PKCS#8, the only
form in which Kafka reads them, and files readable by their owner alone.

What a test of refusals needs is made likewise: a certificate for another host, one whose time is
over or still to come, one of another authority, one beside a key that is not its own.

Owner: whoever made the authority.
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
"""What stands for the hosts of a client, since a list of none would not be a valid one."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and a key in one keystore, the file `path`."""

    path: Path
    chain_pem: bytes
    key_pem: bytes = field(repr=False)
    """In PKCS#8, encrypted with `key_password` where there is one."""
    key_password: str | None = field(default=None, repr=False)


class CertificateAuthority:
    """An authority whose own certificate and whatever it signs are files in `folder`.

    Raises:
        MissingPrerequisiteError: there is no package trustme; names the cure.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        try:
            import trustme
        except ImportError as error:
            raise MissingPrerequisiteError(
                f"certificates for tests are made by the package trustme ({error}): "
                "pip install trustme"
            ) from error
        self._authority = trustme.CA()
        self._folder = folder
        self.path = folder / f"{name}.pem"
        """Its certificate: a truststore of type PEM."""
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
        """Sign a certificate for `name`, its common name, and write the keystore ``<name>.pem``.

        `hostnames` are names and addresses of a server; a client needs none. An earlier keystore of
        that name is replaced at once, so no reader sees half of it.
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
    """What the server at `address` presents in a TLS handshake, in PEM. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(address, timeout) as connection,
        context.wrap_socket(connection) as secured,
    ):
        certificate = secured.getpeercert(binary_form=True)
    assert certificate is not None, "a server without a certificate does no handshake"
    return ssl.DER_cert_to_PEM_cert(certificate).encode()


def write_private(path: Path, data: bytes) -> None:
    """Write a file that its owner alone may read, in the place of one that may be there."""
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
