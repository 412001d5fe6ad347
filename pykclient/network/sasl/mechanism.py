"""The Protocol `SaslMechanism`, one authentication by one mechanism, and the registry.

Owner: the registry belongs to the process; a factory is added before a client uses it.
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
    """One authentication. Derive from this class to inherit its defaults.

    The text of its errors must not contain any part of a credential.
    """

    name: str
    """Kafka's name of the mechanism, such as ``SCRAM-SHA-256``."""

    user: str = ""
    """The user that authenticates, for messages; empty if unknown."""

    is_quick: bool = False
    """True if `begin` and `respond` return at once. Otherwise they may block: each call runs on its
    own thread, and calls never overlap."""

    refusal: str = ""
    """The reason that the broker sent before it refused; empty if none."""

    cure: str = ""
    """The hint after a broker has refused the credentials; empty if there is none."""

    def masked(self, text: str) -> str:
        """Return a broker's text without the secrets that the mechanism sent."""
        return text

    def begin(self) -> bytes:
        """Return the first message to send. Any exception ends the authentication."""
        raise NotImplementedError

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the next message to send, or None if the authentication is complete.

        Raises:
            AuthenticationError: the broker's bytes are malformed, or it did not prove what the
                mechanism needs it to prove. The text follows "authentication by NAME failed: ".
        """
        raise NotImplementedError


class Made(SaslMechanism):
    """A mechanism that `begin` gets from its factory, which may belong to an application."""

    def __init__(self, factory: MechanismFactory, config: ClientConfig, host: str) -> None:
        self.name = config.sasl_mechanism
        self._make = partial(factory, config, host)
        self._made: SaslMechanism | None = None

    def begin(self) -> bytes:
        self._made = self._make()
        self.user, self.cure = self._made.user, self._made.cure
        return self._made.begin()

    def masked(self, text: str) -> str:
        return text if self._made is None else self._made.masked(text)

    def respond(self, challenge: bytes) -> bytes | None:
        assert self._made is not None, "begin comes first"
        response = self._made.respond(challenge)
        self.user, self.refusal = self._made.user, self._made.refusal
        return response


MECHANISMS: Final[dict[str, MechanismFactory]] = {}
"""Factories by name, including those of applications. OAUTHBEARER has none: it needs a token of the
client's `Login`."""


def register_sasl_mechanism(name: str, factory: MechanismFactory) -> None:
    """Register a SASL mechanism under a name for `sasl_mechanism`.

    `factory(config, host)` is called for each authentication of a connection and returns a
    `SaslMechanism`. `config` has the client's settings as attributes; `host` is the broker's name
    as the client connects to it. The factory and its mechanisms are called on their own thread, and
    may block. Register before a client is made; a name that is registered again gets the new
    factory.

    Raises:
        UsageError: the name belongs to one of the client's own mechanisms, or is invalid: Kafka
            accepts one to twenty capital letters, digits, hyphens and underscores (RFC 4422).
    """
    is_sasl_name = 0 < len(name) <= NAME_LENGTH_MAX and all(
        sign in "-_" or (sign.isascii() and (sign.isdigit() or sign.isupper())) for sign in name
    )
    if not is_sasl_name:
        raise UsageError(
            f"{name!r} is not a valid name of a SASL mechanism: use one to {NAME_LENGTH_MAX} "
            f"capital letters, digits, hyphens and underscores"
        )
    if name in MECHANISM_NAMES.own:
        raise UsageError(f"{name} is the client's own mechanism; register another name")
    MECHANISM_NAMES.registered.add(name)
    MECHANISMS[name] = factory


NAME_LENGTH_MAX: Final = 20
