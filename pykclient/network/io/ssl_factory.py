"""SslFactory: the TLS engine of each connection, from the settings and the files that they name.

Files are read at the start and again when one of them changes, so a client keeps running when its
certificates are renewed. If the new files are invalid, the error is logged and the last good state
stays in use. Keys from settings and from PKCS#12 are on no disk. OpenSSL only reads files, so they
are passed in an in-memory file or, where the system has none, in a private file that is deleted
before the call returns.

Owner: the driver of the engine, after construction.
Source: Java classes ``SslFactory``, ``DefaultSslEngineFactory``; KIP-651 (PEM), KIP-687 (reload).
"""

from __future__ import annotations

import os
import ssl
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.config.file_content import read_file
from pykclient.config.pem import with_lines
from pykclient.errors import ConfigError
from pykclient.network.io import jks
from pykclient.network.io.key_protection import check_pem, check_store
from pykclient.network.log import ClientLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

    from pykclient.config.client import ClientConfig
    from pykclient.config.https import HttpsFiles
    from pykclient.config.setting import Password

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum size of a certificate file; a system's bundle has a quarter of a megabyte."""

CERTIFICATES_MAX: Final = 5_000
"""Certificates that are trusted; a system has 150. OpenSSL compares each with all others."""

_PEM_BEGIN: Final = b"-----BEGIN"
_DER_SEQUENCE: Final = b"\x30"

_VERSIONS: Final = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}

_SYSTEMS_OWN: Final = "probe"
"""librdkafka's name for the system's authorities."""


