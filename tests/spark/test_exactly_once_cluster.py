"""The driver's steps of the exactly-once sink, on real brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Producer
from spark_connector.exactly_once.cluster import SinkCluster
from spark_connector.exactly_once.names import ATOMIC_TASK, SlotName, slot_id
from spark_connector.exactly_once.protocol import (
    Fence,
    FindClosed,
    ListOpen,
    Read,
    Result,
    SinkProtocol,
    SinkTakenOverError,
    Step,
    Steps,
    Write,
)
from spark_connector.exactly_once.record import SinkRecord, Written
from tests.integration.confluent_tools import confluent_create_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing import KafkaCluster

    MakeDriver = Callable[[], SinkCluster]

pytestmark = pytest.mark.kafka


def one(step: Step) -> Steps[Result]:
    return (yield step)


@pytest.fixture
def sink(kafka_cluster: KafkaCluster) -> str:
    """Provide a sink that is the test's own, with the name of its topic."""
    return confluent_create_topic(kafka_cluster, "sink")


@pytest.fixture
def make_driver(kafka_cluster: KafkaCluster, sink: str) -> Iterator[MakeDriver]:
    settings = {"bootstrap.servers": kafka_cluster.bootstrap_servers}
    made: list[SinkCluster] = []

    def make() -> SinkCluster:
        made.append(SinkCluster(sink, sink, producer_settings=settings, admin_settings=settings))
        return made[-1]

    yield make
    for driver in made:
        driver.close()


def test_a_claim_aborts_what_earlier_turns_have_left_open(
    make_driver: MakeDriver, kafka_cluster: KafkaCluster, sink: str
) -> None:
    protocol, driver = SinkProtocol(sink, ATOMIC_TASK), make_driver()
    assert driver.run(protocol.claim()).turn == 1
    names = [slot_id(sink, SlotName(turn, "w", 1)) for turn in (1, 2)]
    servers = kafka_cluster.bootstrap_servers
    attempts = [Producer(bootstrap_servers=servers, transactional_id=name) for name in names]
    for attempt in attempts:
        attempt.init_transactions()
        attempt.begin_transaction()
        attempt.send(sink, b"row").result(30)
    assert driver.run(one(ListOpen())) == frozenset(names)
    with Admin(bootstrap_servers=servers) as admin:
        found = admin.describe_transactions(names)
    written = tuple(
        Written(0, 1, name, found[name].producer_id, found[name].producer_epoch, 2)
        for name in names
    )
    assert driver.run(one(FindClosed(written))) == frozenset()

    # The first of the two is of a turn before; the second is as if a later driver had it.
    assert make_driver().run(protocol.claim()).turn == 2
    assert driver.run(one(ListOpen())) == frozenset({names[1]})
    assert driver.run(one(FindClosed(written))) == frozenset({names[0]})
    for attempt in attempts:
        attempt.close(0)


def test_a_driver_that_was_replaced_cannot_write_the_record(make_driver: MakeDriver) -> None:
    old, new = make_driver(), make_driver()
    old.run(one(Fence()))
    new.run(one(Fence()))
    new.run(one(Write(SinkRecord(turn=2, number=2))))
    with pytest.raises(SinkTakenOverError, match="another driver has taken the sink over"):
        old.run(one(Write(SinkRecord(turn=1, number=3))))
    assert new.run(one(Read())) == SinkRecord(turn=2, number=2)


def test_a_record_of_many_tasks_is_read_back(make_driver: MakeDriver, sink: str) -> None:
    written = tuple(
        Written(task, task * 31, slot_id(sink, SlotName(1, f"w{task * 7919}", task)), task, 0, 2)
        for task in range(1_500)
    )
    record = SinkRecord(turn=1).decided(7, "query", written, topic="a", task_count=len(written))
    driver = make_driver()
    assert driver.run(one(Read())) is None
    driver.run(one(Fence()))
    driver.run(one(Write(record)))
    assert make_driver().run(one(Read())) == record
