"""A coordinator that hung and was replaced misleads no driver of the exactly-once sink."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING, Protocol

import pytest

from pykclient import Admin, NewTopic
from pykclient.errors import KafkaTimeoutError
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykclient.testing import ApiKey
from pykclient.testing.fake.faults import delay_response
from spark_connector.exactly_once import cluster as cluster_module
from spark_connector.exactly_once.cluster import SinkCluster
from spark_connector.exactly_once.names import ATOMIC_TASK, sink_group
from spark_connector.exactly_once.protocol import SinkProtocol
from tests.spark.stale_coordinator import StaleCoordinator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.protocol.message import Request
    from pykclient.testing import FakeKafka

    MakeDriver = Callable[[], SinkCluster]

    class Mislead(Protocol):
        def __call__(self, is_misled: Callable[[], bool], *, is_unstable: bool) -> None: ...


SINK, TOPIC = "orders", "rows"
PROTOCOL = SinkProtocol(SINK, ATOMIC_TASK)


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


@pytest.fixture
def mislead(
    fake_kafka: FakeKafka, make_driver: MakeDriver, monkeypatch: pytest.MonkeyPatch
) -> Mislead:
    """Write the record from a second driver once its coordinator hangs and was replaced.

    Brokers name the stale coordinator whenever `is_misled` returns True.
    """
    monkeypatch.setattr(cluster_module, "sleep", lambda _: None)
    group = sink_group(SINK)
    assert make_driver().run(PROTOCOL.claim()).turn == 1
    with fake_kafka.control() as cluster:
        known = StaleCoordinator.of_group(cluster, group)

    def mislead(is_misled: Callable[[], bool], *, is_unstable: bool) -> None:
        stale = known._replace(pending=known.committed) if is_unstable else known

        def fits(request: Request) -> bool:
            assert isinstance(request, FindCoordinatorRequest)
            return request.key == group and request.key_type == 0 and is_misled()

        with fake_kafka.control() as cluster:
            cluster.move_coordinator(0, group, (stale.broker_id + 1) % len(cluster.brokers))
        assert make_driver().run(PROTOCOL.claim()).turn == 2
        with fake_kafka.control() as cluster:
            cluster.faults.add(
                stale.responds(), ApiKey.OFFSET_FETCH, broker_id=stale.broker_id, times=None
            )
            cluster.faults.add(stale.named, ApiKey.FIND_COORDINATOR, times=None, when=fits)

    return mislead


@pytest.mark.parametrize("is_unstable", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_a_claim_follows_the_last_turn_whoever_is_named(
    make_driver: MakeDriver, mislead: Mislead, seed: int, *, is_unstable: bool
) -> None:
    dice = Random(seed)
    mislead(lambda: dice.random() < 0.5, is_unstable=is_unstable)
    assert make_driver().run(PROTOCOL.claim()).turn == 3


@pytest.mark.parametrize(
    ("is_unstable", "reason"),
    [
        (False, "it did not know what brokers had just acknowledged"),
        (True, "a transaction was about to write the record, it said, and has ended"),
    ],
)
def test_a_claim_ends_where_admins_are_told_of_a_stale_coordinator_only(
    fake_kafka: FakeKafka,
    make_driver: MakeDriver,
    mislead: Mislead,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    *,
    is_unstable: bool,
) -> None:
    with Admin(bootstrap_servers=fake_kafka.bootstrap_servers) as admin:
        found = admin.find_coordinators([sink_group(SINK)])
    mislead(lambda: False, is_unstable=is_unstable)
    with monkeypatch.context() as patched:
        patched.setattr(Admin, "find_coordinators", lambda *_: found)
        with pytest.raises(KafkaTimeoutError, match=reason):
            make_driver().run(PROTOCOL.claim())
    assert make_driver().run(PROTOCOL.claim()).turn == 3


def test_brokers_that_are_slow_to_name_a_topic_are_awaited(
    fake_kafka: FakeKafka, make_driver: MakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that they do not know is an error soon; one that they know may take them longer."""
    monkeypatch.setattr(cluster_module, "TOPIC_WAIT_S", 0.05)

    def names_topic(request: Request) -> bool:
        return any(one.name == TOPIC for one in getattr(request, "topics", None) or ())

    with fake_kafka.control() as cluster:
        cluster.faults.add(delay_response(300), ApiKey.METADATA, times=None, when=names_topic)
    assert make_driver().run(PROTOCOL.claim()).turn == 1
