"""`ExactlyOnce` on fake brokers with chosen failures, and on real ones.

The tests compare the records that a read_committed consumer sees with the group's committed
offsets.
"""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pykclient import Consumer, ExactlyOnce, NewTopic, Producer, TopicPartition
from pykclient.admin.admin import Admin
from pykclient.errors import (
    BufferExhaustedError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    NotEnoughReplicasError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionStateError,
    UnknownProducerIdError,
    UsageError,
    WakeupError,
)
from pykclient.testing import ApiKey, FakeKafka, TransactionSettings, faults
from tests.integration.group_members import wait_until
from tests.pages.test_fragments import fragment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient import ConsumerRecords
    from pykclient.errors import BrokerError
    from pykclient.testing import KafkaCluster

SOURCE, SINK = "source", "sink"
PARTITIONS = [TopicPartition(SOURCE, number) for number in range(2)]
COUNT = 20
VALUES = sorted(b"%02d" % number for number in range(COUNT))


class Pipeline:
    """Clients of one process that copies records from one topic to another."""

    def __init__(
        self,
        servers: str,
        name: str = "copier-1",
        *,
        consumer: dict[str, object] | None = None,
        producer: dict[str, object] | None = None,
        transaction_timeout_ms: int = 60_000,
    ) -> None:
        with ExitStack() as clients:
            self.consumer = clients.enter_context(
                Consumer(
                    {
                        "bootstrap_servers": servers,
                        "group_id": "copiers",
                        "enable_auto_commit": False,
                        "isolation_level": "read_committed",
                        "auto_offset_reset": "earliest",
                        "default_api_timeout_ms": 2_500,
                        **(consumer or {}),
                    }
                )
            )
            self.producer = clients.enter_context(
                Producer(
                    {
                        "bootstrap_servers": servers,
                        "transactional_id": name,
                        "transaction_timeout_ms": transaction_timeout_ms,
                        "max_block_ms": 2_500,
                        "delivery_timeout_ms": 1_500,
                        "request_timeout_ms": 1_000,
                        "linger_ms": 0,
                        **(producer or {}),
                    }
                )
            )
            self._clients = clients.pop_all()
        self.consumer.subscribe([SOURCE])
        self.loop = ExactlyOnce(self.consumer, self.producer, max_records=5)
        self.copied = 0

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self._clients.close()

    def copy(self, records: ConsumerRecords) -> None:
        for record in records:
            self.producer.send(SINK, record.value)
            self.copied += 1  # Each by itself: the next send raises what failed meanwhile.

    def copy_until(self, count: int) -> None:
        for batch in self.loop:
            with batch as records:
                self.copy(records)
            if self.committed() >= count:
                return

    def fail(self) -> ConsumerRecords:
        """Copy a batch, and raise in its block when brokers have the copies."""
        batch = next(iter(self.loop))

        def copy_and_fail() -> None:
            with batch as records:
                self.copy(records)
                self.producer.flush()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            copy_and_fail()
        return batch.records

    def committed(self) -> int:
        """Return the number of source records that the group has processed."""
        found = self.consumer.committed(PARTITIONS).values()
        return sum(each.offset for each in found if each is not None)


def fill(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(SOURCE, 2), NewTopic(SINK, 1)])
    with Producer(bootstrap_servers=servers) as producer:
        for number, value in enumerate(VALUES):
            producer.send(SOURCE, value, partition=number % 2)


def read(servers: str) -> list[bytes]:
    """Return the values that were committed to the sink, sorted, once no transaction is open."""
    sink = TopicPartition(SINK, 0)
    with (
        Consumer(bootstrap_servers=servers) as every,
        Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer,
    ):
        consumer.assign([sink])
        wait_until(
            lambda: consumer.end_offsets([sink]) == every.end_offsets([sink]),
            "no transaction is open",
        )
        end = consumer.end_offsets([sink])[sink]
        consumer.seek_to_beginning([sink])
        found: list[bytes] = []
        while consumer.position(sink) < end:
            found += [record.value or b"" for record in consumer.poll(0.2)]
    return sorted(found)


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    with FakeKafka(brokers=1, auto_create_topics=False) as fake:
        fill(fake.bootstrap_servers)
        yield fake


