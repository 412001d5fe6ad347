"""JKS: Java's own format of keystores and truststores, the default of ``keytool`` before Java 9.

A store is a list of entries and a digest. An entry is a trusted certificate, or a key with its
certificates; the key is protected by a scheme of Sun's based on SHA-1. The file's size bounds
everything, and `KEY_BYTES_MAX` bounds a key, since each 20 bytes of it take a digest. JCEKS, which
protects keys with another scheme, is not supported.

Owner: none; functions only.
Source: Java classes ``sun.security.provider.JavaKeyStore`` and ``KeyProtector``.
"""

from __future__ import annotations

import base64
import hashlib
from hmac import compare_digest
from typing import Final, NamedTuple

MAGIC: Final = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"
KEY_BYTES_MAX: Final = 65_536
"""Maximum size of a protected key; an RSA key of 16,384 bits takes 10 KB."""

CERTIFICATES_MAX: Final = 10_000
"""Certificates of one store, and entries; those of a system's authorities are 150."""
PASSWORD_LENGTH_MAX: Final = 1_000
"""The longest password, which is hashed for each 20 bytes of a key."""

_DIGEST_SIZE: Final = 20
_WHITENER: Final = b"Mighty Aphrodite"
"""The constant that Java adds to the password in a store's digest."""
_PROTECTOR: Final = bytes.fromhex("2b060104012a02110101")
"""Object identifier of Sun's scheme, 1.3.6.1.4.1.42.2.17.1.1."""
_KEY, _CERTIFICATE = 1, 2
_SEQUENCE, _OBJECT_IDENTIFIER, _OCTETS = 0x30, 0x06, 0x04
_X509: Final = ("X.509", "X509")


class ProtectedKey(NamedTuple):
    """A key as stored, with its certificates in DER, the key's own first."""

    alias: str
    protected: bytes
    chain: tuple[bytes, ...]

    def opened(self, password: str) -> bytes:
        """Return the key as PKCS#8 in DER.

        Raises:
            ValueError: the password does not open it, or its protection is not supported.
        """
        protected = _protected_octets(self.protected)
        secret = _password_bytes(password)
        salt, check = protected[:_DIGEST_SIZE], protected[-_DIGEST_SIZE:]
        encrypted = protected[_DIGEST_SIZE:-_DIGEST_SIZE]
        stream, digest = bytearray(), salt
        while len(stream) < len(encrypted):
            digest = _sha1(secret + digest)
            stream += digest
        number = int.from_bytes(encrypted) ^ int.from_bytes(stream[: len(encrypted)])
        key = number.to_bytes(len(encrypted))
        if not compare_digest(_sha1(secret + key), check):
            raise ValueError(f"the password does not open the key {self.alias!r}")
        return key


class Jks(NamedTuple):
    """The entries of a store, in the store's order."""

    trusted: tuple[bytes, ...]
    """Trusted certificates, in DER."""
    keys: tuple[ProtectedKey, ...]

    @property
    def authorities(self) -> bytes:
        """The certificates that Java trusts in a truststore, in PEM.

        Java also trusts the first certificate of each key.
        """
        found = (*self.trusted, *(key.chain[0] for key in self.keys if key.chain))
        return b"".join(_pem("CERTIFICATE", each) for each in found)

    def identity(self, password: str) -> bytes:
        """Return the first key with its certificates, in PEM.

        Raises:
            ValueError: the store has none, or the password does not open it.
        """
        key = next((each for each in self.keys if each.chain), None)
        if key is None:
            raise ValueError("it holds no key with its certificate")
        chain = b"".join(_pem("CERTIFICATE", each) for each in key.chain)
        return _pem("PRIVATE KEY", key.opened(password)) + chain


