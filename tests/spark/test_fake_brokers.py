"""The connector reads without Spark, from fake brokers: topics, ranges, records that are gone."""

from __future__ import annotations

import json
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, LongType, StructType

from pykclient import Consumer, Producer, TopicPartition
from pykclient.cli import main
from pykclient.errors import (
    CorruptRecordError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake.faults import delay_response, fail_with
from spark_connector.batch_reader import KafkaBatchReader
from spark_connector.cluster import Cluster
from spark_connector.dead_letters import ENVELOPE_BYTES
from spark_connector.offsets import DataLossError, OffsetRange
from spark_connector.options import BATCH_SIZE_BYTES_MAX, KafkaOptions, Use
from spark_connector.stream_reader import KafkaStreamReader
from spark_connector.versions import ReadAllAvailable

if TYPE_CHECKING:
    from pykclient import ConsumerRecord
    from pykclient.protocol.message import Request
    from pykclient.testing import FakeKafka

OFFSETS = StructType().add("offset", LongType())
TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, 0)
RECORD_COUNT = 30
FIRST_LEFT = 10


@pytest.fixture
def fake(fake_kafka: FakeKafka) -> FakeKafka:
    """Brokers with a topic of one partition, whose first ten records are gone."""
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, 1)
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        for _ in range(RECORD_COUNT):
            producer.send(TOPIC, b"v")
            producer.flush()
    with fake_kafka.control() as cluster:
        cluster.partition(PARTITION).log.delete_records(FIRST_LEFT)
    return fake_kafka


def offsets_of(fake: FakeKafka, start: int, end: int, **options: str) -> list[int]:
    """Read a range in a task and return the offsets."""
    given = {"kafka.bootstrap.servers": fake.bootstrap_servers, "subscribe": TOPIC, **options}
    reader = KafkaBatchReader(KafkaOptions.from_spark(given, Use.BATCH), OFFSETS)
    batches = reader.read(InputPartition([OffsetRange(PARTITION, start, end)]))
    return [*chain.from_iterable(batch.column("offset").to_pylist() for batch in batches)]


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [("light", [TOPIC]), ("^light", []), ("s$", [TOPIC]), (".*", [TOPIC])],
)
def test_a_pattern_is_found_anywhere_in_a_name_and_in_none_of_kafkas_own(
    fake: FakeKafka, pattern: str, topics: list[str]
) -> None:
    with fake.control() as cluster:
        cluster.create_topic("__consumer_offsets", 1)
    given = {"kafka.bootstrap.servers": fake.bootstrap_servers, "subscribePattern": pattern}
    with closing(Cluster(KafkaOptions.from_spark(given, Use.BATCH))) as cluster:
        found = cluster.topics().partitions
    assert found == tuple(TopicPartition(topic, 0) for topic in topics)


def test_a_range_is_read_up_to_its_end(fake: FakeKafka) -> None:
    assert offsets_of(fake, 12, 27) == list(range(12, 27))


def test_a_task_of_a_stream_requests_no_offsets_and_connects_once(fake: FakeKafka) -> None:
    """Its range says where it ends, and the next task takes over its consumer."""
    requests: set[str] = set()

    def note(request: Request) -> bool:
        requests.add(type(request).__name__.removesuffix("Request"))
        return False

    reader = reader_of(KafkaStreamReader, fake)

    def requests_of(start: int, end: int) -> set[str]:
        requests.clear()
        batches = reader.read(InputPartition([OffsetRange(PARTITION, start, end)]))
        assert sum(batch.num_rows for batch in batches) == end - start
        return set(requests)

    with fake.control() as cluster:
        cluster.faults.add(delay_response(0), times=None, when=note)
    # Each connection begins with ApiVersions.
    assert requests_of(FIRST_LEFT, 20) == {"ApiVersions", "Metadata", "Fetch"}
    assert requests_of(20, RECORD_COUNT) == {"Metadata", "Fetch"}


