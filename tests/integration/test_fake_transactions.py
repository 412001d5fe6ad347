"""Other clients write in transactions to fake brokers, and read committed records.

Goal: whatever a user tests of exactly-once delivery against fake brokers behaves as with Kafka, in
every language. Method: librdkafka consumes, transforms and produces while responses are lost and
coordinators move; Java's tools write, and read the brokers' files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Producer, TopicPartition
from pykclient.accel import Gate
from pykclient.producer import transaction
from pykclient.testing import ApiKey, FakeKafka, TransactionSettings, faults
from tests.integration.java_tools import dump_segments, run_tool
from tests.soak import NEWEST_FIRST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

confluent_kafka = pytest.importorskip("confluent_kafka")

TIMEOUT_S = 20.0
COUNT = 40
PER_TRANSACTION = 5
TRANSACTIONS = (
    TransactionSettings(),
    TransactionSettings(transaction_version=1, marker_delay_ms=30),
)


@pytest.fixture(params=TRANSACTIONS, ids=["KIP-890", "KIP-98, late markers"])
def brokers(request: pytest.FixtureRequest) -> Iterator[FakeKafka]:
    with FakeKafka(3, transaction_settings=request.param) as kafka:
        with kafka.control() as cluster:
            cluster.create_topic("in", 1)
            cluster.create_topic("out", 2)
        yield kafka


def consumer_of(kafka: FakeKafka, topic: str, group: str) -> Any:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    return consumer


def fill(kafka: FakeKafka) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(COUNT):
        producer.produce("in", b"%d" % number)
    assert producer.flush(TIMEOUT_S) == 0


def values_of(kafka: FakeKafka) -> list[bytes]:
    """Return the output's records that a reader of committed records gets."""
    consumer = consumer_of(kafka, "out", "reader")
    found: list[bytes] = []
    while len(found) < COUNT:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, "nothing more came"
        found.append(message.value() or b"")
    assert consumer.poll(0.2) is None, "nothing comes twice"
    consumer.close()
    return found


def test_librdkafka_transforms_exactly_once(brokers: FakeKafka) -> None:
    """Every third transaction is aborted and repeated; a coordinator moves in the middle."""
    fill(brokers)
    with brokers.control() as cluster:
        lost = [
            cluster.faults.add(faults.lose_response(closes=True), api)
            for api in (ApiKey.END_TXN, ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT)
        ]
    consumer = consumer_of(brokers, "in", "transformer")
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": brokers.bootstrap_servers,
            "transactional.id": "transformer",
            "retry.backoff.ms": 20,
            "log_level": 0,  # it outlives the brokers
        }
    )
    producer.init_transactions(TIMEOUT_S)
    done = turn = 0
    while done < COUNT:
        turn += 1
        messages = consumer.consume(PER_TRANSACTION, TIMEOUT_S)
        assert messages, "nothing came"
        producer.begin_transaction()
        for message in messages:
            producer.produce("out", message.value(), key=b"%d" % (turn % 2))
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(
            position, consumer.consumer_group_metadata(), TIMEOUT_S
        )
        if turn % 3 == 0:
            producer.abort_transaction(TIMEOUT_S)
            consumer.seek(confluent_kafka.TopicPartition("in", 0, messages[0].offset()))
        else:
            producer.commit_transaction(TIMEOUT_S)
            done += len(messages)
        if turn == 4:
            move_coordinator(brokers)
    consumer.close()
    assert sorted(map(int, values_of(brokers))) == list(range(COUNT))
    assert [each.used_count for each in lost] == [1, 1, 1]
    with brokers.control() as cluster:
        offsets = cluster.group("transformer").offsets
        assert offsets[TopicPartition("in", 0)].offset == COUNT


def move_coordinator(kafka: FakeKafka) -> None:
    with kafka.control() as cluster:
        coordinator = cluster.coordinator(1, "transformer")
        assert coordinator is not None
        cluster.move_coordinator(1, "transformer", (coordinator.id + 1) % 3)


def test_a_second_producer_of_the_name_fences_the_first(brokers: FakeKafka) -> None:
    settings = {
        "bootstrap.servers": brokers.bootstrap_servers,
        "transactional.id": "transformer",
        "log_level": 0,  # it outlives the brokers
    }
    first, second = (confluent_kafka.Producer(settings) for _ in range(2))
    first.init_transactions(TIMEOUT_S)
    first.begin_transaction()
    first.produce("out", b"of the first")
    first.flush(TIMEOUT_S)
    second.init_transactions(TIMEOUT_S)
    with pytest.raises(confluent_kafka.KafkaException) as fenced:
        first.commit_transaction(TIMEOUT_S)
    assert fenced.value.args[0].fatal()
    second.begin_transaction()
    for number in range(COUNT):
        second.produce("out", b"%d" % number)
    second.commit_transaction(TIMEOUT_S)
    assert sorted(map(int, values_of(brokers))) == list(range(COUNT))


@pytest.mark.kafka
@pytest.mark.parametrize("version", NEWEST_FIRST)
def test_javas_tools_write_transactions_and_read_the_log(version: str, tmp_path: Path) -> None:
    with FakeKafka(data=tmp_path) as kafka:
        with kafka.control() as cluster:
            cluster.create_topic("java", 1)
        run_tool(
            version,
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", "java", "--num-records", str(COUNT), "--record-size", "10"),
            *("--throughput", "-1", "--transactional-id", "java-id"),
            *("--transaction-duration-ms", "5"),
            *("--producer-props", f"bootstrap.servers={kafka.bootstrap_servers}"),
        )
        output = run_tool(
            version,
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", kafka.bootstrap_servers, "--topic", "java"),
            *("--partition", "0", "--offset", "earliest", "--max-messages", str(COUNT)),
            *("--isolation-level", "read_committed"),
            *("--timeout-ms", str(int(TIMEOUT_S * 1000))),
        )
        assert len(output.splitlines()) == COUNT
        with kafka.control() as cluster:
            state = str(cluster.transactions.partition("java-id").name)
    (log,) = tmp_path.glob("java-0/*.log")
    dumped, _ = dump_segments(version, log, options=["--print-data-log"])
    assert b"endTxnMarker: COMMIT" in dumped
    (log,) = tmp_path.glob(f"{state}/*.log")
    dumped, _ = dump_segments(version, log, options=["--transaction-log-decoder"])
    assert b"java-id" in dumped


def test_a_commit_lets_its_caller_go_on_at_once_and_an_abort_when_all_is_done(
    fake_kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Gate] = []

    class NotingGate:
        def __init__(self) -> None:
            gate = Gate()
            self.open, self.wait = gate.open, gate.wait
            self.gate = gate

        def open_at_once(self) -> None:
            opened.append(self.gate)
            self.gate.open_at_once()

    monkeypatch.setattr(transaction, "Gate", NotingGate)
    with Producer(
        bootstrap_servers=fake_kafka.bootstrap_servers, transactional_id="at-once"
    ) as producer:
        producer.init_transactions()
        for end in (producer.abort_transaction, producer.commit_transaction):
            assert opened == []
            producer.begin_transaction()
            producer.send("t", b"a")
            end()
    assert len(opened) == 1