def read_jks(data: bytes, password: str | None) -> Jks:
    """Parse a store. With a password, its digest is checked, as in Java.

    Raises:
        ValueError: the store is damaged, or the password is wrong; the text says which.
    """
    body, digest = data[:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    if password is not None:
        expected = _sha1(_password_bytes(password) + _WHITENER + body)
        if not compare_digest(expected, digest):
            raise ValueError("the password is wrong, or the file was changed")
    reader = _Reader(body)
    if reader.take(4) != MAGIC:
        raise ValueError("it is not a JKS file")
    version = reader.number(4)
    if version not in (1, 2):
        raise ValueError(f"it has version {version}, but only 1 and 2 are supported")
    trusted: list[bytes] = []
    keys: list[ProtectedKey] = []
    for index in range(reader.number(4)):  # each entry takes bytes, too
        if index == CERTIFICATES_MAX:
            raise ValueError(f"it has more than {CERTIFICATES_MAX} entries")
        tag = reader.number(4)
        alias = reader.text()
        reader.take(8)  # its time
        if tag == _CERTIFICATE:
            trusted.append(reader.certificate(version))
        elif tag == _KEY:
            protected = reader.take(reader.number(4))
            chain = tuple(reader.certificate(version) for _ in range(reader.number(4)))
            keys.append(ProtectedKey(alias, protected, chain))
        else:
            raise ValueError(f"it has an entry of kind {tag}, but only 1 and 2 are supported")
    if not reader.is_at_end:
        raise ValueError("it has extra bytes after its entries")
    return Jks(tuple(trusted), tuple(keys))


class _Reader:
    """Reads the bytes one after the other; reading beyond the end raises `ValueError`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._certificates_left = CERTIFICATES_MAX

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError("it is truncated")
        found = self._data[self._at : end]
        self._at = end
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def text(self) -> str:
        # Java's modified UTF-8 differs only for characters that do not matter in an alias here.
        return self.take(self.number(2)).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        if version == 2 and (kind := self.text()) not in _X509:
            raise ValueError(f"it has a certificate of the type {kind[:100]!r}, which is not X.509")
        self._certificates_left -= 1
        if self._certificates_left < 0:
            raise ValueError(f"it has more than {CERTIFICATES_MAX} certificates")
        return self.take(self.number(4))


def _protected_octets(data: bytes) -> bytes:
    """Return salt, key and check of an EncryptedPrivateKeyInfo in Sun's scheme."""
    if len(data) > KEY_BYTES_MAX:
        raise ValueError(f"it has a key of more than {KEY_BYTES_MAX} bytes")
    start, end = _element(data, 0, len(data), _SEQUENCE)
    algorithm, after = _element(data, start, end, _SEQUENCE)
    name_start, name_end = _element(data, algorithm, after, _OBJECT_IDENTIFIER)
    if data[name_start:name_end] != _PROTECTOR:
        raise ValueError("its key is not protected as keys in JKS are")
    octets_start, octets_end = _element(data, after, end, _OCTETS)
    octets = data[octets_start:octets_end]
    if len(octets) <= 2 * _DIGEST_SIZE:
        raise ValueError("its key is too short")
    return octets


def _element(data: bytes, at: int, end: int, tag: int) -> tuple[int, int]:
    """Return the start and end of the contents of a DER element."""
    if at + 2 > end or data[at] != tag:
        raise ValueError("its key is malformed")
    size, start = data[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        size, start = int.from_bytes(data[start : start + count]), start + count
    if start + size > end:
        raise ValueError("its key is malformed")
    return start, start + size


def _password_bytes(password: str) -> bytes:
    """Return a password in Java's form: two bytes per character."""
    if len(password) > PASSWORD_LENGTH_MAX:
        raise ValueError(f"the password has more than {PASSWORD_LENGTH_MAX} characters")
    return password.encode("utf-16-be", "surrogatepass")


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _pem(label: str, der: bytes) -> bytes:
    lines = base64.encodebytes(der).replace(b"\n", b"")
    body = b"\n".join(lines[at : at + 64] for at in range(0, len(lines), 64))
    return b"-----BEGIN %b-----\n%b\n-----END %b-----\n" % (label.encode(), body, label.encode())
