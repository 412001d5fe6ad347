"""Begin and end of a stream's micro-batches, on fake brokers and without Spark."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, Producer, TopicPartition
from pykclient.errors import (
    BrokerError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake.faults import fail_with
from spark_connector.cluster import Cluster
from spark_connector.offsets import DataLossError, OffsetRange, StreamOffset
from spark_connector.options import KafkaOptions, Use
from spark_connector.stream_planner import COMMIT_RETRY_MS, StreamPlanner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import FakeKafka

TOPIC = "flights"
A0, A1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


class World:
    """Brokers with a topic, a clock that the test moves, and planners of new processes."""

    def __init__(self, kafka: FakeKafka) -> None:
        self.kafka = kafka
        self.now_ms = 0.0
        self.slept_ms: list[float] = []
        self._open: list[StreamPlanner] = []
        with kafka.control() as cluster:
            cluster.create_topic(TOPIC, 2)

    def planner(self, **options: object) -> StreamPlanner:
        """Return a planner as a new driver process makes it."""
        given = {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            **({} if "subscribePattern" in options else {"subscribe": TOPIC}),
            "fetchOffset.retryIntervalMs": "1",
        } | {name.replace("_", "."): str(value) for name, value in options.items()}
        checked = KafkaOptions.from_spark(given, Use.STREAM)
        cluster = Cluster(checked, self.sleep)
        planner = StreamPlanner(checked, cluster, lambda: self.now_ms, self.sleep)
        self._open.append(planner)
        return planner

    def sleep(self, seconds: float) -> None:
        """Advance the clock by the time for which a planner waits."""
        self.slept_ms.append(seconds * 1_000)
        self.now_ms += seconds * 1_000

    def send(self, count: int, partition: TopicPartition = A0) -> None:
        """Send records, and let the time pass after which ends are requested again."""
        with Producer(bootstrap_servers=self.kafka.bootstrap_servers) as producer:
            for _ in range(count):
                producer.send(partition.topic, b"v", partition=partition.partition)
        self.now_ms += 50

    def delete(self, partition: TopicPartition, before: int) -> None:
        with self.kafka.control() as cluster:
            cluster.partition(partition).log.delete_records(before)

    def recreate(self) -> None:
        """Delete the topic, and make one of the same name."""
        with self.kafka.control() as cluster:
            cluster.delete_topic(TOPIC)
            cluster.create_topic(TOPIC, 2)
        self.now_ms += 50

    def close(self) -> None:
        for planner in self._open:
            planner.close()


@pytest.fixture
def world(fake_kafka: FakeKafka) -> Iterator[World]:
    """Provide a topic of two partitions with five records in the first."""
    world = World(fake_kafka)
    world.send(5)
    yield world
    world.close()


def test_a_query_begins_where_its_options_say(world: World) -> None:
    world.delete(A0, 2)
    assert world.planner(startingOffsets="earliest").initial_offset().ends == {A0: 2, A1: 0}
    assert world.planner().initial_offset().ends == {A0: 5, A1: 0}
    given = f'{{"{TOPIC}":{{"0":3,"1":-1}}}}'
    assert world.planner(startingOffsets=given).initial_offset().ends == {A0: 3, A1: 0}


def test_a_query_may_begin_where_a_group_has_committed(world: World) -> None:
    servers = world.kafka.bootstrap_servers
    with Consumer(bootstrap_servers=servers, group_id="apps", enable_auto_commit=False) as app:
        app.assign([A0])
        app.commit({A0: 4})
    assert world.planner(startingOffsets="group:apps").initial_offset().ends == {A0: 4, A1: 0}


def test_a_topic_that_does_not_exist_is_named_at_the_start(world: World) -> None:
    planner = world.planner(subscribe="nowhere")
    with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere', which the options name"):
        planner.next_offset(planner.initial_offset(), is_limited=False)


def test_the_initial_offset_is_found_once(world: World) -> None:
    planner = world.planner()
    first = planner.initial_offset()
    world.send(3)
    assert planner.initial_offset() == first


def test_the_first_batch_has_the_start_of_the_query(world: World) -> None:
    planner = world.planner()
    first = planner.initial_offset()
    world.send(3)
    end = planner.next_offset(first, is_limited=False)
    assert end == StreamOffset({A0: 8, A1: 0}, {A0: 5, A1: 0})
    assert planner.ranges(first, end) == [OffsetRange(A0, 5, 8)]
    world.send(1)
    assert planner.next_offset(end, is_limited=False) == StreamOffset({A0: 9, A1: 0})


def test_a_first_batch_that_was_cut_off_loses_nothing(world: World) -> None:
    planner = world.planner()
    logged = planner.next_offset(planner.initial_offset(), is_limited=False)
    assert logged == StreamOffset({A0: 5, A1: 0}, {A0: 5, A1: 0})
    world.send(3)
    # The initial offset that the new process finds is a later one.
    planner = world.planner()
    later = planner.initial_offset()
    assert later.ends == {A0: 8, A1: 0}
    assert planner.ranges(later, logged) == []
    end = planner.next_offset(logged, is_limited=False)
    assert planner.ranges(logged, end) == [OffsetRange(A0, 5, 8)]


def test_the_last_end_of_the_log_is_no_batch(world: World) -> None:
    """Spark shows it to a new process, as a batch from itself to itself."""
    planner = world.planner(startingOffsets="earliest")
    logged = planner.next_offset(planner.initial_offset(), is_limited=False)
    assert logged.starts
    world.recreate()
    assert world.planner().ranges(logged, logged) == []


def test_a_query_that_begins_at_earliest_reads_at_once(world: World) -> None:
    planner = world.planner(startingOffsets="earliest")
    first = planner.initial_offset()
    assert planner.next_offset(first, is_limited=False).ends == {A0: 5, A1: 0}


def test_ends_are_requested_no_more_often_than_is_set(world: World) -> None:
    planner = world.planner(startingOffsets="earliest", offsetPollIntervalMs=500)
    first = planner.initial_offset()
    known = planner.next_offset(first, is_limited=False)
    world.now_ms += 150
    world.send(1)
    assert planner.next_offset(known, is_limited=False) == known
    assert planner.known_ends() == known.ends
    assert planner.next_offset(known, is_limited=False).ends == {A0: 6, A1: 0}
    assert planner.known_ends() == {A0: 6, A1: 0}


def test_an_idle_query_waits_until_ends_may_be_requested_again(world: World) -> None:
    planner = world.planner(startingOffsets="earliest", offsetPollIntervalMs=80)
    known = planner.next_offset(planner.initial_offset(), is_limited=False)
    assert world.slept_ms == []
    world.now_ms += 90
    assert planner.next_offset(known, is_limited=False) == known
    assert world.slept_ms == [80]
    # The call that finds something new does not wait.
    world.send(1)
    assert planner.next_offset(known, is_limited=False).ends == {A0: 6, A1: 0}
    assert world.slept_ms == [80]


def test_a_call_finds_what_was_sent_before_it(world: World) -> None:
    """The `processAllAvailable` of a query therefore misses nothing."""
    planner = world.planner(startingOffsets="earliest", offsetPollIntervalMs=80)
    known = planner.next_offset(planner.initial_offset(), is_limited=False)
    world.send(1)
    assert planner.next_offset(known, is_limited=False).ends == {A0: 6, A1: 0}
    assert world.slept_ms == [30]


def test_a_query_with_an_end_is_not_kept_waiting(world: World) -> None:
    planner = world.planner(startingOffsets="earliest", offsetPollIntervalMs=80)
    planner.stop_at_present_ends()
    known = planner.next_offset(planner.initial_offset(), is_limited=False)
    assert planner.next_offset(known, is_limited=False) == known
    assert world.slept_ms == []


def test_new_partitions_are_found_when_metadata_are_old_and_read_from_their_beginning(
    world: World,
) -> None:
    planner = world.planner(startingOffsets="earliest", kafka_metadata_max_age_ms=1_000)
    first = planner.initial_offset()
    known = planner.next_offset(first, is_limited=True)
    with world.kafka.control() as cluster:
        cluster.add_partitions(TOPIC, 3)
    new = TopicPartition(TOPIC, 2)
    world.send(4, new)
    assert planner.next_offset(known, is_limited=True) == known
    world.now_ms += 1_000
    ends = planner.next_offset(known, is_limited=True)
    assert planner.ranges(known, ends) == [OffsetRange(new, 0, 4)]


def test_a_new_topic_of_the_pattern_is_read_from_its_beginning(world: World) -> None:
    planner = world.planner(subscribePattern="^fl", kafka_metadata_max_age_ms=1_000)
    first = planner.initial_offset()
    first = planner.next_offset(first, is_limited=True)
    assert first.ends == {A0: 5, A1: 0}
    new, other = TopicPartition("flocks", 0), TopicPartition("trains", 0)
    with world.kafka.control() as cluster:
        for partition in (new, other):
            cluster.create_topic(partition.topic, 1)
    for partition in (new, other):
        world.send(2, partition)
    assert planner.next_offset(first, is_limited=True) == first
    world.now_ms += 1_000
    ends = planner.next_offset(first, is_limited=True)
    assert planner.ranges(first, ends) == [OffsetRange(new, 0, 2)]


def test_a_limit_counts_a_new_partition_from_its_beginning(world: World) -> None:
    planner = world.planner(startingOffsets="earliest", maxOffsetsPerTrigger=2)
    first = planner.initial_offset()
    assert planner.next_offset(first, is_limited=True).ends == {A0: 2, A1: 0}
    assert planner.next_offset(StreamOffset({A1: 0}), is_limited=True).ends == {A0: 2, A1: 0}
    # Trigger.Once takes everything.
    assert planner.next_offset(first, is_limited=False).ends == {A0: 5, A1: 0}


def test_a_limit_of_bytes_is_estimated_from_the_first_records_of_each_partition(
    world: World,
) -> None:
    with Producer(bootstrap_servers=world.kafka.bootstrap_servers) as producer:
        for size in (1_000,) * 300:
            producer.send(TOPIC, bytes(size), b"k" * 24, partition=1)
    world.now_ms += 50
    planner = world.planner(startingOffsets="earliest", maxBytesPerTrigger="100k")
    start = planner.initial_offset()
    assert start.ends == {A0: 0, A1: 0}
    # 5 records of a byte, and 300 of a kibibyte.
    first = planner.next_offset(start, is_limited=True)
    assert first.ends == {A0: 1, A1: 99}
    assert planner.next_offset(first, is_limited=True).ends == {A0: 2, A1: 198}
    # A repeated batch ends where the log says, and reads no record to find out.
    later = world.planner(startingOffsets="earliest", maxBytesPerTrigger="1k")
    assert later.ranges(start, first) == [OffsetRange(A0, 0, 1), OffsetRange(A1, 0, 99)]
    # Trigger.Once takes everything.
    assert planner.next_offset(start, is_limited=False).ends == {A0: 5, A1: 300}


def test_a_query_limited_by_bytes_takes_what_is_available_and_ends(world: World) -> None:
    planner = world.planner(startingOffsets="earliest", maxBytesPerTrigger="2")
    planner.stop_at_present_ends()
    position = planner.initial_offset()
    seen = []
    while (ends := planner.next_offset(position, is_limited=True)) != position:
        seen.append(ends.ends[A0])
        position = ends
    assert seen == [2, 4, 5]


def test_a_limit_by_topic_holds_for_each_topic(world: World) -> None:
    with world.kafka.control() as cluster:
        cluster.create_topic("trains", 1)
    other = TopicPartition("trains", 0)
    world.send(5, other)
    limits = f'{{"{TOPIC}":2,"*":4}}'
    planner = world.planner(
        subscribe=f"{TOPIC},trains", startingOffsets="earliest", maxOffsetsPerTrigger=limits
    )
    first = planner.next_offset(planner.initial_offset(), is_limited=True)
    assert first.ends == {A0: 2, A1: 0, other: 4}


def test_a_query_that_takes_what_is_available_ends_there(world: World) -> None:
    planner = world.planner(startingOffsets="earliest", maxOffsetsPerTrigger=3)
    planner.stop_at_present_ends()
    position = planner.initial_offset()
    seen = []
    while (ends := planner.next_offset(position, is_limited=True)) != position:
        seen.append(ends.ends[A0])
        position = ends
        world.send(9)
    assert seen == [3, 5]


def test_a_query_that_takes_what_is_available_does_not_pass_over_a_lost_end(world: World) -> None:
    planner = world.planner()
    planner.stop_at_present_ends()
    with pytest.raises(DataLossError, match="was read up to offset 9, and ends at 5 now"):
        planner.next_offset(StreamOffset({A0: 9, A1: 0}), is_limited=True)


@pytest.mark.parametrize("retry_count", [1, 4])
def test_an_end_that_went_back_is_requested_again_so_often(world: World, retry_count: int) -> None:
    options = {"fetchOffset.numRetries": retry_count, "fetchOffset.retryIntervalMs": 70}
    planner = world.planner(failOnDataLoss="false", **options)
    end = planner.next_offset(StreamOffset({A0: 8, A1: 0}), is_limited=False)
    assert end == StreamOffset({A0: 5, A1: 0}, {A0: 5})
    assert world.slept_ms == pytest.approx([70] * retry_count)


def test_an_end_that_catches_up_is_requested_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def catch_up(seconds: float) -> None:
        world.slept_ms.append(seconds * 1_000)
        world.send(2)

    monkeypatch.setattr(world, "sleep", catch_up)
    planner = world.planner(startingOffsets="earliest", fetchOffset_numRetries=4)
    end = planner.next_offset(StreamOffset({A0: 8, A1: 0}), is_limited=False)
    assert end == StreamOffset({A0: 9, A1: 0})
    assert world.slept_ms == [1, 1]


@pytest.mark.parametrize(
    ("starts", "ends", "complaint", "left"),
    [
        ({A0: 3, A1: 0}, {A0: 5}, "flights-1: gone", [OffsetRange(A0, 3, 5)]),
        ({A0: 9, A1: 0}, {A0: 5, A1: 0}, "was read up to offset 9, and ends at 5 now", []),
        ({A1: 0}, {A0: 5, A1: 0}, "is new and begins at offset 2, not 0", [OffsetRange(A0, 2, 5)]),
    ],
)
def test_a_loss_in_a_batch_that_another_source_has_logged_fails_the_query_or_is_a_warning(
    world: World,
    caplog: pytest.LogCaptureFixture,
    *,
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    complaint: str,
    left: list[OffsetRange],
) -> None:
    world.delete(A0, 2)
    start, end = StreamOffset(starts), StreamOffset(ends)
    with pytest.raises(DataLossError, match=complaint):
        world.planner().ranges(start, end)
    with caplog.at_level(logging.WARNING, logger="spark_connector"):
        assert world.planner(failOnDataLoss="false").ranges(start, end) == left
    assert complaint in caplog.text


def test_a_topic_that_was_deleted_is_a_loss_that_is_not_logged(world: World) -> None:
    planner = world.planner(startingOffsets="earliest", kafka_default_api_timeout_ms=2_000)
    start = planner.next_offset(planner.initial_offset(), is_limited=False)
    with world.kafka.control() as cluster:
        cluster.delete_topic(TOPIC)
    world.now_ms += 50
    with pytest.raises(DataLossError, match="flights-0, flights-1: gone"):
        planner.next_offset(start, is_limited=False)


def test_a_topic_that_was_recreated_fails_the_query(world: World) -> None:
    planner = world.planner(startingOffsets="earliest")
    starts = planner.next_offset(planner.initial_offset(), is_limited=False)
    world.recreate()
    with pytest.raises(DataLossError, match="'flights' was deleted and recreated"):
        planner.next_offset(starts, is_limited=False)


def test_another_process_sees_that_a_topic_was_recreated(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The new topic has as many records, and more."""
    planner = world.planner(startingOffsets="earliest")
    start = planner.initial_offset()
    logged = StreamOffset.from_json(planner.next_offset(start, is_limited=False).as_json())
    world.recreate()
    world.send(7)
    another = world.planner(startingOffsets="earliest")
    with pytest.raises(DataLossError, match="'flights' was deleted and recreated"):
        another.next_offset(logged, is_limited=False)
    # A batch that is repeated would have records of the new topic.
    another = world.planner(startingOffsets="earliest")
    with pytest.raises(DataLossError, match="'flights' was deleted and recreated"):
        another.ranges(another.initial_offset(), logged)
    another = world.planner(startingOffsets="earliest", failOnDataLoss="false")
    start = another.initial_offset()
    assert [another.ranges(start, logged) for _ in range(2)] == [[], []]
    end = another.next_offset(logged, is_limited=False)
    assert another.ranges(logged, end) == [OffsetRange(A0, 0, 7)]
    assert caplog.text.count("'flights' was deleted and recreated") == 1
    assert another.next_offset(end, is_limited=False) == end