@pytest.fixture
def servers(fake: FakeKafka) -> str:
    return fake.bootstrap_servers


@pytest.fixture
def pipeline(servers: str) -> Iterator[Pipeline]:
    with Pipeline(servers) as pipeline:
        yield pipeline


@pytest.mark.promise("consume, transform, produce is exactly once, with ExactlyOnce")
def test_offsets_and_output_are_committed_together(pipeline: Pipeline, servers: str) -> None:
    pipeline.copy_until(COUNT)
    assert read(servers) == VALUES
    assert pipeline.copied == COUNT


@pytest.mark.promise("consume, transform, produce is exactly once, with ExactlyOnce")
def test_after_an_exception_the_same_records_come_again(pipeline: Pipeline, servers: str) -> None:
    for _ in range(3):
        records = pipeline.fail()
        for partition in records.partitions:
            assert records[partition][0].offset == 0
        assert pipeline.committed() == 0
    assert read(servers) == []
    pipeline.copy_until(COUNT)
    assert read(servers) == VALUES


def test_a_batch_that_is_left_by_break_is_committed(pipeline: Pipeline, servers: str) -> None:
    for batch in pipeline.loop:
        with batch as records:
            pipeline.copy(records)
            break
    assert len(read(servers)) == pipeline.committed() == pipeline.copied


def test_what_a_group_has_given_to_another_member_is_not_committed(servers: str) -> None:
    slow: dict[str, object] = {"max_poll_interval_ms": 300}
    with Pipeline(servers, consumer=slow) as pipeline, Pipeline(servers, "copier-2") as other:
        with next(iter(pipeline.loop)) as records:
            pipeline.copy(records)
            other.copy_until(COUNT)  # once the first member has lost its partitions
        assert pipeline.copied, "it had sent what it could not commit"
        assert other.copied == COUNT
    assert read(servers) == VALUES


def test_a_fenced_producer_ends_the_loop(pipeline: Pipeline, servers: str) -> None:
    def work() -> None:
        with next(iter(pipeline.loop)) as records:
            pipeline.copy(records)
            pipeline.producer.flush()
            with Producer(bootstrap_servers=servers, transactional_id="copier-1") as newer:
                newer.init_transactions()

    with pytest.raises(ProducerFencedError, match="Create a new producer"):
        work()
    assert read(servers) == []


@pytest.mark.parametrize("transaction_version", [1, 2])
def test_a_batch_that_takes_longer_than_a_transaction_may_ends_the_loop(
    transaction_version: int,
) -> None:
    """In version 2 brokers take its abort for one that they have done: the producer may go on."""
    settings = TransactionSettings(transaction_version=transaction_version)
    with FakeKafka(brokers=1, auto_create_topics=False, transaction_settings=settings) as fake:
        servers = fake.bootstrap_servers
        fill(servers)
        with (
            Pipeline(servers, transaction_timeout_ms=300) as pipeline,
            Admin(bootstrap_servers=servers) as admin,
        ):

            def work() -> None:
                with next(iter(pipeline.loop)) as records:
                    pipeline.copy(records)
                    pipeline.producer.flush()
                    wait_until(
                        lambda: (
                            admin.describe_transactions(["copier-1"])["copier-1"].state
                            == "CompleteAbort"
                        ),
                        "the coordinator has aborted it",
                    )
                    pipeline.copy(records)
                    pipeline.producer.flush()

            with pytest.raises(ProducerFencedError, match="transaction_timeout_ms=300"):
                work()
        assert read(servers) == []


