"""Errors as a driver sees them when they end a Python process of Spark's."""

from __future__ import annotations

import io
import logging
import os
import sys
import types
from typing import TYPE_CHECKING

import pytest
from pyspark.util import handle_worker_exception

from pykclient.errors import ConfigError
from spark_connector.shown_errors import HIDDEN, WORKER, cause_first

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def is_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process look like one of Spark's, and undo it afterwards."""
    monkeypatch.setenv(HIDDEN, "")
    monkeypatch.setitem(sys.modules, WORKER, types.ModuleType(WORKER))


def sent_to_driver(fail: Callable[[], object]) -> str:
    """Return the text that Spark's process sends of the error that a call raises."""
    sent = io.BytesIO()
    try:
        fail()
    except Exception as error:  # noqa: BLE001 - as Spark's process has it
        handle_worker_exception(error, sent)
    return sent.getvalue()[8:].decode()


@cause_first()
def refuse() -> None:
    raise ConfigError("Option 'x' is wrong.")


@cause_first()
def break_down() -> None:
    raise ZeroDivisionError("division by zero")


@pytest.mark.usefixtures("is_worker")
def test_the_first_line_that_a_driver_gets_is_the_cause(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="spark_connector.shown_errors"):
        assert sent_to_driver(refuse) == "pykclient.errors.base.ConfigError: Option 'x' is wrong.\n"
    assert "Traceback" in caplog.text


@pytest.mark.usefixtures("is_worker")
def test_an_error_that_is_not_ours_keeps_its_traceback() -> None:
    shown = sent_to_driver(break_down)
    assert shown.startswith("Traceback")
    assert "in break_down" in shown


def test_an_application_keeps_its_variables() -> None:
    with pytest.raises(ConfigError):
        refuse()
    assert HIDDEN not in os.environ
