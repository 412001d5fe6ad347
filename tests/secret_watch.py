"""A plugin of pytest: no test of security has a password in a log at DEBUG, an error or its output.

The tests' passwords are words that nothing else has: those of the secured brokers, and what begins
with ``canary``. In a test whose module is about security, a handler reads each line of our loggers,
a hook each error of ours as it is made, and the end of the test what was printed and logged. A test
that shows a secret fails, however it ends itself.

Owner: the session; what was found belongs to the test that runs.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest

from pykclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

SECRETS: Final = re.compile(r"canary-\w|alice-secret|w\"\\\\?\\?ö, =\]")
"""The passwords of `tests/integration/conftest.py`, of `ClusterSecurity` where none is given, and
of tests that look for their own."""

ABOUT_SECURITY: Final = re.compile(r"ClusterSecurity\(|secured_|SECURITY\b|sasl_password")
LOGGERS: Final = ("pykclient", "spark_connector")
LEAKS: Final = pytest.StashKey[list[str]]()


class Watch(logging.Handler):
    """A log handler that sees every line, before other handlers filter it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.leaks: list[str] = []
        self._formatter = logging.Formatter("%(name)s %(levelname)s %(message)s")

    def emit(self, record: logging.LogRecord) -> None:
        """Read a line, with the traceback that it may have."""
        # What cannot be formatted is the business of the test that logs it.
        try:
            text = self._formatter.format(record)
        except Exception:  # noqa: BLE001
            return
        self.read("log", text)

    def read(self, where: str, text: str) -> None:
        """Record secrets that a text shows."""
        if SECRETS.search(text):
            self.leaks.append(f"{where}: {text[:1_000]}")


@contextmanager
def watching(*, is_at_debug: bool = True) -> Iterator[Watch]:
    """Watch loggers and errors of ours. At DEBUG, other handlers see more, too."""
    watch = Watch()
    make = KafkaError.__init__

    def watched(error: KafkaError, *args: object, **keywords: Any) -> None:
        make(error, *args, **keywords)
        watch.read(type(error).__name__, " ".join(map(str, args)))

    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(watch)
        if is_at_debug:
            logger.setLevel(logging.DEBUG)
    KafkaError.__init__ = watched  # type: ignore[method-assign, assignment]
    try:
        yield watch
    finally:
        KafkaError.__init__ = make  # type: ignore[method-assign]
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(watch)
            if is_at_debug:
                logger.setLevel(level)


@cache
def is_about_security(path: Path) -> bool:
    """Return whether a module's tests have brokers or clients with passwords.

    Those of this watch plant leaks, and are not watched.
    """
    if path.stem == "test_secret_watch":
        return False
    return ABOUT_SECURITY.search(path.read_text(encoding="utf-8")) is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch each test of security, with its fixtures."""
    if not is_about_security(item.path):
        return (yield)
    # A test that reads the log looks itself at the level that it wants, and counts lines.
    reads_log = "caplog" in getattr(item, "fixturenames", ())
    with watching(is_at_debug=not reads_log) as watch:
        item.stash[LEAKS] = watch.leaks
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that has shown a secret, with where it did."""
    report = yield
    leaks = item.stash.get(LEAKS, None)
    if leaks is None or report.outcome == "failed":
        return report
    printed = [f"{name}: {text}" for name, text in report.sections if SECRETS.search(text)]
    if found := [*leaks, *printed]:
        leaks.clear()
        report.outcome = "failed"
        report.longrepr = "a secret is shown:\n" + "\n".join(found)
    return report