@pytest.mark.parametrize(
    "error",
    [
        InvalidProducerEpochError,
        InvalidTxnStateError,
        OutOfOrderSequenceNumberError,
        UnknownProducerIdError,
    ],
)
def test_what_a_broker_refuses_as_if_of_another_producer_is_written_again(
    fake: FakeKafka, pipeline: Pipeline, servers: str, error: type[BrokerError]
) -> None:
    """As brokers of Kafka 3.9 do whose coordinator of transactions hung and was replaced."""
    with fake.control() as cluster:
        refused = cluster.faults.add(faults.fail_with(error), ApiKey.PRODUCE)
    pipeline.copy_until(COUNT)
    assert refused.used_count == 1
    assert pipeline.copied > COUNT
    assert read(servers) == VALUES


@pytest.mark.promise("exactly once survives an outage with on_stall=log")
def test_an_outage_in_a_block_is_lived_through(
    fake: FakeKafka, servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Pipeline(servers, consumer={"on_stall": "log"}) as pipeline:

        def restart() -> None:
            with fake.control() as cluster:
                cluster.start_broker(0)

        back = threading.Timer(2.5, restart)

        def copy(records: ConsumerRecords) -> None:
            if pipeline.copied and not back.ident:
                with fake.control() as cluster:
                    cluster.stop_broker(0)
                back.start()
            pipeline.copy(records)
            pipeline.producer.flush()
            if pipeline.committed() + len(records) == COUNT:
                pipeline.consumer.wakeup()

        with caplog.at_level(logging.WARNING, "pykclient.exactly_once"):
            pipeline.loop.run(copy)
        back.join()
    assert read(servers) == VALUES
    assert "will be retried" in caplog.text


def test_an_outage_is_raised_to_a_script_and_nothing_is_lost(
    fake: FakeKafka, pipeline: Pipeline, servers: str
) -> None:
    def work() -> None:
        with next(iter(pipeline.loop)) as records:
            pipeline.copy(records)
            pipeline.producer.flush()
            with fake.control() as cluster:
                cluster.stop_broker(0)

    with pytest.raises(TransactionAbortableError, match="delivery_timeout_ms") as raised:
        work()
    assert isinstance(raised.value.__cause__, KafkaTimeoutError)
    with fake.control() as cluster:
        cluster.start_broker(0)
    pipeline.copy_until(COUNT)
    assert read(servers) == VALUES


def test_a_commit_whose_end_is_not_known_is_asked_for(
    fake: FakeKafka, pipeline: Pipeline, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Producer.commit_transaction
    outages = iter([True])

    def commit_in_an_outage(producer: Producer) -> None:
        if next(outages, False):
            with fake.control() as cluster:
                cluster.stop_broker(0)
        commit(producer)

    monkeypatch.setattr(Producer, "commit_transaction", commit_in_an_outage)

    def work() -> None:
        with next(iter(pipeline.loop)) as records:
            pipeline.copy(records)

    with pytest.raises(KafkaTimeoutError, match="commit_transaction: not done within"):
        work()
    with fake.control() as cluster:
        cluster.start_broker(0)
    pipeline.copy_until(COUNT)
    assert read(servers) == VALUES


def test_what_comes_while_it_waits_is_read_again(servers: str) -> None:
    with Pipeline(servers, consumer={"retry_backoff_ms": 1_000}) as pipeline:
        while not pipeline.consumer.assignment():  # they come within the wait, with their records
            pipeline.loop._loop.back_off(KafkaTimeoutError("brokers are away"))
        assert set(pipeline.consumer.position().values()) == {0}
        pipeline.copy_until(COUNT)
    assert read(servers) == VALUES


def test_wakeup_ends_run_after_the_batch(pipeline: Pipeline, servers: str) -> None:
    def copy(records: ConsumerRecords) -> None:
        pipeline.copy(records)
        pipeline.consumer.wakeup()

    pipeline.loop.run(copy)
    assert len(read(servers)) == pipeline.committed() == pipeline.copied > 0
    pipeline.consumer.wakeup()
    with pytest.raises(WakeupError):
        next(iter(pipeline.loop))
    pipeline.copy_until(COUNT)
    assert read(servers) == VALUES


@pytest.mark.parametrize("is_survived", [True, False])
def test_wakeup_during_an_abort_ends_the_loop(
    pipeline: Pipeline, servers: str, monkeypatch: pytest.MonkeyPatch, is_survived: bool
) -> None:
    abort = Producer.abort_transaction

    def abort_and_wake_up(producer: Producer) -> None:
        abort(producer)
        pipeline.consumer.wakeup()

    def work() -> None:
        with next(iter(pipeline.loop)) as records:
            pipeline.copy(records)
            raise TransactionAbortableError("a broker says so") if is_survived else KeyError

    with monkeypatch.context() as patched:
        patched.setattr(Producer, "abort_transaction", abort_and_wake_up)
        with pytest.raises(WakeupError if is_survived else KeyError):
            work()
    if not is_survived:  # the wakeup has given way to it, and is not lost
        with pytest.raises(WakeupError):
            next(iter(pipeline.loop))
    pipeline.copy_until(COUNT)
    assert read(servers) == VALUES


def test_a_batch_without_a_block_is_refused(pipeline: Pipeline) -> None:
    batch = next(iter(pipeline.loop))
    with pytest.raises(UsageError, match="`with batch as records:`"):
        next(iter(pipeline.loop))
    with batch:
        pass
    with pytest.raises(UsageError, match="for one with block"), batch:
        pass


@pytest.mark.parametrize("calls", ["abort", "commit", "commit begin", "abort begin", "prepare"])
@pytest.mark.parametrize("is_failed", [False, True])
def test_a_block_that_ends_its_transaction_is_refused_and_its_records_come_again(
    pipeline: Pipeline, servers: str, calls: str, is_failed: bool
) -> None:
    seen: list[list[bytes | None]] = []

    def run() -> None:
        with next(iter(pipeline.loop)) as records:
            seen.append([record.value for record in records])
            pipeline.copy(records)
            if len(seen) == 1:
                for call in calls.split():
                    getattr(pipeline.producer, f"{call}_transaction")()
                if is_failed:
                    raise ZeroDivisionError

    text = "the transaction is prepared" if calls == "prepare" else "has ended its transaction"
    refused = pytest.raises(TransactionStateError, match=text)
    with pytest.raises(ZeroDivisionError) if is_failed else refused:
        run()
    run()
    pipeline.copy_until(COUNT)
    doubled = filter(None, seen[0] if "commit" in calls else [])
    assert read(servers) == sorted([*VALUES, *doubled])


def test_a_commit_in_a_block_whose_end_is_not_known_is_seen_through(
    pipeline: Pipeline, fake: FakeKafka, servers: str
) -> None:
    seen: list[list[bytes | None]] = []

    def run() -> None:
        with next(iter(pipeline.loop)) as records:
            seen.append([record.value for record in records])
            pipeline.copy(records)
            if len(seen) == 1:
                with fake.control() as cluster:
                    cluster.faults.add(faults.lose_response(), ApiKey.END_TXN, times=3)
                pipeline.producer.commit_transaction()

    with pytest.raises(KafkaTimeoutError, match="commit_transaction: not done"):
        run()
    run()
    pipeline.copy_until(COUNT)
    assert read(servers) == sorted([*VALUES, *filter(None, seen[0])])


@pytest.mark.parametrize(
    ("consumer", "producer", "message"),
    [
        ({"enable_auto_commit": True}, {}, "give it enable_auto_commit=False"),
        ({"isolation_level": "read_uncommitted"}, {}, "isolation_level='read_committed'"),
        ({"group_id": None}, {}, "no group_id"),
        ({}, {"transactional_id": None}, "give it a transactional_id"),
    ],
)
def test_clients_that_cannot_are_refused(
    servers: str, consumer: dict[str, object], producer: dict[str, object], message: str
) -> None:
    good: dict[str, object] = {
        "bootstrap_servers": servers,
        "group_id": "g",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
    }
    named: dict[str, object] = {"bootstrap_servers": servers, "transactional_id": "t"}
    with (
        Consumer(good | consumer) as reading,
        Producer(named | producer) as writing,
        pytest.raises(UsageError, match=message),
    ):
        ExactlyOnce(reading, writing)


@pytest.mark.parametrize("is_initialized", [False, True])
def test_one_producer_may_have_several_loops_one_after_the_other(
    servers: str, *, is_initialized: bool
) -> None:
    with Pipeline(servers) as pipeline:
        if is_initialized:
            pipeline.producer.init_transactions()
        pipeline.copy_until(COUNT // 2)
        pipeline.loop = ExactlyOnce(pipeline.consumer, pipeline.producer)
        pipeline.copy_until(COUNT)
    assert read(servers) == VALUES


def test_the_program_of_the_page_bills_each_order_once(servers: str) -> None:
    text = fragment("producer.md", "Exactly once").text
    for word, other in {
        "localhost:9092": servers,
        '"orders"': repr(SOURCE),
        '"bills"': repr(SINK),
    }.items():
        text = text.replace(word, other)
    # The loop has no end, so its last order wakes the consumer.
    text += f"""
            total = globals().get("total", 0) + len(records)
            if total == {COUNT}:
                consumer.wakeup()
"""
    with pytest.raises(WakeupError):
        exec(compile(text, "docs/producer.md", "exec"), {})  # the page is ours
    assert read(servers) == [b"bill for " + value for value in VALUES]


def rows_of(value: bytes | None) -> list[bytes]:
    return [b"%b %d" % (value or b"", number) + bytes(1_000) for number in range(20)]


@pytest.mark.promise("no transaction commits without a record that was not accepted")
@pytest.mark.parametrize("is_arrow", [False, True])
@pytest.mark.parametrize("on_stall", ["log", "raise"])
def test_a_bulk_call_without_memory_in_a_block_commits_nothing_of_its_batch(
    fake: FakeKafka, servers: str, on_stall: str, is_arrow: bool
) -> None:
    with fake.control() as cluster:
        refusal = faults.fail_with(NotEnoughReplicasError)
        handle = cluster.faults.add(refusal, ApiKey.PRODUCE, times=None)

    def send(pipeline: Pipeline, records: ConsumerRecords) -> None:
        rows = [row for record in records for row in rows_of(record.value)]
        if is_arrow:
            pipeline.producer.send_arrow(SINK, pa.table({"value": rows}))
        else:
            pipeline.producer.send_batch(SINK, rows)

    def work(pipeline: Pipeline) -> None:
        batch = next(iter(pipeline.loop))
        try:
            with batch as records:
                send(pipeline, records)
                handle.remove()  # what the call has appended before is written from now on
        finally:
            assert pipeline.committed() == 0

    with Pipeline(
        servers,
        consumer={"on_stall": on_stall},
        producer={
            "buffer_memory": 64_000,
            "batch_size": 8_000,
            "max_block_ms": 1_000,
            "delivery_timeout_ms": 60_000,
        },
    ) as pipeline:
        if on_stall == "log":
            work(pipeline)
        else:
            with pytest.raises(TransactionAbortableError) as raised:
                work(pipeline)
            assert isinstance(raised.value.__cause__, BufferExhaustedError)
        for batch in pipeline.loop:
            with batch as records:
                send(pipeline, records)
            if pipeline.committed() >= COUNT:
                break
    assert read(servers) == sorted(row for value in VALUES for row in rows_of(value))


@pytest.mark.kafka
@pytest.mark.promise("consume, transform, produce is exactly once, with ExactlyOnce")
def test_real_brokers_commit_together(any_kafka_cluster: KafkaCluster) -> None:
    servers = any_kafka_cluster.bootstrap_servers
    fill(servers)
    with Pipeline(servers) as pipeline:
        pipeline.fail()
        pipeline.copy_until(COUNT)
    assert read(servers) == VALUES
