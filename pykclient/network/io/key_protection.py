"""Work that opening an encrypted key or a store takes, read from its parameters before it is done.

A password is made into a key by as many iterations of a hash function as the file says, up to 2^31,
which OpenSSL does without a limit. The parameters stand in the open, and are read here in BER, in
which some stores of Java are. What cannot be read is passed over, as OpenSSL reads less of it.

Owner: none; functions only.
Source: RFC 8018 (PBKDF2, PBES1), RFC 7914 (scrypt), RFC 7292 (PKCS#12), RFC 9579 (PBMAC1).
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

ITERATIONS_MAX: Final = 4_000_000
"""Iterations in all of one file. A few seconds of a CPU; today's advice is up to 1,300,000."""

SCRYPT_COST_MAX: Final = 2**20
"""N times r times p, in all of one file. OpenSSL writes 131,072; each takes 128 bytes and a
microsecond."""

ELEMENTS_MAX: Final = 100_000
"""Elements of one file. A store with the authorities of a system has 20,000."""

KEY_LENGTH_MAX: Final = 8_000
"""Characters of a private key in base64. To verify a key of 65,536 bits takes minutes."""
KEY_BYTES_MAX: Final = KEY_LENGTH_MAX * 3 // 4
"""Bytes of a private key in a store, which is verified when the store is opened."""

_OBJECT_IDENTIFIER, _OCTETS, _INTEGER = 0x06, 0x04, 0x02
_CONSTRUCTED: Final = 0x20
_SEQUENCE: Final = 0x30
_DEPTH_MAX: Final = 50
"""Elements without a length, one in another."""
_INTEGER_BYTES_MAX: Final = 8

_SCRYPT: Final = bytes.fromhex("2b06010401da47040b")
_PBKDF2: Final = bytes.fromhex("2a864886f70d01050c")
_PBES1: Final = bytes.fromhex("2a864886f70d0105")
_PKCS12: Final = bytes.fromhex("2a864886f70d010c01")
_PBES2: Final = bytes.fromhex("2a864886f70d01050d")
_RSA: Final = bytes.fromhex("2a864886f70d010101")
_PBES1_LAST_MAX: Final = 11
"""The last number in the identifiers of PBES1; larger ones belong to PBES2."""

_ENCRYPTED_BEGIN: Final = b"BEGIN ENCRYPTED PRIVATE KEY"
_ENCRYPTED_PEM: Final = re.compile(
    rb"-----BEGIN ENCRYPTED PRIVATE KEY-----([^-]*)-----END ENCRYPTED PRIVATE KEY-----"
)
_PRIVATE_PEM: Final = re.compile(
    rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(.*?)(?:-----END|\Z)", re.DOTALL
)


class _Element(NamedTuple):
    tag: int
    start: int
    end: int


def check_pem(pem: bytes, setting: str) -> None:
    """Check the encrypted keys in PEM.

    Raises:
        ConfigError: opening one takes too long, or it is not in base64; says which `setting`.
    """
    bodies = _ENCRYPTED_PEM.findall(pem)
    work = _Work(setting)
    try:
        for body in bodies:
            work.add(b64decode(b"".join(body.split()), validate=True))
    except Base64Error:
        bodies.clear()
    if pem.count(_ENCRYPTED_BEGIN) != len(bodies):
        raise ConfigError(f"{setting} holds an encrypted key that is not base64.")


def check_store(data: bytes, setting: str) -> None:
    """Check a store in PKCS#12: its digest, and each encrypted part. Raises as `check_pem`."""
    work = _Work(setting)
    work.add_digest(data)
    work.add(data)


def check_size(pem: bytes, setting: str) -> None:
    """Check the size of a key: its primes are verified before it signs.

    Raises:
        ConfigError: it is larger than `KEY_LENGTH_MAX`.
    """
    length = sum(len(b"".join(body.split())) for body in _PRIVATE_PEM.findall(pem))
    if length > KEY_LENGTH_MAX:
        raise ConfigError(
            f"{setting} has a private key of {length} characters in base64, and {KEY_LENGTH_MAX} "
            f"are the maximum, more than RSA with 8192 bits takes."
        )