@pytest.mark.parametrize("start", [0, 2])
def test_a_range_of_a_recreated_topic_is_read_by_the_consumer_that_read_the_former_one(
    fake: FakeKafka, start: int
) -> None:
    """A Python worker keeps its consumer, with metadata of the topic that was deleted."""
    assert offsets_of(fake, 12, RECORD_COUNT) == list(range(12, RECORD_COUNT))
    with fake.control() as cluster:
        cluster.delete_topic(TOPIC)
        cluster.create_topic(TOPIC, 1)
    with Producer(bootstrap_servers=fake.bootstrap_servers) as producer:
        producer.send_batch(TOPIC, [b"v"] * 5)
    assert offsets_of(fake, start, 5) == list(range(start, 5))


def test_what_is_gone_since_the_plan_is_left_out_and_the_rest_is_read(fake: FakeKafka) -> None:
    assert offsets_of(fake, 5, 20, failOnDataLoss="false") == list(range(FIRST_LEFT, 20))


def test_large_records_come_in_batches_of_few_rows(fake_kafka: FakeKafka) -> None:
    value_bytes = BATCH_SIZE_BYTES_MAX * 2 // 5
    settings = {"compression_type": "lz4", "max_request_size": 2**27, "batch_size": 2**26}
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, 1)
    with Producer(settings, bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        for _ in range(5):
            producer.send(TOPIC, bytes(value_bytes))
    given = {"kafka.bootstrap.servers": fake_kafka.bootstrap_servers, "subscribe": TOPIC}
    values = StructType().add("value", BinaryType())
    reader = KafkaBatchReader(KafkaOptions.from_spark(given, Use.BATCH), values)
    batches = list(reader.read(InputPartition([OffsetRange(PARTITION, 0, 5)])))
    assert [batch.num_rows for batch in batches] == [2, 2, 1]


LAST_OFFSET_DELTA_AT = 26


@pytest.fixture
def damaged(fake_kafka: FakeKafka) -> FakeKafka:
    """Brokers with a topic of five batches of three records, of which the third is damaged."""
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, 1)
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers, linger_ms=5_000) as producer:
        for _ in range(5):
            producer.send_batch(TOPIC, [b"v"] * 3)
            producer.flush()
    with fake_kafka.control() as cluster:
        cluster.partition(PARTITION).log.damage(7)
    return fake_kafka


@pytest.mark.parametrize("make", [KafkaBatchReader, KafkaStreamReader])
def test_a_damaged_batch_fails_the_task_with_its_place(
    damaged: FakeKafka, make: type[KafkaBatchReader] | type[KafkaStreamReader]
) -> None:
    reader = reader_of(make, damaged)
    batches = reader.read(InputPartition([OffsetRange(PARTITION, 0, 15)]))
    read: list[int] = []
    with pytest.raises(DataLossError) as caught:
        read.extend(chain.from_iterable(batch.column("offset").to_pylist() for batch in batches))
    assert str(caught.value).startswith(
        "flights-0 has a damaged batch at offsets [6, 9), of which [6, 9) is to be read: "
    )
    assert "checksum" in str(caught.value)
    assert "Set failOnDataLoss=false to read what is left" in str(caught.value)


@pytest.mark.parametrize("make", [KafkaBatchReader, KafkaStreamReader])
@pytest.mark.parametrize(("start", "end", "passed"), [(0, 15, "[6, 9)"), (7, 8, "[7, 8)")])
def test_a_damaged_batch_is_passed_over_if_that_is_allowed(
    damaged: FakeKafka,
    caplog: pytest.LogCaptureFixture,
    make: type[KafkaBatchReader] | type[KafkaStreamReader],
    start: int,
    end: int,
    passed: str,
) -> None:
    reader = reader_of(make, damaged, failOnDataLoss="false")
    batches = reader.read(InputPartition([OffsetRange(PARTITION, start, end)]))
    found = [*chain.from_iterable(batch.column("offset").to_pylist() for batch in batches)]
    assert found == [offset for offset in range(start, end) if offset not in range(6, 9)]
    (warning,) = [one for one in caplog.records if one.name.startswith("spark_connector")]
    assert f"at offsets [6, 9), of which {passed} is to be read" in warning.getMessage()


