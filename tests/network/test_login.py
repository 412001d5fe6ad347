"""A client's token: fetched once, renewed before it expires, and kept if renewal fails."""

from __future__ import annotations

import logging
import threading
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest

from pykclient.admin.config import AdminConfig
from pykclient.errors import AuthenticationError, ConnectionFailedError, TlsError
from pykclient.network.log import ClientLog
from pykclient.network.manager import NEVER_MS
from pykclient.network.sasl.login import Login
from pykclient.network.sasl.token import OAuthToken

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.network.io.port import Port

SETTINGS = {
    "bootstrap_servers": "h:9092",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "oauth_cb": "a:b",
    "sasl_login_refresh_window_jitter": 0.0,
}
HOUR_MS = 3_600_000
WALL_MS = 1_700_000_000_000


class HeldPort:
    """A port whose call ends when the test says so."""

    def __init__(self) -> None:
        self.held: tuple[Callable[[], Any], Callable[[Any], None]] | None = None

    def call(
        self, function: Callable[[], Any], on_done: Callable[[Any], None], *, name: str
    ) -> None:
        assert (name, self.held) == ("token", None), "one call at a time"
        self.held = function, on_done

    def forget(self, on_done: Callable[[Any], None]) -> None:
        assert self.held is not None
        assert self.held[1] == on_done
        self.held = None


class Source:
    """A source of tokens that are valid for an hour; it may raise instead."""

    name = "the source"

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.lifetime_ms: int | None = HOUR_MS
        self.now_ms = 0

    def fetch(self) -> OAuthToken:
        self.count += 1
        if self.error is not None:
            raise self.error
        if self.lifetime_ms is None:
            return OAuthToken(f"t{self.count}")
        return OAuthToken(f"t{self.count}", WALL_MS + self.now_ms + self.lifetime_ms)


class Bench:
    """A login and its clock."""

    def __init__(self, **changes: object) -> None:
        self.port = HeldPort()
        self.source = Source()
        self.ready: list[BaseException | None] = []
        self.config = AdminConfig.from_settings({**SETTINGS, **changes})
        self.login = Login(
            self.config,
            cast("Port", self.port),
            self.source,
            random=Random(1),
            log=ClientLog("pykclient.network", "c"),
            wall_clock_ms=lambda: WALL_MS + self.source.now_ms,
        )

    @property
    def now_ms(self) -> int:
        return self.source.now_ms

    def advance(self, milliseconds: int) -> None:
        self.source.now_ms += milliseconds

    def poll(self) -> int:
        return self.login.poll(self.now_ms)

    def end(self) -> None:
        """End the pending call."""
        assert self.port.held is not None
        (function, on_done), self.port.held = self.port.held, None
        try:
            result: Any = function()
        except Exception as error:  # noqa: BLE001
            result = error
        on_done(result)
        self.login.complete(self.now_ms)

    def token(self) -> str | None:
        found = self.login.token(self.ready.append)
        return None if found is None else found.value.value

    def fetch(self) -> None:
        """Fetch the first token."""
        assert self.token() is None
        self.poll()
        self.end()
        assert self.ready == [None]


def test_nothing_is_fetched_before_a_token_is_needed() -> None:
    bench = Bench()
    assert bench.poll() == NEVER_MS
    assert bench.port.held is None


def test_all_that_wait_get_the_one_token() -> None:
    bench = Bench()
    assert [bench.token() for _ in range(3)] == [None] * 3
    assert bench.poll() == bench.config.request_timeout_ms
    bench.poll()
    bench.end()
    assert bench.ready == [None] * 3
    assert bench.token() == "t1"
    assert bench.source.count == 1


@pytest.mark.parametrize(
    ("lifetime_s", "settings", "after_s"),
    [
        (3_600, {}, 2_880),  # 80 % of it
        (3_600, {"sasl_login_refresh_window_factor": 0.99}, 3_300),  # five minutes are left
        (365, {"sasl_login_refresh_window_factor": 0.5}, 65),  # the buffer, again
        (365, {"sasl_login_refresh_buffer_seconds": 305}, 60),  # not before the least period
        (100, {}, 80),  # too short for both
        (3_600, {"sasl_login_refresh_window_jitter": 0.25}, 3_300),
    ],
)
def test_a_token_is_renewed_when_java_would(
    lifetime_s: int, settings: dict[str, object], after_s: int
) -> None:
    bench = Bench(**settings)
    bench.source.lifetime_ms = lifetime_s * 1000
    bench.fetch()
    due_ms = bench.poll()
    if "sasl_login_refresh_window_jitter" in settings:
        assert 2_880_000 < due_ms <= after_s * 1000
    else:
        assert due_ms == after_s * 1000
    bench.advance(due_ms - 1)
    bench.poll()
    assert bench.port.held is None
    bench.advance(1)
    bench.poll()
    assert bench.token() == "t1", "while the new one is fetched"
    bench.end()
    assert bench.token() == "t2"


