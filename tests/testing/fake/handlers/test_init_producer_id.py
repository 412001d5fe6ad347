"""InitProducerId of a fake broker: producer ids and epochs."""

from __future__ import annotations

import pytest

from pykclient.errors.broker import (
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    NotCoordinatorError,
)
from pykclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykclient.testing import FakeCluster
from pykclient.testing.fake.transactions.metadata import EPOCH_MAX
from tests.testing.fake.requests import coordinator_id, response_to

TRANSACTIONAL_ID = 1
VERSIONS = range(InitProducerIdRequest.min_version, InitProducerIdRequest.max_version + 1)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(3)


def init_producer_id(
    cluster: FakeCluster,
    name: str | None,
    *,
    broker_id: int | None = None,
    timeout_ms: int = 60_000,
    version: int | None = None,
) -> InitProducerIdResponse:
    """Send the request to the coordinator, or to the given broker."""
    if broker_id is None:
        broker_id = coordinator_id(cluster, name or "", TRANSACTIONAL_ID)
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
    return response_to(
        cluster, request, InitProducerIdResponse, broker_id=broker_id, version=version
    )


def test_an_idempotent_producer_gets_an_id_of_its_own_from_any_broker(cluster: FakeCluster) -> None:
    responses = [
        init_producer_id(cluster, None, broker_id=broker_id, version=version)
        for version in VERSIONS
        for broker_id in range(3)
    ]
    assert {(each.error_code, each.producer_epoch) for each in responses} == {(0, 0)}
    assert len({each.producer_id for each in responses}) == len(responses)


def test_a_transactional_producer_keeps_its_id_in_a_new_epoch(cluster: FakeCluster) -> None:
    responses = [init_producer_id(cluster, "a") for _ in range(EPOCH_MAX + 2)]
    assert [each.producer_epoch for each in responses] == [*range(EPOCH_MAX + 1), 0]
    *same, other = [each.producer_id for each in responses]
    assert len(set(same)) == 1
    assert init_producer_id(cluster, "b").producer_id not in (same[0], other), "epochs are used up"


def test_what_no_coordinator_gives_an_id_for_is_refused(cluster: FakeCluster) -> None:
    elsewhere = (coordinator_id(cluster, "a", TRANSACTIONAL_ID) + 1) % 3
    for response, error in (
        (init_producer_id(cluster, ""), InvalidRequestError),
        (init_producer_id(cluster, "a", timeout_ms=0), InvalidTransactionTimeoutError),
        (init_producer_id(cluster, "a", timeout_ms=2**31 - 1), InvalidTransactionTimeoutError),
        (init_producer_id(cluster, "a", broker_id=elsewhere), NotCoordinatorError),
    ):
        assert (response.error_code, response.producer_id, response.producer_epoch) == (
            error.code,
            -1,
            -1,
        )
    cluster.move_coordinator(TRANSACTIONAL_ID, "a", elsewhere)
    assert init_producer_id(cluster, "a", broker_id=elsewhere).error_code == 0
