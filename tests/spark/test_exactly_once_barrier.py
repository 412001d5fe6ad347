"""A coordinator that hung and was replaced misleads no driver of the exactly-once sink."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, NewTopic
from pykclient.errors import KafkaTimeoutError, UnstableOffsetCommitError
from pykclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from pykclient.testing import ApiKey, faults
from spark_connector.exactly_once import cluster as cluster_module
from spark_connector.exactly_once.cluster import SinkCluster
from spark_connector.exactly_once.names import ATOMIC_TASK, sink_group
from spark_connector.exactly_once.protocol import SinkProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient import OffsetAndMetadata
    from pykclient.testing import FakeKafka

    MakeDriver = Callable[[], SinkCluster]

SINK, TOPIC = "orders", "rows"
PROTOCOL = SinkProtocol(SINK, ATOMIC_TASK)

pytestmark = pytest.mark.promise(
    "a coordinator that hung and was replaced misleads no driver of an exactly-once sink"
)


@pytest.fixture
def make_driver(fake_kafka: FakeKafka) -> Iterator[MakeDriver]:
    settings = {"bootstrap.servers": fake_kafka.bootstrap_servers}
    with Admin(settings) as admin, ExitStack() as drivers:
        admin.create_topics([NewTopic(TOPIC, 1)])

        def make() -> SinkCluster:
            return drivers.enter_context(
                SinkCluster(SINK, TOPIC, producer_settings=settings, admin_settings=settings)
            )

        yield make


def record_of(fake_kafka: FakeKafka) -> OffsetAndMetadata:
    with Admin(bootstrap_servers=fake_kafka.bootstrap_servers) as admin:
        [found] = admin.list_group_offsets(sink_group(SINK)).values()
    return found


def stale(known: OffsetAndMetadata, *, is_unstable: bool) -> faults.Fault:
    """The responses of a coordinator that stays at what it knew: the record, and whether a
    transaction was about to replace it."""

    def respond(request: object) -> OffsetFetchResponse:
        assert isinstance(request, OffsetFetchRequest)
        is_refused = is_unstable and request.require_stable
        partition = OffsetFetchResponsePartition(
            partition_index=0,
            committed_offset=-1 if is_refused else known.offset,
            metadata="" if is_refused else known.metadata,
            error_code=UnstableOffsetCommitError.code if is_refused else 0,
        )
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(TOPIC, [partition])])

    return faults.respond_with(respond)


@pytest.mark.parametrize("is_unstable", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_claim_follows_the_last_turn_whoever_responds(
    fake_kafka: FakeKafka,
    make_driver: MakeDriver,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    *,
    is_unstable: bool,
) -> None:
    """The first responses, of which a claim needs four, are of turn 1."""
    pauses: list[float] = []
    monkeypatch.setattr(cluster_module, "sleep", pauses.append)
    assert make_driver().run(PROTOCOL.claim()).turn == 1
    known = record_of(fake_kafka)
    assert make_driver().run(PROTOCOL.claim()).turn == 2
    with fake_kafka.control() as cluster:
        fault = cluster.faults.add(
            stale(known, is_unstable=is_unstable), ApiKey.OFFSET_FETCH, times=count
        )
    assert make_driver().run(PROTOCOL.claim()).turn == 3
    assert fault.used_count == count
    # That nothing was about to be written, the coordinator that is there would say, too.
    assert bool(pauses) == (is_unstable or count > 1)


@pytest.mark.parametrize("is_unstable", [False, True])
def test_a_claim_ends_where_nobody_knows_of_its_barrier(
    fake_kafka: FakeKafka,
    make_driver: MakeDriver,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_unstable: bool,
) -> None:
    monkeypatch.setattr(cluster_module, "sleep", lambda _: None)
    make_driver().run(PROTOCOL.claim())
    fault = stale(record_of(fake_kafka), is_unstable=is_unstable)
    with fake_kafka.control() as cluster:
        handle = cluster.faults.add(fault, ApiKey.OFFSET_FETCH, times=None)
    with pytest.raises(KafkaTimeoutError, match="start the query again when that broker is well"):
        make_driver().run(PROTOCOL.claim())
    handle.remove()
    assert make_driver().run(PROTOCOL.claim()).turn == 2
