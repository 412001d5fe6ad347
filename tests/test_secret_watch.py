"""The watch for secrets sees them: a leak that is planted is found, wherever it is."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pykclient.errors import ConfigError, DeliveryTimeoutError
from tests import secret_watch
from tests.integration.conftest import SECURITY
from tests.secret_watch import ABOUT_SECURITY, SECRETS, watching

SECRET = "canary" + "-planted"  # in two parts, since this text may be shown


@pytest.mark.promise("no security test finds a password in a log, an error or printed output")
def test_a_leak_is_found_in_a_log_at_debug_and_in_an_error() -> None:
    log = logging.getLogger("pykclient.network.planted")
    with watching() as watch:
        log.debug("connecting with %s", SECRET)
        log.debug("connecting with %s", {"password": b"%b" % SECRET.encode()})
        try:
            raise ConfigError(f"password={SECRET}")
        except ConfigError:
            log.warning("failed", exc_info=True)
        DeliveryTimeoutError(f"user alice, password {SECRET}")
        log.debug("connecting as alice")
    assert [leak.partition(":")[0] for leak in watch.leaks] == [
        *("log", "log", "ConfigError", "log", "DeliveryTimeoutError")
    ]
    log.debug("connecting with %s", SECRET)
    ConfigError(SECRET)
    assert len(watch.leaks) == 5


def test_the_passwords_of_the_secured_brokers_are_known() -> None:
    for password in SECURITY.users.values():
        assert SECRETS.search(f"user x, password {password}")
        assert SECRETS.search(repr(password))
    assert not SECRETS.search("user alice, a canary")


class Report:
    """The report that a hook receives for a passed test."""

    outcome = "passed"
    longrepr: object = None

    def __init__(self, *sections: tuple[str, str]) -> None:
        self.sections = sections


class Item:
    """A test of security."""

    def __init__(self, *leaks: str) -> None:
        self.stash = {secret_watch.LEAKS: list(leaks)}


def made_report(item: Any, report: Any) -> Any:
    hook: Any = secret_watch.pytest_runtest_makereport(item)
    next(hook)
    with pytest.raises(StopIteration) as ended:
        hook.send(report)
    return ended.value.value


def test_a_test_that_shows_a_secret_fails() -> None:
    good = made_report(Item(), Report(("Captured stdout call", "hello")))
    assert good.outcome == "passed"
    for report in (
        made_report(Item(f"log: {SECRET}"), Report()),
        made_report(Item(), Report(("Captured stdout call", f"x {SECRET} x"))),
    ):
        assert report.outcome == "failed"
        assert "a secret is shown:" in report.longrepr


def test_modules_with_secured_brokers_are_watched() -> None:
    assert ABOUT_SECURITY.search("security = ClusterSecurity(users={})")
    assert ABOUT_SECURITY.search("def test_x(secured_kafka_cluster: KafkaCluster)")
    assert not ABOUT_SECURITY.search("def test_x(kafka_cluster: KafkaCluster)")
