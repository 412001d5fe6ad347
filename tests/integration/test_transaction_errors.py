"""Errors of transactions on real brokers: each says what to do about it.

To abort and do the transaction again with the same producer (`TransactionAbortableError`), to make
a new producer, to make the same call again (`KafkaTimeoutError`), or to stop and have an operator
or the program mended. Never is half a transaction committed: readers of committed records look.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
import uuid
from typing import TYPE_CHECKING, Literal

import pytest

from pykclient import Admin, Consumer, GroupMetadata, NewTopic, Producer, TopicPartition
from pykclient.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    KafkaTimeoutError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    TransactionStateError,
    UnsupportedVersionError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import Acl, FakeKafka, TransactionSettings
from tests.integration.group_members import wait_until
from tests.soak import NEWEST_FIRST, OLDEST, OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

    Protocol = Literal["classic", "consumer"]

pytestmark = pytest.mark.kafka

PROMISE = pytest.mark.promise(
    "transaction errors say whether to abort, to create a new producer, or to stop"
)
TIMEOUT_S = 30.0
SHORT_MS = 300
SEED = 20261125
ABORT_FIRST = r"Call abort_transaction\(\), then do the transaction again with this producer"


@pytest.fixture(scope="module", params=NEWEST_FIRST)
def cluster(
    request: pytest.FixtureRequest, kafka_cluster_factory: KafkaClusterFactory
) -> Iterator[KafkaCluster]:
    """Provide a broker that looks often for transactions whose time is over."""
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
    with kafka_cluster_factory(version=request.param, config=config) as made:
        yield made


@pytest.fixture
def topic(cluster: KafkaCluster) -> str:
    return new_topic({"bootstrap_servers": cluster.bootstrap_servers})


def new_topic(settings: Mapping[str, object]) -> str:
    """Create a topic of two partitions; `settings` are the admin client's."""
    name = f"errors-{uuid.uuid4().hex[:12]}"
    with Admin(settings) as admin:
        admin.create_topics([NewTopic(name, 2, 1)])
    return name


@pytest.fixture
def producer(cluster: KafkaCluster, topic: str) -> Iterator[Producer]:
    with opened(cluster, topic) as producer:
        yield producer


def opened(cluster: KafkaCluster, topic: str, **settings: object) -> Producer:
    """Return a producer whose transactional id is the topic's name."""
    servers = cluster.bootstrap_servers
    producer = Producer({"transactional_id": topic, "bootstrap_servers": servers} | settings)
    # A coordinator that has just started may load its state for longer than `max_block_ms`.
    call_to_its_end(producer.init_transactions)
    return producer