class SslFactory:
    """Makes the TLS engine of each connection.

    Raises:
        ConfigError: a file cannot be read or has invalid contents; the text names it and the cure.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._log = ClientLog("pykclient.network", config.client_id)
        self._stamps = self._read_stamps()
        self._context = self._new_context()

    @property
    def has_identity(self) -> bool:
        """True if the client has a certificate."""
        config = self._config
        return (
            config.ssl_keystore_location is not None
            or config.ssl_keystore_certificate_chain is not None
            or config.ssl_context is not None
        )

    def reload(self) -> bool:
        """Read the files again if one has changed; return whether there is a new state."""
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        try:
            self._context = self._new_context()
        except ConfigError as error:
            self._log.error(
                "a certificate file has changed and cannot be used; the last state stays in use: "
                "%s",
                error,
            )
            return False
        self._log.info("the certificate files have changed and were read again")
        return True

    def engine(
        self,
        host: str,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        session: ssl.SSLSession | None,
    ) -> ssl.SSLObject:
        """Return the engine of a new connection to `host`, a name or an address."""
        return self._context.wrap_bio(
            incoming, outgoing, server_hostname=host.rstrip("."), session=session
        )

    def has_made(self, engine: ssl.SSLObject) -> bool:
        """Return whether an engine uses the current state of the files."""
        return engine.context is self._context

    def _read_stamps(self) -> dict[str, tuple[int, int, int] | None]:
        return {key: _stamp(place) for key, place in self._files().items()}

    def _files(self) -> dict[str, str]:
        config = self._config
        found = {
            "ssl_truststore_location": config.ssl_truststore_location,
            "ssl_keystore_location": config.ssl_keystore_location,
            "ssl_key_location": config.ssl_key_location,
            "ssl_crl_location": config.ssl_crl_location,
        }
        return {key: place for key, place in found.items() if place and place != _SYSTEMS_OWN}

    def _new_context(self) -> ssl.SSLContext:
        config = self._config
        if config.ssl_context is not None:
            assert isinstance(config.ssl_context, ssl.SSLContext)
            return config.ssl_context
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # As in Java, every certificate in the truststore is trusted, be it root, intermediate or
        # leaf.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.options |= ssl.OP_NO_RENEGOTIATION
        versions = [_VERSIONS[name] for name in config.tls_versions]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        context.check_hostname = bool(config.ssl_endpoint_identification_algorithm)
        if not config.enable_ssl_certificate_verification:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self._set_ciphers(context)
        self._load_trust(context)
        self._load_revoked(context)
        self._load_identity(context)
        return context

    # Ciphers.

    def _set_ciphers(self, context: ssl.SSLContext) -> None:
        suites = [openssl_name(name) for name in self._config.ssl_cipher_suites]
        if not suites:
            return
        older = [name for name in suites if not name.startswith("TLS_")]
        newer = [name for name in suites if name.startswith("TLS_")]
        try:
            context.set_ciphers(":".join(older) if older else "DEFAULT")
        except ssl.SSLError as error:
            raise ConfigError(
                f"ssl_cipher_suites: OpenSSL has none of {', '.join(older)}; `openssl ciphers` "
                f"lists its suites."
            ) from error
        if not older:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        elif not newer:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        if context.minimum_version > context.maximum_version:
            raise ConfigError(
                "ssl_cipher_suites has none for the versions of ssl_enabled_protocols."
            )
        if newer and context.maximum_version is ssl.TLSVersion.TLSv1_3:
            _set_suites_of_tls13(context, newer)

    # Trust.

    def _load_trust(self, context: ssl.SSLContext) -> None:
        config = self._config
        place, certificates = config.ssl_truststore_location, config.ssl_truststore_certificates
        if certificates is not None:
            _trust(context, certificates, "ssl_truststore_certificates")
        elif place is None or place == _SYSTEMS_OWN:
            context.load_default_certs()
        elif os.path.isdir(place):
            context.load_verify_locations(capath=place)
        else:
            setting = f"ssl_truststore_location={place!r}"
            data = _read(place, setting)
            found = _store_type(data, config.ssl_truststore_type, setting, "truststore")
            password = config.ssl_truststore_password
            data = _certificates(data, found, password, setting, "ssl_truststore_password")
            _trust(context, data.decode("ascii", "replace"), setting)

    def _load_revoked(self, context: ssl.SSLContext) -> None:
        place = self._config.ssl_crl_location
        if place is None:
            return
        setting = f"ssl_crl_location={place!r}"
        data = _read(place, setting)
        if b"-----BEGIN X509 CRL" not in data:
            raise ConfigError(f"{setting} holds no list of revoked certificates in PEM.")
        try:
            with _as_file(_with_lines(data)) as readable:
                context.load_verify_locations(readable)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(f"{setting} cannot be used: {_reason(error)}.") from error
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF

    # The client's own certificate.

    def _load_identity(self, context: ssl.SSLContext) -> None:
        config = self._config
        password = config.ssl_key_password
        if config.ssl_keystore_certificate_chain is not None:
            assert config.ssl_keystore_key is not None
            names = _Names(
                config.spelled("ssl_keystore_certificate_chain"),
                config.spelled("ssl_keystore_key"),
                config.spelled("ssl_key_password"),
            )
            chain = config.ssl_keystore_certificate_chain.encode()
            _load_pem(context, chain, config.ssl_keystore_key.value.encode(), password, names)
            return
        place = config.ssl_keystore_location
        if place is None:
            return
        setting = f"{config.spelled('ssl_keystore_location')}={place!r}"
        names = _Names(
            setting, setting, config.spelled("ssl_key_password"), key_place="ssl_key_location"
        )
        data = _read(place, setting)
        found = _store_type(data, config.ssl_keystore_type, setting, "keystore")
        key = data
        if found != "PEM":
            store_password = config.ssl_keystore_password
            data = _identity(
                data, found, store_password, password, setting, "ssl_keystore_password"
            )
            key, password = data, None
        elif config.ssl_key_location is not None:
            key_setting = f"{config.spelled('ssl_key_location')}={config.ssl_key_location!r}"
            names = names._replace(key=key_setting, key_place="")
            key = _read(config.ssl_key_location, key_setting)
        _load_pem(context, data, key, password, names)


class HttpsFactory:
    """The TLS context of connections to an identity server, reloaded when its files change.

    Raises:
        ConfigError: a file cannot be read or has invalid contents.
    """

    def __init__(self, files: HttpsFiles, log: ClientLog) -> None:
        self._files = files
        self._log = log
        self._stamps = self._read_stamps()
        self._context = self._new_context()

    def context(self) -> ssl.SSLContext:
        """Return the current context, or the last good one if the files cannot be used.

        Called on a background thread, one call at a time.
        """
        stamps = self._read_stamps()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._context = self._new_context()
            except ConfigError as error:
                self._log.error(
                    "a certificate file for the identity server has changed and cannot be "
                    "used, so the last state stays in use: %s",
                    error,
                )
        return self._context

    def _read_stamps(self) -> list[tuple[int, int, int] | None]:
        files = self._files
        places = (files.ca_location, files.certificate_location, files.key_location)
        return [None if place is None else _stamp(place) for place in places]

    def _new_context(self) -> ssl.SSLContext:
        files = self._files
        if files.ca_pem is None and files.ca_location is None:
            context = ssl.create_default_context()
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            self._load_trust(context)
        if files.has_identity:
            self._load_identity(context)
        return context

    def _load_trust(self, context: ssl.SSLContext) -> None:
        files = self._files
        if files.ca_pem is not None:
            _trust(context, files.ca_pem, "https_ca_pem")
            return
        assert files.ca_location is not None
        setting = f"{files.ca_setting}={files.ca_location!r}"
        if os.path.isdir(files.ca_location):
            context.load_verify_locations(capath=files.ca_location)
            return
        data = _read(files.ca_location, setting)
        if _PEM_BEGIN not in data and data.startswith((_DER_SEQUENCE, jks.MAGIC, jks.JCEKS_MAGIC)):
            found = _store_type(data, files.ca_type, setting, "truststore")
            password_setting = "ssl.truststore.password in sasl_jaas_config"  # noqa: S105 (a name)
            data = _certificates(data, found, files.ca_password, setting, password_setting)
        _trust(context, data.decode("ascii", "replace"), setting)

    def _load_identity(self, context: ssl.SSLContext) -> None:
        files = self._files
        if files.certificate_pem is not None:
            assert files.key_pem is not None, "checked when the config was made"
            names = _Names(
                "ssl.keystore.certificate.chain in sasl_jaas_config",
                "ssl.keystore.key in sasl_jaas_config",
                files.password_setting,
            )
            chain, key = files.certificate_pem.encode(), files.key_pem.value.encode()
            _load_pem(context, chain, key, files.key_password, names)
            return
        assert files.certificate_location is not None
        setting = f"{files.certificate_setting}={files.certificate_location!r}"
        names = _Names(setting, setting, files.password_setting, key_place="https_key_location")
        data, password = _read(files.certificate_location, setting), files.key_password
        found = _store_type(data, files.store_type, setting, "keystore")
        key = data
        if found != "PEM":
            store_password = files.store_password
            data = _identity(data, found, store_password, password, setting, files.password_setting)
            key, password = data, None
        elif files.key_location is not None:
            key_setting = f"https_key_location={files.key_location!r}"
            names = names._replace(key=key_setting, key_place="")
            key = _read(files.key_location, key_setting)
        _load_pem(context, data, key, password, names)


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite, given that name or the standard one."""
    if not suite.startswith("TLS_") or "_WITH_" not in suite:
        return suite  # OpenSSL's own name, or one of TLS 1.3, whose names are the same
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    for size in ("128", "256"):
        cipher = cipher.replace(f"AES_{size}", f"AES{size}")
    cipher = cipher.replace("_CBC_", "_").replace("POLY1305_SHA256", "POLY1305")
    exchange = "" if exchange == "RSA" else f"{exchange}-"
    return f"{exchange}{cipher}".replace("_", "-")


