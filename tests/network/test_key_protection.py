"""Keys and stores that would take hours to open are refused at once."""

from __future__ import annotations

import base64
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from pykclient.errors import ConfigError
from pykclient.network.io import jks
from pykclient.network.io.key_protection import (
    ELEMENTS_MAX,
    ITERATIONS_MAX,
    SCRYPT_COST_MAX,
    check_pem,
    check_size,
    check_store,
)
from pykclient.network.io.ssl_factory import SslFactory
from pykclient.producer.config import ProducerConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HUGE: Final = 2**31 - 1
PBES2, PBKDF2 = "2a864886f70d01050d", "2a864886f70d01050c"
PBES1_SHA1_DES, PKCS12_3DES = "2a864886f70d01050a", "2a864886f70d010c0103"
SCRYPT, AES = "2b06010401da47040b", "60864801650304012a"
DATA, ENCRYPTED_DATA = "2a864886f70d010701", "2a864886f70d010706"
KEY_BAG, RSA = "2a864886f70d010c0a0101", "2a864886f70d010101"
SHROUDED_BAG, SHA256 = "2a864886f70d010c0a0102", "608648016503040201"


def der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    digits = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(digits)]) + digits + content


def sequence(*parts: bytes) -> bytes:
    return der(0x30, *parts)


def name(digits: str) -> bytes:
    return der(0x06, bytes.fromhex(digits))


def octets(content: bytes) -> bytes:
    return der(0x04, content)