def call_to_its_end(call: Callable[[], None]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            call()
            return
        except KafkaTimeoutError:
            assert time.monotonic() < deadline_s


def send_both(producer: Producer, topic: str, value: bytes) -> None:
    for number in range(2):
        producer.send(topic, value, partition=number)


def check_whole(cluster: KafkaCluster, topic: str, *values: bytes) -> None:
    """Check that both partitions have these committed values and no others."""
    partitions = [TopicPartition(topic, number) for number in range(2)]
    found: dict[TopicPartition, list[bytes | None]] = {each: [] for each in partitions}
    with (
        Consumer(bootstrap_servers=cluster.bootstrap_servers) as every,
        Consumer(
            bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed"
        ) as consumer,
    ):
        consumer.assign(partitions)
        wait_until(
            lambda: consumer.end_offsets(partitions) == every.end_offsets(partitions),
            "no transaction is open",
        )
        ends = consumer.end_offsets(partitions)
        consumer.seek_to_beginning(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            for record in consumer.poll(0.2):
                found[TopicPartition(record.topic, record.partition)].append(record.value)
    assert found == {each: list(values) for each in partitions}


def member_of(cluster: KafkaCluster, topic: str, group: str, protocol: Protocol) -> Consumer:
    """Return a consumer that has joined a group and read what is in the topic."""
    consumer = Consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        group_protocol=protocol,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    consumer.subscribe([topic])
    wait_until(lambda: len(consumer.poll(0.2)) > 0, "the member has read")
    return consumer


# A group that has moved on, and groups of others.


@PROMISE
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_of_a_member_that_its_group_has_lost_are_refused(
    cluster: KafkaCluster, producer: Producer, topic: str, protocol: Protocol
) -> None:
    if protocol == "consumer" and cluster.version == OLDEST:
        pytest.skip("its brokers have no such groups by default")
    with producer.transaction():
        send_both(producer, topic, b"in")
    source = TopicPartition(topic, 0)
    with member_of(cluster, topic, topic, protocol) as consumer:
        known = consumer.group_metadata()
        for wrong in (
            known._replace(generation=known.generation + 7),
            known._replace(generation=known.generation - 1),
            known._replace(member_id="someone-else"),
            known._replace(group_instance_id="someone-else", member_id="someone-else"),
        ):
            producer.begin_transaction()
            send_both(producer, topic, b"never")
            with pytest.raises(TransactionAbortableError, match=ABORT_FIRST) as caught:
                producer.send_offsets_to_transaction({source: 1}, wrong)
            assert isinstance(caught.value.__cause__, CommitFailedError)
            assert f"member {wrong.member_id!r}, generation {wrong.generation}" in str(caught.value)
            with pytest.raises(TransactionAbortableError, match=ABORT_FIRST):
                producer.commit_transaction()
            producer.abort_transaction()
        assert consumer.committed([source]) == {source: None}
        with producer.transaction():
            send_both(producer, topic, b"out")
            producer.send_offsets_to_transaction({source: 1}, consumer.group_metadata())
        offset = consumer.committed([source])[source]
        assert offset is not None
        assert offset.offset == 1
    check_whole(cluster, topic, b"in", b"out")


@PROMISE
def test_offsets_of_a_foreign_group_are_refused(
    cluster: KafkaCluster, producer: Producer, topic: str
) -> None:
    with producer.transaction():
        send_both(producer, topic, b"in")
    source = TopicPartition(topic, 0)
    foreign, absent = f"{topic}-foreign", f"{topic}-absent"
    with (
        member_of(cluster, topic, topic, "classic") as consumer,
        member_of(cluster, topic, foreign, "classic") as other,
    ):
        for group in (foreign, absent):
            producer.begin_transaction()
            send_both(producer, topic, b"never")
            with pytest.raises(TransactionAbortableError, match=f"group '{group}' did not accept"):
                producer.send_offsets_to_transaction(
                    {source: 1}, consumer.group_metadata()._replace(group_id=group)
                )
            producer.abort_transaction()
        assert other.committed([source]) == {source: None}
    check_whole(cluster, topic, b"in")


@PROMISE
def test_offsets_of_a_partition_that_is_not_there_end_in_time(
    cluster: KafkaCluster, topic: str
) -> None:
    """It may be one that the coordinator does not know yet, so they are sent again until then."""
    absent = TopicPartition(topic, 7)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        # Waits for the group's coordinator, which is not there before its topic is made.
        admin.list_group_offsets(topic)
    with opened(cluster, topic, max_block_ms=SHORT_MS) as producer:
        producer.begin_transaction()
        send_both(producer, topic, b"never")
        with pytest.raises(KafkaTimeoutError, match=rf"UNKNOWN_TOPIC_OR_PARTITION.*{absent}"):
            producer.send_offsets_to_transaction({absent: 1}, GroupMetadata(topic))
        with pytest.raises(KafkaTimeoutError):
            producer.commit_transaction()
        producer.close(timeout=0)  # or it would wait for the offsets' response all its time
    opened(cluster, topic).close()  # which aborts what the first has left
    check_whole(cluster, topic)


# Time, and coordinators.


@PROMISE
def test_a_transaction_that_its_coordinator_has_timed_out_is_not_committed(
    cluster: KafkaCluster, topic: str
) -> None:
    with (
        opened(cluster, topic, transaction_timeout_ms=SHORT_MS) as late,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        late.begin_transaction()
        send_both(late, topic, b"never")
        late.flush()
        wait_until(
            lambda: admin.describe_transactions([topic])[topic].state == "CompleteAbort",
            "the coordinator has aborted it",
        )
        with pytest.raises(
            ProducerFencedError,
            match=rf"exceeds transaction_timeout_ms={SHORT_MS}\. Create a new producer",
        ):
            late.commit_transaction()
        with pytest.raises(ProducerFencedError):
            late.begin_transaction()
    with opened(cluster, topic) as newer, newer.transaction():
        send_both(newer, topic, b"again")
    check_whole(cluster, topic, b"again")


@PROMISE
@OWN_BROKERS
@pytest.mark.parametrize("is_sent", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_commit_lives_through_the_loss_of_its_coordinator(
    cluster: KafkaCluster, *, is_sent: bool
) -> None:
    """Which is gone first, and then loads what it had written."""
    topic = new_topic({"bootstrap_servers": cluster.bootstrap_servers})
    with opened(cluster, topic, max_block_ms=1_000) as producer:
        producer.begin_transaction()
        send_both(producer, topic, b"a")
        if is_sent:
            producer.flush()
        cluster.stop(1)
        try:
            with pytest.raises(KafkaTimeoutError, match="It goes on; call it again to wait for it"):
                producer.commit_transaction()
        finally:
            cluster.start(1)
        call_to_its_end(producer.commit_transaction)
        with producer.transaction():
            send_both(producer, topic, b"b")
    check_whole(cluster, topic, b"a", b"b")


# Ctrl-C.


@PROMISE
def test_commits_that_ctrl_c_interrupts_anywhere_are_whole(
    cluster: KafkaCluster, producer: Producer, topic: str
) -> None:
    """The signal comes at any moment of a commit, whose requests take a few milliseconds."""
    choose = random.Random(SEED)
    main = threading.get_ident()
    values = [b"%d" % number for number in range(60)]
    interrupted_count = 0
    for value in values:
        producer.begin_transaction()
        send_both(producer, topic, value)
        delay_s = choose.random() * 0.01
        timer = threading.Timer(delay_s, lambda: signal.pthread_kill(main, signal.SIGINT))
        has_ended = False
        try:
            timer.start()
            producer.commit_transaction()
            has_ended = True
            timer.join()
        except KeyboardInterrupt:
            interrupted_count += not has_ended
        if not has_ended:
            with contextlib.suppress(TransactionStateError):  # it had just returned
                producer.commit_transaction()
    assert interrupted_count > len(values) // 4
    check_whole(cluster, topic, *values)


# What only an operator can cure.


@PROMISE
def test_what_may_not_be_used_is_named_with_its_cure(
    any_secured_kafka_cluster: KafkaCluster,
) -> None:
    cluster = any_secured_kafka_cluster
    settings = cluster.client_settings("SASL_SSL", mechanism="PLAIN", user="alice")
    forbidden = f"forbidden-{uuid.uuid4().hex[:8]}"
    cluster.create_acls(
        Acl("User:carol", "ALL", transactional_id=forbidden),
        Acl("User:carol", "ALL", group=forbidden),
        Acl("User:carol", "ALL", topic=forbidden),
    )
    topic = new_topic(settings)
    with Producer(settings, transactional_id=forbidden) as producer:
        for _ in range(2):
            with pytest.raises(
                TransactionalIdAuthorizationFailedError,
                match="have an ACL allow it WRITE on the transactional id, and create a new",
            ):
                producer.init_transactions()
    with Producer(settings, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"never")
        with pytest.raises(TransactionAbortableError, match=ABORT_FIRST) as caught:
            producer.send_offsets_to_transaction(
                {TopicPartition(topic, 0): 1}, GroupMetadata(forbidden)
            )
        assert isinstance(caught.value.__cause__, GroupAuthorizationFailedError)
        producer.abort_transaction()
        producer.begin_transaction()
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send(forbidden, b"never")
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"a").result(TIMEOUT_S)


@PROMISE
@pytest.mark.parametrize(
    "lacking", [ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN]
)
def test_brokers_without_transactions_are_named(lacking: ApiKey) -> None:
    with FakeKafka(transaction_settings=TransactionSettings(transaction_version=1)) as fake:
        with fake.control() as cluster:
            cluster.create_topic("t", 1)
            cluster.limit_versions({lacking: None})

        def use(producer: Producer) -> None:
            producer.init_transactions()
            with producer.transaction():
                producer.send("t", b"a")

        with Producer(bootstrap_servers=fake.bootstrap_servers, transactional_id="x") as producer:
            with pytest.raises(UnsupportedVersionError, match=f"{lacking.name}.*new producer"):
                use(producer)
            with pytest.raises(UnsupportedVersionError):
                producer.begin_transaction()
