"""Tokens from functions of the application: kafka-python's provider, confluent-kafka's callback.

Owner: no state. The functions are called on a background thread.
Source: kafka-python's ``AbstractTokenProvider``; confluent-kafka's ``oauth_cb``.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import iscoroutine
from typing import TYPE_CHECKING, Final

from pykclient.config.setting import Password, resolve_class_setting
from pykclient.errors import AuthenticationError, ConfigError
from pykclient.network.sasl.token import OAuthToken, jwt_expiry_ms, jwt_principal

if TYPE_CHECKING:
    from collections.abc import Callable

EXPIRY_S_MAX: Final = 2**36
"""Maximum expiry in seconds, in the year 4147. A larger number must be in milliseconds."""


class ProvidedTokens:
    """Tokens from `sasl_oauth_token_provider`, an object with ``token()`` or a function.

    Raises:
        ConfigError: it is neither.
    """

    name = "sasl_oauth_token_provider"

    def __init__(self, value: object) -> None:
        provider = resolve_class_setting(self.name, value)
        method = getattr(provider, "token", None)
        fetch = method if callable(method) else provider
        if not callable(fetch):
            raise ConfigError(
                f"{self.name} is an object of type {type(provider).__name__}, which has no method "
                f"token() and is not callable."
            )
        self._fetch: Callable[[], object] = fetch
        extensions = getattr(provider, "extensions", None)
        self._extensions = extensions if fetch is method and callable(extensions) else None

    def fetch(self) -> OAuthToken:
        token = read_token(self._fetch())
        if self._extensions is None or token.extensions:
            return token
        expiry_s = None if token.expires_ms is None else token.expires_ms / 1000
        return read_token((token.value, expiry_s, token.principal, self._extensions()))


class CallbackTokens:
    """Tokens from `oauth_cb`, which is called with `sasl.oauthbearer.config`.

    Raises:
        ConfigError: it is not callable.
    """

    name = "oauth_cb"

    def __init__(self, value: object, argument: str) -> None:
        callback = resolve_class_setting(self.name, value)
        if not callable(callback):
            raise ConfigError(f"{self.name} is a {type(callback).__name__}, which is not callable.")
        self._callback: Callable[[str], object] = callback
        self._argument = argument

    def fetch(self) -> OAuthToken:
        return read_token(self._callback(self._argument))


def read_token(returned: object) -> OAuthToken:
    """Convert the result of an application's function to a token.

    The function returns an `OAuthToken`, or a text, or a tuple: the text, its expiry in seconds
    since 1970 and, optionally, the principal and the SASL extensions. If the text is a JWT, the
    missing parts are read from it.

    Raises:
        AuthenticationError: the result has another type. The text contains no part of it.
    """
    try:
        return _read(returned)
    except (TypeError, ValueError) as error:
        reason = str(error)
    del returned  # tracebacks may show variables
    raise AuthenticationError(reason)


def _read(returned: object) -> OAuthToken:
    if isinstance(returned, OAuthToken):
        return returned
    if isinstance(returned, (str, Password)):
        return _of_text(returned)
    if isinstance(returned, tuple) and 2 <= len(returned) <= 4:
        text, expiry_s = returned[:2]
        principal = returned[2] if len(returned) > 2 else ""
        extensions = returned[3] if len(returned) > 3 else None
        token = _of_text(text)
        return OAuthToken(
            token.value,
            _expiry_ms(expiry_s),
            str(principal or token.principal),
            _extensions(extensions),
        )
    if iscoroutine(returned):
        returned.close()
        raise TypeError("the function is async; give one that blocks, which has its own thread")
    raise TypeError(
        f"the function returned a {type(returned).__name__}, not a token: text, a tuple of "
        f"text and expiry in seconds since 1970, or a pykclient.OAuthToken"
    )


def _extensions(returned: object) -> Mapping[str, str]:
    if returned is None:
        return {}
    if not isinstance(returned, Mapping) or not all(
        isinstance(part, str) for item in returned.items() for part in item
    ):
        raise TypeError("the SASL extensions are not a dict of strings")
    return dict(returned)


def _of_text(text: object) -> OAuthToken:
    if isinstance(text, Password):
        text = text.value
    if not isinstance(text, str):
        raise TypeError(f"the token is a {type(text).__name__}, not a string")
    return OAuthToken(Password(text), jwt_expiry_ms(text), jwt_principal(text))


def _expiry_ms(expiry_s: object) -> int | None:
    if expiry_s is None:
        return None
    if isinstance(expiry_s, bool) or not isinstance(expiry_s, (int, float)):
        raise TypeError(
            f"the token's expiry is a {type(expiry_s).__name__}, not a number of seconds since 1970"
        )
    if not abs(expiry_s) < EXPIRY_S_MAX:
        raise ValueError(
            "the token's expiry is too far away; it is in seconds since 1970, not milliseconds"
        )
    return round(expiry_s * 1000)