def test_a_batch_that_was_damaged_on_its_way_is_fetched_again(damaged: FakeKafka) -> None:
    reader = reader_of(KafkaBatchReader, damaged, kafka_max_partition_fetch_bytes="1")
    batches = reader.read(InputPartition([OffsetRange(PARTITION, 3, 15)]))
    # The next fetch brings the third batch, and the one after that has it whole.
    assert next(batches).column("offset").to_pylist() == [3, 4, 5]
    with damaged.control() as cluster:
        cluster.partition(PARTITION).log.damage(7)
    rest = chain.from_iterable(batch.column("offset").to_pylist() for batch in batches)
    assert [*rest] == list(range(6, 15))


def letters(fake: FakeKafka, count: int) -> list[ConsumerRecord[bytes, bytes]]:
    """Read the dead-letter topic."""
    settings = {"bootstrap_servers": fake.bootstrap_servers, "auto_offset_reset": "earliest"}
    found: list[ConsumerRecord[bytes, bytes]] = []
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition("letters", 0)])
        while len(found) < count:
            found.extend(consumer.poll(10))
    return found


@pytest.mark.parametrize("make", [KafkaBatchReader, KafkaStreamReader])
def test_a_damaged_batch_becomes_a_dead_letter(
    damaged: FakeKafka,
    caplog: pytest.LogCaptureFixture,
    make: type[KafkaBatchReader] | type[KafkaStreamReader],
) -> None:
    with damaged.control() as cluster:
        cluster.create_topic("letters", 1)
    reader = reader_of(make, damaged, deadLettersTopic="letters", kafka_transactional_id="x")
    for _ in range(2):  # Spark may repeat a task
        batches = reader.read(InputPartition([OffsetRange(PARTITION, 0, 15)]))
        found = [*chain.from_iterable(batch.column("offset").to_pylist() for batch in batches)]
        assert found == [offset for offset in range(15) if offset not in range(6, 9)]
    letter, again = letters(damaged, 2)
    assert letter.key == b"flights-0-6"
    assert (letter.key, letter.value, letter.headers) == (again.key, again.value, again.headers)
    headers = dict(letter.headers)
    assert b"checksum" in (headers.pop("pykafka.reason") or b"")
    assert headers == {
        "pykafka.topic": b"flights",
        "pykafka.partition": b"0",
        "pykafka.offset": b"6",
        "pykafka.next_offset": b"9",
        "pykafka.piece": b"1/1",
    }
    # The bytes are those that the log has: only the damage is to be undone.
    with damaged.control() as cluster:
        cluster.partition(PARTITION).log.damage(7)
        log = cluster.partition(PARTITION).log
        whole = log.read(6, end_offset=9, max_bytes=10_000, whole_first=True)
    assert letter.value is not None
    assert isinstance(whole, bytes)
    assert len(letter.value) == len(whole)
    assert letter.value[:-1] == whole[:-1]
    assert "flights-0 has a damaged batch at offsets [6, 9), which is passed over" in caplog.text


def test_a_large_dead_letter_comes_in_pieces(damaged: FakeKafka) -> None:
    with damaged.control() as cluster:
        cluster.create_topic("letters", 1)
    size = ENVELOPE_BYTES + 50
    options = {"deadLettersTopic": "letters", "kafka_max_request_size": str(size)}
    reader = reader_of(KafkaBatchReader, damaged, **options)
    assert len(list(reader.read(InputPartition([OffsetRange(PARTITION, 6, 10)])))) == 1
    first, second = letters(damaged, 2)
    pieces = [dict(each.headers)["pykafka.piece"] for each in (first, second)]
    assert pieces == [b"1/2", b"2/2"]
    assert len(first.value or b"") == 50
    assert len(second.value or b"") > 0


def test_a_dead_letter_that_brokers_do_not_take_fails_the_task(damaged: FakeKafka) -> None:
    with damaged.control() as cluster:
        cluster.create_topic("letters", 1)
        cluster.faults.add(fail_with(TopicAuthorizationFailedError), ApiKey.PRODUCE, times=None)
    reader = reader_of(KafkaBatchReader, damaged, deadLettersTopic="letters")
    expected = r"^flights-0 has a damaged batch at offsets \[6, 9\), and topic 'letters' \(option"
    with pytest.raises(KafkaError, match=expected):
        list(reader.read(InputPartition([OffsetRange(PARTITION, 0, 15)])))


