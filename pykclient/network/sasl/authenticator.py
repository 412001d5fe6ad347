"""Authenticator: makes the mechanisms of one client's connections, and has its `Login`.

Owner: the driver of the engine.
Source: Java classes ``SaslChannelBuilder``, ``LoginManager``.
"""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Final

from pykclient.config.sasl import AWS_MSK_IAM, GSSAPI, OAUTHBEARER, SCRAM_MECHANISMS
from pykclient.network.manager import NEVER_MS
from pykclient.network.sasl.login import Login, token_source
from pykclient.network.sasl.mechanism import MECHANISMS, Made
from pykclient.network.sasl.oauthbearer import OAuthBearer
from pykclient.network.sasl.plain import Plain
from pykclient.network.sasl.scram import DELEGATION_TOKEN, NONCE_BYTES, Scram

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from pykclient.config.client import ClientConfig
    from pykclient.network.io.port import Port
    from pykclient.network.log import ClientLog
    from pykclient.network.sasl.gssapi import GssapiMaker
    from pykclient.network.sasl.mechanism import SaslMechanism
    from pykclient.network.sasl.msk_iam import AwsSigner

SESSION_SHARES: Final = (0.85, 0.95)
"""After which part of its session a connection authenticates again, drawn between these, as in
Java: requests need time on their way, and clocks differ."""

SESSION_MS_MIN: Final = 1_000
"""Least time between two authentications of a connection: brokers refuse more (KIP-368)."""


class Authenticator:
    """By what one client authenticates.

    Raises:
        ConfigError: the source of tokens that the settings name cannot be used, or a package is
            missing.
    """

    def __init__(self, config: ClientConfig, port: Port, *, random: Random, log: ClientLog) -> None:
        self.name = config.sasl_mechanism
        """The mechanism's, as Kafka has it."""
        self._config = config
        self._random = random
        self._login: Login | None = None
        if self.name == OAUTHBEARER:
            self._login = Login(config, port, token_source(config), random=random, log=log)
        self._aws_signer: AwsSigner | None = None
        if self.name == AWS_MSK_IAM:
            # Imported here: few clients need it.
            from pykclient.network.sasl.msk_iam import AwsSigner

            self._aws_signer = AwsSigner(config)
        self._gssapi: GssapiMaker | None = None
        if self.name == GSSAPI:
            from pykclient.network.sasl.gssapi import GssapiMaker

            self._gssapi = GssapiMaker(config)

    @property
    def awaited(self) -> str:
        """What connections wait for while there is no mechanism for them, for messages."""
        return "credentials" if self._login is None else self._login.awaited

    def mechanism(
        self, host: str, on_ready: Callable[[BaseException | None], None]
    ) -> SaslMechanism | None:
        """Return a mechanism for one authentication; None while it has to wait for a token.

        Then `on_ready` is called later, from inside `complete`: with None when it is time to try
        again, or with the error.
        """
        if self._aws_signer is not None:
            return self._aws_signer.mechanism(host)
        if self._gssapi is not None:
            return self._gssapi.mechanism(host)
        if self._login is None:
            return make_mechanism(self._config, host)
        token = self._login.token(on_ready)
        return None if token is None else OAuthBearer(token)

    def forget(self, on_ready: Callable[[BaseException | None], None]) -> None:
        """Never call `on_ready`."""
        if self._login is not None:
            self._login.forget(on_ready)

    def on_refused(self, mechanism: SaslMechanism) -> None:
        """Note that a broker has refused what the mechanism sent."""
        if self._login is not None and isinstance(mechanism, OAuthBearer):
            self._login.drop(mechanism.token)
        if self._aws_signer is not None:
            self._aws_signer.forget()

    def on_accepted(self, mechanism: SaslMechanism) -> None:
        """Note that a broker has accepted what the mechanism sent."""
        if self._login is not None and isinstance(mechanism, OAuthBearer):
            self._login.accept(mechanism.token)
        if self._aws_signer is not None:
            self._aws_signer.accept()

    def session_ms(self, lifetime_ms: int) -> int:
        """Return how long after an authentication to authenticate again; `NEVER_MS` for never."""
        if lifetime_ms <= 0:
            return NEVER_MS
        share = self._random.uniform(*SESSION_SHARES)
        return min(max(int(lifetime_ms * share), SESSION_MS_MIN), NEVER_MS)

    def poll(self, now_ms: int) -> int:
        """Begin what is due; return when to poll again."""
        return NEVER_MS if self._login is None else self._login.poll(now_ms)

    def complete(self, now_ms: int) -> None:
        """Take what the port brought."""
        if self._login is not None:
            self._login.complete(now_ms)

    def restart(self) -> None:
        """Forget what is under way, for an owner that was interrupted."""
        if self._login is not None:
            self._login.restart()


def make_mechanism(config: ClientConfig, host: str) -> SaslMechanism:
    """Return a mechanism that needs no token, for one authentication at a host."""
    factory = MECHANISMS.get(config.sasl_mechanism)
    if factory is not None:
        return Made(factory, config, host)
    assert config.credentials is not None, "checked when the config was made"
    user, password = config.credentials
    if config.sasl_mechanism in SCRAM_MECHANISMS:
        extension = DELEGATION_TOKEN if config.has_delegation_token else ""
        nonce = token_hex(NONCE_BYTES)
        return Scram(config.sasl_mechanism, user, password, nonce, extension=extension)
    return Plain(user, password)
