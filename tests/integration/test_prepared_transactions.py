"""Transactions that one process prepares and another one ends, on real brokers of both versions."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Producer
from pykclient.errors import TransactionStateError
from tests.integration.confluent_tools import confluent_create_topic
from tests.integration.test_transactions import TIMEOUT_S, read, send
from tests.pages.test_fragments import fragment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient import PreparedTransaction
    from pykclient.testing import KafkaCluster

    MakeProducer = Callable[..., Producer]

pytestmark = pytest.mark.kafka

PREPARE = """
import os, pickle, signal, sys
from pykclient import Producer
producer = Producer(bootstrap_servers=sys.argv[1], transactional_id=sys.argv[2])
producer.init_transactions()
producer.begin_transaction()
producer.send(sys.argv[2], b"a")
os.write(1, pickle.dumps(producer.prepare_transaction()))
os.kill(os.getpid(), signal.SIGKILL)
"""

END = """
import pickle, sys
from pykclient import Admin
with Admin(bootstrap_servers=sys.argv[1]) as admin:
    getattr(admin, sys.argv[2] + "_prepared_transactions")(pickle.load(sys.stdin.buffer))
"""


def end_in_another_process(
    cluster: KafkaCluster, how: str, *prepared: PreparedTransaction | None
) -> None:
    """Run `commit` or `abort` for transactions in another process."""
    command = [sys.executable, "-c", END, cluster.bootstrap_servers, how]
    subprocess.run(command, input=pickle.dumps(prepared), check=True, timeout=TIMEOUT_S)


@pytest.fixture
def topic(each_kafka_cluster: KafkaCluster) -> str:
    return confluent_create_topic(each_kafka_cluster, "prepared", partition_count=2)


@pytest.fixture
def make_producer(each_kafka_cluster: KafkaCluster, topic: str) -> Iterator[MakeProducer]:
    """Make producers whose transactional id is the topic's name, unless they are given one."""
    made: list[Producer] = []

    def make(**settings: object) -> Producer:
        servers = each_kafka_cluster.bootstrap_servers
        made.append(Producer({"transactional_id": topic, "bootstrap_servers": servers} | settings))
        made[-1].init_transactions()
        return made[-1]

    yield make
    for producer in made:
        producer.close(0)


def prepare(producer: Producer, topic: str, *values: bytes) -> PreparedTransaction:
    producer.begin_transaction()
    send(producer, topic, *values)
    prepared = producer.prepare_transaction()
    assert prepared is not None
    return prepared


@pytest.mark.promise("another process can commit or abort a prepared transaction, on both versions")
def test_another_process_ends_what_was_prepared(
    each_kafka_cluster: KafkaCluster, make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer()
    for number, how in enumerate(("commit", "abort", "commit")):
        prepared = prepare(producer, topic, b"a%d" % number, b"b%d" % number)
        assert prepared.transactional_id == topic
        with pytest.raises(TransactionStateError, match="the transaction is prepared"):
            producer.send(topic, b"late")
        assert producer.prepare_transaction() == prepared
        assert read(each_kafka_cluster, topic, is_open=True) == [b"a0", b"b0"][: 2 * number]
        end_in_another_process(each_kafka_cluster, how, prepared)
        producer.init_transactions()
    with producer.transaction():
        send(producer, topic, b"c")
    assert read(each_kafka_cluster, topic) == [b"a0", b"a2", b"b0", b"b2", b"c"]


def test_many_are_ended_by_one_call_after_their_producers_have_closed(
    each_kafka_cluster: KafkaCluster, make_producer: MakeProducer, topic: str
) -> None:
    prepared = []
    for number in range(6):
        producer = make_producer(transactional_id=f"{topic}-{number}")
        prepared.append(prepare(producer, topic, b"%d" % number))
        assert producer.close() == 0
    assert read(each_kafka_cluster, topic, is_open=True) == []
    end_in_another_process(each_kafka_cluster, "commit", *prepared[:3])
    end_in_another_process(each_kafka_cluster, "abort", *prepared[3:])
    with Admin(bootstrap_servers=each_kafka_cluster.bootstrap_servers) as admin:
        admin.commit_prepared_transactions(prepared[:3])  # once more
        admin.abort_prepared_transactions(prepared[3:])
    assert read(each_kafka_cluster, topic) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("how", ["commit", "abort"])
def test_what_a_process_has_prepared_outlives_it(
    each_kafka_cluster: KafkaCluster, topic: str, how: str
) -> None:
    command = [sys.executable, "-c", PREPARE, each_kafka_cluster.bootstrap_servers, topic]
    killed = subprocess.run(command, capture_output=True, check=False, timeout=TIMEOUT_S)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    prepared = pickle.loads(killed.stdout)
    assert read(each_kafka_cluster, topic, is_open=True) == []
    end_in_another_process(each_kafka_cluster, how, prepared)
    assert read(each_kafka_cluster, topic) == ([b"a"] if how == "commit" else [])


@pytest.mark.parametrize("how", ["commit", "abort"])
def test_the_producer_itself_ends_what_it_has_prepared(
    each_kafka_cluster: KafkaCluster, make_producer: MakeProducer, topic: str, how: str
) -> None:
    producer = make_producer()
    prepare(producer, topic, b"a")
    getattr(producer, f"{how}_transaction")()
    with producer.transaction():
        send(producer, topic, b"b")
    assert read(each_kafka_cluster, topic) == [b"a", b"b"][how == "abort" :]


def test_a_transaction_with_nothing_in_it_ends_when_it_is_prepared(
    make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer()
    producer.begin_transaction()
    assert producer.prepare_transaction() is None
    prepare(producer, topic, b"a")


def test_the_program_of_the_page_commits_the_bill(
    each_kafka_cluster: KafkaCluster, topic: str
) -> None:
    text = fragment("producer.md", "Transactions that another process ends").text
    servers = each_kafka_cluster.bootstrap_servers
    for word, other in {"localhost:9092": servers, "task-1": topic, "bills": topic}.items():
        assert word in text
        text = text.replace(word, other)
    exec(compile(text, "docs/producer.md", "exec"), {})  # the page is ours
    assert read(each_kafka_cluster, topic) == [b"12 EUR"]