def _set_suites_of_tls13(context: ssl.SSLContext, suites: list[str]) -> None:
    """Make a context offer these TLS 1.3 suites and no others.

    Raises:
        ConfigError: OpenSSL lacks one of them, or this Python cannot choose among them.
    """
    choose = getattr(context, "set_ciphersuites", None)
    if choose is not None:
        try:
            choose(":".join(suites))
        except ssl.SSLError as error:
            raise ConfigError(
                f"ssl_cipher_suites: OpenSSL does not have all of {', '.join(suites)}."
            ) from error
        return
    offered = [each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.3"]
    if set(suites) != set(offered):
        raise ConfigError(
            f"ssl_cipher_suites has {', '.join(suites)} of TLS 1.3, but Python before 3.15 cannot "
            f"choose among its suites. Give all of {', '.join(offered)}; or none for TLS 1.2."
        )


def _trust(context: ssl.SSLContext, pem: str, setting: str) -> None:
    count = pem.count("-----BEGIN ")
    if count > CERTIFICATES_MAX:
        raise ConfigError(
            f"{setting} has {count} certificates, and {CERTIFICATES_MAX} are the maximum."
        )
    try:
        context.load_verify_locations(cadata=with_lines(pem))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{setting} holds no certificates in PEM: {_reason(error)}.") from error
    if not context.cert_store_stats()["x509"]:
        raise ConfigError(f"{setting} holds no certificate.")


def _stamp(place: str) -> tuple[int, int, int] | None:
    """Return values that change with a file's contents; None if there is no file."""
    try:
        found = os.stat(place)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(place: str, setting: str) -> bytes:
    return read_file(place, setting, bytes_max=FILE_BYTES_MAX)


def _store_type(data: bytes, declared: str, setting: str, kind: str) -> str:
    found = None
    if _PEM_BEGIN in data:
        found = "PEM"
    elif data.startswith(jks.MAGIC):
        found = "JKS"
    elif data.startswith(jks.JCEKS_MAGIC):
        raise ConfigError(
            f"{setting} is in JCEKS, which only Java reads. Convert it: keytool -importkeystore "
            f"-srckeystore FILE -srcstoretype JCEKS -destkeystore FILE.p12 -deststoretype PKCS12, "
            f"and give FILE.p12."
        )
    elif data.startswith(_DER_SEQUENCE):
        found = "PKCS12"
    if found is None:
        raise ConfigError(f"{setting} is not a {kind} in PEM, PKCS#12 or JKS.")
    # JKS is Java's default, and Java also reads PKCS#12 under the name JKS.
    if declared not in ("JKS", found):
        raise ConfigError(f"{setting} is in {found}, but ssl_{kind}_type says {declared}.")
    return found


class _Names(NamedTuple):
    """The settings of a certificate and its key, with their values, for errors."""

    certificate: str
    key: str
    """The same as `certificate` if one file has both."""
    password: str
    key_place: str = ""
    """The setting that takes the key, if the file of the certificate may lack it."""


def _load_pem(
    context: ssl.SSLContext,
    certificate: bytes,
    key: bytes,
    password: Password | None,
    names: _Names,
) -> None:
    pem = key
    check_pem(key, names.key)
    if names.key != names.certificate:
        check_pem(certificate, names.certificate)
        pem = key + b"\n" + certificate
    secret = "" if password is None else password.value
    with _as_file(_with_lines(pem)) as place:
        try:
            # Pass a function; otherwise OpenSSL would prompt at the terminal.
            context.load_cert_chain(place, password=lambda: secret)
        except (ssl.SSLError, OSError, ValueError) as error:
            complaint = _identity_complaint(error, certificate, key, names, bool(secret))
            raise ConfigError(complaint) from None


def _identity_complaint(
    error: Exception, certificate: bytes, key: bytes, names: _Names, has_password: bool
) -> str:
    reason = getattr(error, "reason", None) or ""
    if b"CERTIFICATE-----" not in certificate:
        return f"{names.certificate} holds no certificate in PEM."
    if b"PRIVATE KEY-----" not in key:
        cure = f"; give it in {names.key_place}" if names.key_place else ""
        return f"{names.key} holds no key in PEM{cure}."
    is_apart = names.key != names.certificate
    if "MISMATCH" in reason:
        place = f" of {names.certificate}" if is_apart else ""
        return f"{names.key}: the key does not belong to the certificate{place}."
    if b"ENCRYPTED" in key:
        what = "does not open it" if has_password else "is missing"
        return f"{names.key}: the key is encrypted, and {names.password} {what}."
    both = f" or {names.certificate}" if is_apart else ""
    return f"{names.key}{both} cannot be used: {_reason(error)}."


def _with_lines(pem: bytes) -> bytes:
    return with_lines(pem.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Give the data a path, in memory if the system supports it."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("pykclient", os.MFD_CLOEXEC)
        try:
            _write_all(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, place = tempfile.mkstemp(prefix="pykclient-")
    try:
        _write_all(descriptor, data)
        os.close(descriptor)
        yield place
    finally:
        os.unlink(place)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _certificates(
    data: bytes, kind: str, password: Password | None, setting: str, password_setting: str
) -> bytes:
    """Return the certificates of a truststore, in PEM."""
    if kind == "PKCS12":
        return _pkcs12_certificates(data, password, setting, password_setting)
    return _jks(data, password, setting).authorities if kind == "JKS" else data


def _identity(
    data: bytes,
    kind: str,
    store_password: Password | None,
    key_password: Password | None,
    setting: str,
    password_setting: str,
) -> bytes:
    """Return key and chain, in PEM, of a keystore that is not in PEM itself."""
    if kind == "PKCS12":
        return _pkcs12_identity(data, store_password or key_password, setting, password_setting)
    store = _jks(data, store_password, setting)
    password = key_password or store_password
    if password is None:
        raise ConfigError(f"{setting} is in JKS, but {password_setting} is missing.")
    try:
        return store.identity(password.value)
    except ValueError as error:
        raise ConfigError(f"{setting} cannot be used: {error}.") from None


def _jks(data: bytes, password: Password | None, setting: str) -> jks.Jks:
    try:
        return jks.read_jks(data, None if password is None else password.value)
    except ValueError as error:
        raise ConfigError(f"{setting} cannot be opened: {error}.") from None


def _pkcs12_identity(
    data: bytes, password: Password | None, setting: str, password_setting: str
) -> bytes:
    """Return key and chain in PEM."""
    from cryptography.hazmat.primitives import serialization

    store = _pkcs12(data, password, setting, password_setting)
    if store.key is None or store.cert is None:
        raise ConfigError(f"{setting} holds no key with its certificate.")
    key: bytes = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = [store.cert, *store.additional_certs]
    return key + b"".join(
        each.certificate.public_bytes(serialization.Encoding.PEM) for each in chain
    )


def _pkcs12_certificates(
    data: bytes, password: Password | None, setting: str, password_setting: str
) -> bytes:
    from cryptography.hazmat.primitives import serialization

    store = _pkcs12(data, password, setting, password_setting)
    found = [*([] if store.cert is None else [store.cert]), *store.additional_certs]
    return b"".join(each.certificate.public_bytes(serialization.Encoding.PEM) for each in found)


def _pkcs12(
    data: bytes, password: Password | None, setting: str, password_setting: str
) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise ConfigError(
            f"{setting} is in PKCS#12, which needs the package cryptography: pip install "
            f"cryptography. Or convert it: openssl pkcs12 -in FILE -out FILE.pem."
        ) from None
    check_store(data, setting)
    try:
        return load_pkcs12(data, None if password is None else password.value.encode())
    except ValueError:
        # The library's error adds nothing, and may show the input.
        raise ConfigError(
            f"{setting} cannot be opened: the password is wrong or missing "
            f"({password_setting}), or it is not PKCS#12."
        ) from None


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error)
