"""Transactions of both versions where responses are lost, late, or interrupted by Ctrl-C."""

from __future__ import annotations

import logging
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, GroupMetadata, Producer, TopicPartition
from pykclient.errors import (
    ClosedError,
    CoordinatorLoadInProgressError,
    KafkaError,
    KafkaTimeoutError,
    TransactionStateError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import FakeKafka, TransactionSettings
from pykclient.testing.fake.faults import delay_response, disconnect, fail_with, lose_response
from tests.integration.group_members import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing.fake.faults import FaultHandle

TOPIC = "t"
GROUP = "g"
SOURCE = TopicPartition("in", 0)


@pytest.fixture(params=[1, 2])
def fake(request: pytest.FixtureRequest) -> Iterator[FakeKafka]:
    """Fake brokers with transactions of each version."""
    settings = TransactionSettings(transaction_version=request.param)
    with FakeKafka(transaction_settings=settings) as fake:
        with fake.control() as cluster:
            cluster.create_topic(TOPIC, 1)
            cluster.create_topic(SOURCE.topic, 1)
        yield fake


def opened(fake: FakeKafka, **settings: object) -> Producer:
    return Producer(
        {
            "transactional_id": "x",
            "bootstrap_servers": fake.bootstrap_servers,
            "linger_ms": 0,
            **dict.fromkeys(("retry_backoff_ms", "retry_backoff_max_ms"), 5),
            **dict.fromkeys(("reconnect_backoff_ms", "reconnect_backoff_max_ms"), 5),
        }
        | settings
    )


def committed(fake: FakeKafka) -> list[bytes | None]:
    """Return the values that a reader of committed records sees."""
    partition = TopicPartition(TOPIC, 0)
    servers = fake.bootstrap_servers
    values: list[bytes | None] = []
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            values += [record.value for record in consumer.poll(1)]
    return values


@pytest.mark.parametrize("is_handled", [True, False])
def test_a_transaction_gets_over_lost_requests_and_responses(
    fake: FakeKafka, is_handled: bool
) -> None:
    with fake.control() as cluster:
        for api_key in (
            *(ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN),
            *(ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN, ApiKey.PRODUCE, ApiKey.FIND_COORDINATOR),
        ):
            fault = lose_response(closes=True) if is_handled else disconnect()
            cluster.faults.add(fault, api_key)
    values = []
    with opened(fake) as producer:
        producer.init_transactions()
        for number in range(3):
            values.append(b"%d" % number)
            with producer.transaction():
                producer.send(TOPIC, values[-1])
                producer.send_offsets_to_transaction({SOURCE: number}, GroupMetadata(GROUP))
    assert committed(fake) == values
    with Consumer(bootstrap_servers=fake.bootstrap_servers, group_id=GROUP) as consumer:
        offset = consumer.committed([SOURCE])[SOURCE]
    assert offset is not None
    assert offset.offset == 2


@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.END_TXN])
def test_a_commit_that_ctrl_c_interrupts_goes_on_and_is_whole(
    fake: FakeKafka, api_key: ApiKey
) -> None:
    with opened(fake) as producer:
        producer.init_transactions()
        with fake.control() as cluster:
            cluster.faults.add(delay_response(400), api_key)
        producer.begin_transaction()
        producer.send(TOPIC, b"a")
        main = threading.get_ident()
        timer = threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            producer.commit_transaction()
        timer.join()
        for call in (producer.begin_transaction, producer.abort_transaction):
            with pytest.raises(TransactionStateError, match=r"commit_transaction\(\)"):
                call()
        producer.commit_transaction()
        with producer.transaction():
            producer.send(TOPIC, b"b")
    assert committed(fake) == [b"a", b"b"]


def test_a_commit_whose_time_runs_out_is_made_again(fake: FakeKafka) -> None:
    with opened(fake, max_block_ms=100) as producer:
        producer.init_transactions()
        with fake.control() as cluster:
            cluster.faults.add(delay_response(300), ApiKey.END_TXN)
        producer.begin_transaction()
        producer.send(TOPIC, b"a")
        with pytest.raises(KafkaTimeoutError, match="It goes on; call it again"):
            producer.commit_transaction()
        while True:
            try:
                producer.commit_transaction()
                break
            except KafkaTimeoutError:
                pass
    assert committed(fake) == [b"a"]


