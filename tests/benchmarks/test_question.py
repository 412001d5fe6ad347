"""The command line that all questions share."""

from __future__ import annotations

import pytest

from measuring.client import KAFKA_PYTHON, PYKCLIENT, RAW_SOCKET, Client
from measuring.question import Settings, parser_of

ABSENT = Client("absent", "with_absent", "package_that_is_not_there", "absent-client")


def test_the_short_form_is_the_default() -> None:
    options = parser_of(None).parse_args([])
    assert (options.records, options.runs, options.json) == (1_000_000, 5, None)
    assert PYKCLIENT.name in options.clients


@pytest.mark.parametrize("text", ["50,000", "50_000", "50000"])
def test_counts_may_have_separators(text: str) -> None:
    assert parser_of(None).parse_args(["--records", text]).records == 50_000


@pytest.mark.parametrize("arguments", [["--records", "0"], ["--runs", "-1"], ["--clients", "me"]])
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser_of(None).parse_args(arguments)
    assert arguments[0] in capsys.readouterr().err


def test_a_client_that_is_not_installed_is_left_out_and_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = Settings(100, 1, frozenset({PYKCLIENT.name, ABSENT.name}))
    assert settings.able("consume", [PYKCLIENT, ABSENT, RAW_SOCKET]) == [PYKCLIENT]
    assert "absent-client is not installed" in capsys.readouterr().err


def test_slow_clients_get_a_tenth() -> None:
    settings = Settings(1_000, 1, frozenset())
    assert settings.records_for(PYKCLIENT) == 1_000
    assert settings.records_for(KAFKA_PYTHON) == 100
