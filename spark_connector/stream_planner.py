"""StreamPlanner: where the micro-batches of one stream begin and end.

It lives as long as the query, in a process of the driver, and keeps a `Cluster` open. Spark
requests the latest offset every ten milliseconds while nothing comes, and again to report it: ends
are requested from brokers at most every `offsetPollIntervalMs`, topics when metadata would be
refreshed, and a report repeats the last result. Where there is nothing new the call waits until
ends may be requested again, 100 ms at most, so that an idle query costs the driver no more than
brokers. A call that comes earlier waits first: `processAllAvailable` of a query returns when a call
that began after it finds nothing, so each call requests ends of its own. With an interval of more
than twice that wait a call may end before the interval does, on the ends that are known.

Whatever Spark logs is checked before, and whatever is no pure function of options and log is logged
with it. `next_offset` makes all checks of partitions that are gone, ends that went back and topics
that were recreated, since Spark logs its result before it plans the batch; a failure there leaves a
log that can be used again. The end of a batch also has the starts that the end of the batch before
does not have, and the ids of topics, by which another process sees a topic that was recreated
meanwhile (`StreamOffset`). So `ranges` is a function of the log alone: Spark calls it once for
each scan of the stream, and again in a new process for a batch that was planned and not finished.
It requests topics only for a batch of another process, and looks up starts only where Spark's own
source has logged the batch.

A partition that is not listed keeps its position in the log where `failOnDataLoss` is false: one
response without a topic causes neither a loss nor a second reading.

Owner: the driver's process of one stream; Spark calls it from one thread.
Source: Spark's Structured Streaming + Kafka Integration Guide (`failOnDataLoss`, triggers).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from pykclient.errors import ConfigError, KafkaError, UnknownTopicOrPartitionError
from spark_connector.admission import Admission
from spark_connector.limits import named
from spark_connector.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    StreamOffset,
    report_data_loss,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pykclient import TopicPartition
    from spark_connector.cluster import ChosenTopics, Cluster
    from spark_connector.options import KafkaOptions

    Offsets = Mapping[TopicPartition, int]

_LOG = logging.getLogger(__name__)


PAUSE_MS_MAX: Final = 100
"""Maximum pause in which Spark waits when there is nothing new: it stops queries between calls."""

COMMIT_RETRY_MS: Final = 10_000
"""Pause after a failed commit to `commitGroup`; a call may wait for each attempt."""


class StreamPlanner:
    """The planner of one stream's micro-batches.

    `now_ms` is a clock that never goes back; `sleep` takes seconds.
    """

    def __init__(
        self,
        options: KafkaOptions,
        cluster: Cluster,
        now_ms: Callable[[], float] = lambda: time.monotonic() * 1_000,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._limits = options.stream
        self._topics_age_ms_max = options.metadata_age_ms_max
        self._cluster = cluster
        self._now_ms = now_ms
        self._sleep = sleep
        self._admission = Admission(options.stream, cluster.first_records)
        self._topics: ChosenTopics | None = None
        self._topics_ms = 0.0
        self._topic_ids: dict[str, bytes] = {}
        """The ids of topics when they were last listed."""
        self._recreated: set[str] = set()
        """Topics whose recreation is not in the log yet."""
        self._unlisted: set[TopicPartition] = set()
        """Partitions that are reported as gone and keep their position."""
        self._ends: Offsets = {}
        self._ends_ms = float("-inf")
        self._initial: StreamOffset | None = None
        self._initial_edges: Mapping[TopicPartition, int] = {}
        """The edge of each partition that begins at one."""
        self._initial_error: KafkaError | None = None
        """The reason why a query cannot begin; one that has begun continues."""
        self._planned: StreamOffset | None = None
        """The end that this process planned last."""
        self._has_end = False
        self._target: dict[TopicPartition, int] | None = None
        """The ends of a query that has one, from its first batch on."""
        self._committed: Offsets | None = None
        self._commit_due_ms = float("-inf")

    # What Spark calls.

    def initial_offset(self) -> StreamOffset:
        """Return the start of a new query. It is determined once, although Spark requests it twice.

        Spark also requests it for a query whose first batch was planned and not finished, and which
        begins as its log says. Errors are therefore raised by `next_offset`.
        """
        if self._initial is None:
            try:
                self._initial = StreamOffset.initial(self._initial_offsets())
            except (ConfigError, UnknownTopicOrPartitionError) as error:
                self._initial, self._initial_error = StreamOffset({}), error
            self._committed = self._initial.ends
        return self._initial

    def next_offset(self, start: StreamOffset, *, is_limited: bool) -> StreamOffset:
        """Return the end of the batch that begins at `start`; `start` if nothing is new.

        Everything before `start` is finished, and is committed to `commitGroup`.

        Raises: `DataLossError` if partitions are gone, were recreated, or have other bounds than
        the query read, and `failOnDataLoss` is true; `ConfigError` and
        `UnknownTopicOrPartitionError` if the options name something that does not exist.
        """
        is_new = start == self._initial
        if is_new and self._initial_error is not None:
            raise self._initial_error
        if self._planned is not None and start == self._planned:
            self._recreated.clear()
        self._commit(start.ends)
        self._pause()
        if self._planned is None:
            self._compare_ids(start)
        self._learn(start.ends)
        if self._has_end and self._target is None:
            self._target = dict(self._ends)
        ends: Offsets = self._ends_of_query(start.ends)
        begins = self._checked_begins(start.ends, ends, is_new=is_new)
        ends = {partition: max(begins[partition], last) for partition, last in ends.items()}
        if is_limited:
            listed = {partition: begins[partition] for partition in ends}
            ends = self._admission.admit(listed, ends, self._now_ms(), may_wait=not self._has_end)
        # A partition that is not listed keeps its position.
        ends = {partition: ends.get(partition, begin) for partition, begin in begins.items()}
        starts = {
            partition: begin
            for partition, begin in begins.items()
            if start.ends.get(partition) != begin
        }
        is_same = not starts and ends == start.ends
        if is_same and self._planned is not None:
            # Here, since the time that Spark reports for a batch with rows has no waiting.
            self._pause()
        ids = self._ids_of(ends)
        # Spark logs the first batch even if it has no rows.
        if is_same and (start.topic_ids or not (start.is_initial and ids)):
            end = start
        else:
            end = StreamOffset(ends, begins if start.is_initial else starts, ids)
        self._planned = end
        return end

    def known_ends(self) -> Offsets:
        """Return the ends that were requested last."""
        return self._ends

    def stop_at_present_ends(self) -> None:
        """Read only what is there at the first batch (`Trigger.AvailableNow`)."""
        self._has_end = True

    def ranges(self, start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
        """Return the range of each partition in the batch from `start` to `end`.

        Raises: `DataLossError` if partitions of a batch planned by another process are gone, or if
        its log has a loss, and `failOnDataLoss` is true.
        """
        if start == end:
            # Spark shows a new process the last end of its log, whose batch may be finished.
            return []
        begins = {**start.ends, **end.starts}
        if not end.starts:
            begins |= self._begins_of_foreign(start, end)
        found = [
            OffsetRange(partition, begins[partition], last)
            for partition, last in end.ends.items()
            if partition in begins and begins[partition] < last
        ]
        if not found or end == self._planned:
            return found
        self._compare_ids(end)
        self._learn(end.ends)
        return [*self._held(found)]

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    # Where a query begins.

    def _initial_offsets(self) -> Offsets:
        limit = self._options.starting
        partitions = self._refreshed_topics({}).partitions
        found = limit.offsets(partitions, self._cluster.offsets_at, self._cluster.committed)
        self._initial_edges = {
            partition: offset for partition, offset in found.items() if offset in (EARLIEST, LATEST)
        }
        edges = {
            EARLIEST: self._cluster.beginnings(_at(found, EARLIEST)),
            LATEST: self._cluster.ends(_at(found, LATEST)),
        }
        return {
            partition: edges[offset][partition] if offset in edges else offset
            for partition, offset in found.items()
        }

    # Topics and ends.

    def _learn(self, starts: Offsets) -> None:
        """Request topics and ends if they are due."""
        now = self._now_ms()
        is_old = self._topics is None or now - self._topics_ms >= self._topics_age_ms_max
        is_changed = is_old or bool(self._newly_unlisted(starts))
        if is_changed:
            self._refreshed_topics(starts)
        # The known ends are not those of a topic that was recreated.
        if is_changed or now - self._ends_ms >= self._limits.offset_poll_interval_ms:
            self._refresh_ends(starts)
            self._request_ends_behind_again(starts)

    def _pause(self) -> None:
        """Wait until ends may be requested again, unless the query's end is fixed."""
        due_ms = self._ends_ms + self._limits.offset_poll_interval_ms - self._now_ms()
        if due_ms > 0 and not self._has_end:
            self._sleep(min(due_ms, PAUSE_MS_MAX) / 1_000)

    def _refreshed_topics(self, starts: Offsets) -> ChosenTopics:
        """Request the topics; repeat it while a topic that was read or named is missing.

        A query that has read nothing and has no ``fetchOffset.numRetries`` requests them only
        twice: it has nothing to lose.
        """
        retries = self._cluster.retries
        count = retries.count if starts or retries.is_given else min(retries.count, 1)
        found = self._chosen_topics()
        for _ in range(count):
            if not self._newly_unlisted(starts) and not self._never_listed(found, starts):
                break
            retries.pause()
            found = self._chosen_topics()
        if missing := self._never_listed(found, starts):
            found = self._found_at_last(found, missing)
        if lost := self._newly_unlisted(starts):
            self._report(
                f"{named(lost)}: gone, with what was not read of it. It was deleted, the options "
                f"no longer choose it, or Describe on its topic is missing. The checkpoint keeps "
                f"its position."
            )
            self._unlisted.update(lost)
        return found

    def _chosen_topics(self) -> ChosenTopics:
        found = self._cluster.topics(missing_ok=True)
        for topic, topic_id in found.topic_ids.items():
            if topic_id is None:
                continue
            if self._topic_ids.get(topic, topic_id) != topic_id:
                self._report_recreated(topic)
            self._topic_ids[topic] = topic_id
        self._topics, self._topics_ms = found, self._now_ms()
        self._unlisted.difference_update(found.partitions)
        return found

    def _compare_ids(self, logged: StreamOffset) -> None:
        """Find topics that were recreated since another process has logged their ids."""
        for topic, logged_id in logged.topic_ids.items():
            known = self._topic_ids.setdefault(topic, logged_id)
            if known != logged_id and topic not in self._recreated:
                self._report_recreated(topic)

    def _ids_of(self, ends: Offsets) -> dict[str, bytes]:
        topics = {partition.topic for partition in ends}
        return {topic: one for topic, one in self._topic_ids.items() if topic in topics}

    def _report_recreated(self, topic: str) -> None:
        self._report(
            f"Topic {topic!r} was deleted and recreated, or is one of another cluster: its id "
            f"changed. If it is a copy with the same offsets, `pykclient spark checkpoint rewind` "
            f"to the last batch has the query go on where it is."
        )
        self._recreated.add(topic)

    def _newly_unlisted(self, starts: Offsets) -> list[TopicPartition]:
        assert self._topics is not None
        return sorted(starts.keys() - set(self._topics.partitions) - self._unlisted)

    def _never_listed(self, found: ChosenTopics, starts: Offsets) -> list[str | TopicPartition]:
        """Return the partitions that the options name and the query has not read."""
        known = {*starts, *(partition.topic for partition in starts)}
        return [one for one in found.missing if one not in known]

    def _found_at_last(
        self, found: ChosenTopics, missing: Sequence[str | TopicPartition]
    ) -> ChosenTopics:
        """Raise errors in the options, unless everything that they name exists now."""
        topics = {one if isinstance(one, str) else one.topic for one in missing}
        if unknown := sorted(topics - found.topic_ids.keys()):
            raise UnknownTopicOrPartitionError(
                f"Brokers do not list {', '.join(map(repr, unknown))}, which the options name: "
                f"the name is wrong, the topic does not exist, or Describe on it is missing. The "
                f"query can start again from its checkpoint when this is mended."
            )
        return self._cluster.topics()

    def _refresh_ends(self, starts: Offsets) -> None:
        assert self._topics is not None
        try:
            self._ends = self._cluster.ends(self._topics.partitions)
        except UnknownTopicOrPartitionError:
            self._ends = self._cluster.ends(self._refreshed_topics(starts).partitions)
        self._ends_ms = self._now_ms()

    def _request_ends_behind_again(self, starts: Offsets) -> None:
        """Request ends again while one is before a start: a broker may lag behind."""
        retries = self._cluster.retries
        for _ in range(retries.count):
            behind = [
                partition
                for partition, end in self._ends.items()
                if end < starts.get(partition, 0) and partition.topic not in self._recreated
            ]
            if not behind:
                return
            self._refreshed_topics(starts)
            retries.pause()
            self._refresh_ends(starts)

    def _ends_of_query(self, starts: Offsets) -> dict[TopicPartition, int]:
        if self._target is None:
            return dict(self._ends)
        found = {}
        for partition, end in self._ends.items():
            if partition.topic in self._recreated:
                self._target[partition] = end
            # One that was not listed when the query began stays where it was.
            last = self._target.get(partition, starts.get(partition))
            if last is not None:
                found[partition] = min(last, end)
        return found

    # Where the next batch begins.

    def _checked_begins(
        self, starts: Offsets, ends: Mapping[TopicPartition, int], *, is_new: bool
    ) -> dict[TopicPartition, int]:
        """Return the beginning of the batch in each partition of `starts` and `ends`."""
        begins = dict(starts)
        recreated = [one for one in ends if one.topic in self._recreated and one in starts]
        added = [one for one in ends if one not in starts]
        # One that ends where the query begins has nothing to lose: an idle query does not ask.
        unread = [one for one, end in ends.items() if is_new and end > starts.get(one, end)]
        looked_up = list(dict.fromkeys([*recreated, *added, *unread]))
        beginnings = self._cluster.beginnings(looked_up) if looked_up else {}
        for partition in added:
            begins[partition] = beginnings[partition]
            self._report_beginning_of_new(partition, begins[partition])
        for partition in recreated:
            begins[partition] = beginnings[partition]
        if is_new:
            self._check_aged_out(begins, beginnings)
        for partition, end in ends.items():
            if end < begins[partition]:
                self._check_went_back(begins, partition, end, is_new=is_new)
        return begins

    def _check_aged_out(self, begins: dict[TopicPartition, int], beginnings: Offsets) -> None:
        for partition, beginning in beginnings.items():
            if (begin := begins[partition]) < beginning:
                if self._initial_edges.get(partition) != EARLIEST:
                    self._report(
                        f"The query begins at offset {begin} of {partition}, whose first record is "
                        f"at {beginning} now: what was before is aged out."
                    )
                begins[partition] = beginning

    def _check_went_back(
        self,
        begins: dict[TopicPartition, int],
        partition: TopicPartition,
        end: int,
        *,
        is_new: bool,
    ) -> None:
        begin = begins[partition]
        if not is_new:
            self._report_end_before(partition, begin, end)
        elif partition not in self._initial_edges:
            self._report(
                f"The query begins at offset {begin} of {partition}, which ends at {end}: "
                f"{self._options.starting.option} is wrong, records are gone, or the topic was "
                f"recreated."
            )
        else:
            return  # A broker that has not caught up: the query waits for it.
        begins[partition] = end

    # Batches of the log that this process has not planned.

    def _held(self, ranges: Sequence[OffsetRange]) -> Iterator[OffsetRange]:
        """Yield the parts of `ranges` that still exist; a task would wait for the rest."""
        for one in ranges:
            if one.partition.topic in self._recreated:
                continue  # its records are those of another topic
            end = self._ends.get(one.partition)
            if end is not None and end < one.end:
                self._report(
                    f"{one} was planned, and {one.partition} ends at {end} now: records are gone, "
                    f"or the topic was recreated."
                )
                one = one._replace(end=max(one.start, end))
            if end is not None and one.size:
                yield one

    def _begins_of_foreign(self, start: StreamOffset, end: StreamOffset) -> Offsets:
        """Return the starts that a batch's log lacks, and report losses."""
        is_first = start == self._initial and bool(end.ends)
        if is_first and self._initial_error is not None:
            raise self._initial_error
        if is_first and not self._options.starting.is_fixed:
            self._report(
                "The first batch of the checkpoint was planned by Spark's own source and not "
                "finished, and the log does not have where it begins: let it finish with "
                "format('kafka')."
            )
            return end.ends
        gone = sorted(one for one in start.ends if one not in end.ends)
        if gone and not is_first:
            self._report(f"{named(gone)}: gone, with what was not read of it.")
        new = [partition for partition in end.ends if partition not in start.ends]
        begins = self._cluster.beginnings(new) if new else {}
        for partition, begin in begins.items():
            self._report_beginning_of_new(partition, begin)
        for partition, begin in start.ends.items():
            if begin > end.ends.get(partition, begin):
                self._report_end_before(partition, begin, end.ends[partition])
        return begins

    def _report_beginning_of_new(self, partition: TopicPartition, begin: int) -> None:
        if begin > 0:
            self._report(
                f"{partition} is new and begins at offset {begin}, not 0: what it had before is "
                f"aged out."
            )

    def _report_end_before(self, partition: TopicPartition, begin: int, end: int) -> None:
        self._report(
            f"{partition} was read up to offset {begin}, and ends at {end} now: records are gone, "
            f"or the topic was recreated."
        )

    def _report(self, text: str) -> None:
        report_data_loss(text, fail_on_data_loss=self._options.fail_on_data_loss)

    # Progress.

    def _commit(self, starts: Offsets) -> None:
        """Commit the finished offsets, for tools that monitor the query's lag."""
        group = self._limits.commit_group
        if not group or starts == self._committed or self._now_ms() < self._commit_due_ms:
            return
        listed = {one: offset for one, offset in starts.items() if one not in self._unlisted}
        try:
            self._cluster.commit(group, listed)
        except KafkaError as error:
            # The checkpoint holds the truth. An idle query commits again too: it shows no lag.
            self._commit_due_ms = self._now_ms() + COMMIT_RETRY_MS
            _LOG.warning("Progress was not committed to group %r: %s", group, error)
        else:
            self._committed = starts


def _at(offsets: Offsets, edge: int) -> Sequence[TopicPartition]:
    return [partition for partition, offset in offsets.items() if offset == edge]
