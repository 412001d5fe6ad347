"""UnsecuredToken: the contents of an unsigned OAUTHBEARER token, for test brokers.

They come from Java's login configuration (``unsecuredLoginStringClaim_sub="alice"`` and the like)
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
"""Claims that are added to each token."""


class UnsecuredToken(NamedTuple):
    """The claims except times, the user they are for, and the SASL extensions."""

    principal: str
    claims: Mapping[str, object]
    lifetime_s: float
    extensions: Mapping[str, str]

    @classmethod
    def from_jaas(cls, options: Mapping[str, str]) -> UnsecuredToken:
        """Parse the options of Java's login module.

        Raises:
            ValueError: an option is unknown or malformed, or there is no principal.
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
                pass  # the name of the scope claim only matters to a broker
            elif option == f"{_JAVA}LifetimeSeconds":
                lifetime_s = _lifetime(value, option)
            else:
                raise ValueError(
                    f"sasl.jaas.config has the option {option}, which unsecured tokens do not have."
                )
        principal = claims.get(principal_claim)
        if not isinstance(principal, str) or not principal:
            raise ValueError(
                f"sasl.jaas.config has no {_JAVA}StringClaim_{principal_claim}, the token's user."
            )
        return cls(principal, claims, lifetime_s, extensions)

    @classmethod
    def from_librdkafka(cls, text: str) -> UnsecuredToken:
        """Parse librdkafka's ``sasl.oauthbearer.config``: NAME=VALUE separated by spaces.

        Raises:
            ValueError: a name is unknown, a value is malformed, or there is no principal.
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
                    f"sasl.oauthbearer.config must be NAME=VALUE separated by spaces, where NAME "
                    f"is one of {', '.join(_OF_LIBRDKAFKA)}, extension_NAME; {name!r} is not."
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
