"""TLS errors: each names the place, the failure with the TLS library's reason, and the cure."""

from __future__ import annotations

import ssl
from typing import Final

from pykclient.errors import DisconnectedError, KafkaError, TlsError

_CURE_BY_VERIFY_CODE: Final = {
    **dict.fromkeys(
        (2, 18, 19, 20, 21),
        "its authority is not trusted: give the authority in ssl_truststore_location "
        "(ssl_ca_location)",
    ),
    **dict.fromkeys(
        (62, 64),
        "the certificate is for other hosts: connect by a name that it has, or give the broker "
        "one for this name; advertised.listeners has the names that brokers announce",
    ),
    9: "the certificate is not valid yet: check this machine's clock, and the broker's certificate",
    10: "the certificate has expired: the broker needs a new one; check this machine's clock",
    23: "the certificate is revoked (ssl_crl_location)",
    3: "ssl_crl_location has no revocation list of this certificate's authority",
    12: "the revocation list in ssl_crl_location has expired",
}
"""Cures by OpenSSL's ``X509_V_ERR_...`` codes."""

_NOT_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE"}
    | {"WRONG_SSL_VERSION", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG", "BAD_LENGTH"}
)
"""OpenSSL's reasons for bytes that no TLS peer would send first."""

_CURE_BY_ALERT: Final = (
    (
        ("UNKNOWN_CA", "CERTIFICATE_UNKNOWN", "BAD_CERTIFICATE", "UNSUPPORTED_CERTIFICATE"),
        "it does not trust the client's certificate (ssl_keystore_location)",
    ),
    (("CERTIFICATE_EXPIRED",), "the client's certificate has expired (ssl_keystore_location)"),
    (("CERTIFICATE_REVOKED",), "the client's certificate is revoked (ssl_keystore_location)"),
    (
        (
            "HANDSHAKE_FAILURE",
            "PROTOCOL_VERSION",
            "UNSUPPORTED_PROTOCOL",
            "NO_SHARED_CIPHER",
            "INSUFFICIENT_SECURITY",
        ),
        "it shares no version or cipher suite with this client (ssl_enabled_protocols, "
        "ssl_cipher_suites)",
    ),
    (("ACCESS_DENIED",), "it does not admit the client's certificate (ssl_keystore_location)"),
)


_WANTS_CERTIFICATE: Final = (
    *("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE"),
    *("NO_CERTIFICATE", "CERTIFICATE_UNKNOWN"),
)
"""Alerts for a client that sent no certificate; each TLS library uses a different one."""


def handshake_error(name: str, cause: ssl.SSLError, *, has_identity: bool) -> TlsError:
    """Return the error of a handshake that one side ended.

    `has_identity` is True if the client has a certificate.
    """
    if isinstance(cause, ssl.SSLCertVerificationError):
        text = (
            f"{name}: the certificate was not accepted: {cause.verify_message}; "
            f"{_CURE_BY_VERIFY_CODE.get(cause.verify_code, 'check ssl_truststore_location')}"
        )
    elif (cause.reason or "") in _NOT_TLS:
        text = (
            f"{name} does not speak TLS ({reason(cause)}); is its listener PLAINTEXT or "
            f"SASL_PLAINTEXT? Check security_protocol, and the port"
        )
    else:
        text = f"{name} and this client could not agree on TLS: {_refusal(cause, has_identity)}"
    error = TlsError(text)
    error.__cause__ = cause
    return error


def stream_error(name: str, cause: ssl.SSLError, *, has_identity: bool) -> KafkaError:
    """Return the error of an open stream.

    With TLS 1.3 a broker refuses the client's certificate only now, after the client has completed
    its side of the handshake. Other failures belong to the connection, and a new one may succeed.
    """
    if "ALERT" in (cause.reason or "") and _alert_cure(cause, has_identity):
        text = f"{name} refused the connection: {_refusal(cause, has_identity)}"
        error: KafkaError = TlsError(text)
    else:
        error = DisconnectedError(f"{name}: the TLS connection broke: {reason(cause)}")
    error.__cause__ = cause
    return error


def unusable_name(name: str, cause: ValueError) -> TlsError:
    """Return the error of a host name that no certificate can have."""
    error = TlsError(
        f"{name}: TLS cannot verify a host of this name ({cause}); check bootstrap_servers, or the "
        f"broker's advertised.listeners"
    )
    error.__cause__ = cause
    return error


def without_tls(name: str, cause: KafkaError) -> TlsError:
    """Return the error of a peer that hung up on the handshake and speaks Kafka in plain text."""
    error = TlsError(
        f"{name} does not speak TLS: it hung up on the TLS handshake and responds in plain text, "
        f"so its listener is PLAINTEXT or SASL_PLAINTEXT; set security_protocol, or use its port "
        f"with TLS"
    )
    error.__cause__ = cause
    return error


def hung_up(name: str, cause: KafkaError) -> KafkaError:
    """Return the error of a peer that closed the connection during the handshake.

    A broker that is shutting down does so too, so a retry may help.
    """
    error = DisconnectedError(
        f"{name} accepted the connection but hung up during the TLS handshake; is its listener SSL "
        f"or SASL_SSL? Check security_protocol, and the port"
    )
    error.__cause__ = cause
    return error


def reason(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason in words."""
    return (error.reason or str(error)).replace("_", " ").lower()


def _refusal(cause: ssl.SSLError, has_identity: bool) -> str:
    cure = _alert_cure(cause, has_identity)
    return f"{reason(cause)}; {cure}" if cure else reason(cause)


def _alert_cure(cause: ssl.SSLError, has_identity: bool) -> str:
    found = cause.reason or ""
    if not has_identity and found.endswith(_WANTS_CERTIFICATE):
        return "it requires a client certificate, but none is set (ssl_keystore_location)"
    return next((cure for words, cure in _CURE_BY_ALERT if found.endswith(words)), "")
