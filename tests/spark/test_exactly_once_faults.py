"""Each request of a query that writes exactly once fails, one in each run, and nothing else does.

Seeds of the simulation break many things at a time; here no place is left out. What fails is the
request, its response, or the driver or a worker that has sent it, before or after it was handled.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults
from spark_connector.exactly_once.names import ATOMIC_BATCH
from tests.spark.sink_simulation import SinkSimulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.protocol.message import Request
    from pykclient.testing.fake.faults import Fault

APIS: Final = frozenset(
    {
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.END_TXN,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.OFFSET_FETCH,
        ApiKey.PRODUCE,
        ApiKey.TXN_OFFSET_COMMIT,
    }
)
"""The APIs of the sink's protocol."""
STEP: Final = 193
"""In `make test` each so-manieth request fails."""


class Failure(NamedTuple):
    """A failure: `fault` at the brokers, and that of a driver or a worker."""

    fault: Callable[[], Fault]
    kills_driver: bool = False
    kills_worker: bool = False


FAILURES: Final = {
    "request lost": Failure(faults.disconnect),
    "response lost": Failure(lambda: faults.lose_response(closes=True)),
    "response never comes": Failure(faults.lose_response),
    "driver dead before": Failure(faults.disconnect, kills_driver=True),
    "driver dead after": Failure(lambda: faults.lose_response(closes=True), kills_driver=True),
    "worker dead after": Failure(lambda: faults.lose_response(closes=True), kills_worker=True),
}
SEEDS: Final = {1: 4, 2: 5}
"""By the version of transactions, a seed that has brokers of it."""


class FaultySimulation(SinkSimulation):
    """One run in which the `number`-th request fails, and nothing else."""

    def __init__(self, version: int, failure: Failure | None = None, number: int = -1) -> None:
        super().__init__(SEEDS[version], ATOMIC_BATCH)
        assert self.cluster.transactions.settings.transaction_version == version
        self.is_faulty = False
        self.request_count = 0
        self._failure = failure
        self._number = number
        self._is_due = False
        fault = faults.disconnect() if failure is None else failure.fault()
        self.cluster.faults.add(fault, times=None, when=self._is_next)

    def _is_next(self, request: Request) -> bool:
        if request.api_key not in APIS:
            return False
        self.request_count += 1
        self._is_due = self.request_count - 1 == self._number
        return self._is_due

    def _begin_and_break(self) -> None:
        if self._is_due and self._failure is not None:
            self._is_due = False
            if self._failure.kills_driver and self.drivers:
                self.kill(self.drivers[0])
            if self._failure.kills_worker and self.workers:
                self._kill_worker(self.workers[0])
        super()._begin_and_break()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def request_count(version: int) -> int:
    """Count the requests of a run without failures."""
    simulation = FaultySimulation(version)
    simulation.run()
    return simulation.request_count


def fail_each(version: int, failure: Failure, numbers: range) -> None:
    for number in numbers:
        simulation = FaultySimulation(version, failure, number)
        try:
            simulation.run()
        except AssertionError as error:
            raise AssertionError(f"request {number}: {error}") from error
        assert simulation.request_count > number


@pytest.mark.parametrize("version", SEEDS)
@pytest.mark.parametrize("name", FAILURES)
def test_any_request_may_fail(name: str, version: int) -> None:
    fail_each(version, FAILURES[name], range(0, request_count(version), STEP))


@pytest.mark.soak
@pytest.mark.parametrize("version", SEEDS)
@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("first", range(1, STEP))
def test_each_request_may_fail(first: int, name: str, version: int) -> None:
    fail_each(version, FAILURES[name], range(first, request_count(version), STEP))
