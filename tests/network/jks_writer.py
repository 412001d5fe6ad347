"""Write JKS stores for tests without Java; `test_jks` compares them with Java's own."""

from __future__ import annotations

import hashlib
import os
import struct
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PROTECTOR = bytes.fromhex("300e060a2b060104012a021101010500")
"""OID of Sun's key protection algorithm, in DER."""


def trusted_entry(alias: str, certificate: bytes) -> bytes:
    return struct.pack(">I", 2) + _head(alias) + _certificate(certificate)


def key_entry(alias: str, key: bytes, chain: Sequence[bytes], password: str) -> bytes:
    """Return the entry of a key, PKCS#8 in DER, with its certificates."""
    protected = protected_key(key, password)
    head = struct.pack(">I", 1) + _head(alias) + struct.pack(">I", len(protected))
    return head + protected + struct.pack(">I", len(chain)) + b"".join(map(_certificate, chain))


def store(entries: Sequence[bytes], password: str) -> bytes:
    body = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    secret = password.encode("utf-16-be")
    return body + hashlib.sha1(secret + b"Mighty Aphrodite" + body).digest()


def protected_key(key: bytes, password: str) -> bytes:
    secret, salt = password.encode("utf-16-be"), os.urandom(20)
    block, encrypted = salt, b""
    for at in count(0, 20):
        if at >= len(key):
            break
        block = hashlib.sha1(secret + block).digest()
        encrypted += bytes(a ^ b for a, b in zip(key[at : at + 20], block, strict=False))
    check = hashlib.sha1(secret + key).digest()
    return der(0x30, PROTECTOR + der(0x04, salt + encrypted + check))


def der(tag: int, contents: bytes) -> bytes:
    size = len(contents)
    if size < 0x80:
        return bytes([tag, size]) + contents
    digits = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(digits)]) + digits + contents


def _head(alias: str) -> bytes:
    return _text(alias) + struct.pack(">Q", 1_700_000_000_000)


def _certificate(certificate: bytes) -> bytes:
    return _text("X.509") + struct.pack(">I", len(certificate)) + certificate


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text.encode())) + text.encode()
