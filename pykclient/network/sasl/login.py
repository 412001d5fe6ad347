"""Login: the token of one client, fetched once for all connections and renewed ahead of time.

A fetch may block, so it is a call of the port's background, one at a time: a source that has not
returned in time is not called again before it returns. Connections that need a token wait for the
first one; later ones find it there. A renewal that fails while the token is still valid is logged
and tried again; when none is valid, those that wait get the error.

The time between two fetches grows with each failure, from a second on: a failure is a fetch that
failed, or a token that a broker refused. It is short again once a broker has accepted a token.

Owner: the driver of the engine; sources are called on a thread of the background.
Source: Java classes ``ExpiringCredentialRefreshingLogin``, ``ExpiringCredentialRefreshConfig``,
``Retry``. Java requests no other token when a broker refuses one, until the client is made again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from pykclient.errors import AuthenticationError, ConnectionFailedError, KafkaError, TlsError
from pykclient.network.log import RateLimitedLog
from pykclient.network.manager import NEVER_MS
from pykclient.network.retry import Backoff
from pykclient.network.sasl.callables import CallbackTokens, ProvidedTokens
from pykclient.network.sasl.token import OAuthToken, check_token, wall_ms
from pykclient.network.sasl.unsecured import UnsecuredTokens

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from pykclient.config.client import ClientConfig
    from pykclient.network.io.port import Port
    from pykclient.network.log import ClientLog

    OnReady = Callable[[BaseException | None], None]

ATTEMPT_INTERVAL_MS: Final = 1_000
"""Least time between two fetches: identity servers limit requests, too. It doubles with each
failure, up to `sasl_login_retry_backoff_max_ms`."""

UNKNOWN_LIFETIME_MS: Final = 60_000
"""How long a token whose expiry is not known serves new authentications."""


class TokenSource(Protocol):
    """Where tokens come from."""

    name: str
    """For messages: the setting, or the server's address."""

    def fetch(self) -> OAuthToken:
        """Return a new token. May block; is called on a thread of its own, one call at a time.

        Whatever it raises is the cause of the `AuthenticationError` that a call ends with.
        """


def token_source(config: ClientConfig) -> TokenSource:
    """Return the source that the settings have; they have exactly one, which is checked before.

    Raises:
        ConfigError: it cannot be imported, or called.
    """
    if config.sasl_oauth_token_provider is not None:
        return ProvidedTokens(config.sasl_oauth_token_provider)
    if config.oauth_cb is not None:
        return CallbackTokens(config.oauth_cb, config.sasl_oauthbearer_config)
    if config.has_oidc_tokens:
        # Imported here: HTTP takes its share of the import budget, and many clients do without.
        from pykclient.network.sasl.oidc import oidc_source

        return oidc_source(config)
    if config.has_aws_tokens:
        from pykclient.network.sasl.msk_iam import AwsTokens

        return AwsTokens(config)
    if config.has_gcp_tokens:
        from pykclient.network.sasl.gcp import GcpTokens

        return GcpTokens(config)
    content = config.unsecured_token
    assert content is not None, "checked when the config was made"
    return UnsecuredTokens(content, config.token_sources[0])


class _Fetch:
    """One call of a source, on a thread of the background; the driver asks whether it is over.

    The driver writes only `_is_cancelled`, and reads the others afterwards. The thread writes
    `_has_begun` before it reads `_is_cancelled`, so that not both can miss the other's write.
    """

    def __init__(self, source: TokenSource, wall_clock_ms: Callable[[], int]) -> None:
        self._source = source
        self._wall_ms = wall_clock_ms
        self._has_begun = self._has_returned = self._is_cancelled = False

    @property
    def is_over(self) -> bool:
        """True if the source is not in this call, and never will be."""
        return self._has_returned or (self._is_cancelled and not self._has_begun)

    def cancel(self) -> None:
        """Never call the source, if it was not called yet."""
        self._is_cancelled = True

    def __call__(self) -> OAuthToken:
        self._has_begun = True
        try:
            if self._is_cancelled:
                raise AuthenticationError("the call was cancelled")
            token = self._source.fetch()
            check_token(token, self._wall_ms())
            return token
        finally:
            self._has_returned = True


