"""Clients that outlive a task: who takes them over, and which are closed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, Producer, TopicPartition
from pykclient.errors import ClosedError
from spark_connector.worker_clients import (
    close_waiting,
    worker_consumer,
    worker_producer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from pykclient.testing import FakeKafka

    Settings = Mapping[str, object]
    Task = Callable[[Settings], AbstractContextManager[Consumer | Producer]]

PARTITION = TopicPartition("a", 0)
each_kind = pytest.mark.parametrize("task", [worker_consumer, worker_producer])


@pytest.fixture
def settings(fake_kafka: FakeKafka) -> Settings:
    with fake_kafka.control() as cluster:
        cluster.create_topic(PARTITION.topic, 1)
    return {"bootstrap.servers": fake_kafka.bootstrap_servers}


def client_of(task: Task, settings: Settings) -> Consumer | Producer:
    """Return the client that a task without rows has."""
    with task(settings) as client:
        return client


def is_closed(client: Consumer | Producer) -> bool:
    try:
        client.partitions_for(PARTITION.topic)
    except ClosedError:
        return True
    return False


@each_kind
def test_the_next_task_takes_over_the_client_of_its_settings(
    settings: Settings, task: Task
) -> None:
    first = client_of(task, settings)
    other = client_of(task, {**settings, "client.id": "other"})
    assert other is not first
    assert client_of(task, settings) is first
    # A task that runs beside the first has a client of its own.
    with task(settings) as held, task(settings) as beside:
        assert held is first
        assert beside is not first
    assert is_closed(beside)
    assert client_of(task, settings) is first


@each_kind
def test_the_client_of_a_task_that_failed_is_closed(settings: Settings, task: Task) -> None:
    with pytest.raises(ValueError, match="the task fails"), task(settings) as client:
        raise ValueError("the task fails")
    assert is_closed(client)
    assert client_of(task, settings) is not client


def test_a_consumer_whose_rows_are_enough_is_kept_and_gives_back_what_it_has_fetched(
    settings: Settings,
) -> None:
    with Producer(settings) as producer:
        for _ in range(3):
            producer.send(PARTITION.topic, b"v")
    taken: list[Consumer] = []

    def rows() -> Iterator[int]:
        with worker_consumer(settings) as consumer:
            taken.append(consumer)
            consumer.assign([PARTITION])
            consumer.seek_to_beginning([PARTITION])
            while True:
                yield from (record.offset for record in consumer.poll(1, max_records=1))

    begun = rows()
    assert next(begun) == 0
    begun.close()  # type: ignore[attr-defined]
    with worker_consumer(settings) as consumer:
        assert consumer is taken[0]
        assert not consumer.assignment()


def test_a_fork_leaves_the_clients_of_its_parent_alone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = client_of(worker_consumer, settings)
    with monkeypatch.context() as patch:
        patch.setattr("spark_connector.idle_clients.os", SimpleNamespace(getpid=lambda: -1))
        own = client_of(worker_consumer, settings)
        assert own is not parents
        close_waiting()
        assert is_closed(own)
    assert client_of(worker_consumer, settings) is parents
    assert not is_closed(parents)


def test_five_queries_keep_their_clients(settings: Settings) -> None:
    own = [{**settings, "client.id": f"query-{number}"} for number in range(5)]
    tasks: tuple[Task, ...] = (worker_consumer, worker_producer)
    first = [client_of(task, each) for each in own for task in tasks]
    assert [client_of(task, each) for each in own for task in tasks] == first
