"""TLS engines of a client: the files they read, and errors in those files."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from pykclient.admin.config import AdminConfig
from pykclient.config.properties import read_properties
from pykclient.errors import ConfigError
from pykclient.network.io.ssl_factory import SslFactory, openssl_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CANARY = "canary-81c2"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def client(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert("client@example.com", common_name="client")


def factory(**settings: object) -> SslFactory:
    return SslFactory(
        AdminConfig.from_settings(bootstrap_servers="h:1", security_protocol="SSL", **settings)
    )


def context_of(**settings: object) -> ssl.SSLContext:
    return factory(**settings).engine("h", ssl.MemoryBIO(), ssl.MemoryBIO(), None).context


def refusal(**settings: object) -> str:
    with pytest.raises(ConfigError) as caught:
        factory(**settings)
    assert CANARY not in str(caught.value)
    return str(caught.value)


def chain_of(certificate: trustme.LeafCert) -> bytes:
    return b"".join(pem.bytes() for pem in certificate.cert_chain_pems)


def key_of(certificate: trustme.LeafCert, password: str | None = None) -> bytes:
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        encryption(password),
    )


def encryption(password: str | None) -> serialization.KeySerializationEncryption:
    if password is None:
        return serialization.NoEncryption()
    return serialization.BestAvailableEncryption(password.encode())


def keystore(certificate: trustme.LeafCert, password: str | None) -> bytes:
    leaf, *others = x509.load_pem_x509_certificates(chain_of(certificate))
    key: Any = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return pkcs12.serialize_key_and_certificates(b"me", key, leaf, others, encryption(password))


def authorities(context: ssl.SSLContext) -> int:
    return len(context.get_ca_certs())


def test_authorities_come_from_a_file_a_folder_a_setting_or_the_system(
    authority: trustme.CA, tmp_path: Path
) -> None:
    pem = authority.cert_pem.bytes()
    (tmp_path / "ca.pem").write_bytes(pem)
    certificate = x509.load_pem_x509_certificate(pem)
    store = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(certificate, b"ca")], encryption(CANARY)
    )
    (tmp_path / "ca.p12").write_bytes(store)
    assert authorities(context_of(ssl_truststore_location=tmp_path / "ca.pem")) == 1
    assert authorities(context_of(ssl_truststore_certificates=pem.decode())) == 1
    from_pkcs12 = context_of(
        ssl_truststore_location=str(tmp_path / "ca.p12"), ssl_truststore_password=CANARY
    )
    assert authorities(from_pkcs12) == 1
    of_system = ssl.create_default_context().cert_store_stats()
    assert context_of().cert_store_stats() == of_system
    assert context_of(ssl_ca_location="probe").cert_store_stats() == of_system
    assert context_of(ssl_truststore_location=str(tmp_path)).verify_mode is ssl.CERT_REQUIRED


def spaces(pem: bytes) -> str:
    return pem.decode().strip().replace("\n", " ")


def continued(pem: bytes) -> str:
    """Return the value of a properties file with continuation lines, as Java and we read it."""
    lines = "\\\n   ".join(f"{line} " for line in pem.decode().split("\n") if line)
    return read_properties(f"key = {lines}\n")["key"]


def joined(pem: bytes) -> str:
    return pem.decode().replace("\n", "")


@pytest.mark.parametrize("form", [spaces, continued, joined])
@pytest.mark.parametrize("password", [None, CANARY])
def test_pem_without_its_line_breaks_is_taken(
    authority: trustme.CA,
    client: trustme.LeafCert,
    tmp_path: Path,
    form: Callable[[bytes], str],
    password: str | None,
) -> None:
    pem, key, chain = authority.cert_pem.bytes(), key_of(client, password), chain_of(client)
    chain += authority.cert_pem.bytes()
    settings: dict[str, object] = {
        "ssl_truststore_certificates": form(pem + pem + chain),
        "ssl_keystore_key": form(key),
        "ssl_keystore_certificate_chain": form(chain),
        "ssl_key_password": password,
    }
    assert authorities(context_of(**settings)) == 1
    for name, data in (("ca", pem), ("key", key), ("chain", chain)):
        (tmp_path / name).write_text(form(data))
    files = {
        "ssl_truststore_location": tmp_path / "ca",
        "ssl_keystore_location": tmp_path / "chain",
        "ssl_key_location": tmp_path / "key",
        "ssl_key_password": password,
    }
    assert authorities(context_of(**files)) == 1


def test_the_defaults_are_strict() -> None:
    context = context_of()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize("password", [None, CANARY])
def test_the_clients_certificate_is_read_from_each_form(
    client: trustme.LeafCert,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    password: str | None,
) -> None:
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    key, chain, secret = key_of(client, password), chain_of(client), {"ssl_key_password": password}
    (tmp_path / "both.pem").write_bytes(key + chain)
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "chain.pem").write_bytes(chain)
    (tmp_path / "store.p12").write_bytes(keystore(client, password))
    factory(ssl_keystore_location=tmp_path / "both.pem", **secret)
    factory(ssl_certfile=tmp_path / "chain.pem", ssl_keyfile=tmp_path / "key.pem", **secret)
    factory(ssl_keystore_key=key.decode(), ssl_keystore_certificate_chain=chain.decode(), **secret)
    factory(ssl_keystore_location=tmp_path / "store.p12", ssl_keystore_password=password)
    assert list(temporary.iterdir()) == []


def test_without_files_in_memory_a_private_one_is_gone_at_once(
    client: trustme.LeafCert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    factory(
        ssl_keystore_key=key_of(client).decode(),
        ssl_keystore_certificate_chain=chain_of(client).decode(),
    )
    assert list(tmp_path.iterdir()) == []


def write(folder: Path, data: bytes) -> Path:
    place = folder / "store"
    place.write_bytes(data)
    return place


@pytest.mark.parametrize(
    ("make", "settings", "reason"),
    [
        (lambda _: b"\xfe\xed\xfe\xed\0\0\0\2", {}, r"cannot be opened: it is truncated"),
        (lambda _: b"\xce\xce\xce\xce\0\0\0\2", {}, r"is in JCEKS.*keytool -importkeystore"),
        (lambda _: b"nonsense", {}, r"is not a keystore in PEM, PKCS#12 or JKS"),
        (chain_of, {}, r"holds no key in PEM; give it in ssl_key_location"),
        (key_of, {}, r"holds no certificate in PEM"),
        (lambda it: key_of(it, CANARY) + chain_of(it), {}, r"ssl_key_password is missing"),
        (
            lambda it: key_of(it, CANARY) + chain_of(it),
            {"ssl_key_password": "wrong"},
            r"ssl_key_password does not open it",
        ),
        (
            lambda it: keystore(it, CANARY),
            {},
            r"the password is wrong or missing \(ssl_keystore_password\)",
        ),
        (
            lambda it: keystore(it, CANARY),
            {"ssl_keystore_password": f"not {CANARY}"},
            r"the password is wrong or missing",
        ),
        (
            lambda it: key_of(trustme.CA().issue_cert("x@y.z")) + chain_of(it),
            {},
            r"the key does not belong to the certificate",
        ),
        (
            lambda it: key_of(it) + chain_of(it),
            {"ssl_keystore_type": "PKCS12"},
            r"is in PEM, but ssl_keystore_type says PKCS12",
        ),
    ],
)
def test_a_keystore_that_cannot_be_used_says_why(
    client: trustme.LeafCert, tmp_path: Path, make: Any, settings: Any, reason: str
) -> None:
    said = refusal(ssl_keystore_location=write(tmp_path, make(client)), **settings)
    assert re.search(reason, said), said
    assert str(tmp_path) in said


NAMES: dict[str, tuple[bool, str, str, str]] = {
    "java": (False, "ssl_keystore_certificate_chain", "ssl_keystore_key", "ssl_key_password"),
    "librdkafka": (False, "ssl.certificate.pem", "ssl.key.pem", "ssl_key_password"),
    "java, files": (True, "ssl_keystore_location", "ssl_key_location", "ssl_key_password"),
    "librdkafka, files": (True, "ssl.certificate.location", "ssl_key_location", "ssl_key_password"),
    "kafka-python, files": (True, "ssl_certfile", "ssl_keyfile", "ssl_password"),
}
"""Settings of a chain, its key and the password, with whether they name files."""


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize(
    ("make", "password", "reason"),
    [
        (lambda it: (chain_of(it), chain_of(it)), None, r"{key}.* holds no key in PEM\.$"),
        (lambda it: (key_of(it), key_of(it)), None, r"{chain}.* holds no certificate in PEM"),
        (
            lambda it: (chain_of(it), key_of(it, CANARY)),
            None,
            r"{key}.*: the key is encrypted, and {password} is missing",
        ),
        (
            lambda it: (chain_of(it), key_of(it, CANARY)),
            "wrong",
            r"{key}.*: the key is encrypted, and {password} does not open it",
        ),
        (
            lambda it: (chain_of(it), key_of(trustme.CA().issue_cert("x@y.z"))),
            None,
            r"{key}.*: the key does not belong to the certificate of {chain}",
        ),
    ],
)
def test_the_setting_of_the_key_is_the_one_that_the_user_gave(
    client: trustme.LeafCert,
    tmp_path: Path,
    make: Any,
    password: str | None,
    reason: str,
    names: str,
) -> None:
    is_file, chain, key, key_password = NAMES[names]
    values = dict(zip((chain, key), make(client), strict=True))
    given: dict[str, object] = {name: value.decode() for name, value in values.items()}
    if is_file:
        given = {
            name: str(write(tmp_path, value).rename(tmp_path / name))
            for name, value in values.items()
        }
    if password is not None:
        given[key_password] = password
    said = refusal(**given)
    shown = {"chain": chain, "key": key, "password": key_password}
    if password is None:  # then its name is Java's
        shown["password"] = "ssl_key_password"
    assert re.search(reason.format(**{k: f"\\b{re.escape(v)}" for k, v in shown.items()}), said), (
        said
    )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"ssl_truststore_location": "/no/such/file"}, "cannot be read: no such file"),
        ({"ssl_truststore_certificates": "x"}, "holds no certificates in PEM"),
        ({"ssl_cipher_suites": "NO_SUCH_SUITE"}, "OpenSSL has none of NO_SUCH_SUITE"),
        (
            {"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256", "ssl_enabled_protocols": "TLSv1.2"},
            "has none for the versions of ssl_enabled_protocols",
        ),
        ({"ssl_crl_location": __file__}, "holds no list of revoked certificates"),
    ],
)
def test_other_settings_that_cannot_be_used_say_why(
    settings: dict[str, object], reason: str
) -> None:
    assert reason in refusal(**settings)


def test_pkcs12_without_cryptography_says_what_to_install(
    client: trustme.LeafCert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    place = write(tmp_path, keystore(client, None))
    assert "pip install cryptography" in refusal(ssl_keystore_location=place)


def test_cipher_suites_have_the_standards_names_and_openssls() -> None:
    pairs = {
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
        "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    }
    for standard, own in pairs.items():
        assert openssl_name(standard) == openssl_name(own) == own


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no command openssl")
def test_cipher_suites_have_the_names_that_openssl_lists() -> None:
    listed = subprocess.run(
        ["openssl", "ciphers", "-stdname", "ECDHE:DHE:RSA"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line.split() for line in listed.stdout.splitlines()]
    both = {words[0]: words[2] for words in found if re.search(r"_AES_\d+_(CBC|GCM)_", words[0])}
    assert len(both) > 10
    own = {name: known for name, known in both.items() if not re.search("PSK|SRP", name)}
    assert {name: openssl_name(name) for name in own} == own


def test_chosen_suites_are_all_there_are() -> None:
    suites = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    context = context_of(ssl_cipher_suites=suites)
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    names = [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]
    assert names == ["ECDHE-RSA-AES128-GCM-SHA256"]
    assert offered(context) == {0xC02F}
    every = "TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_256_GCM_SHA384"
    only_newer = context_of(ssl_cipher_suites=every)
    assert only_newer.minimum_version is ssl.TLSVersion.TLSv1_3
    assert offered(only_newer) == {0x1301, 0x1302, 0x1303}
    assert offered(context_of(ssl_cipher_suites=f"{every},{suites}")) == {
        *offered(context),
        *offered(only_newer),
    }


def test_java_s_name_of_tls_1_2_leaves_1_3_out() -> None:
    assert context_of(ssl_protocol="TLSv1.2").maximum_version is ssl.TLSVersion.TLSv1_2
    assert context_of(ssl_protocol="TLS").maximum_version is ssl.TLSVersion.TLSv1_3


SIGNALS = {0x00FF, 0x5600}
"""Signalling values among the cipher suites: renegotiation and fallback."""


def offered(context: ssl.SSLContext) -> set[int]:
    """Return the numbers of the cipher suites in the first message to a broker."""
    outgoing = ssl.MemoryBIO()
    engine = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="h")
    with pytest.raises(ssl.SSLWantReadError):
        engine.do_handshake()
    hello = outgoing.read()
    # Skip the headers of record and handshake, the version, 32 random bytes and the session id.
    start = 5 + 4 + 2 + 32
    start += 1 + hello[start]
    size = int.from_bytes(hello[start : start + 2])
    listed = hello[start + 2 : start + 2 + size]
    return {int.from_bytes(listed[at : at + 2]) for at in range(0, size, 2)} - SIGNALS


@pytest.mark.parametrize("beside", ["", ",TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"])
def test_one_suite_of_tls_1_3_is_the_only_one_or_is_refused(beside: str) -> None:
    settings = {"ssl_cipher_suites": f"TLS_AES_256_GCM_SHA384{beside}"}
    if hasattr(ssl.SSLContext, "set_ciphersuites"):
        context = context_of(**settings)
        assert offered(context) == {0x1302, *([0xC02F] if beside else [])}
    else:
        assert (
            "has TLS_AES_256_GCM_SHA384 of TLS 1.3, but Python before 3.15 cannot choose among "
            "its suites. Give all of TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256, "
            "TLS_AES_128_GCM_SHA256; or none"
        ) in refusal(**settings)


def test_a_python_that_can_choose_suites_of_tls_1_3_is_given_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen: list[str] = []

    def set_ciphersuites(context: ssl.SSLContext, suites: str) -> None:
        if "NO_SUCH" in suites:
            raise ssl.SSLError("no cipher match")
        chosen.append(suites)

    monkeypatch.setattr(ssl.SSLContext, "set_ciphersuites", set_ciphersuites, raising=False)
    context_of(ssl_cipher_suites="TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    assert chosen == ["TLS_AES_256_GCM_SHA384"]
    assert "does not have all of TLS_NO_SUCH" in refusal(ssl_cipher_suites="TLS_NO_SUCH")


def test_a_context_of_the_application_is_used_as_it_is() -> None:
    own = ssl.create_default_context()
    assert context_of(ssl_context=own) is own
