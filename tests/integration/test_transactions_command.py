"""Transactions that an admin client shows and aborts, beside Kafka's own tool, on real brokers.

A transaction hangs when a partition has it open and its coordinator does not. Brokers that verify
transactions let none begin so (KIP-890), so it is not verified here, and a batch is sent as clients
with a bug have done: by a producer that has a transactional id, for a partition that it has not
added to its transaction.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import (
    AbortTransactionSpec,
    Admin,
    Consumer,
    NewPartitions,
    NewTopic,
    Producer,
    TopicPartition,
)
from pykclient.cli import main
from pykclient.errors import (
    BrokerError,
    InvalidProducerEpochError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    UsageError,
)
from pykclient.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykclient.records.builder import RecordBatchBuilder
from tests.integration.confluent_tools import confluent_transaction
from tests.integration.exchange import RealExchange
from tests.integration.group_members import import_libraries, wait_until
from tests.integration.java_tools import run_tool
from tests.soak import NEWEST_FIRST, OLDEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = pytest.mark.kafka

BY_NAME_VERSION = 11
"""ProduceRequest names topics by their ids from version 13 on, and adds partitions from 12 on."""
TIMEOUT_MS = 60_000

Rows = list[dict[str, Any]]


class Command:
    def __init__(self, servers: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._servers = servers
        self._capsys = capsys
        self.stderr = ""

    def rows(self, part: str, *arguments: str, status: int = 0) -> Rows:
        """Return a subcommand's JSON output; `stderr` has its complaints."""
        self._capsys.readouterr()
        assert main(["transactions", part, "-b", self._servers, "-J", *arguments]) == status
        output, self.stderr = self._capsys.readouterr()
        return [json.loads(line) for line in output.splitlines()]


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    import_libraries()


@pytest.fixture(scope="module", params=NEWEST_FIRST)
def cluster(
    request: pytest.FixtureRequest, kafka_cluster_factory: KafkaClusterFactory
) -> Iterator[KafkaCluster]:
    config = {"transaction.partition.verification.enable": False}
    with kafka_cluster_factory(version=request.param, config=config) as made:
        yield made