def test_a_log_without_ids_is_taken_as_it_is(world: World) -> None:
    """It comes from an earlier version, from Spark's own source, or from a moved checkpoint."""
    world.recreate()
    world.send(7)
    planner = world.planner()
    end = planner.next_offset(StreamOffset({A0: 5, A1: 0}), is_limited=False)
    assert planner.ranges(StreamOffset({A0: 5, A1: 0}), end) == [OffsetRange(A0, 5, 7)]
    assert end.topic_ids.keys() == {TOPIC}


def test_an_idle_query_logs_no_ids_for_their_own_sake(world: World) -> None:
    start = StreamOffset({A0: 5, A1: 0})
    assert world.planner().next_offset(start, is_limited=False) is start


def test_a_topic_that_was_recreated_is_read_from_its_beginning_if_that_is_allowed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    planner = world.planner(startingOffsets="earliest", failOnDataLoss="false")
    starts = planner.next_offset(planner.initial_offset(), is_limited=False)
    world.recreate()
    world.send(2)
    ends = planner.next_offset(starts, is_limited=False)
    assert ends == StreamOffset({A0: 2, A1: 0}, {A0: 0})
    # A stream may be scanned twice in one plan, and planned again by another process.
    for process in (planner, planner, world.planner(failOnDataLoss="false")):
        assert process.ranges(starts, ends) == [OffsetRange(A0, 0, 2)]
    assert "'flights' was deleted and recreated" in caplog.text
    world.send(1)
    after = planner.next_offset(ends, is_limited=False)
    assert planner.ranges(ends, after) == [OffsetRange(A0, 2, 3)]


