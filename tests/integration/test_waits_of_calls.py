"""Waits of the producer's calls increase its metrics by the time waited, and nothing else does."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pykclient import GroupMetadata, Producer, TopicPartition
from pykclient.errors import KafkaTimeoutError
from pykclient.metrics import PRODUCER, MetricName
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import FakeKafka
from pykclient.testing.fake.faults import delay_response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC = "t"
SOURCE = TopicPartition("in", 0)
GROUP = GroupMetadata("g")
DELAY_MS = 300
TIMEOUT_S = 20.0
NS_PER_MS = 1_000_000
CALLS = (
    *("flush", "txn-init", "txn-begin", "txn-send-offsets"),
    *("txn-prepare", "txn-commit", "txn-abort"),
    *("metadata-wait", "bufferpool-wait"),
)


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeKafka]:
    with FakeKafka() as fake:
        with fake.control() as cluster:
            cluster.create_topic(TOPIC, 1)
            cluster.create_topic(SOURCE.topic, 1)
        yield fake


def await_topic(producer: Producer) -> None:
    """Make calls know the topic, so that they do not wait for it."""
    producer.partitions_for(TOPIC)


@pytest.fixture
def producer(fake: FakeKafka) -> Iterator[Producer]:
    """Provide a producer that knows the topic and has sent something to it."""
    with Producer(bootstrap_servers=fake.bootstrap_servers, linger_ms=0) as producer:
        await_topic(producer)
        producer.send(TOPIC, b"v").result(TIMEOUT_S)
        yield producer


@pytest.fixture
def transactional(fake: FakeKafka) -> Iterator[Producer]:
    with Producer(
        bootstrap_servers=fake.bootstrap_servers, transactional_id="x", linger_ms=0
    ) as producer:
        await_topic(producer)
        yield producer


def late(fake: FakeKafka, api_key: ApiKey, delay_ms: int = DELAY_MS) -> None:
    """Delay the next response."""
    with fake.control() as cluster:
        cluster.faults.add(delay_response(delay_ms), api_key)


def waited_ns(producer: Producer) -> dict[str, float]:
    metrics = producer.metrics()
    return {name: metrics[MetricName(f"{name}-time-ns-total", PRODUCER)] for name in CALLS}


@contextmanager
def waits(
    producer: Producer, name: str, *, least_ms: int = DELAY_MS - 50, beside: tuple[str, ...] = ()
) -> Iterator[None]:
    """Check that this metric grows by the time waited here, and no other but `beside`."""
    before, started_ns = waited_ns(producer), time.monotonic_ns()
    yield
    elapsed_ns = time.monotonic_ns() - started_ns
    after = waited_ns(producer)
    grown_ns = {each: after[each] - before[each] for each in CALLS}
    assert least_ms * NS_PER_MS <= grown_ns.pop(name) <= elapsed_ns
    for each in beside:
        del grown_ns[each]
    assert not any(grown_ns.values()), grown_ns


def test_calls_that_need_not_wait_report_no_wait(producer: Producer) -> None:
    """Nor does waiting for a delivery, which is no call of the producer's."""
    before = waited_ns(producer)
    producer.send(TOPIC, b"v").result(TIMEOUT_S)
    producer.send_batch(TOPIC, [b"v"] * 10).result(TIMEOUT_S)
    producer.partitions_for(TOPIC)
    after = waited_ns(producer)
    assert after == before
    assert before.pop("metadata-wait") > 0
    assert not any(before.values())


def test_a_call_for_a_topic_that_is_not_known_counts_what_it_waits(
    fake: FakeKafka, producer: Producer
) -> None:
    with fake.control() as cluster:
        cluster.create_topic("other", 1)
    late(fake, ApiKey.METADATA)
    with waits(producer, "metadata-wait"):
        producer.send("other", b"v")