def test_a_renewal_that_fails_is_tried_again_and_the_token_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.fetch()
    bench.source.error = ConnectionFailedError("it is away")
    pauses_ms = []
    bench.advance(bench.poll())
    for _ in range(9):
        bench.poll()
        bench.end()
        pauses_ms.append(bench.poll() - bench.now_ms)
        bench.advance(pauses_ms[-1])
    assert bench.token() == "t1"
    # Doubling from a second, with a jitter of a fifth, up to ten.
    for pause_ms, mean_ms in zip(pauses_ms[:4], (1_000, 2_000, 4_000, 8_000), strict=True):
        assert max(1_000, mean_ms * 0.8) <= pause_ms <= mean_ms * 1.2
    assert 8_000 <= pauses_ms[-1] <= 10_000
    record, *later = caplog.records
    assert len(later) < 9
    assert record.levelno == logging.WARNING
    assert "is valid for 720 more seconds: no token of the source: it is away" in record.message
    bench.source.error = None
    bench.poll()
    bench.end()
    assert bench.token() == f"t{bench.source.count}"


def test_a_token_that_has_expired_is_not_used() -> None:
    bench = Bench()
    bench.fetch()
    bench.advance(HOUR_MS)
    assert bench.token() is None
    bench.poll()
    bench.end()
    assert bench.token() == "t2"


def test_a_token_without_an_expiry_serves_for_a_minute() -> None:
    bench = Bench()
    bench.source.lifetime_ms = None
    bench.fetch()
    assert bench.poll() == NEVER_MS
    bench.advance(59_999)
    assert bench.token() == "t1"
    bench.advance(1)
    assert bench.token() is None


def test_another_token_is_fetched_a_second_after_one_was_refused() -> None:
    bench = Bench()
    bench.fetch()
    token = bench.login.token(bench.ready.append)
    assert token is not None
    bench.login.drop(token)
    assert bench.token() is None
    assert (
        bench.login.awaited == "a token of the source, after a pause: a broker refused the last one"
    )
    due_ms = bench.poll()
    assert 1_000 <= due_ms <= 1_200
    assert bench.port.held is None
    bench.advance(due_ms)
    bench.poll()
    bench.end()
    assert bench.token() == "t2"
    bench.login.drop(token)
    assert bench.token() == "t2", "another one was refused"


def fetches_in(seconds: int, bench: Bench, *, is_refused_by_broker: bool) -> int:
    """Count the calls of a token source while connections always need a token."""
    begun_ms = bench.now_ms
    count = bench.source.count
    ready: list[BaseException | None] = []
    on_ready = ready.append
    while bench.now_ms < begun_ms + seconds * 1_000:
        token = bench.login.token(on_ready)
        bench.poll()
        if bench.port.held is not None:
            bench.end()
            token = bench.login.token(on_ready)
        bench.login.forget(on_ready)
        if token is not None and is_refused_by_broker:
            bench.login.drop(token)
        bench.advance(50)
    return bench.source.count - count


@pytest.mark.parametrize("is_refused_by_broker", [True, False])
def test_the_pause_grows_while_tokens_or_the_client_are_refused(
    is_refused_by_broker: bool,
) -> None:
    bench = Bench()
    if not is_refused_by_broker:
        bench.source.error = AuthenticationError("no")
    # At once, and after 1, 3 and 7 seconds, each pause up to a fifth shorter or longer.
    assert fetches_in(10, bench, is_refused_by_broker=is_refused_by_broker) in (4, 5)
    # Then one every 8 to 10 seconds.
    in_an_hour = fetches_in(3_600, bench, is_refused_by_broker=is_refused_by_broker)
    assert 350 <= in_an_hour <= 450


