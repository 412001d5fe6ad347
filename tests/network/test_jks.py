"""Keystores and truststores in Java's format: those that keytool writes, and damaged ones."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from time import process_time
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from pykclient.admin.config import AdminConfig
from pykclient.config.https import HttpsFiles
from pykclient.config.setting import Password
from pykclient.errors import ConfigError
from pykclient.network.io.jks import KEY_BYTES_MAX, read_jks
from pykclient.network.io.ssl_factory import HttpsFactory, SslFactory
from pykclient.network.log import ClientLog
from tests.network.jks_writer import der, key_entry, store, trusted_entry

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "canary-3f66"
NEEDS_KEYTOOL = pytest.mark.skipif(shutil.which("keytool") is None, reason="no keytool of Java")


def context_of(**changes: object) -> ssl.SSLContext:
    config = AdminConfig.from_settings(bootstrap_servers="h:1", security_protocol="SSL", **changes)
    return SslFactory(config).engine("h", ssl.MemoryBIO(), ssl.MemoryBIO(), None).context


def refusal(**changes: object) -> str:
    with pytest.raises(ConfigError) as caught:
        context_of(**changes)
    assert CANARY not in str(caught.value)
    return str(caught.value)


AUTHORITY = trustme.CA()
CLIENT = AUTHORITY.issue_cert("client@example.com", common_name="client")
ROOT = ssl.PEM_cert_to_DER_cert(AUTHORITY.cert_pem.bytes().decode())
CHAIN = [
    ssl.PEM_cert_to_DER_cert(each.decode())
    for pem in CLIENT.cert_chain_pems
    for each in [pem.bytes()]
]
KEY = serialization.load_pem_private_key(CLIENT.private_key_pem.bytes(), None).private_bytes(
    serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)


def keytool(folder: Path, *words: str) -> None:
    subprocess.run(
        ["keytool", *words, "-J-XX:TieredStopAtLevel=1", "-J-Dkeystore.pkcs12.legacy=false"],
        cwd=folder,
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )


@NEEDS_KEYTOOL
def test_stores_that_keytool_makes_are_read(tmp_path: Path) -> None:
    kind = ("-storetype", "JKS", "-storepass", f"{CANARY}ö")
    keytool(
        tmp_path,
        *("-genkeypair", "-alias", "größe", "-keyalg", "RSA", "-dname", "CN=client"),
        *("-keystore", "key.jks", "-keypass", f"{CANARY}-key", *kind),
    )
    keytool(
        tmp_path,
        *("-exportcert", "-alias", "größe", "-keystore", "key.jks", "-file", "client.der", *kind),
    )
    keytool(
        tmp_path,
        *("-importcert", "-noprompt", "-alias", "a", "-file", "client.der"),
        *("-keystore", "trust.jks", *kind),
    )
    (tmp_path / "root.der").write_bytes(ROOT)
    keytool(
        tmp_path,
        *("-importcert", "-noprompt", "-alias", "b", "-file", "root.der"),
        *("-keystore", "trust.jks", *kind),
    )
    certificate = (tmp_path / "client.der").read_bytes()
    key_store = {"ssl_keystore_location": tmp_path / "key.jks"}
    password = {"ssl_keystore_password": f"{CANARY}ö"}
    # OpenSSL accepts a key only with its own certificate.
    context_of(**key_store, **password, ssl_key_password=f"{CANARY}-key", ssl_keystore_type="JKS")
    for beside in ({}, {"ssl_truststore_password": f"{CANARY}ö"}, {"ssl_truststore_type": "JKS"}):
        context = context_of(ssl_truststore_location=tmp_path / "trust.jks", **beside)
        assert context.cert_store_stats()["x509"] == 2
        assert context.get_ca_certs(binary_form=True) == [ROOT]
    trusted = read_jks((tmp_path / "trust.jks").read_bytes(), f"{CANARY}ö").trusted
    assert set(trusted) == {certificate, ROOT}
    said = refusal(ssl_truststore_location=tmp_path / "trust.jks", ssl_truststore_password="x")
    assert "cannot be opened: the password is wrong, or the file was changed" in said
    assert "cannot be opened: the password is wrong" in refusal(
        **key_store, ssl_keystore_password=CANARY
    )
    assert "the password does not open the key 'größe'" in refusal(**key_store, **password)
    assert "is in JKS, but ssl_keystore_password is missing" in refusal(**key_store)
    assert "is in JKS, but ssl_keystore_type says PEM" in refusal(
        **key_store, ssl_keystore_type="PEM"
    )


@NEEDS_KEYTOOL
def test_java_reads_the_stores_that_tests_write(tmp_path: Path) -> None:
    entries = [trusted_entry("root", ROOT), key_entry("client", KEY, CHAIN, "password")]
    (tmp_path / "a.jks").write_bytes(store(entries, "password"))
    keytool(
        tmp_path,
        *("-importkeystore", "-srckeystore", "a.jks", "-srcstorepass", "password", "-noprompt"),
        *("-destkeystore", "a.p12", "-deststoretype", "PKCS12", "-deststorepass", "password"),
    )
    context_of(
        ssl_keystore_location=tmp_path / "a.p12",
        ssl_keystore_password="password",
    )


def test_a_client_is_let_in_by_a_key_in_jks(tmp_path: Path) -> None:
    """The store's password protects the key, as in keytool by default."""
    place = tmp_path / "store"
    place.write_bytes(store([key_entry("a", KEY, CHAIN, CANARY), trusted_entry("b", ROOT)], CANARY))
    password = {"ssl_keystore_password": CANARY, "ssl_truststore_password": CANARY}
    own = context_of(ssl_keystore_location=place, ssl_truststore_location=place, **password)
    own.check_hostname = False
    broker = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("h").configure_cert(broker)
    AUTHORITY.configure_trust(broker)
    broker.verify_mode = ssl.CERT_REQUIRED
    to_client, to_broker = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = own.wrap_bio(to_client, to_broker, server_hostname="h")
    server = broker.wrap_bio(to_broker, to_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for each in (client, server):
            try:
                each.do_handshake()
                done.add(each)
            except ssl.SSLWantReadError:
                pass
    shown: Any = server.getpeercert(binary_form=True)
    assert x509.load_der_x509_certificate(shown) == x509.load_der_x509_certificate(CHAIN[0])


def test_an_identity_server_is_trusted_and_met_with_what_is_in_jks(tmp_path: Path) -> None:
    place = tmp_path / "store"
    place.write_bytes(store([key_entry("a", KEY, CHAIN, CANARY), trusted_entry("b", ROOT)], CANARY))
    files = HttpsFiles(
        ca_location=str(place),
        ca_password=Password(CANARY),
        certificate_location=str(place),
        store_password=Password(CANARY),
    )
    context = HttpsFactory(files, ClientLog("pykclient.network", "c")).context()
    assert context.get_ca_certs(binary_form=True) == [ROOT]
    wrong = files._replace(store_password=Password("wrong"))
    with pytest.raises(ConfigError, match="the password is wrong"):
        HttpsFactory(wrong, ClientLog("pykclient.network", "c"))


def test_what_is_no_jks_or_has_no_key_says_so(tmp_path: Path) -> None:
    place = tmp_path / "store"
    password = {"ssl_keystore_password": CANARY}

    def said(data: bytes, **changes: object) -> str:
        place.write_bytes(data)
        return refusal(ssl_keystore_location=place, **{**password, **changes})

    assert "it holds no key with its certificate" in said(store([trusted_entry("a", ROOT)], CANARY))
    assert "it holds no key with its certificate" in said(
        store([key_entry("a", KEY, [], CANARY)], CANARY)
    )
    good = store([key_entry("a", KEY, CHAIN, CANARY)], CANARY)
    assert "the file was changed" in said(good[:100] + b"!" + good[101:])
    assert "keytool -importkeystore -srckeystore FILE -srcstoretype JCEKS" in said(
        b"\xce\xce\xce\xce" + good[4:]
    )
    other = der(0x30, der(0x30, der(0x06, b"\x2a\x03")) + der(0x04, bytes(60)))
    entry = key_entry("a", KEY, CHAIN, CANARY)
    size = 4 + 2 + 1 + 8
    protected = int.from_bytes(entry[size : size + 4])
    changed = entry[:size] + len(other).to_bytes(4) + other + entry[size + 4 + protected :]
    assert "its key is not protected as keys in JKS are" in said(store([changed], CANARY))
    place.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\0")
    assert "cannot be opened: it is truncated" in refusal(ssl_truststore_location=place)


ENTRIES = [
    key_entry("a", KEY, CHAIN, "p"),
    trusted_entry("b", ROOT),
    trusted_entry("é" * 100, ROOT),
]
WHOLE = store(ENTRIES, "p")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_store_is_an_error_or_a_store(data: st.DataObject) -> None:
    """Without a password no digest is checked, so that damaged data reaches the parser."""
    damaged = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0x84, 0xFF]))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    try:
        found = read_jks(bytes(damaged), None)
        assert len(found.authorities) < 3 * len(WHOLE)
        found.identity("p")
    except ValueError:
        pass


def test_each_beginning_of_a_store_is_an_error() -> None:
    for size in range(len(WHOLE)):
        with pytest.raises(ValueError, match=r"truncated|not a JKS file|after its entries"):
            read_jks(WHOLE[:size], None)
    with pytest.raises(ValueError, match="after its entries"):
        read_jks(WHOLE + b"!", None)


def test_counts_and_sizes_that_a_store_does_not_have_cost_nothing() -> None:
    begin = process_time()
    for body in (
        b"\xff\xff\xff\xff",
        b"\0\0\0\1\0\0\0\2\0\0" + bytes(8) + b"\0\5X.509\xff\xff\xff\xff",
    ):
        with pytest.raises(ValueError, match="it is truncated"):
            read_jks(b"\xfe\xed\xfe\xed\0\0\0\2" + body + bytes(20), None)
    entry = key_entry("a", bytes(KEY_BYTES_MAX), CHAIN, "p")
    with pytest.raises(ValueError, match="more than 65536 bytes"):
        read_jks(store([entry], "p"), "p").identity("p")
    assert process_time() - begin < 1.0