def load(fake: FakeKafka, *api_keys: ApiKey, times: int | None = None) -> list[FaultHandle]:
    """Make the transaction coordinator appear to be loading, for these requests."""
    with fake.control() as cluster:
        loading = fail_with(CoordinatorLoadInProgressError)
        return [cluster.faults.add(loading, api_key, times=times) for api_key in api_keys]


def send_offset(producer: Producer) -> None:
    producer.send_offsets_to_transaction({SOURCE: 1}, GroupMetadata(GROUP))


def check_committed_with_offset(fake: FakeKafka) -> None:
    assert committed(fake) == [b"a"]
    with Consumer(bootstrap_servers=fake.bootstrap_servers, group_id=GROUP) as consumer:
        offset = consumer.committed([SOURCE])[SOURCE]
    assert offset is not None
    assert offset.offset == 1


def test_calls_wait_while_the_coordinator_of_transactions_loads(fake: FakeKafka) -> None:
    of_each_version = (ApiKey.INIT_PRODUCER_ID, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN)
    of_version_1 = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN)
    faults = load(fake, *of_each_version, *of_version_1, times=3)
    with opened(fake) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(TOPIC, b"a")
            send_offset(producer)
    counts = [fault.used_count for fault in faults]
    assert counts in ([3, 3, 3, 3, 3], [3, 3, 3, 0, 0])
    check_committed_with_offset(fake)


def test_a_call_says_that_the_coordinator_still_loads_and_may_be_made_again(
    fake: FakeKafka,
) -> None:
    def check(call: Callable[[], object], name: str, api_key: ApiKey) -> None:
        (fault,) = load(fake, api_key)
        for _ in range(2):
            with pytest.raises(
                KafkaTimeoutError,
                match=rf"{name}: not done within {max_block_ms} ms \(max_block_ms\): .*"
                r"COORDINATOR_LOAD_IN_PROGRESS.*call it again",
            ):
                call()
        fault.remove()
        while True:  # it may take longer than usual on a machine that is busy
            try:
                call()
                break
            except KafkaTimeoutError:
                pass

    max_block_ms = 300
    with opened(fake, max_block_ms=max_block_ms) as producer:
        check(producer.init_transactions, "init_transactions", ApiKey.INIT_PRODUCER_ID)
        producer.begin_transaction()
        producer.send(TOPIC, b"a").result()
        name = "send_offsets_to_transaction"
        check(lambda: send_offset(producer), name, ApiKey.TXN_OFFSET_COMMIT)
        check(producer.commit_transaction, "commit_transaction", ApiKey.END_TXN)
    check_committed_with_offset(fake)


def test_a_close_in_a_transaction_aborts_it_without_a_complaint(
    fake: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    def send_after_close() -> None:
        with producer.transaction():
            producer.send(TOPIC, b"a").result()
            producer.request_close()
            producer.send(TOPIC, b"b")

    with opened(fake) as producer:
        producer.init_transactions()
        with pytest.raises(ClosedError):
            send_after_close()
    assert committed(fake) == []
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_close_finishes_a_commit_that_was_left(fake: FakeKafka) -> None:
    with opened(fake, max_block_ms=100) as producer:
        producer.init_transactions()
        with fake.control() as cluster:
            cluster.faults.add(delay_response(300), ApiKey.PRODUCE)
        producer.begin_transaction()
        producer.send(TOPIC, b"a")
        with pytest.raises(KafkaTimeoutError):
            producer.commit_transaction()
        assert producer.close() == 0
        with pytest.raises(ClosedError, match="commit_transaction\\(\\) succeeded"):
            producer.commit_transaction()
    assert committed(fake) == [b"a"]


@pytest.mark.parametrize("is_handled", [True, False])
def test_a_commit_that_close_gives_up_says_that_its_end_is_not_known(
    fake: FakeKafka, is_handled: bool
) -> None:
    ended: list[KafkaError] = []
    producer = opened(fake)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(TOPIC, b"a").result()
    with fake.control() as cluster:
        fault = lose_response() if is_handled else delay_response(60_000)
        handle = cluster.faults.add(fault, ApiKey.END_TXN)

    def commit() -> None:
        try:
            producer.commit_transaction()
        except KafkaError as error:
            ended.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    wait_until(lambda: handle.used_count > 0, "EndTxn to arrive")
    producer.close(timeout=0)
    thread.join(30)
    commit()
    for error in ended:
        assert isinstance(error, ClosedError)
        assert "not known" in str(error)
    assert len(ended) == 2
