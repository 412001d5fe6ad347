"""StreamPlanner: where the micro-batches of one stream begin and end.

It lives as long as the query, in a process of the driver, and keeps a `Cluster` open. Spark
requests the latest offset every ten milliseconds while nothing comes, and again to report it: ends
are requested from brokers at most every `offsetPollIntervalMs`, topics when metadata would be
refreshed, and a report repeats the last result. Where there is nothing new the call waits until
ends may be requested again, 100 ms at most, so that an idle query costs the driver no more than
brokers. A call that comes earlier waits first: `processAllAvailable` of a query returns when a call
that began after it finds nothing, so each call requests ends of its own. With an interval of more
than twice that wait a call may end before the interval does, on the ends that are known.

A query that begins at `latest` has an empty first batch. Spark requests the initial offset from a
new process again when the first batch was planned but not finished; the empty batch puts the first
one into Spark's own log before a record is read.

Owner: the driver's process of one stream; Spark calls it from one thread.
Source: Spark's Structured Streaming + Kafka Integration Guide (`failOnDataLoss`, triggers).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from pykclient.errors import KafkaError, UnknownTopicOrPartitionError
from spark_connector.admission import Admission
from spark_connector.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    report_data_loss,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pykclient import TopicPartition
    from spark_connector.cluster import ChosenTopics, Cluster
    from spark_connector.options import KafkaOptions

    Offsets = Mapping[TopicPartition, int]

_LOG = logging.getLogger(__name__)


PAUSE_MS_MAX: Final = 100
"""The longest that Spark is kept waiting where there is nothing new: it stops queries between two
calls."""

COMMIT_RETRY_MS: Final = 10_000
"""The pause after a commit to `commitGroup` that failed. A call may wait for each try."""


class StreamPlanner:
    """Plans the micro-batches of one stream. `now_ms` is a clock that never goes back, `sleep`
    takes seconds."""

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
        self._admission = Admission(options.stream)
        self._topics: ChosenTopics | None = None
        self._topics_ms = 0.0
        self._made_anew: set[str] = set()
        self._ends: Offsets = {}
        self._ends_ms = float("-inf")
        self._initial: Offsets | None = None
        self._begins_at_latest = False
        self._has_end = False
        self._target: Offsets | None = None
        """The ends of a query that has one, from its first batch on."""
        self._committed: Offsets | None = None
        self._commit_due_ms = float("-inf")

    # What Spark calls.

    def initial_offsets(self) -> Offsets:
        """Where a new query begins. It is found once: Spark requests it twice."""
        if self._initial is None:
            limit = self._options.starting
            partitions = self._refreshed_topics(missing_ok=False).partitions
            found = limit.offsets(partitions, self._cluster.offsets_at, self._cluster.committed)
            self._begins_at_latest = LATEST in found.values()
            edges = {
                EARLIEST: self._cluster.beginnings(_at(found, EARLIEST)),
                LATEST: self._cluster.ends(_at(found, LATEST)),
            }
            self._initial = {
                partition: edges[offset][partition] if offset in edges else offset
                for partition, offset in found.items()
            }
            self._committed = self._initial
        return self._initial

    def next_offsets(self, starts: Offsets, *, is_limited: bool) -> Offsets:
        """Where the batch that begins at `starts` ends; `starts` itself when there is nothing.

        All before `starts` is finished with, and committed to `commitGroup`.

        Raises: `DataLossError` when a topic was deleted and made again.
        """
        self._commit(starts)
        self._pause()
        self._learn(starts)
        if self._has_end and self._target is None:
            self._target = self._ends
        if self._begins_at_latest and starts == self._initial:
            self._begins_at_latest = False
            self._admission.let_through(self._now_ms())
            return starts
        ends = self._admitted(starts, is_limited=is_limited)
        if ends == starts:
            # Here, since the time that Spark reports for a batch with rows has no waiting in it.
            self._pause()
        return ends

    def known_ends(self) -> Offsets:
        """The ends that were learnt last."""
        return self._ends

    def stop_at_present_ends(self) -> None:
        """Read what is there at the first batch, and nothing that comes later
        (`Trigger.AvailableNow`)."""
        self._has_end = True

    def ranges(self, starts: Offsets, ends: Offsets) -> list[OffsetRange]:
        """What the batch from `starts` to `ends` has of each partition.

        Raises: `DataLossError` when partitions are gone, begin or end otherwise than planned, and
        `failOnDataLoss` is true.
        """
        self._check_gone(starts, ends)
        begins = {**self._beginnings_of_new(starts, ends), **starts}
        begins |= self._beginnings_of_anew(ends)
        for partition, begin in begins.items():
            if partition not in starts and begin > 0:
                self._report(
                    f"{partition} is new and begins at offset {begin}, not 0: what it had before "
                    f"is aged out."
                )
        return [
            OffsetRange(partition, begins[partition], end)
            for partition, end in ends.items()
            if self._is_forward(partition, begins[partition], end, starts)
        ]

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    # Topics and ends.

    def _admitted(self, starts: Offsets, *, is_limited: bool) -> Offsets:
        ends = self._ends_of_query()
        if not is_limited:
            return ends
        begins = {**self._beginnings_of_new(starts, ends), **starts}
        return self._admission.admit(
            {partition: begins[partition] for partition in ends},
            ends,
            self._now_ms(),
            may_wait=not self._has_end,
        )

    def _learn(self, starts: Offsets) -> None:
        """Request topics and ends, where it is time."""
        now = self._now_ms()
        if now - self._topics_ms >= self._topics_age_ms_max or self._topics is None:
            self._refreshed_topics(missing_ok=True)
        if now - self._ends_ms >= self._limits.offset_poll_interval_ms:
            self._refresh_ends()
            self._request_ends_behind_again(starts)

    def _pause(self) -> None:
        """Wait until ends may be requested again. A query whose end is fixed does not wait."""
        due_ms = self._ends_ms + self._limits.offset_poll_interval_ms - self._now_ms()
        if due_ms > 0 and not self._has_end:
            self._sleep(min(due_ms, PAUSE_MS_MAX) / 1_000)

    def _refreshed_topics(self, *, missing_ok: bool) -> ChosenTopics:
        before, found = self._topics, self._cluster.topics(missing_ok=missing_ok)
        if before is not None:
            for topic, topic_id in found.topic_ids.items():
                old_id = before.topic_ids.get(topic)
                if old_id is not None and topic_id is not None and topic_id != old_id:
                    self._report(f"Topic {topic!r} was deleted and made again: its id changed.")
                    self._made_anew.add(topic)
        self._topics, self._topics_ms = found, self._now_ms()
        return found

    def _refresh_ends(self) -> None:
        assert self._topics is not None
        try:
            self._ends = self._cluster.ends(self._topics.partitions)
        except UnknownTopicOrPartitionError:
            # A topic was deleted: the batch that misses it reports it.
            self._ends = self._cluster.ends(self._refreshed_topics(missing_ok=True).partitions)
        self._ends_ms = self._now_ms()

    def _request_ends_behind_again(self, starts: Offsets) -> None:
        """An end behind a start is a broker that has not caught up, or a topic made again."""
        for _ in range(self._limits.offset_retries):
            behind = [
                partition
                for partition, end in self._ends.items()
                if end < starts.get(partition, 0) and partition.topic not in self._made_anew
            ]
            if not behind:
                return
            self._refreshed_topics(missing_ok=True)
            self._sleep(self._limits.offset_retry_ms / 1_000)
            self._refresh_ends()

    def _ends_of_query(self) -> Offsets:
        if self._target is None:
            return self._ends
        return {
            partition: self._target[partition]
            for partition in self._ends
            if partition in self._target
        }

    def _beginnings_of_new(self, starts: Offsets, ends: Offsets) -> Offsets:
        new = [partition for partition in ends if partition not in starts]
        return self._cluster.beginnings(new) if new else {}

    def _beginnings_of_anew(self, ends: Offsets) -> dict[TopicPartition, int]:
        """Where topics that were made again begin: all that they hold is new."""
        anew = [partition for partition in ends if partition.topic in self._made_anew]
        self._made_anew.clear()
        return dict(self._cluster.beginnings(anew)) if anew else {}

    # What is gone.

    def _check_gone(self, starts: Offsets, ends: Offsets) -> None:
        gone = sorted(partition for partition in starts if partition not in ends)
        if gone:
            self._report(f"{', '.join(map(str, gone))}: gone, with what was not read of it.")

    def _is_forward(self, partition: TopicPartition, begin: int, end: int, starts: Offsets) -> bool:
        if begin > end and starts != self._initial:
            self._report(
                f"{partition} was read up to offset {begin}, and ends at {end} now: records are "
                f"gone, or the topic was made again."
            )
        return begin < end

    def _report(self, text: str) -> None:
        report_data_loss(text, fail_on_data_loss=self._options.fail_on_data_loss)

    # Progress.

    def _commit(self, starts: Offsets) -> None:
        """Commit what the query has finished with, for those who watch its lag."""
        group = self._limits.commit_group
        if not group or starts == self._committed or self._now_ms() < self._commit_due_ms:
            return
        try:
            self._cluster.commit(group, starts)
        except KafkaError as error:
            # The checkpoint holds the truth. An idle query commits again too: it shows no lag.
            self._commit_due_ms = self._now_ms() + COMMIT_RETRY_MS
            _LOG.warning("Progress was not committed to group %r: %s", group, error)
        else:
            self._committed = starts


def _at(offsets: Offsets, edge: int) -> Sequence[TopicPartition]:
    return [partition for partition, offset in offsets.items() if offset == edge]