def number(value: int) -> bytes:
    return der(0x02, value.to_bytes(value.bit_length() // 8 + 1, signed=True))


def pbkdf2(iterations: int) -> bytes:
    derivation = sequence(name(PBKDF2), sequence(octets(b"salt" * 2), number(iterations)))
    return sequence(name(PBES2), sequence(derivation, sequence(name(AES), octets(bytes(16)))))


def scrypt(n: int, r: int, p: int) -> bytes:
    derivation = sequence(name(SCRYPT), sequence(octets(b"salt"), number(n), number(r), number(p)))
    return sequence(name(PBES2), sequence(derivation, sequence(name(AES), octets(bytes(16)))))


def older(digits: str, iterations: int) -> bytes:
    return sequence(name(digits), sequence(octets(b"salt" * 2), number(iterations)))


def key(algorithm: bytes) -> bytes:
    return sequence(algorithm, octets(bytes(64)))


def pem(*keys: bytes) -> bytes:
    return b"\n".join(
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n%b-----END ENCRYPTED PRIVATE KEY-----\n"
        % base64.encodebytes(each)
        for each in keys
    )


def store(*parts: bytes, digest: int = 2_048) -> bytes:
    """Return a store in PKCS#12 of these parts, each the content of one."""
    contents = sequence(*parts)
    safe = sequence(name(DATA), der(0xA0, octets(contents)))
    found = sequence(sequence(name(SHA256)), octets(bytes(32)))
    mac = sequence(found, octets(b"salt"), number(digest))
    return sequence(number(3), safe, mac)


def encrypted(algorithm: bytes) -> bytes:
    content = sequence(name(DATA), algorithm, der(0x80, bytes(64)))
    return sequence(name(ENCRYPTED_DATA), der(0xA0, sequence(number(0), content)))


def bags(*keys: bytes) -> bytes:
    found = sequence(*(sequence(name(SHROUDED_BAG), der(0xA0, each)) for each in keys))
    return sequence(name(DATA), der(0xA0, octets(found)))


def without_length(tag: int, content: bytes) -> bytes:
    return bytes([tag | 0x20, 0x80]) + content + b"\0\0"


def in_parts(content: bytes, size: int) -> bytes:
    parts = (octets(content[at : at + size]) for at in range(0, len(content), size))
    return without_length(0x04, b"".join(parts))


def store_in_ber(*parts: bytes, size: int) -> bytes:
    """Build a store whose octets are in parts without lengths, as some Java libraries write it."""
    contents = without_length(0x30, b"".join(parts))
    safe = name(DATA) + without_length(0x80, in_parts(contents, size))
    return without_length(0x30, number(3) + without_length(0x30, safe))


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        (pbkdf2(HUGE), f"is protected by {HUGE} iterations of a hash"),
        (pbkdf2(2**70), "iterations of a hash function"),
        (older(PBES1_SHA1_DES, HUGE), f"is protected by {HUGE} iterations"),
        (older(PKCS12_3DES, HUGE), f"is protected by {HUGE} iterations"),
        (scrypt(2**20, 8, 1), "scrypt with N=1048576, r=8, p=1, whose product is 8388608"),
        (scrypt(2, 1, 2**30), "scrypt with N=2, r=1, p=1073741824"),
    ],
)
def test_a_key_that_takes_too_long_to_open_is_refused(algorithm: bytes, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_pem(pem(key(algorithm)), "ssl_keystore_key and its chain")
    assert str(caught.value).startswith("ssl_keystore_key and its chain is protected by")
    assert reason in str(caught.value)
    for made in (partial(store, digest=0), partial(store_in_ber, size=7)):
        for part in (encrypted(algorithm), bags(key(algorithm))):
            with pytest.raises(ConfigError) as caught:
                check_store(made(part), "ssl_keystore_location='a'")
            assert reason in str(caught.value)


def test_usual_protection_is_taken() -> None:
    check_pem(pem(key(pbkdf2(1_300_000)), key(scrypt(16_384, 8, 1))), "s")
    usual = [encrypted(pbkdf2(10_000)), bags(key(pbkdf2(10_000)), key(older(PKCS12_3DES, 2_048)))]
    check_store(store(*usual, digest=10_000), "s")
    check_store(store_in_ber(*usual, size=1_000), "s")
    check_pem(pem(key(scrypt(2, 1, SCRYPT_COST_MAX // 2))), "s")
    check_pem(pem(key(pbkdf2(ITERATIONS_MAX))), "s")


def test_all_of_one_file_counts() -> None:
    many = [key(pbkdf2(ITERATIONS_MAX // 10))] * 11
    for check, data in ((check_pem, pem(*many)), (check_store, store(bags(*many)))):
        with pytest.raises(ConfigError, match="iterations of a hash"):
            check(data, "s")
    with pytest.raises(ConfigError, match=f"protected by {HUGE} iterations"):
        check_store(store(digest=HUGE), "s")


@pytest.mark.parametrize(
    "data",
    [
        pem(key(pbkdf2(1))).replace(b"\n", b"\nProc-Type: 4,ENCRYPTED\n", 1),
        pem(key(pbkdf2(1))).replace(b"\nM", b"\n*", 1),
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----",
    ],
)
def test_an_encrypted_key_that_cannot_be_looked_at_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match="an encrypted key that is not base64"):
        check_pem(data, "s")


@pytest.mark.parametrize(
    "data",
    [
        sequence(*[number(0)] * (ELEMENTS_MAX + 1)),
        b"\x30\x80" * 100_000,
        b"\x24\x80" * 100_000,
        b"\x30\x84\x7f\xff\xff\xff" * 100_000,
        octets(b"\x30") * 200_000,
        b"\x3f" + b"\xff" * 1_000_000,
    ],
)
def test_no_bytes_take_long(data: bytes) -> None:
    begun_s = time.process_time()
    for each in (data, sequence(number(3), data), octets(data)):
        try:
            check_store(each, "s")
        except ConfigError as error:
            assert "elements" in str(error)  # noqa: PT017
    assert time.process_time() - begun_s < 5


@pytest.mark.parametrize("label", ["PRIVATE KEY", "RSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY"])
def test_a_key_that_takes_too_long_to_verify_is_refused(label: str) -> None:
    for size, is_taken in ((4_800, True), (16_384, False)):
        body = base64.encodebytes(bytes(size)).decode()
        text = f"-----BEGIN {label}-----\n{body}-----END {label}-----".encode()
        if is_taken:
            check_size(text, "s")
        else:
            with pytest.raises(ConfigError, match="s has a private key of 21848 characters"):
                check_size(text, "s")


def rsa(size: int) -> bytes:
    return sequence(number(0), sequence(name(RSA), der(0x05)), octets(bytes(size)))


@pytest.mark.parametrize(
    "part",
    [
        lambda size: bags(sequence(pbkdf2(10_000), octets(bytes(size)))),
        lambda size: bags(sequence(older(PKCS12_3DES, 2_048), octets(bytes(size)))),
        lambda size: sequence(
            name(DATA), der(0xA0, octets(sequence(sequence(name(KEY_BAG), der(0xA0, rsa(size))))))
        ),
    ],
)
def test_a_key_in_a_store_has_a_size_that_can_be_verified(part: Callable[[int], bytes]) -> None:
    """A library verifies the primes of a key in PKCS#12: those of 65,536 bits take minutes."""
    check_store(store(part(4_800)), "s")
    with pytest.raises(ConfigError, match="s has a private key of 36000 bytes, and 6000 are the"):
        check_store(store(part(36_000)), "s")


def test_scrypt_counts_in_all_of_one_file() -> None:
    many = [key(scrypt(2, 1, SCRYPT_COST_MAX // 8))] * 5
    for check, data in ((check_pem, pem(*many)), (check_store, store(bags(*many)))):
        with pytest.raises(ConfigError, match="1310720 with other parts of it, and 1048576 is"):
            check(data, "s")


def test_the_settings_are_named(tmp_path: Path) -> None:
    place = tmp_path / "store.p12"
    place.write_bytes(store(bags(key(pbkdf2(HUGE))), digest=0))
    settings = {"bootstrap.servers": "h:9092", "security.protocol": "SSL"}
    inline = {
        "ssl.keystore.key": pem(key(pbkdf2(HUGE))).decode(),
        "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----",
        "ssl.key.password": "secret",
    }
    for given, setting in (
        (inline, "ssl_keystore_key"),
        ({"ssl.keystore.location": str(place), "ssl.keystore.password": "x"}, "ssl_keystore_loc"),
        ({"ssl.truststore.location": str(place)}, "ssl_truststore_location"),
    ):
        with pytest.raises(ConfigError, match=f"{setting}.* is protected by {HUGE} iterations"):
            SslFactory(ProducerConfig.from_settings(settings | given))


def test_authorities_have_a_limit() -> None:
    authority = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
    given = {
        "bootstrap.servers": "h:9092",
        "security.protocol": "SSL",
        "ssl.truststore.certificates": authority * 5_001,
    }
    with pytest.raises(ConfigError, match="has 5001 certificates, and 5000 are the maximum"):
        SslFactory(ProducerConfig.from_settings(given))


def jks_of(count: int, entry: bytes) -> bytes:
    return jks.MAGIC + (1).to_bytes(4) + count.to_bytes(4) + entry + bytes(20)


TRUSTED: Final = (2).to_bytes(4) + bytes(2) + bytes(8) + bytes(4)
KEY: Final = (1).to_bytes(4) + bytes(2) + bytes(8) + bytes(4)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: jks_of(2**31, TRUSTED), "it is truncated"),
        (lambda: jks_of(20_000, TRUSTED * 20_000), "more than 10000 entries"),
        (lambda: jks_of(1, KEY + (2**31).to_bytes(4) + bytes(400_000)), "more than 10000 cert"),
    ],
)
def test_a_store_in_jks_of_many_entries_is_refused(made: Callable[[], bytes], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        jks.read_jks(made(), None)
    with pytest.raises(ValueError, match="the password has more than 1000 characters"):
        jks.read_jks(made(), "x" * 1_001)