class Login:
    """The token of one client. `wall_clock_ms` is since 1970, all other times are monotonic."""

    def __init__(
        self,
        config: ClientConfig,
        port: Port,
        source: TokenSource,
        *,
        random: Random,
        log: ClientLog,
        wall_clock_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._config = config
        self._port = port
        self._source = source
        self._random = random
        self._log = log
        self._repeated = RateLimitedLog(log)
        self._wall_ms = wall_clock_ms
        first_ms = max(ATTEMPT_INTERVAL_MS, config.sasl_login_retry_backoff_ms)
        self._backoff = Backoff(
            first_ms, max(first_ms, config.sasl_login_retry_backoff_max_ms), random=random
        )
        self._token: OAuthToken | None = None
        self._fetched_wall_ms = 0
        self._waiting: list[OnReady] = []
        self._renew_ms = NEVER_MS
        self._begun_ms: int | None = None
        self._interval_ms = ATTEMPT_INTERVAL_MS
        """Least time between the last fetch and the next one."""
        self._fetch: _Fetch | None = None
        """The last fetch, which may go on after its deadline, and after a restart."""
        self._fetch_deadline_ms = NEVER_MS
        """`NEVER_MS` while no fetch is under way."""
        self._result: OAuthToken | BaseException | None = None
        self._failure_count = 0
        """Fetches that failed since the last one that did not."""
        self._refusal_count = 0
        """Tokens that brokers refused since they accepted one."""
        self._last_failure = ""

    @property
    def awaited(self) -> str:
        """What connections wait for, with the reason why the last one did not do, for messages."""
        reason = self._last_failure and f", after a pause: {self._last_failure}"
        return f"a token of {self._source.name}{reason}"

    @property
    def name(self) -> str:
        """Where tokens come from, for messages."""
        return self._source.name

    def token(self, on_ready: OnReady) -> OAuthToken | None:
        """Return the token; without a valid one None, and `on_ready` is called later.

        It is called once, in `complete`: with None when there is a token, or with the error.
        """
        token = self._token
        if token is not None and self._wall_ms() < self._end_wall_ms(token):
            return token
        self._waiting.append(on_ready)
        return None

    def forget(self, on_ready: OnReady) -> None:
        if on_ready in self._waiting:
            self._waiting.remove(on_ready)

    def drop(self, token: OAuthToken) -> None:
        """Note that a broker has refused a token: another one is fetched for the next attempt."""
        if self._token is token:
            self._token = None
            self._renew_ms = NEVER_MS
            self._refusal_count += 1
            self._last_failure = "a broker refused the last one"
            self._interval_ms = self._next_interval_ms()

    def accept(self, token: OAuthToken) -> None:
        """Note that a broker has accepted a token."""
        if self._token is token:
            self._refusal_count = 0
            self._last_failure = ""
            self._interval_ms = ATTEMPT_INTERVAL_MS

    def poll(self, now_ms: int) -> int:
        """Begin to fetch a token if one is due; return when to poll again."""
        if self._fetch_deadline_ms != NEVER_MS:
            if self._result is None and self._fetch_deadline_ms <= now_ms:
                self._port.forget(self._on_fetched)
                if self._fetch is not None:
                    self._fetch.cancel()
                seconds = self._config.request_timeout_ms / 1000
                self._result = AuthenticationError(f"it did not come within {seconds:g} seconds")
            return now_ms if self._result is not None else self._fetch_deadline_ms
        due_ms = self._due_ms()
        if due_ms > now_ms:
            return due_ms
        if self._fetch is not None and not self._fetch.is_over:
            return self._refuse_second_call(now_ms)
        self._begun_ms = now_ms
        self._interval_ms = ATTEMPT_INTERVAL_MS
        self._fetch_deadline_ms = now_ms + self._config.request_timeout_ms
        self._fetch = _Fetch(self._source, self._wall_ms)
        self._port.call(self._fetch, self._on_fetched, name="token")
        return self._fetch_deadline_ms

    def complete(self, now_ms: int) -> None:
        """Take the token that has come, or the error, and call those that wait for it."""
        result, self._result = self._result, None
        if result is None:
            return
        self._fetch_deadline_ms = NEVER_MS
        error = None if isinstance(result, OAuthToken) else self._failure(result)
        if isinstance(result, OAuthToken):
            self._token = result
            self._fetched_wall_ms = self._wall_ms()
            self._failure_count = 0
            self._interval_ms = self._next_interval_ms()
            self._renew_ms = self._renewal_ms(result, now_ms)
            self._log.debug("a token of %s is there", self._source.name)
        else:
            assert error is not None
            self._back_off(error, now_ms)
        waiting, self._waiting = self._waiting, []
        for on_ready in waiting:
            on_ready(error)

    def restart(self) -> None:
        """Forget what is under way, for an owner that was interrupted. The token stays."""
        if self._fetch is not None:
            self._fetch.cancel()
        self._fetch_deadline_ms = NEVER_MS
        self._result = None
        self._waiting.clear()

    # The fetch.

    def _refuse_second_call(self, now_ms: int) -> int:
        """Fail those that wait: the source has not returned from the last call."""
        if self._waiting:
            self._result = AuthenticationError(
                "its last call has not returned yet, and it is not called twice at once"
            )
            return now_ms
        return now_ms + ATTEMPT_INTERVAL_MS

    def _on_fetched(self, result: OAuthToken | BaseException) -> None:
        self._fetch = None
        self._result = result

    def _failure(self, cause: BaseException) -> KafkaError:
        where = f"no token of {self._source.name}"
        if isinstance(cause, AuthenticationError):
            error: KafkaError = AuthenticationError(f"{where}: {cause}")
        elif isinstance(cause, ConnectionFailedError):
            error = ConnectionFailedError(f"{where}: {cause}")
        elif isinstance(cause, TlsError):
            error = TlsError(f"{where}: {cause}")
        else:
            error = AuthenticationError(f"{where}: {type(cause).__name__}: {cause}")
        error.__cause__ = cause
        return error

    def _back_off(self, error: KafkaError, now_ms: int) -> None:
        self._failure_count += 1
        self._last_failure = str(error)
        pause_ms = self._interval_ms = self._next_interval_ms()
        if self._token is None or self._wall_ms() >= self._end_wall_ms(self._token):
            self._renew_ms = NEVER_MS  # the next connection that needs one has it fetched
            return
        self._renew_ms = now_ms + pause_ms
        key = (self._source.name, type(error))
        self._repeated.log(
            logging.WARNING,
            now_ms,
            key,
            "the token could not be renewed, and is valid for %d more seconds: %s",
            (self._end_wall_ms(self._token) - self._wall_ms()) // 1000,
            error,
        )

    # When.

    def _next_interval_ms(self) -> int:
        failure_count = self._failure_count + self._refusal_count
        if not failure_count:
            return ATTEMPT_INTERVAL_MS
        return max(ATTEMPT_INTERVAL_MS, self._backoff.delay_ms(failure_count - 1))

    def _due_ms(self) -> int:
        allowed_ms = 0 if self._begun_ms is None else self._begun_ms + self._interval_ms
        return allowed_ms if self._waiting else max(allowed_ms, self._renew_ms)

    def _end_wall_ms(self, token: OAuthToken) -> int:
        if token.expires_ms is None:
            return self._fetched_wall_ms + UNKNOWN_LIFETIME_MS
        return token.expires_ms

    def _renewal_ms(self, token: OAuthToken, now_ms: int) -> int:
        """Return when to renew a token that has just come, as Java does.

        That is after a part of its lifetime, but neither sooner than the least period nor within
        the buffer before its expiry, unless the lifetime is too short for both.
        """
        if token.expires_ms is None:
            return NEVER_MS
        config = self._config
        lifetime_ms = token.expires_ms - self._fetched_wall_ms
        factor = config.sasl_login_refresh_window_factor
        jitter = config.sasl_login_refresh_window_jitter * self._random.random()
        after_ms = int(lifetime_ms * min(1.0, factor + jitter))
        earliest_ms = config.sasl_login_refresh_min_period_seconds * 1000
        latest_ms = lifetime_ms - config.sasl_login_refresh_buffer_seconds * 1000
        if earliest_ms <= latest_ms:
            after_ms = max(earliest_ms, min(after_ms, latest_ms))
        return now_ms + after_ms