class _Work:
    """The work that one file takes. Raises `ConfigError` once it is too much."""

    def __init__(self, setting: str) -> None:
        self._setting = setting
        self._iterations = 0
        self._scrypt_cost = 0
        self._elements_left = ELEMENTS_MAX

    def add(self, data: bytes) -> None:
        """Add the work of each part, however deep it stands."""
        waiting = [(data, 0, len(data))]
        while waiting:
            within, start, end = waiting.pop()
            elements = list(self._elements(within, start, end))
            self._add_algorithm(within, elements)
            self._check_key(within, elements)
            for element in elements:
                if element.tag == _OCTETS | _CONSTRUCTED:
                    joined = self._joined(within, element)
                    waiting.append((joined, 0, len(joined)))
                elif element.tag & _CONSTRUCTED or (_has_elements(within, element)):
                    waiting.append((within, element.start, element.end))

    def _check_key(self, data: bytes, elements: list[_Element]) -> None:
        """Check the size of a key, encrypted or not, which a library verifies as it opens it."""
        tags = [each.tag for each in elements[:3]]
        if tags[:2] == [_SEQUENCE, _OCTETS]:
            [algorithm, content] = elements[:2]
            is_key = _is_of_key(self._name_at(data, algorithm))
        elif tags == [_INTEGER, _SEQUENCE, _OCTETS]:
            [_, algorithm, content] = elements[:3]
            is_key = self._name_at(data, algorithm) == _RSA
        else:
            return
        size = content.end - content.start
        if is_key and size > KEY_BYTES_MAX:
            raise ConfigError(
                f"{self._setting} has a private key of {size} bytes, and {KEY_BYTES_MAX} are the "
                f"maximum, more than RSA with 8192 bits takes."
            )

    def _name_at(self, data: bytes, algorithm: _Element) -> bytes:
        """Return the name of an algorithm; empty if it has none."""
        found = next(self._elements(data, algorithm.start, algorithm.end), None)
        is_name = found is not None and found.tag == _OBJECT_IDENTIFIER
        return data[found.start : found.end] if found is not None and is_name else b""

    def add_digest(self, data: bytes) -> None:
        """Add the work of the digest of a store, which is its third part."""
        [store, *_] = [*self._elements(data, 0, len(data)), _Element(0, 0, 0)]
        parts = list(self._elements(data, store.start, store.end))
        for part in parts[2:3]:
            fields = list(self._elements(data, part.start, part.end))
            for field in fields[2:3]:
                self._add_iterations(_number(data, field))

    def _add_algorithm(self, data: bytes, elements: list[_Element]) -> None:
        """Add the work of an algorithm, which is a name and its parameters."""
        if len(elements) < 2 or elements[0].tag != _OBJECT_IDENTIFIER:
            return
        name = data[elements[0].start : elements[0].end]
        fields = list(self._elements(data, elements[1].start, elements[1].end))
        numbers = [_number(data, each) for each in fields if each.tag == _INTEGER]
        if name == _SCRYPT:
            self._add_scrypt(*[*numbers, 0, 0, 0][:3])
        elif name == _PBKDF2 or name[:-1] == _PKCS12 or _is_pbes1(name):
            self._add_iterations(*numbers[:1])

    def _add_iterations(self, count: int = 0) -> None:
        self._iterations += max(0, count)
        if self._iterations > ITERATIONS_MAX:
            raise ConfigError(
                f"{self._setting} is protected by {self._iterations} iterations of a hash "
                f"function, and {ITERATIONS_MAX} are the most that are done. Protect it again "
                f"with fewer: openssl pkcs8 -topk8 -iter 600000, or openssl pkcs12 -export -iter "
                f"600000."
            )

    def _add_scrypt(self, n: int, r: int, p: int) -> None:
        self._scrypt_cost += n * r * p
        if self._scrypt_cost > SCRYPT_COST_MAX:
            raise ConfigError(
                f"{self._setting} is protected by scrypt with N={n}, r={r}, p={p}, whose product "
                f"is {n * r * p}, {self._scrypt_cost} with other parts of it, and "
                f"{SCRYPT_COST_MAX} is the most for a file. Protect it again with less: openssl "
                f"pkcs8 -topk8 -scrypt."
            )

    # BER.

    def _elements(self, data: bytes, at: int, end: int) -> Iterator[_Element]:
        """Yield the elements between two places, up to one that cannot be read."""
        while at < end:
            found = self._element(data, at, end)
            if found is None:
                return
            element, at = found
            yield element

    def _element(
        self, data: bytes, at: int, end: int, depth: int = 0
    ) -> tuple[_Element, int] | None:
        """Return the element at a place, and where the next one stands."""
        self._elements_left -= 1
        if self._elements_left < 0 or depth > _DEPTH_MAX:
            raise ConfigError(
                f"{self._setting} has more than {ELEMENTS_MAX} elements, or {_DEPTH_MAX} in one "
                f"another."
            )
        head = _head(data, at, end)
        if head is None:
            return None
        tag, start, size = head
        if size is not None:
            return (
                (_Element(tag, start, start + size), start + size) if start + size <= end else None
            )
        # Of a length that is not given, the end is marked.
        at = start
        while data[at : at + 2] != b"\0\0":
            found = self._element(data, at, end, depth + 1)
            if found is None:
                return None
            at = found[1]
        return _Element(tag, start, at), at + 2

    def _joined(self, data: bytes, element: _Element) -> bytes:
        """Return the octets that are in parts, which may be in parts again."""
        parts = []
        waiting = [element]
        while waiting:
            each = waiting.pop()
            if each.tag & _CONSTRUCTED:
                waiting += reversed(list(self._elements(data, each.start, each.end)))
            else:
                parts.append(data[each.start : each.end])
        return b"".join(parts)


def _head(data: bytes, at: int, end: int) -> tuple[int, int, int | None] | None:
    """Return tag, place of the contents and their size, None for one that is not given."""
    if at + 2 > end:
        return None
    tag, at = data[at], at + 1
    if tag & 0x1F == 0x1F:  # a number of several bytes
        while at < end and data[at] & 0x80:
            at += 1
        at += 1
    if at >= end:
        return None
    size, at = data[at], at + 1
    if size < 0x80:
        return tag, at, size
    if size == 0x80:
        return (tag, at, None) if tag & _CONSTRUCTED else None
    count = size & 0x7F
    return tag, at + count, int.from_bytes(data[at : at + count])


def _has_elements(data: bytes, element: _Element) -> bool:
    """Return whether octets are elements themselves, as far as their first one shows."""
    return element.tag == _OCTETS and data[element.start : element.start + 1] == b"\x30"


def _number(data: bytes, element: _Element) -> int:
    """Return a whole number; a very large one for one of many bytes."""
    content = data[element.start : element.end]
    if len(content) > _INTEGER_BYTES_MAX:
        return 1 << (8 * _INTEGER_BYTES_MAX)
    return int.from_bytes(content, signed=True)


def _is_of_key(name: bytes) -> bool:
    """Return whether a name identifies an encryption of keys."""
    return name == _PBES2 or name[:-1] == _PKCS12 or (name != b"" and _is_pbes1(name))


def _is_pbes1(name: bytes) -> bool:
    return name[:-1] == _PBES1 and name[-1] <= _PBES1_LAST_MAX
