"""BulkSending: the way of one row table into open batches, as far as it goes without waiting.

Block after block is divided by partition; then each partition's rows get a batch in turn, so that
all brokers have work early and the order within a partition stays that of the input. Rows without
a key and a partition are divided too, by the turns of the sticky partition, where others have to be
somewhere: in one partition with them, they must not be overtaken. Where all may go anywhere, each
batch goes where it is the turn when it is appended.

Owner: the thread that sends.
Source: no Java class: Java's producer has no bulk sending.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pykclient.producer.accumulator.append import Blocked, Need

if TYPE_CHECKING:
    from pykclient.accel import RowRun
    from pykclient.errors import KafkaError
    from pykclient.producer.accumulator.accumulator import RecordAccumulator
    from pykclient.producer.accumulator.buffer_pool import MemoryWaiter
    from pykclient.producer.bulk.delivery import BulkOutcome
    from pykclient.producer.bulk.table import RowTable, TableBlock

__all__ = ["BlockedRows", "BulkSending"]


class BlockedRows(NamedTuple):
    """The next rows wait: for a topic, or the partition if one is named, or for memory."""

    topic: str
    partition: int | None
    need: Need
    size_bytes: int


class _Lane(NamedTuple):
    """Rows that go to one partition, or (None) wherever it is the topic's turn."""

    topic: str
    partition: int | None
    rows: RowRun


class BulkSending:
    """Appends a table's rows, and tells `outcome` where they went.

    With `hash_keys` False, keys do not decide about partitions.
    """

    def __init__(
        self,
        table: RowTable,
        accumulator: RecordAccumulator,
        outcome: BulkOutcome,
        *,
        hash_keys: bool,
    ) -> None:
        self._topics = table.topics
        self._blocks = deque(table.blocks)
        self._accumulator = accumulator
        self._outcome = outcome
        self._hash_keys = hash_keys
        self._lanes: deque[_Lane] = deque()

    def go_on(self, memory: MemoryWaiter | None = None) -> BlockedRows | None:
        """Append rows until none is left, or until something has to be waited for.

        `memory` is what was waited for.

        Raises:
            KafkaError: the producer was closed or has failed.
        """
        while True:
            if not self._lanes:
                if not self._blocks:
                    self._outcome.seal()
                    return None
                unknown = self._divide(self._blocks[0])
                if unknown is not None:
                    return BlockedRows(unknown, None, Need.METADATA, 0)
                self._blocks.popleft()
            lane = self._lanes[0]
            appended = self._accumulator.append_rows(*lane, memory)
            memory = None
            if isinstance(appended, Blocked):
                return BlockedRows(lane.topic, lane.partition, *appended)
            self._outcome.add(appended)
            self._lanes.popleft()
            if len(lane.rows):
                self._lanes.append(lane)

    def give_up(self, error: KafkaError) -> None:
        """Tell that the rest was not sent."""
        for lane in self._lanes:
            self._outcome.refuse(lane.rows.take(len(lane.rows)), error)
        for block in self._blocks:
            first_row = block.rows.first_row
            self._outcome.refuse(range(first_row, first_row + len(block.rows)), error)
        self._lanes.clear()
        self._blocks.clear()
        self._outcome.seal()

    def _divide(self, block: TableBlock) -> str | None:
        """Make lanes of a block; return a topic that is not known, which has to be awaited."""
        rows, topics, partitions = block
        if isinstance(partitions, int):
            self._lanes.append(_Lane(self._topics[0], partitions, rows.all_rows()))
            return None
        are_keys_hashed = self._hash_keys and rows.has_keys
        if topics is None and partitions is None and not are_keys_hashed:
            self._lanes.append(_Lane(self._topics[0], None, rows.all_rows()))
            return None
        counts = []
        for topic in self._topics:
            count = self._accumulator.partition_count(topic)
            if count is None:
                return topic
            counts.append(count)
        if counts == [1] and partitions is None:
            self._lanes.append(_Lane(self._topics[0], None, rows.all_rows()))
            return None
        groups = rows.by_partition(
            counts,
            hash_keys=self._hash_keys,
            take_turn=self._take_turn,
            topics=topics,
            partitions=partitions,
        )
        self._lanes += (
            _Lane(self._topics[group.topic], group.partition, group.rows) for group in groups
        )
        return None

    def _take_turn(self, topic: int, size_bytes: int) -> tuple[int, int]:
        return self._accumulator.take_turn(self._topics[topic], size_bytes)
