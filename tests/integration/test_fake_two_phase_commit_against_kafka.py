"""Two-phase commits (KIP-939) of a fake coordinator, response by response, and Kafka's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.testing import FakeCluster, TransactionSettings
from tests.integration.conftest import TIMEOUT_MS_MAX
from tests.integration.exchange import FakeExchange, RealExchange
from tests.integration.test_fake_transactions_against_kafka import (
    NEW_END,
    NEW_PRODUCE,
    OLD_END,
    TransactionalClient,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.exchange import Exchange

    Script = Callable[[TransactionalClient], Iterator[object]]

pytestmark = pytest.mark.kafka

UNSTABLE_VERSION = 6


def newest_init_producer_id(exchange: Exchange) -> int:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    response = exchange.send(request, ApiVersionsResponse, 4)
    (found,) = (each for each in response.api_keys if each.api_key == ApiKey.INIT_PRODUCER_ID)
    return found.max_version


def what_takes_part(client: TransactionalClient) -> Iterator[object]:
    version = UNSTABLE_VERSION
    for timeout_ms in (-1, 0, TIMEOUT_MS_MAX + 1):
        yield client.init(timeout_ms=timeout_ms, version=version, enable2_pc=True)
        yield client.init(timeout_ms=timeout_ms, version=version)
    yield client.init(timeout_ms=1, version=version, enable2_pc=True)
    yield client.init("", version=version, enable2_pc=True)
    yield client.init(version=version, enable2_pc=True, keep_prepared_txn=True)
    yield client.init(version=version, keep_prepared_txn=True)
    first = client.begin(timeout_ms=1, version=version, enable2_pc=True)
    yield client.described()
    yield client.produce(first, 0, b"a", version=NEW_PRODUCE)
    yield client.described()
    yield client.end(first, version=NEW_END), client.end(first, version=NEW_END)
    yield client.end(first, version=NEW_END, is_commit=False)
    client.settle()
    second = client.begin(timeout_ms=1, version=version, enable2_pc=True)
    yield client.add(second, 0), client.produce(second, 0, b"b")
    yield client.init(was=second, timeout_ms=1, version=version, enable2_pc=True)[0]
    client.settle()
    yield client.described()
    third = client.begin(timeout_ms=TIMEOUT_MS_MAX)  # one that does not take part any more
    yield client.described()
    yield client.end(third, version=OLD_END)
    yield client.read()


def what_is_switched_off(client: TransactionalClient) -> Iterator[object]:
    version = UNSTABLE_VERSION
    yield client.init(version=version, enable2_pc=True)
    yield client.init("", version=version, enable2_pc=True)
    yield client.init(version=version, enable2_pc=True, keep_prepared_txn=True)
    yield client.init(version=version, keep_prepared_txn=True)
    yield client.init(timeout_ms=-1, version=version, enable2_pc=True)
    yield client.init(version=version)
    yield client.described()


@pytest.mark.parametrize(
    ("script", "settings", "kafka"),
    [
        (
            what_takes_part,
            TransactionSettings(
                unstable_api_versions_enable=True,
                transaction_two_phase_commit_enable=True,
                transaction_max_timeout_ms=TIMEOUT_MS_MAX,
            ),
            "two_phase_cluster",
        ),
        pytest.param(
            what_is_switched_off,
            TransactionSettings(unstable_api_versions_enable=True),
            "one_phase_cluster",
            marks=pytest.mark.soak,
        ),
    ],
    ids=["on", "off"],
)
def test_a_fake_coordinator_takes_part_as_kafkas_does(
    script: Script, settings: TransactionSettings, kafka: str, request: pytest.FixtureRequest
) -> None:
    outcomes = []
    for exchange in (
        FakeExchange(FakeCluster(1, transaction_settings=settings)),
        RealExchange(request.getfixturevalue(kafka).bootstrap_servers),
    ):
        client = TransactionalClient(exchange)
        client.prepare()
        outcomes.append([newest_init_producer_id(exchange), *script(client)])
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == UNSTABLE_VERSION


@pytest.mark.parametrize("is_enabled", [False, True])
def test_the_unstable_version_is_there_only_where_it_is_switched_on(is_enabled: bool) -> None:
    settings = TransactionSettings(unstable_api_versions_enable=is_enabled)
    exchange = FakeExchange(FakeCluster(1, transaction_settings=settings))
    assert newest_init_producer_id(exchange) == (6 if is_enabled else 5)
