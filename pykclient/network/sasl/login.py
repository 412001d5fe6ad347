"""Login: the token of one client, fetched once for all connections and renewed before it expires.

A fetch may block, so it runs in the port's background, one at a time: a source that does not return
in time is not called again before it returns. Connections wait for the first token; later ones find
it ready. If a renewal fails while the token is still valid, the failure is logged and the renewal
retried; without a valid token, the waiting connections get the error.

The pause between two fetches starts at a second and grows with each failure, which is a failed
fetch or a token that a broker refused. It is reset once a broker accepts a token.

Owner: the driver of the engine; sources are called on a background thread.
Source: Java classes ``ExpiringCredentialRefreshingLogin``, ``ExpiringCredentialRefreshConfig``,
``Retry``. When a broker refuses a token, Java requests no other one until the client is recreated.
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
"""Minimum time between two fetches, since identity servers limit requests. It doubles with each
failure, up to `sasl_login_retry_backoff_max_ms`."""

UNKNOWN_LIFETIME_MS: Final = 60_000
"""Time for which a token without a known expiry is used for new authentications."""


class TokenSource(Protocol):
    """A source of tokens."""

    name: str
    """The name for messages: the setting, or the server's address."""

    def fetch(self) -> OAuthToken:
        """Return a new token. It may block: each call has its own thread, one call at a time.

        Any exception becomes the cause of the `AuthenticationError` that the call ends with.
        """


def token_source(config: ClientConfig) -> TokenSource:
    """Return the source that the settings define. The config has checked that there is one.

    Raises:
        ConfigError: the source cannot be imported, or is not callable.
    """
    if config.sasl_oauth_token_provider is not None:
        return ProvidedTokens(config.sasl_oauth_token_provider)
    if config.oauth_cb is not None:
        return CallbackTokens(config.oauth_cb, config.sasl_oauthbearer_config)
    if config.has_oidc_tokens:
        # Imported here: HTTP takes its share of the import budget, and many clients do not need it.
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
    """One call of a source on a background thread; the driver checks whether it is over.

    The driver writes only `_is_cancelled` and reads the other flags afterwards. The thread writes
    `_has_begun` before it reads `_is_cancelled`, so at least one of them sees the other's write.
    """

    def __init__(self, source: TokenSource, wall_clock_ms: Callable[[], int]) -> None:
        self._source = source
        self._wall_ms = wall_clock_ms
        self._has_begun = self._has_returned = self._is_cancelled = False

    @property
    def is_over(self) -> bool:
        """True if the call has returned, or was cancelled before it began."""
        return self._has_returned or (self._is_cancelled and not self._has_begun)

    def cancel(self) -> None:
        """Prevent the call of the source, unless it has begun."""
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
        """Minimum time between the last fetch and the next one."""
        self._fetch: _Fetch | None = None
        """The last fetch. It may still run after its deadline, and after a restart."""
        self._fetch_deadline_ms = NEVER_MS
        """Deadline of the fetch under way, or `NEVER_MS`."""
        self._result: OAuthToken | BaseException | None = None
        self._failure_count = 0
        """Number of failed fetches since the last success."""
        self._refusal_count = 0
        """Number of refused tokens since a broker accepted one."""
        self._last_failure = ""

    @property
    def awaited(self) -> str:
        """The thing that connections wait for, and the last failure, for messages."""
        reason = self._last_failure and f", after a pause: {self._last_failure}"
        return f"a token of {self._source.name}{reason}"

    @property
    def name(self) -> str:
        """The source's name, for messages."""
        return self._source.name

    def token(self, on_ready: OnReady) -> OAuthToken | None:
        """Return the token, or None if none is valid; `on_ready` is called later.

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
        """Discard a token that a broker refused: the next attempt fetches another one."""
        if self._token is token:
            self._token = None
            self._renew_ms = NEVER_MS
            self._refusal_count += 1
            self._last_failure = "a broker refused the last one"
            self._interval_ms = self._next_interval_ms()

    def accept(self, token: OAuthToken) -> None:
        """Record that a broker accepted a token."""
        if self._token is token:
            self._refusal_count = 0
            self._last_failure = ""
            self._interval_ms = ATTEMPT_INTERVAL_MS

    def poll(self, now_ms: int) -> int:
        """Start to fetch a token if one is due; return the time of the next poll."""
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
        """Process a token or error that has arrived, and call the waiting connections back."""
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
            self._log.debug("fetched a token of %s", self._source.name)
        else:
            assert error is not None
            self._back_off(error, now_ms)
        waiting, self._waiting = self._waiting, []
        for on_ready in waiting:
            on_ready(error)

    def restart(self) -> None:
        """Forget what is under way, because the owner was interrupted. The token stays."""
        if self._fetch is not None:
            self._fetch.cancel()
        self._fetch_deadline_ms = NEVER_MS
        self._result = None
        self._waiting.clear()

    # The fetch.

    def _refuse_second_call(self, now_ms: int) -> int:
        """Fail the waiting connections: the source has not returned from its last call."""
        if self._waiting:
            self._result = AuthenticationError(
                "its last call has not returned yet, and calls do not overlap"
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
            self._renew_ms = NEVER_MS  # the next connection that needs a token fetches it
            return
        self._renew_ms = now_ms + pause_ms
        key = (self._source.name, type(error))
        self._repeated.log(
            logging.WARNING,
            now_ms,
            key,
            "the token could not be renewed; it is valid for %d more seconds: %s",
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
        """Return the time to renew a token that has just arrived, as Java computes it.

        It is a fraction of the lifetime, not before the minimum period and not within the buffer
        before the expiry, unless the lifetime is too short for both.
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
