"""The forms of a source for older PySparks, on fake brokers, as these PySparks call it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import LongType, StructType

from pykclient import Producer, TopicPartition
from pykclient.errors import UsageError
from spark_connector.offsets import ENDS_KEY, StreamOffset, known_ends_from_json
from spark_connector.stream_reader import KafkaStreamReader
from spark_connector.versions import SelfLimitedReader, offset_of_progress, parsed_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing import FakeKafka

TOPIC = "flights"
A0, A1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
OFFSETS = StructType().add("offset", LongType())
Offset = dict[str, dict[str, int]]


@pytest.fixture
def servers(fake_kafka: FakeKafka) -> str:
    """Brokers with a topic of two partitions, with eight and no records."""
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, 2)
    send(fake_kafka.bootstrap_servers, 8)
    return fake_kafka.bootstrap_servers


@pytest.fixture
def new_process(servers: str) -> Iterator[Callable[..., SelfLimitedReader]]:
    """Return a reader as a new process of a driver makes it."""
    made: list[SelfLimitedReader] = []

    def make(**options: object) -> SelfLimitedReader:
        given = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "offsetPollIntervalMs": 1}
        given |= {"startingOffsets": "earliest"} | options
        reader = KafkaStreamReader({name: str(one) for name, one in given.items()}, OFFSETS)
        made.append(SelfLimitedReader(reader))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


def send(servers: str, count: int) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for _ in range(count):
            producer.send(TOPIC, b"v", partition=0)


def ends(offset: Offset) -> list[int]:
    """Return the ends of the partitions."""
    return [end for _, end in sorted(StreamOffset.from_json(offset).ends.items())]


def as_spark_logs(offset: Offset) -> Offset:
    found: Offset = json.loads(json.dumps(offset))
    return found


def planned(reader: SelfLimitedReader, start: Offset, end: Offset) -> list[tuple[int, int]]:
    """Return the ranges of a batch in the first partition."""
    tasks = reader.partitions(as_spark_logs(start), as_spark_logs(end))
    return [(one.start, one.end) for task in tasks for one in task.value if one.partition == A0]


def test_each_batch_begins_where_the_last_one_ended(
    new_process: Callable[..., SelfLimitedReader],
) -> None:
    reader = new_process(maxOffsetsPerTrigger=3)
    # Spark requests the first end before it requests the beginning.
    first = reader.latestOffset()
    assert planned(reader, reader.initialOffset(), first) == [(0, 3)]
    second = reader.latestOffset()
    assert planned(reader, first, second) == [(3, 6)]
    third = reader.latestOffset()
    assert planned(reader, second, third) == [(6, 8)]
    assert [ends(one) for one in (first, second, third)] == [[3, 0], [6, 0], [8, 0]]
    # Nothing new is the same text.
    assert json.dumps(reader.latestOffset()) == json.dumps(third)


def test_a_batch_whose_scan_spark_leaves_out_is_not_offered_again(
    new_process: Callable[..., SelfLimitedReader],
) -> None:
    """Spark plans no scan of a frame that no row can pass, and logs the batch all the same."""
    reader = new_process(maxOffsetsPerTrigger=3)
    assert [ends(reader.latestOffset()) for _ in range(4)] == [[3, 0], [6, 0], [8, 0], [8, 0]]


def test_a_new_process_goes_on_from_the_last_end_of_the_log(
    new_process: Callable[..., SelfLimitedReader],
) -> None:
    before = new_process(maxOffsetsPerTrigger=3)
    logged = before.latestOffset()
    reader = new_process(maxOffsetsPerTrigger=4, startingOffsets="latest")
    # Spark shows the last end of its log first.
    assert planned(reader, logged, logged) == []
    end = reader.latestOffset()
    assert planned(reader, logged, end) == [(3, 7)]


def test_a_first_batch_that_failed_is_repeated_as_it_was_logged(
    servers: str, new_process: Callable[..., SelfLimitedReader]
) -> None:
    before = new_process(maxOffsetsPerTrigger=3)
    logged = before.latestOffset()
    send(servers, 2)
    reader = new_process(maxOffsetsPerTrigger=3, startingOffsets="latest")
    assert planned(reader, logged, logged) == []
    # Its beginning is another one by now, and the log has what it was.
    assert ends(reader.initialOffset()) == [10, 0]
    assert planned(reader, reader.initialOffset(), logged) == [(0, 3)]
    assert planned(reader, logged, reader.latestOffset()) == [(3, 6)]


def test_an_end_that_is_cut_has_the_ends_of_topics(
    new_process: Callable[..., SelfLimitedReader], caplog: pytest.LogCaptureFixture
) -> None:
    reader = new_process(maxOffsetsPerTrigger=3)
    first, second, third = (reader.latestOffset() for _ in range(3))
    for cut in (first, second):
        assert known_ends_from_json(cut) == {A0: 8, A1: 0}
    assert [key for key, offsets in third.items() if offsets] == [TOPIC]
    assert not [key for key in third if key.startswith(ENDS_KEY)]
    (warning,) = caplog.messages
    assert "Leave out maxOffsetsPerTrigger and" in warning


def test_a_query_without_a_limit_logs_no_ends_and_no_warning(
    new_process: Callable[..., SelfLimitedReader], caplog: pytest.LogCaptureFixture
) -> None:
    at_ends = new_process(startingOffsets="latest").latestOffset()
    assert StreamOffset.from_json(at_ends).is_initial
    reader = new_process()
    assert StreamOffset.from_json(reader.latestOffset()) == StreamOffset(
        {A0: 8, A1: 0}, {A0: 0, A1: 0}
    )
    assert caplog.messages == []


def test_a_batch_waits_for_the_fewest_offsets(
    servers: str, new_process: Callable[..., SelfLimitedReader]
) -> None:
    reader = new_process(minOffsetsPerTrigger=4)
    first = reader.latestOffset()
    assert ends(first) == [8, 0]
    send(servers, 3)
    assert reader.latestOffset() == first
    send(servers, 1)
    assert ends(reader.latestOffset()) == [12, 0]


def test_an_end_that_spark_does_not_plan_is_refused(
    new_process: Callable[..., SelfLimitedReader],
) -> None:
    """Spark's wrapper for availableNow requests an end before it shows that of its log.

    The query would otherwise begin again at the start that its options give.
    """
    before = new_process()
    logged = before.latestOffset()
    reader = new_process(maxOffsetsPerTrigger=3)
    reader.latestOffset()
    with pytest.raises(UsageError, match=r"triggerAvailableNowWrapper\.enabled=true: set it to"):
        reader.partitions(logged, logged)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("4.0.0.dev1", (4, 0)),
        ("4.1.4", (4, 1)),
        ("4.10.0", (4, 10)),
        ("5.0.0", (5, 0)),
        ("main", (1_000, 0)),
    ],
)
def test_a_version_is_read_as_numbers(text: str, version: tuple[int, int]) -> None:
    assert parsed_version(text) == version


@pytest.mark.parametrize("text", ['{"a": {"0": 5}}', "{'a': {'0': 5}}"])
def test_an_offset_of_a_progress_is_read_in_both_forms(text: str) -> None:
    assert offset_of_progress(text) == {"a": {"0": 5}}


@pytest.mark.parametrize("text", [None, "", "null", "None"])
def test_a_progress_without_an_offset_has_none(text: str | None) -> None:
    assert offset_of_progress(text) is None


def test_a_progress_of_something_else_is_no_offset() -> None:
    with pytest.raises(ValueError, match="no offset: 'seven of'"):
        offset_of_progress("seven of")
