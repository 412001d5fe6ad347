"""Assertions: JWTs that replace a secret at identity servers, from a file or signed here.

Files are read again for each assertion, so a running client uses renewed ones.

Owner: no state.
Source: RFC 7523 (an assertion as the grant, or as the client's authentication), RFC 7515 and 7518
(signatures); KIP-1139, KIP-1258; Java classes ``DefaultAssertionCreator``,
``FileAssertionCreator``, ``FileAssertionJwtTemplate``.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import uuid4

from pykclient.config import file_content
from pykclient.config.setting import Password
from pykclient.errors import ConfigError
from pykclient.network.io.key_protection import check_pem, check_size

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    from pykclient.config.assertion import Assertion

    Key = RSAPrivateKey | EllipticCurvePrivateKey

FILE_BYTES_MAX: Final = 1024 * 1024
"""Maximum size of a file with a token, a key or a template."""

_COORDINATE_BYTES: Final = 32
_KEY_SETTING: Final = "sasl.oauthbearer.assertion.private.key"


class AssertionSource(Protocol):
    """A source of assertions."""

    def assertion(self, now_s: int) -> Password:
        """Return an assertion for one request. `now_s` is since 1970.

        Raises:
            ConfigError: a file cannot be read, or does not hold what it should.
        """


def assertion_source(config: Assertion) -> AssertionSource:
    """Return the source that the settings define.

    Raises:
        ConfigError: a file cannot be used, or the package that signs is missing.
    """
    if config.text is not None:
        return AssertionText(config.text)
    if config.file is not None:
        source: AssertionSource = AssertionFile(config.file)
    else:
        source = SignedAssertions(config)
    source.assertion(0)
    return source


class AssertionText:
    """An assertion given in the settings, which is never renewed."""

    def __init__(self, text: Password) -> None:
        self._text = text

    def assertion(self, _: int) -> Password:
        return self._text


class AssertionFile:
    """Assertions from a file that another program writes."""

    def __init__(self, place: str) -> None:
        self._place = place

    def assertion(self, _: int) -> Password:
        return read_jwt(self._place, "sasl.oauthbearer.assertion.file")


class SignedAssertions:
    """Assertions signed with the client's own key."""

    def __init__(self, config: Assertion) -> None:
        self._config = config

    def assertion(self, now_s: int) -> Password:
        config = self._config
        template = self._template()
        head = {"typ": "JWT", **template.get("header", {}), "alg": config.algorithm}
        claims = {
            **template.get("payload", {}),
            **config.claims,
            "iat": now_s,
            "exp": now_s + config.lifetime_s,
            "nbf": now_s - config.not_before_s,
        }
        if config.has_id:
            claims["jti"] = str(uuid4())
        signed = f"{_json(head)}.{_json(claims)}"
        return Password(f"{signed}.{_encoded(self._sign(signed.encode()))}")

    def _template(self) -> dict[str, Any]:
        place = self._config.template_file
        if place is None:
            return {}
        setting = f"sasl.oauthbearer.assertion.template.file={place!r}"
        try:
            found = json.loads(read_file(place, setting))
        except (ValueError, RecursionError):
            found = None
        is_template = isinstance(found, dict) and all(
            name in ("header", "payload") and isinstance(part, dict) for name, part in found.items()
        )
        if not is_template:
            raise ConfigError(f"{setting} is not a JSON object with header and payload objects.")
        return dict(found)

    def _sign(self, data: bytes) -> bytes:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

        key = self._key()
        if isinstance(key, rsa.RSAPrivateKey):
            return key.sign(data, padding.PKCS1v15(), hashes.SHA256())
        r, s = utils.decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(_COORDINATE_BYTES, "big") + s.to_bytes(_COORDINATE_BYTES, "big")

    def _key(self) -> Key:
        """Return the private key, checked to fit the algorithm."""
        config = self._config
        setting = f"{_KEY_SETTING}.pem"
        if config.key_file is not None:
            setting = f"{_KEY_SETTING}.file={config.key_file!r}"
        try:
            from cryptography.hazmat.primitives.asymmetric import ec, rsa
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        except ImportError:
            raise ConfigError(
                f"{setting} needs the package cryptography to sign: pip install "
                f"cryptography. Or give sasl.oauthbearer.assertion.file."
            ) from None
        pem = self._pem(setting)
        for check in (check_pem, check_size):
            check(pem.value.encode("ascii", "replace"), setting)
        key = _loaded(load_pem_private_key, pem, config.passphrase)
        if key is None:
            passphrase = "is missing or " if config.passphrase is None else ""
            raise ConfigError(
                f"{setting} cannot be used: it is not a private key in PEM, or "
                f"{_KEY_SETTING}.passphrase {passphrase}does not open it."
            )
        if config.algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
            return key
        is_p256 = isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1"
        if config.algorithm == "ES256" and is_p256:
            return key  # type: ignore[no-any-return]
        raise ConfigError(
            f"{setting} does not fit sasl.oauthbearer.assertion.algorithm={config.algorithm}: "
            f"RS256 needs an RSA key, ES256 a key of the curve P-256."
        )

    def _pem(self, setting: str) -> Password:
        if self._config.key_pem is not None:
            return self._config.key_pem
        assert self._config.key_file is not None, "checked when the config was made"
        return Password(read_file(self._config.key_file, setting).decode("ascii", "replace"))


def read_jwt(place: str, setting: str) -> Password:
    """Return the JWT in a file. Another program may replace the file between calls.

    Raises:
        ConfigError: the file cannot be read, or holds no JWT.
    """
    setting = f"{setting}={place!r}"
    found = Password(read_file(place, setting).decode("ascii", "replace").strip())
    if found.value.count(".") != 2 or any(sign.isspace() for sign in found.value):
        raise ConfigError(f"{setting} holds no JWT, which is three parts separated by dots.")
    return found


def read_file(place: str, setting: str) -> bytes:
    """Return the contents of a file.

    Raises:
        ConfigError: it cannot be read, or is too large.
    """
    return file_content.read_file(place, setting, bytes_max=FILE_BYTES_MAX)


def _loaded(load: Any, pem: Password, passphrase: Password | None) -> Any:
    """Return the key, or None if it cannot be read. An error could show the key or passphrase."""
    try:
        return load(pem.encoded(), None if passphrase is None else passphrase.encoded())
    except Exception:  # noqa: BLE001  # of another library, of many types
        return None


def _json(content: object) -> str:
    return _encoded(json.dumps(content, separators=(",", ":")).encode())


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
