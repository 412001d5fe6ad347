"""The log of a client: its name, repeated lines, and what a call waits for."""

from __future__ import annotations

import inspect
import logging
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pykclient
from pykclient.network.log import (
    ARGUMENT_LENGTH_MAX,
    KEYS_MAX,
    LONG_WAIT_MS,
    REMEMBERED_MAX,
    REPEAT_MS,
    ClientLog,
    LongWaits,
    RateLimitedLog,
)
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOGGER = "pykclient.network"


@pytest.mark.parametrize(
    ("client_id", "message"),
    [("", "lost n1: gone"), ("c1", "[c1] lost n1: gone"), ("100%s", "[100s] lost n1: gone")],
)
def test_a_message_begins_with_the_clients_id_if_it_has_one(
    client_id: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    ClientLog("pykclient.network", client_id).warning("lost %s: %s", "n1", "gone")
    (record,) = caplog.records
    assert (record.name, record.getMessage()) == ("pykclient.network", message)
    assert record.__dict__["client_id"] == client_id


def test_a_name_as_long_as_a_response_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    name = "n" * 3 * ARGUMENT_LENGTH_MAX
    ClientLog(LOGGER, "").warning("%s of %d: %r", TopicPartition(name, 0), 7, name[:100])
    (message,) = caplog.messages
    assert f"... ({len(name) + 2} characters) of 7: 'nnn" in message
    assert len(message) < ARGUMENT_LENGTH_MAX + 200


def test_a_level_that_is_off_formats_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pykclient.network")
    ClientLog("pykclient.network", "c1").debug("%s", object())
    assert not caplog.records


def test_a_record_shows_the_place_that_logs(caplog: pytest.LogCaptureFixture) -> None:
    log = ClientLog(LOGGER, "50%d")
    log.warning("closed")
    assert caplog.messages == ["[50d] closed"]
    log.log(logging.ERROR, "closed")
    here = inspect.currentframe()
    assert here is not None
    assert {record.funcName for record in caplog.records} == {here.f_code.co_name}


class Raising(logging.Filter):
    """A filter with a bug."""

    def filter(self, record: logging.LogRecord) -> bool:
        raise ZeroDivisionError(record.msg)


class RaisingHandler(logging.Handler):
    """A handler with a bug that it does not contain."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ZeroDivisionError(record.msg)


@pytest.fixture(params=["filter", "handler"])
def mistake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make every log call raise."""
    monkeypatch.setattr(ClientLog, "failure_count", 0)
    logger, handler, faulty = logging.getLogger(LOGGER), RaisingHandler(), Raising()
    if request.param == "filter":
        logger.addFilter(faulty)
    else:
        logger.addHandler(handler)
    yield
    logger.removeFilter(faulty)
    logger.removeHandler(handler)


@pytest.mark.usefixtures("mistake")
def test_what_a_filter_or_handler_raises_goes_to_stderr_now_and_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = ClientLog(LOGGER, "c1")
    for _ in range(99):
        log.warning("closed")
        RateLimitedLog(log).log(logging.WARNING, 0, ("key",), "lost")
        log.exception("failed")
    written = capsys.readouterr().err
    assert ClientLog.failure_count == 297
    assert written.count("Traceback") == 3
    assert f"A filter or handler of logger '{LOGGER}' raised, 100 times by now" in written


@pytest.mark.usefixtures("mistake")
def test_where_logging_is_to_be_quiet_about_itself_it_is_counted_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    ClientLog(LOGGER, "c1").warning("closed")
    assert not capsys.readouterr().err
    assert ClientLog.failure_count == 1


def test_an_interrupt_while_something_is_logged_is_the_applications(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(_: logging.LogRecord) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(logging.getLogger(LOGGER), "filters", [interrupt])
    with pytest.raises(KeyboardInterrupt):
        ClientLog(LOGGER, "c1").warning("closed")


def refuse_to_wait(_number: int, _frame: object) -> None:
    """Raise, as the signal handlers of task queues and tests do."""
    raise TimeoutError("the time is up")


class Alarmed:
    """A signal handler that is an object."""

    def __call__(self, number: int, frame: object) -> None:
        refuse_to_wait(number, frame)


@pytest.mark.parametrize("handler", [refuse_to_wait, Alarmed()], ids=["function", "object"])
def test_what_a_signal_handler_raises_while_something_is_logged_is_the_applications(
    handler: Callable[[int, object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: logging.LogRecord) -> bool:
        signal.raise_signal(signal.SIGUSR1)
        return True

    monkeypatch.setattr(logging.getLogger(LOGGER), "filters", [interrupted])
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(TimeoutError, match="the time is up"):
            ClientLog(LOGGER, "c1").warning("closed")
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("name", ["admin", "consumer", "network", "producer"])
def test_a_lock_of_logging_that_an_interrupt_left_taken_holds_up_no_thread(
    caplog: pytest.LogCaptureFixture, name: str
) -> None:
    old = ClientLog(f"{LOGGER}.fresh", "c1")  # no level of it was looked for yet

    def log() -> None:
        old.warning("gone on")
        ClientLog(f"pykclient.{name}", "c1").warning("made")

    thread = threading.Thread(target=log, daemon=True)
    with logging._lock:  # type: ignore[attr-defined]
        thread.start()
        thread.join(10.0)
        assert not thread.is_alive()
    assert "gone on" in caplog.text
    assert "made" in caplog.text


def test_every_client_logs_by_it() -> None:
    package = Path(pykclient.__file__).parent
    assert {
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if "getLogger(" in file.read_text() and not {"testing", "cli"} & set(file.parts)
    } == {
        "network/log.py",
        "config/client_properties.py",
    }  # the latter runs before there is a client


START_MS = 5_000
TRY_MS = 100


@pytest.fixture
def repeated() -> RateLimitedLog:
    return RateLimitedLog(ClientLog("pykclient.network", ""))


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    """Return the messages of a level."""
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def lose(repeated: RateLimitedLog, now_ms: int, why: str = "refused") -> bool:
    """Log that a broker was lost."""
    return repeated.log(logging.WARNING, now_ms, ("n1", why), "lost %s: %s", "n1", why)


def test_one_line_stands_for_all_that_are_alike(
    repeated: RateLimitedLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logged = [lose(repeated, START_MS + n * TRY_MS) for n in range(REPEAT_MS // TRY_MS)]
    assert lines(caplog) == ["lost n1: refused"]
    assert logged == [True, *[False] * (len(logged) - 1)]
    assert len(lines(caplog, logging.DEBUG)) == len(logged) - 1


def test_after_a_while_it_is_logged_again_with_how_often(
    repeated: RateLimitedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(2 * REPEAT_MS // TRY_MS):
        lose(repeated, START_MS + n * TRY_MS)
    again = f"lost n1: refused ({REPEAT_MS // TRY_MS - 1} times since it was last logged)"
    assert lines(caplog) == ["lost n1: refused", again]


def test_another_reason_is_logged_at_once_and_two_that_alternate_are_logged_once_each(
    repeated: RateLimitedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(10):
        lose(repeated, START_MS + n, ("refused", "timed out")[n % 2])
    assert lines(caplog) == ["lost n1: refused", "lost n1: timed out"]


def test_it_remembers_no_more_than_so_many(repeated: RateLimitedLog) -> None:
    for n in range(KEYS_MAX + 1):
        assert lose(repeated, START_MS, str(n))
    assert not lose(repeated, START_MS, str(KEYS_MAX))
    assert lose(repeated, START_MS, "0"), "the oldest was forgotten"


@pytest.fixture
def waits() -> LongWaits:
    return LongWaits(ClientLog("pykclient.network", "c1"))


def wait_long(waits: LongWaits, now_ms: int, what: str = "memory", why: str = "all taken") -> None:
    waits.begin(what, lambda: why, now_ms).look(now_ms + LONG_WAIT_MS)


def test_it_is_logged_once_after_a_while(
    waits: LongWaits, caplog: pytest.LogCaptureFixture
) -> None:
    wait = waits.begin("memory", lambda: "all taken", START_MS)
    deadline_ms = START_MS + 60_000
    assert wait.until_ms(deadline_ms) == START_MS + LONG_WAIT_MS
    assert wait.until_ms(START_MS + 1) == START_MS + 1
    wait.look(START_MS + LONG_WAIT_MS - 1)
    assert not caplog.records
    for late_ms in (0, 1, 100_000):
        wait.look(START_MS + LONG_WAIT_MS + late_ms)
    [record] = caplog.records
    assert record.getMessage() == "[c1] still waiting for memory after 5000 ms: all taken"
    assert record.levelname == "WARNING"
    assert wait.until_ms(deadline_ms) == deadline_ms


def test_many_that_wait_for_the_same_log_it_now_and_then(
    waits: LongWaits, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        wait_long(waits, START_MS)
    wait_long(waits, START_MS, "a commit", "")
    assert [record.getMessage() for record in caplog.records] == [
        "[c1] still waiting for memory after 5000 ms: all taken",
        "[c1] still waiting for a commit after 5000 ms: no response has come yet",
    ]
    wait_long(waits, START_MS + REPEAT_MS)
    assert len(caplog.records) == 3


def test_waits_for_no_more_than_so_many_are_remembered(
    waits: LongWaits, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(REMEMBERED_MAX + 1):
        wait_long(waits, START_MS, str(number))
    wait_long(waits, START_MS, "0")
    assert len(caplog.records) == REMEMBERED_MAX + 2