@pytest.mark.parametrize("subscribed", [{"subscribe": TOPIC}, {"subscribePattern": "^flights$"}])
def test_a_missing_topic_for_dead_letters_is_named_before_anything_is_read(
    fake_kafka: FakeKafka, subscribed: dict[str, str]
) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, 1)
    servers = {"kafka.bootstrap.servers": fake_kafka.bootstrap_servers}
    given = {**servers, **subscribed, "deadLettersTopic": "letters"}
    expected = r"^Topic 'letters' \(option deadLettersTopic\) does not exist"
    batch = KafkaBatchReader(KafkaOptions.from_spark(given, Use.BATCH), OFFSETS)
    with pytest.raises(UnknownTopicOrPartitionError, match=expected):
        batch.partitions()
    stream = KafkaStreamReader(given, OFFSETS)
    with pytest.raises(UnknownTopicOrPartitionError, match=expected):
        stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    stream.stop()


@pytest.mark.parametrize("allowed", ["true", "false"])
def test_a_damaged_batch_whose_end_is_not_known_is_not_passed_over(
    damaged: FakeKafka, allowed: str
) -> None:
    with damaged.control() as cluster:
        cluster.partition(PARTITION).log.damage(4, LAST_OFFSET_DELTA_AT)
    reader = reader_of(KafkaBatchReader, damaged, failOnDataLoss=allowed)
    with pytest.raises(
        CorruptRecordError, match=r"^flights-0 has a damaged batch at offset 3, and"
    ):
        list(reader.read(InputPartition([OffsetRange(PARTITION, 0, 15)])))


def reader_of(
    make: type[KafkaBatchReader] | type[KafkaStreamReader], fake: FakeKafka, **options: str
) -> KafkaBatchReader | KafkaStreamReader:
    """Return the reader of a batch or a stream, of offsets."""
    given = {"kafka.bootstrap.servers": fake.bootstrap_servers, "subscribe": TOPIC}
    given |= {name.replace("_", "."): value for name, value in options.items()}
    if issubclass(make, KafkaStreamReader):
        return make(given, OFFSETS)
    return make(KafkaOptions.from_spark(given, Use.BATCH), OFFSETS)


@pytest.mark.promise("A stream's progress is committed to a group that lag tools see")
def test_the_group_of_a_stream_is_shown_by_the_command_line_and_may_be_begun_from(
    fake: FakeKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = {"kafka.bootstrap.servers": fake.bootstrap_servers, "subscribe": TOPIC}
    options = {"startingOffsets": "earliest", "commitGroup": "lag-tools", **servers}
    stream = KafkaStreamReader(options, OFFSETS)
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    stream.latestOffset(end, ReadAllAvailable())
    stream.stop()
    given = ["lag-tools", "--bootstrap-servers", fake.bootstrap_servers, "--json"]
    assert main(["groups", "offsets", *given]) == 0
    shown = capsys.readouterr().out
    assert TOPIC in shown
    assert str(RECORD_COUNT) in shown
    with Producer(bootstrap_servers=fake.bootstrap_servers) as producer:
        producer.send(TOPIC, b"v").result(10)
    follower = KafkaOptions.from_spark({"startingOffsets": "group:lag-tools", **servers}, Use.BATCH)
    (task,) = KafkaBatchReader(follower, OFFSETS).partitions()
    ((wanted,),) = (task.value,)
    assert (wanted.start, wanted.end) == (RECORD_COUNT, RECORD_COUNT + 1)


def test_nothing_new_is_the_start_as_spark_gave_it(fake: FakeKafka) -> None:
    """Spark compares offsets as text, and a batch begins where they differ."""
    with fake.control() as cluster:
        cluster.create_topic("arrivals", 2)
    options = {"kafka.bootstrap.servers": fake.bootstrap_servers, "subscribe": f"{TOPIC},arrivals"}
    stream = KafkaStreamReader(options, OFFSETS)
    # The first batch is planned for the ids of the topics, even without records.
    in_order = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    start = {
        topic: dict(reversed(offsets.items())) for topic, offsets in reversed(in_order.items())
    }
    assert json.dumps(start) != json.dumps(in_order)
    assert stream.latestOffset(start, ReadAllAvailable()) is start
    stream.stop()
