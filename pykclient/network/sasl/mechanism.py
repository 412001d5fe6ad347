"""The Protocol `SaslMechanism`: one authentication by one SASL mechanism; and the register of them.

A factory of the register makes a mechanism for one authentication of one connection, from the
client's config and the broker's host name.

Owner: the register belongs to the process; a factory is added before a client uses it.
Source: KIP-43, KIP-152; Java has ``javax.security.sasl.SaslClientFactory`` for this.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from pykclient.config.sasl import MECHANISM_NAMES
from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.config.client import ClientConfig

    MechanismFactory = Callable[[ClientConfig, str], "SaslMechanism"]


class SaslMechanism(Protocol):
    """One authentication. Derive from this class to have its defaults.

    No text of its errors has a part of a credential.
    """

    name: str
    """As Kafka has it, ``SCRAM-SHA-256`` for one."""

    user: str = ""
    """Which user authenticates, for messages; empty if that is not known."""

    is_quick: bool = False
    """Whether `begin` and `respond` return at once. Without it they may block: each call is made on
    a thread of its own, never two at the same time."""

    refusal: str = ""
    """What the broker has sent as its reason, before it refuses; empty for none."""

    def masked(self, text: str) -> str:
        """Return what a broker said, without the secret that the mechanism has sent it."""
        return text

    def begin(self) -> bytes:
        """Return what to send first. Whatever it raises ends the authentication."""
        raise NotImplementedError

    def respond(self, challenge: bytes) -> bytes | None:
        """Return what to send next; None when that was the end.

        Raises:
            AuthenticationError: the broker's bytes are not what they must be, or it has not proven
                what the mechanism needs it to prove. The text goes on behind "authentication by
                NAME failed: ".
        """
        raise NotImplementedError


class Made(SaslMechanism):
    """What a factory makes. The factory may be an application's, so `begin` calls it."""

    def __init__(self, factory: MechanismFactory, config: ClientConfig, host: str) -> None:
        self.name = config.sasl_mechanism
        self._make = partial(factory, config, host)
        self._made: SaslMechanism | None = None

    def begin(self) -> bytes:
        self._made = self._make()
        self.user = self._made.user
        return self._made.begin()

    def masked(self, text: str) -> str:
        return text if self._made is None else self._made.masked(text)

    def respond(self, challenge: bytes) -> bytes | None:
        assert self._made is not None, "it has begun"
        response = self._made.respond(challenge)
        self.user, self.refusal = self._made.user, self._made.refusal
        return response


MECHANISMS: Final[dict[str, MechanismFactory]] = {}
"""Factories by name, those of applications among them. OAUTHBEARER has none: it needs a token of
the client's `Login`."""


def register_sasl_mechanism(name: str, factory: MechanismFactory) -> None:
    """Have `sasl_mechanism` take a further name.

    `factory(config, host)` is called for each authentication of a connection, and returns a
    `SaslMechanism`; `config` has the client's settings as attributes, `host` is the broker's name
    as the client connects to it. The factory and its mechanisms are called on a thread of their
    own, and may block. Register before a client is made; the same name may be registered again, and
    the last factory counts.

    Raises:
        UsageError: the name is one of the client's own mechanisms, or not one that Kafka takes:
            one to twenty capital letters, digits, hyphens and underscores (RFC 4422).
    """
    is_sasl_name = 0 < len(name) <= NAME_LENGTH_MAX and all(
        sign in "-_" or (sign.isascii() and (sign.isdigit() or sign.isupper())) for sign in name
    )
    if not is_sasl_name:
        raise UsageError(
            f"{name!r} is no name of a SASL mechanism: it has one to {NAME_LENGTH_MAX} capital "
            f"letters, digits, hyphens and underscores"
        )
    if name in MECHANISM_NAMES.own:
        raise UsageError(f"{name} is the client's own mechanism; register another name")
    MECHANISM_NAMES.registered.add(name)
    MECHANISMS[name] = factory


NAME_LENGTH_MAX: Final = 20
