"""UnsecuredToken: what a token of OAUTHBEARER without a signature has, for brokers of tests.

It is read from Java's login configuration (``unsecuredLoginStringClaim_sub="alice"`` and the like)
or from librdkafka's ``sasl.oauthbearer.config`` (``principal=alice lifeSeconds=60``).

Owner: none, it is immutable.
Source: KIP-255; Java class ``OAuthBearerUnsecuredLoginCallbackHandler``; librdkafka's
CONFIGURATION.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

LIFETIME_S: Final = 3_600
LIFETIME_S_MAX: Final = 10**9

_JAVA: Final = "unsecuredLogin"
_TIMES: Final = ("iat", "exp")
"""Claims that are made with each token."""


class UnsecuredToken(NamedTuple):
    """The claims but for the times, which user they are for, and what is sent beside them."""

    principal: str
    claims: Mapping[str, object]
    lifetime_s: float
    extensions: Mapping[str, str]

    @classmethod
    def from_jaas(cls, options: Mapping[str, str]) -> UnsecuredToken:
        """Read the options of Java's login module.

        Raises:
            ValueError: an option is unknown or cannot be read, or there is no principal.
        """
        claims: dict[str, object] = {}
        extensions: dict[str, str] = {}
        principal_claim, lifetime_s = "sub", float(LIFETIME_S)
        for option, value in options.items():
            kind, _, name = option.removeprefix(_JAVA).partition("_")
            if kind == "StringClaim" and name not in _TIMES:
                claims[name] = value
            elif kind == "NumberClaim" and name not in _TIMES:
                claims[name] = _number(value, option)
            elif kind == "ListClaim" and name not in _TIMES and value:
                claims[name] = value[1:].split(value[0])
            elif kind == "Extension" and name:
                extensions[name] = value
            elif option == f"{_JAVA}PrincipalClaimName":
                principal_claim = value
            elif option == f"{_JAVA}ScopeClaimName":
                pass  # which of the claims is the scope matters to a broker alone
            elif option == f"{_JAVA}LifetimeSeconds":
                lifetime_s = _lifetime(value, option)
            else:
                raise ValueError(
                    f"sasl.jaas.config has the option {option}, which no unsecured token has."
                )
        principal = claims.get(principal_claim)
        if not isinstance(principal, str) or not principal:
            raise ValueError(
                f"sasl.jaas.config has no {_JAVA}StringClaim_{principal_claim}, the token's user."
            )
        return cls(principal, claims, lifetime_s, extensions)

    @classmethod
    def from_librdkafka(cls, text: str) -> UnsecuredToken:
        """Read what librdkafka has in ``sasl.oauthbearer.config``: NAME=VALUE, spaces between.

        Raises:
            ValueError: a name is unknown, a value cannot be read, or there is no principal.
        """
        found: dict[str, str] = {}
        extensions: dict[str, str] = {}
        for word in text.split():
            name, sign, value = word.partition("=")
            if name.startswith("extension_") and sign:
                extensions[name.removeprefix("extension_")] = value
            elif name in _OF_LIBRDKAFKA and value:
                found[name] = value
            else:
                raise ValueError(
                    f"sasl.oauthbearer.config is read as NAME=VALUE with spaces between, where "
                    f"NAME is one of {', '.join(_OF_LIBRDKAFKA)}, extension_NAME; {name!r} is not."
                )
        principal = found.get("principal")
        if principal is None:
            raise ValueError("sasl.oauthbearer.config has no principal, the user of the token.")
        claims: dict[str, object] = {found.get("principalClaimName", "sub"): principal}
        if "scope" in found:
            claims[found.get("scopeClaimName", "scope")] = found["scope"].split(",")
        lifetime_s = _lifetime(found.get("lifeSeconds", str(LIFETIME_S)), "lifeSeconds")
        return cls(principal, claims, lifetime_s, extensions)


_OF_LIBRDKAFKA: Final = (
    "principal",
    "principalClaimName",
    "scope",
    "scopeClaimName",
    "lifeSeconds",
)


def _number(text: str, name: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a number.")
    return number


def _lifetime(text: str, name: str) -> float:
    seconds = _number(text, name)
    if not 0 < seconds <= LIFETIME_S_MAX:
        raise ValueError(f"{name} must be a number of seconds, above 0 and up to {LIFETIME_S_MAX}.")
    return seconds
