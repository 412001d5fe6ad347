"""Authenticator: makes the SASL mechanisms of a client's connections, and owns its `Login`.

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
from pykclient.network.sasl.scram import DELEGATION_TOKEN, NONCE_BYTES, KeyBudget, Scram

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
"""Part of its session after which a connection reauthenticates, drawn between these, as in Java:
requests take time to arrive, and clocks differ."""

SESSION_MS_MIN: Final = 1_000
"""Minimum time between two authentications of a connection: brokers refuse faster ones
(KIP-368)."""


class Authenticator:
    """Makes the mechanisms of one client.

    Raises:
        ConfigError: the configured source of tokens cannot be used, or a package is missing.
    """

    def __init__(self, config: ClientConfig, port: Port, *, random: Random, log: ClientLog) -> None:
        self.name = config.sasl_mechanism
        """Kafka's name of the mechanism."""
        self._config = config
        self._random = random
        self._key_work = KeyBudget()
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
        """Name of what connections without a mechanism wait for; messages show it."""
        return "credentials" if self._login is None else self._login.awaited

    def mechanism(
        self, host: str, on_ready: Callable[[BaseException | None], None]
    ) -> SaslMechanism | None:
        """Return a mechanism for one authentication, or None if it must wait for a token.

        In that case `on_ready` is called later, inside `complete`: with None when it is time to try
        again, or with the error.
        """
        if self._aws_signer is not None:
            return self._aws_signer.mechanism(host)
        if self._gssapi is not None:
            return self._gssapi.mechanism(host)
        if self._login is None:
            return make_mechanism(self._config, host, self._key_work)
        token = self._login.token(on_ready)
        return None if token is None else OAuthBearer(token)

    def forget(self, on_ready: Callable[[BaseException | None], None]) -> None:
        """Never call `on_ready`."""
        if self._login is not None:
            self._login.forget(on_ready)

    def on_refused(self, mechanism: SaslMechanism) -> None:
        """Record that a broker refused the mechanism's credentials."""
        if self._login is not None and isinstance(mechanism, OAuthBearer):
            self._login.drop(mechanism.token)
        if self._aws_signer is not None:
            self._aws_signer.forget()

    def on_accepted(self, mechanism: SaslMechanism) -> None:
        """Record that a broker accepted the mechanism's credentials."""
        if self._login is not None and isinstance(mechanism, OAuthBearer):
            self._login.accept(mechanism.token)
        if self._aws_signer is not None:
            self._aws_signer.accept()

    def session_ms(self, lifetime_ms: int) -> int:
        """Return the time from an authentication to the next one, or `NEVER_MS`."""
        if lifetime_ms <= 0:
            return NEVER_MS
        share = self._random.uniform(*SESSION_SHARES)
        return min(max(int(lifetime_ms * share), SESSION_MS_MIN), NEVER_MS)

    def poll(self, now_ms: int) -> int:
        """Start what is due; return the time of the next poll."""
        self._key_work.refill(now_ms)
        return NEVER_MS if self._login is None else self._login.poll(now_ms)

    def complete(self, now_ms: int) -> None:
        """Process the results that the port delivered."""
        if self._login is not None:
            self._login.complete(now_ms)

    def restart(self) -> None:
        """Forget what is under way, because the owner was interrupted."""
        if self._login is not None:
            self._login.restart()


def make_mechanism(config: ClientConfig, host: str, work: KeyBudget | None = None) -> SaslMechanism:
    """Return a mechanism that needs no token, for one authentication at a host.

    `work` limits the iterations of SCRAM for the client's brokers together.
    """
    factory = MECHANISMS.get(config.sasl_mechanism)
    if factory is not None:
        return Made(factory, config, host)
    assert config.credentials is not None, "checked when the config was made"
    user, password = config.credentials
    if config.sasl_mechanism in SCRAM_MECHANISMS:
        extension = DELEGATION_TOKEN if config.has_delegation_token else ""
        nonce = token_hex(NONCE_BYTES)
        return Scram(config.sasl_mechanism, user, password, nonce, extension=extension, work=work)
    return Plain(user, password)
