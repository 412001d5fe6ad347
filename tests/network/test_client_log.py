"""Log messages tell which client they are of."""

from __future__ import annotations

import inspect
import logging
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pykclient
from pykclient.network.log import ClientLog, RateLimitedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOGGER = "pykclient.network"


@pytest.mark.promise("log messages name their client")
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


def test_a_level_that_is_off_formats_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pykclient.network")
    ClientLog("pykclient.network", "c1").debug("%s", object())
    assert not caplog.records


def test_a_message_without_arguments_begins_with_it_too(caplog: pytest.LogCaptureFixture) -> None:
    ClientLog("pykclient.network", "50%d").warning("closed")
    assert caplog.records[0].getMessage() == "[50d] closed"


def test_a_record_shows_the_place_that_logs(caplog: pytest.LogCaptureFixture) -> None:
    log = ClientLog(LOGGER, "c1")
    log.warning("closed")
    log.log(logging.ERROR, "closed")
    here = inspect.currentframe()
    assert here is not None
    assert {record.funcName for record in caplog.records} == {here.f_code.co_name}


class Raising(logging.Filter):
    """A filter with a mistake."""

    def filter(self, record: logging.LogRecord) -> bool:
        raise ZeroDivisionError(record.msg)


class RaisingHandler(logging.Handler):
    """A handler with a mistake that it does not contain."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ZeroDivisionError(record.msg)


@pytest.fixture(params=["filter", "handler"])
def mistake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have everything that is logged end in an exception."""
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
    """A handler as task queues and tests have it."""
    raise TimeoutError("the time is up")


class Alarmed:
    """A handler that is an object."""

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


def test_a_lock_of_logging_that_an_interrupt_left_taken_holds_nobody_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = ClientLog(f"{LOGGER}.fresh", "c1")  # no level of it was looked for yet
    thread = threading.Thread(target=log.warning, args=("gone on",), daemon=True)
    with logging._lock:  # type: ignore[attr-defined]
        thread.start()
        thread.join(10.0)
        assert not thread.is_alive()
    assert "gone on" in caplog.text


def test_every_client_logs_by_it() -> None:
    package = Path(pykclient.__file__).parent
    assert [
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if "getLogger(" in file.read_text() and "testing" not in file.parts
    ] == ["network/log.py"]
