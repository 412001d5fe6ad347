"""Fixtures for every test: the ones that this package gives to its users."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from pykclient.testing import fixtures
from pykclient.testing.cluster.jars import KAFKA_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

pytest_plugins = ["tests.promises", "tests.secret_watch"]

# The same made-up cases each time, so that a failure is one of the change that is tested; `make
# fuzz` looks for new ones. How long a case takes is the machine's matter.
settings.register_profile(
    "pykclient", deadline=None, derandomize="PYKCLIENT_FUZZ_CASES" not in os.environ
)
settings.load_profile("pykclient")


KAFKA_FIXTURES = frozenset({"kafka_cluster_factory", "each_kafka_cluster", "any_kafka_cluster"})
OLD_KAFKA = f"Kafka {KAFKA_VERSIONS[-1]}"


def _integration(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/integration/test_{name}" for name in names)


TOGETHER = {
    # These share secured brokers, or ones with two-phase commits; some need the oldest version too.
    OLD_KAFKA: (
        *_integration("fake_security", "fake_two_phase", "reauthentication", "secured_cluster"),
        *_integration("security", "transaction_errors", "two_phase"),
        "tests/spark/test_exactly_once_sink",
    ),
    # No Spark runs in these.
    "the sink's simulation": ("tests/spark/test_exactly_once_simulation",),
    "the sink's faults": ("tests/spark/test_exactly_once_faults",),
    "Spark's session": ("tests/spark/",),
    "the Spark cluster": ("tests/chaos/spark/", "tests/testing/test_spark_cluster.py"),
    "three brokers": _integration("broker_failures", "fetches", "still_topics", "three_brokers"),
    "brokers under fire": (
        "tests/chaos/test_scenarios",
        "tests/chaos/producer/test_storm",
        "tests/chaos/transactions/test_runs",
    ),
}
"""Prefixes of the ids of tests that share brokers or Spark: in one process these start once."""
LONGEST_FIRST = ({"spark", "slow"}, {"kafka"})


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark what needs a broker, before marks choose; then begin with the files that take long.

    So no process ends with a long one while others idle. In what order the files of a kind come,
    and the tests of a file, stays random.
    """
    for item in items:
        if not KAFKA_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)
    yield
    ranks: dict[Path, int] = {}
    for item in items:
        names = {mark.name for mark in item.iter_markers()}
        rank = next((n for n, kind in enumerate(LONGEST_FIRST) if kind & names), len(items))
        ranks[item.path] = min(rank, ranks.get(item.path, rank))
    items.sort(key=lambda item: ranks[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Keep each group of `TOGETHER` in one process, and all files with old brokers in one."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            for shared, beginnings in TOGETHER.items():
                if nodeid.startswith(beginnings):
                    return shared
            file = str(super()._split_scope(nodeid))
            return OLD_KAFKA if file in self.files_with_old_kafka else file

        @cached_property
        def files_with_old_kafka(self) -> frozenset[str]:
            """The files that have a test with the oldest version as a parameter."""
            return frozenset(
                nodeid.partition("::")[0]
                for nodeid in self.collection
                if KAFKA_VERSIONS[-1] in nodeid.partition("[")[2]
            )

    return Scheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Load our plugin where it is not installed; where it is, pytest did so already."""
    if not config.pluginmanager.is_registered(fixtures):
        config.pluginmanager.register(fixtures, "pykclient")