def committed(world: World, group: str) -> dict[TopicPartition, int]:
    with Admin(bootstrap_servers=world.kafka.bootstrap_servers) as admin:
        return {
            partition: found.offset for partition, found in admin.list_group_offsets(group).items()
        }


def test_what_a_query_has_finished_with_is_committed_for_those_who_watch_its_lag(
    world: World,
) -> None:
    planner = world.planner(startingOffsets="earliest", commitGroup="watch")
    first = planner.initial_offset()
    ends = planner.next_offset(first, is_limited=False)
    assert committed(world, "watch") == {}
    world.send(2)
    end = planner.next_offset(ends, is_limited=False)
    assert end.ends == {A0: 7, A1: 0}
    assert committed(world, "watch") == {A0: 5, A1: 0}
    # The last batch of an idle query is followed by no batch that would show it.
    world.now_ms += 50
    assert planner.next_offset(end, is_limited=False) == end
    assert committed(world, "watch") == {A0: 7, A1: 0}


def test_progress_that_cannot_be_committed_does_not_stop_the_query(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    planner = world.planner(startingOffsets="earliest", commitGroup="watch")
    planner.initial_offset()
    with world.kafka.control() as cluster:
        cluster.faults.add(fail_with(GroupAuthorizationFailedError), ApiKey.OFFSET_COMMIT)
    read = StreamOffset({A0: 5, A1: 0})
    assert planner.next_offset(read, is_limited=False) == read
    assert "Progress was not committed to group 'watch'" in caplog.text


def test_an_idle_query_commits_again_what_could_not_be_committed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    planner = world.planner(startingOffsets="earliest", commitGroup="watch")
    planner.initial_offset()
    read = StreamOffset({A0: 5, A1: 0})
    with world.kafka.control() as cluster:
        cluster.faults.add(fail_with(GroupAuthorizationFailedError), ApiKey.OFFSET_COMMIT)
    planner.next_offset(read, is_limited=False)
    planner.next_offset(read, is_limited=False)
    assert committed(world, "watch") == {}
    # After the pause, by a call that has nothing new.
    world.now_ms += COMMIT_RETRY_MS
    planner.next_offset(read, is_limited=False)
    assert committed(world, "watch") == read.ends
    assert caplog.text.count("Progress was not committed") == 1


# Losses that brokers only seem to have, and those of a new query.


def test_a_start_behind_the_end_fails_the_query_or_is_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    given = f'{{"{TOPIC}":{{"0":100,"1":-1}}}}'
    planner = world.planner(startingOffsets=given)
    with pytest.raises(DataLossError, match="begins at offset 100 of flights-0, which ends at 5"):
        planner.next_offset(planner.initial_offset(), is_limited=False)
    planner = world.planner(startingOffsets=given, failOnDataLoss="false")
    end = planner.next_offset(planner.initial_offset(), is_limited=False)
    assert end == StreamOffset({A0: 5, A1: 0}, {A0: 5, A1: 0})
    assert "startingOffsets is wrong" in caplog.text


def test_a_start_whose_records_are_aged_out_fails_the_query_before_it_is_logged(
    world: World,
) -> None:
    world.delete(A0, 3)
    given = f'{{"{TOPIC}":{{"0":1,"1":-2}}}}'
    planner = world.planner(startingOffsets=given)
    with pytest.raises(DataLossError, match=r"offset 1 of flights-0, whose first .* 3 now"):
        planner.next_offset(planner.initial_offset(), is_limited=False)
    planner = world.planner(startingOffsets=given, failOnDataLoss="false")
    end = planner.next_offset(planner.initial_offset(), is_limited=False)
    assert end.starts == {A0: 3, A1: 0}


def test_a_latest_end_that_goes_back_holds_up_no_new_query(world: World) -> None:
    """Another broker, which has not caught up, gives the ends of the first batch."""
    planner = world.planner()
    first = planner.initial_offset()
    with world.kafka.control() as cluster:
        cluster.partition(A0).log.truncate(4)
    assert planner.next_offset(first, is_limited=False) == first


def test_a_topic_that_is_not_listed_for_long_keeps_its_position(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    planner = world.planner(
        startingOffsets="earliest", failOnDataLoss="false", kafka_metadata_max_age_ms=1
    )
    end = planner.next_offset(planner.initial_offset(), is_limited=False)
    with world.kafka.control() as cluster:
        handle = cluster.faults.add(
            fail_with(UnknownTopicOrPartitionError), ApiKey.METADATA, times=None
        )
    for _ in range(3):
        world.now_ms += 50
        assert planner.next_offset(end, is_limited=False) == end
    assert caplog.text.count("flights-0, flights-1: gone") == 1
    # Brokers that have lost it are asked again once, and not for every batch.
    assert world.slept_ms.count(1) == 3
    handle.remove()
    world.send(2)
    assert planner.next_offset(end, is_limited=False) == StreamOffset({A0: 7, A1: 0})


@pytest.mark.parametrize("is_given", [False, True])
def test_a_topic_that_is_made_soon_is_waited_for(world: World, *, is_given: bool) -> None:
    options = {"fetchOffset_numRetries": 3} if is_given else {}
    planner = world.planner(subscribe="trains", **options)
    missing = fail_with(UnknownTopicOrPartitionError)
    with world.kafka.control() as cluster:
        cluster.create_topic("trains", 1)
        cluster.faults.add(missing, ApiKey.METADATA, times=3 if is_given else 1)
    first = planner.initial_offset()
    assert planner.next_offset(first, is_limited=False) == first
    assert len(first.ends) == 1


def test_failed_requests_are_repeated_as_often_as_is_set(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    planner = world.planner(startingOffsets="earliest", fetchOffset_numRetries=2)
    refused = fail_with(TopicAuthorizationFailedError)
    with world.kafka.control() as cluster:
        cluster.faults.add(refused, ApiKey.LIST_OFFSETS, times=2)
    first = planner.initial_offset()
    assert first.ends == {A0: 0, A1: 0}
    assert "repetition 1 of 2 follows" in caplog.text
    with world.kafka.control() as cluster:
        cluster.faults.add(
            fail_with(TopicAuthorizationFailedError), ApiKey.LIST_OFFSETS, times=None
        )
    with pytest.raises(TopicAuthorizationFailedError):
        planner.next_offset(first, is_limited=False)


def test_a_first_batch_that_sparks_own_source_has_left_is_refused_where_its_start_is_unknown(
    world: World,
) -> None:
    end = StreamOffset({A0: 5, A1: 0})
    planner = world.planner()
    with pytest.raises(DataLossError, match="let it finish with format"):
        planner.ranges(planner.initial_offset(), end)
    planner = world.planner(startingOffsets="earliest")
    assert planner.ranges(planner.initial_offset(), end) == [OffsetRange(A0, 0, 5)]


@pytest.mark.parametrize("chosen", [{"subscribe": TOPIC}, {"subscribePattern": "^fl"}])
@pytest.mark.parametrize("error", [UnknownTopicOrPartitionError, TopicAuthorizationFailedError])
def test_one_response_without_a_topic_is_no_loss(
    world: World, error: type[BrokerError], chosen: dict[str, str]
) -> None:
    planner = world.planner(startingOffsets="earliest", kafka_metadata_max_age_ms=1, **chosen)
    end = planner.next_offset(planner.initial_offset(), is_limited=False)
    world.send(2)
    with world.kafka.control() as cluster:
        handle = cluster.faults.add(fail_with(error), ApiKey.METADATA)
    assert planner.next_offset(end, is_limited=False) == StreamOffset({A0: 7, A1: 0})
    assert handle.used_count == 1


def test_a_query_with_an_end_reads_a_recreated_topic_up_to_its_own_end(world: World) -> None:
    planner = world.planner(
        startingOffsets="earliest",
        failOnDataLoss="false",
        maxOffsetsPerTrigger=2,
        kafka_metadata_max_age_ms=1,
    )
    planner.stop_at_present_ends()
    end = planner.next_offset(planner.initial_offset(), is_limited=True)
    assert end.ends == {A0: 2, A1: 0}
    world.recreate()
    world.send(3)
    ends = [end]
    while (end := planner.next_offset(ends[-1], is_limited=True)) != ends[-1]:
        ends.append(end)
    assert ends[1:] == [StreamOffset({A0: 2, A1: 0}, {A0: 0}), StreamOffset({A0: 3, A1: 0})]