@pytest.mark.parametrize(
    "call",
    [
        lambda producer: producer.send(TOPIC, bytes(15_000)),
        lambda producer: producer.send_batch(TOPIC, [bytes(15_000)]),
    ],
)
def test_a_call_that_finds_the_buffer_full_counts_what_it_waits(
    fake: FakeKafka, call: Callable[[Producer], object]
) -> None:
    producer = Producer(bootstrap_servers=fake.bootstrap_servers, linger_ms=0, buffer_memory=20_000)
    with producer:
        await_topic(producer)
        late(fake, ApiKey.PRODUCE)
        producer.send(TOPIC, bytes(15_000))
        with waits(producer, "bufferpool-wait"):
            call(producer)
    ratio = producer.metrics()[MetricName("bufferpool-wait-ratio", PRODUCER)]
    assert ratio == pytest.approx(waited_ns(producer)["bufferpool-wait"] / (30_000 * NS_PER_MS))


def test_a_flush_counts_what_it_waits_for_deliveries(fake: FakeKafka, producer: Producer) -> None:
    late(fake, ApiKey.PRODUCE)
    producer.send(TOPIC, b"v")
    with waits(producer, "flush"):
        producer.flush(TIMEOUT_S)


def test_a_flush_whose_time_runs_out_counts_too(fake: FakeKafka, producer: Producer) -> None:
    late(fake, ApiKey.PRODUCE)
    producer.send(TOPIC, b"v")
    with waits(producer, "flush", least_ms=100), pytest.raises(KafkaTimeoutError):
        producer.flush(0.1)


def begin(producer: Producer) -> None:
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(TOPIC, b"v").result(TIMEOUT_S)


@pytest.mark.parametrize(
    ("name", "api_key", "before", "call"),
    [
        ("txn-init", ApiKey.INIT_PRODUCER_ID, None, lambda p: p.init_transactions()),
        (
            "txn-send-offsets",
            ApiKey.TXN_OFFSET_COMMIT,
            begin,
            lambda p: p.send_offsets_to_transaction({SOURCE: 1}, GROUP),
        ),
        ("txn-commit", ApiKey.END_TXN, begin, lambda p: p.commit_transaction()),
        ("txn-abort", ApiKey.END_TXN, begin, lambda p: p.abort_transaction()),
    ],
)
def test_a_call_of_a_transaction_counts_what_it_waits_for(
    fake: FakeKafka,
    transactional: Producer,
    name: str,
    api_key: ApiKey,
    before: Callable[[Producer], None] | None,
    call: Callable[[Producer], None],
) -> None:
    if before is not None:
        before(transactional)
    late(fake, api_key)
    with waits(transactional, name):
        call(transactional)


def test_preparing_counts_what_it_waits_for_deliveries(
    fake: FakeKafka, transactional: Producer
) -> None:
    begin(transactional)
    late(fake, ApiKey.PRODUCE)
    transactional.send(TOPIC, b"v")
    with waits(transactional, "txn-prepare"):
        transactional.prepare_transaction()
    transactional.abort_transaction()


def test_beginning_counts_only_that_the_sender_thread_has_done_it(transactional: Producer) -> None:
    transactional.init_transactions()
    with waits(transactional, "txn-begin", least_ms=0):
        transactional.begin_transaction()
    assert waited_ns(transactional)["txn-begin"] > 0


def test_a_block_that_is_left_by_an_error_counts_as_aborting(
    fake: FakeKafka, transactional: Producer
) -> None:
    transactional.init_transactions()
    late(fake, ApiKey.END_TXN)

    def fail() -> None:
        with transactional.transaction():
            transactional.send(TOPIC, b"v").result(TIMEOUT_S)
            raise LookupError

    with waits(transactional, "txn-abort", beside=("txn-begin",)), pytest.raises(LookupError):
        fail()


def test_no_offsets_are_no_wait(transactional: Producer) -> None:
    begin(transactional)
    with waits(transactional, "txn-send-offsets", least_ms=0):
        transactional.send_offsets_to_transaction({}, GROUP)
    assert waited_ns(transactional)["txn-send-offsets"] == 0