@pytest.fixture
def admin(cluster: KafkaCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def partition(admin: Admin) -> TopicPartition:
    name = f"transactions-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 1)])
    return TopicPartition(name, 0)


@pytest.fixture
def command(cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(cluster.bootstrap_servers, capsys)


def hang(cluster: KafkaCluster, partition: TopicPartition) -> InitProducerIdResponse:
    """Leave a transaction open in a partition; return its producer."""
    exchange = RealExchange(cluster.bootstrap_servers)
    named = InitProducerIdRequest(
        transactional_id=f"hanging-{uuid.uuid4().hex[:8]}",
        transaction_timeout_ms=TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )
    found: list[InitProducerIdResponse] = []

    # The first look-up of a coordinator has the brokers make the topic of transactions.
    coordinator = FindCoordinatorRequest(key=str(named.transactional_id), key_type=1)

    def is_identified() -> bool:
        exchange.send(coordinator, FindCoordinatorResponse, 3)
        found.append(exchange.send(named, InitProducerIdResponse, 4))
        return found[-1].error_code == 0

    wait_until(is_identified, "the coordinator has loaded")
    assert is_identified(), "again, for an epoch that has an older one"
    builder = RecordBatchBuilder[None](batch_size_bytes=16_384)
    builder.try_append(time.time_ns() // 1_000_000, None, b"never ended")
    records = builder.close(
        producer_id=found[-1].producer_id,
        producer_epoch=found[-1].producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    request = ProduceRequest(
        transactional_id=named.transactional_id,
        acks=-1,
        timeout_ms=TIMEOUT_MS,
        topic_data=[
            TopicProduceData(
                name=partition.topic,
                partition_data=[PartitionProduceData(partition.partition, bytes(records))],
            )
        ],
    )
    response = exchange.send(request, ProduceResponse, BY_NAME_VERSION)
    assert response.responses[0].partition_responses[0].error_code == 0
    return found[-1]


def java_transactions(cluster: KafkaCluster, *arguments: str) -> list[list[str]]:
    """Return the columns that Kafka's own tool prints."""
    tool = "org.apache.kafka.tools.TransactionsCommand"
    options = ("--bootstrap-server", cluster.bootstrap_servers)
    # As a process: it ends the JVM that it runs in.
    output = run_tool(cluster.version, tool, *options, *arguments)
    return [line.split() for line in output.decode().splitlines()]


def test_what_is_listed_and_described_is_what_kafkas_tool_says(
    cluster: KafkaCluster, admin: Admin, partition: TopicPartition, command: Command
) -> None:
    with confluent_transaction(cluster, partition.topic, [b"1", b"2"]) as commit:
        (producer,) = admin.describe_producers([partition])[partition]
        listed = admin.list_transactions(producer_ids=[producer.producer_id])
        (name,) = listed
        heading, *rows = java_transactions(cluster, "list")
        found = dict(zip(heading, next(row for row in rows if row[0] == name), strict=True))
        mine = listed[name]
        assert found == {
            "TransactionalId": name,
            "Coordinator": str(mine.coordinator_id),
            "ProducerId": str(mine.producer_id),
            "TransactionState": mine.state,
        }
        assert mine.state == "Ongoing"
        assert name in admin.list_transactions(states=["Ongoing"], open_for=0)
        assert name not in admin.list_transactions(states=["CompleteCommit"])
        assert name not in admin.list_transactions(open_for=3_600)
        heading, row = java_transactions(cluster, "describe", "--transactional-id", name)
        described = admin.describe_transactions([name])[name]
        assert described.start_ms is not None
        assert (
            dict(zip(heading, row, strict=True)).items()
            >= {
                "CoordinatorId": str(described.coordinator_id),
                "ProducerId": str(described.producer_id),
                "ProducerEpoch": str(described.producer_epoch),
                "TransactionState": "Ongoing",
                "TransactionTimeoutMs": str(described.timeout_ms),
                "TopicPartitions": f"{partition.topic}-{partition.partition}",
            }.items()
        )
        assert described.partitions == (partition,)
        (shown,) = command.rows("describe", name)
        assert shown["open_ms"] >= 0
        assert shown["partitions"] == {partition.topic: [0]}
        options = ("--topic", partition.topic, "--partition", "0")
        heading, row = java_transactions(cluster, "describe-producers", *options)
        assert [int(each) for each in row[:2]] == [producer.producer_id, producer.producer_epoch]
        assert int(row[-1]) == producer.transaction_start_offset == 0
        (shown,) = command.rows("producers", "-t", partition.topic)
        assert shown["transaction_start_offset"] == 0
        assert shown["last_sequence"] == 1
        assert command.rows("abort-hanging", "-t", partition.topic, "--open-for", "PT0S") == []
        commit()
    (ended,) = admin.list_transactions(producer_ids=[producer.producer_id]).values()
    assert ended.state in {"PrepareCommit", "CompleteCommit"}

    def is_ended() -> bool:
        (now,) = admin.describe_producers([partition])[partition]
        return now.transaction_start_offset is None

    wait_until(is_ended, "the marker is written")


def java_row(cluster: KafkaCluster, name: str, *arguments: str) -> dict[str, str]:
    """Describe one transactional id with Kafka's own tool; return its output by heading."""
    heading, *rows = java_transactions(cluster, *arguments)
    (row,) = (row for row in rows if name in row)
    # A transaction that has ended has neither a time of its start nor partitions.
    return dict(zip(heading, row, strict=False))


@pytest.mark.soak
def test_kafkas_tool_shows_a_transaction_of_our_producer(
    cluster: KafkaCluster, admin: Admin, partition: TopicPartition
) -> None:
    admin.create_partitions({partition.topic: NewPartitions(2)})
    name = f"ours-{partition.topic}"
    describe = ("describe", "--transactional-id", name)
    with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        transactional_id=name,
        transaction_timeout_ms=TIMEOUT_MS,
    ) as producer:
        producer.init_transactions()
        with producer.transaction():
            for number in range(2):
                producer.send(partition.topic, b"%d" % number, partition=number)
            producer.flush()
            (writer,) = admin.describe_producers([partition])[partition]
            identity = {"ProducerId": str(writer.producer_id), "TransactionState": "Ongoing"}
            assert java_row(cluster, name, "list").items() >= identity.items()
            shown = java_row(cluster, name, *describe)
            assert shown.items() >= identity.items()
            assert shown["ProducerEpoch"] == str(writer.producer_epoch)
            assert shown["TransactionTimeoutMs"] == str(TIMEOUT_MS)
            partitions = {f"{partition.topic}-{number}" for number in range(2)}
            assert set(shown["TopicPartitions"].split(",")) == partitions

        def is_complete() -> bool:
            return admin.describe_transactions([name])[name].state == "CompleteCommit"

        wait_until(is_complete, "the markers are written")
        for arguments in (("list",), describe):
            assert java_row(cluster, name, *arguments)["TransactionState"] == "CompleteCommit"


def test_a_transaction_that_hangs_is_found_and_aborted(
    cluster: KafkaCluster, admin: Admin, partition: TopicPartition, command: Command
) -> None:
    identity = hang(cluster, partition)
    options = ("-t", partition.topic, "--open-for", "PT0S")
    assert command.rows("abort-hanging", "-t", partition.topic) == []
    assert "no transaction is hanging" in command.stderr
    (found,) = command.rows("abort-hanging", *options)
    assert found["producer_id"] == identity.producer_id
    assert found["transaction_start_offset"] == 0
    assert "nothing was changed; give --execute" in command.stderr
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed"
    ) as consumer:
        assert consumer.end_offsets([partition]) == {partition: 0}
        command.rows("abort-hanging", *options, "--execute")
        assert command.stderr == ""
        assert consumer.end_offsets([partition]) == {partition: 2}
    assert command.rows("abort-hanging", *options) == []


def java_hanging(cluster: KafkaCluster, where: Iterable[str]) -> list[dict[str, str]]:
    """Return the hanging transactions that Kafka's own tool finds in a partition, of any age."""
    options = (*where, "--max-transaction-timeout", "0")
    heading, *rows = java_transactions(cluster, "find-hanging", *options)
    return [dict(zip(heading, row, strict=True)) for row in rows]


@pytest.mark.parametrize(
    "is_ours",
    [True, pytest.param(False, marks=pytest.mark.soak)],
    ids=["ours aborts", "Java's aborts"],
)
def test_what_one_tool_finds_the_other_aborts(
    cluster: KafkaCluster,
    admin: Admin,
    partition: TopicPartition,
    command: Command,
    *,
    is_ours: bool,
) -> None:
    identity = hang(cluster, partition)
    options = ("-t", partition.topic, "--open-for", "PT0S")
    where = ("--topic", partition.topic, "--partition", str(partition.partition))
    (theirs,) = java_hanging(cluster, where)
    (ours,) = command.rows("abort-hanging", *options)
    assert (theirs["Topic"], theirs["Partition"]) == (partition.topic, "0")
    assert int(theirs["ProducerId"]) == ours["producer_id"] == identity.producer_id
    assert int(theirs["ProducerEpoch"]) == ours["producer_epoch"] == identity.producer_epoch
    assert int(theirs["StartOffset"]) == ours["transaction_start_offset"] == 0
    if is_ours:
        command.rows("abort-hanging", *options, "--execute")
    else:
        assert java_transactions(cluster, "abort", *where, "--start-offset", "0") == []
    assert java_hanging(cluster, where) == []
    assert command.rows("abort-hanging", *options) == []
    (producer,) = admin.describe_producers([partition])[partition]
    assert producer.transaction_start_offset is None
    _, row = java_transactions(cluster, "describe-producers", *where)
    assert row[-1] == "None"


def test_all_partitions_are_looked_through_without_a_topic(
    cluster: KafkaCluster, partition: TopicPartition, command: Command
) -> None:
    identity = hang(cluster, partition)
    found = command.rows("abort-hanging", "--open-for", "PT0S", "--execute")
    assert (partition.topic, identity.producer_id) in {
        (row["topic"], row["producer_id"]) for row in found
    }


def test_an_old_epoch_of_a_producer_aborts_nothing(
    cluster: KafkaCluster, admin: Admin, partition: TopicPartition
) -> None:
    identity = hang(cluster, partition)
    old = AbortTransactionSpec(partition, identity.producer_id, identity.producer_epoch - 1)
    with pytest.raises(BrokerError, match=f"aborts producer {identity.producer_id}") as caught:
        admin.abort_transaction(old)
    assert isinstance(caught.value, InvalidProducerEpochError)
    admin.abort_transaction(old._replace(producer_epoch=identity.producer_epoch))


def test_what_is_not_there_is_named(
    admin: Admin, partition: TopicPartition, command: Command
) -> None:
    with pytest.raises(TransactionalIdNotFoundError, match="'absent'"):
        admin.describe_transactions(["absent"])
    absent = partition._replace(partition=7)
    with pytest.raises(UnknownTopicOrPartitionError, match=f"{absent} does not exist"):
        admin.describe_producers([absent])
    with pytest.raises(UsageError, match="has no state Odd"):
        admin.list_transactions(states=["Odd"])
    command.rows("describe", "absent", status=1)
    assert "`pykclient transactions list` shows the existing ones" in command.stderr
    command.rows("producers", "-t", "absent", status=1)
    assert "there is no topic 'absent'" in command.stderr
    command.rows("abort-hanging", "-p", "0", status=1)
    assert "give -t TOPIC as well" in command.stderr


def test_a_pattern_needs_a_new_broker(cluster: KafkaCluster, admin: Admin) -> None:
    if cluster.version != OLDEST:
        assert admin.list_transactions(id_pattern="no-such-.*") == {}
    else:
        with pytest.raises(UnsupportedVersionError, match="transactional_id_pattern"):
            admin.list_transactions(id_pattern="no-such-.*")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda admin: admin.abort_transaction("t"), "give AbortTransactionSpec"),
        (lambda admin: admin.list_transactions(open_for=-1), "open_for is -1; give seconds"),
        (lambda admin: admin.list_transactions(producer_ids=["7"]), "producer_ids is '7'"),
        (lambda admin: admin.describe_transactions("id"), "give a list"),
    ],
)
def test_wrong_arguments_are_refused(admin: Admin, wrong: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wrong(admin)