def test_the_pause_is_short_again_once_a_broker_has_accepted_a_token() -> None:
    bench = Bench()
    fetches_in(60, bench, is_refused_by_broker=True)
    bench.advance(10_000)
    bench.fetch()
    token = bench.login.token(bench.ready.append)
    assert token is not None
    bench.login.accept(token)
    assert bench.login.awaited == "a token of the source"
    begun_ms = bench.now_ms
    bench.login.drop(token)
    assert bench.token() is None
    assert 1_000 <= bench.poll() - begun_ms <= 1_200


@pytest.mark.parametrize(
    ("cause", "error"),
    [
        (AuthenticationError("no"), AuthenticationError),
        (ConnectionFailedError("no"), ConnectionFailedError),
        (TlsError("no"), TlsError),
        (LookupError("no"), AuthenticationError),
    ],
)
def test_those_that_wait_get_the_error_of_a_fetch(cause: Exception, error: type[Exception]) -> None:
    bench = Bench()
    bench.source.error = cause
    bench.token()
    bench.poll()
    bench.end()
    (found,) = bench.ready
    assert type(found) is error
    assert str(found).startswith("no token of the source: ")
    assert found is not None
    assert found.__cause__ is cause
    assert bench.poll() == NEVER_MS, "the next connection that needs one has it fetched"


def test_a_fetch_that_hangs_ends_for_those_that_wait() -> None:
    bench = Bench(request_timeout_ms=5_000)
    bench.token()
    bench.poll()
    bench.advance(5_000)
    assert bench.poll() == bench.now_ms
    assert bench.port.held is None, "it is forgotten"
    bench.login.complete(bench.now_ms)
    (error,) = bench.ready
    assert "it did not come within 5 seconds" in str(error)


class Threads(HeldPort):
    """A port whose calls, abandoned or not, continue until the test ends them."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[Callable[[], Any]] = []

    def call(
        self, function: Callable[[], Any], on_done: Callable[[Any], None], *, name: str
    ) -> None:
        super().call(function, on_done, name=name)
        self.begun.append(function)


@pytest.mark.parametrize("has_begun", [True, False])
@pytest.mark.parametrize("is_interrupted", [True, False])
def test_a_source_that_hangs_is_never_called_twice_at_once(
    has_begun: bool, is_interrupted: bool
) -> None:
    bench = Bench(request_timeout_ms=5_000)
    bench.login._port = port = Threads()  # type: ignore[assignment]
    entered, leave = threading.Event(), threading.Event()
    fetch = bench.source.fetch

    def hanging() -> OAuthToken:
        entered.set()
        leave.wait()
        return fetch()

    bench.source.fetch = hanging  # type: ignore[method-assign]
    bench.token()
    bench.poll()
    thread = threading.Thread(target=port.begun[0], daemon=True)
    if has_begun:
        thread.start()
        entered.wait()
    if is_interrupted:
        bench.login.restart()
        port.held = None
    else:
        bench.advance(5_000)
        bench.poll()
        bench.login.complete(bench.now_ms)
    bench.advance(10_000)
    bench.ready.clear()
    bench.token()
    bench.poll()
    assert (port.held is None) == has_begun
    if has_begun:
        bench.login.complete(bench.now_ms)
        assert "its last call has not returned yet, and calls do not overlap" in str(bench.ready[0])
        leave.set()
        thread.join()
        bench.advance(10_000)
        bench.token()
        bench.poll()
        assert port.held is not None, "it has returned"
    else:
        leave.set()
        with pytest.raises(AuthenticationError, match="cancelled"):
            port.begun[0]()
        assert not entered.is_set()


def test_a_call_that_cannot_be_begun_is_over() -> None:
    bench = Bench()
    bench.token()
    bench.poll()
    assert bench.port.held is not None
    on_done, bench.port.held = bench.port.held[1], None
    on_done(ConnectionFailedError("no thread can be started"))
    bench.login.complete(bench.now_ms)
    bench.token()
    bench.advance(10_000)
    bench.poll()
    assert bench.port.held is not None


def test_who_does_not_wait_any_more_is_not_called() -> None:
    bench = Bench()
    on_ready = bench.ready.append
    assert bench.login.token(on_ready) is None
    bench.login.forget(on_ready)
    bench.poll()
    assert bench.port.held is None
