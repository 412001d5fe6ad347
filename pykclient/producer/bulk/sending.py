"""BulkSender: `send_batch` and `send_arrow`, which send many records with one delivery.

What they were given becomes a `RowTable`, which `BulkSending` appends as far as it goes without
waiting; in between, `BulkSender` waits. With interceptors, which see each record, records go one by
one as with `send`.

Block after block of a table is divided by partition; then each partition's rows get a batch in
turn, so that all brokers have work early and the order within a partition stays that of the input.
Rows without a key and a partition are divided too, by the turns of the sticky partition, where
others have to be somewhere: in one partition with them, they must not be overtaken. Where all may
go anywhere, each batch goes where it is the turn when it is appended.

Owner: the thread that sends.
Source: no Java class: Java's producer has no bulk sending.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, cast

from pykclient.accel import Delivery
from pykclient.errors import KafkaError
from pykclient.producer.accumulator.append import AppendedRows, Blocked, Need
from pykclient.producer.bulk.arrow import ArrowTables
from pykclient.producer.bulk.delivery import BulkResult
from pykclient.producer.bulk.table import RowTables

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pykclient.accel import RowRun
    from pykclient.producer.accumulator.accumulator import RecordAccumulator
    from pykclient.producer.accumulator.buffer_pool import MemoryWaiter
    from pykclient.producer.bulk.delivery import RecordMetadataRange
    from pykclient.producer.bulk.table import BulkHeaders, RowTable, TableBlock, Timestamps
    from pykclient.producer.core import ProducerCore
    from pykclient.producer.delivery import ProduceResult
    from pykclient.producer.record import ProducerRecord, SerializedRecord

__all__ = ["BlockedRows", "BulkSender", "BulkSending"]


class BulkSender:
    """See the module. Any thread."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core
        self._accumulator = core.accumulator
        self._interceptors = core.interceptors
        self._lifecycle = core.lifecycle
        self._rows = RowTables(core.serializer, core.wall_clock_ms)
        self._arrow = ArrowTables(core.serializer, core.wall_clock_ms)

    def send_batch(
        self,
        topic: str,
        values: Iterable[object],
        keys: Iterable[object] | None = None,
        *,
        partition: int | None = None,
        timestamps_ms: Timestamps | None = None,
        headers: BulkHeaders | None = None,
    ) -> Delivery[list[RecordMetadataRange]]:
        self._lifecycle.check_usable()
        rows = self._rows
        make = rows.records if self._interceptors else rows.table
        made = make(
            topic,
            values,
            keys,
            partition=partition,
            timestamps_ms=timestamps_ms,
            headers=headers,
        )
        return self._send_one_by_one(made) if isinstance(made, list) else self._send_table(made)

    def send_arrow(self, topic: str | None, table: object) -> Delivery[list[RecordMetadataRange]]:
        self._lifecycle.check_usable()
        if self._interceptors:
            return self._send_one_by_one(self._arrow.records(topic, table))
        return self._send_table(self._arrow.table(topic, table))

    def _send_table(self, table: RowTable) -> Delivery[list[RecordMetadataRange]]:
        core = self._core
        deadline_ms = core.block_deadline_ms()
        for topic, partition in table.largest_partitions():
            if not core.has_partition(topic, partition):
                core.await_topic(topic, partition, deadline_ms)
        if core.partitioner is not None:
            blocks = tuple(self._partitioned(block, table.topics) for block in table.blocks)
            table = table._replace(blocks=blocks)
        result = BulkResult(table.row_count, core.reports, core.waiting)
        hash_keys = not core.config.partitioner_ignore_keys
        sending = BulkSending(table, self._accumulator, result, hash_keys=hash_keys)
        try:
            blocked = sending.go_on()
            while blocked is not None:
                deadline_ms = core.block_deadline_ms()
                if blocked.need is Need.METADATA:
                    core.await_topic(blocked.topic, blocked.partition, deadline_ms)
                    blocked = sending.go_on()
                else:
                    with core.memory(blocked.topic, blocked.size_bytes, deadline_ms) as memory:
                        blocked = sending.go_on(memory)
        except KafkaError as error:
            if not result.has_rows:
                raise
            sending.give_up(error)
        return Delivery(result, 0)

    def _partitioned(self, block: TableBlock, topics: Sequence[str]) -> TableBlock:
        """Have the application's partitioner choose for the rows that name no partition."""
        if isinstance(block.partitions, int):
            return block
        named = [-1] * len(block.rows) if block.partitions is None else block.partitions
        codes = [0] * len(block.rows) if block.topics is None else block.topics
        chosen = array("i")
        for row, (topic, partition) in enumerate(zip(codes, named, strict=True)):
            if partition < 0:
                key, value = block.rows.key_and_value(row)
                partition = self._core.choose_partition(topics[topic], key, value)
            chosen.append(partition)
        return block._replace(partitions=chosen)

    def _send_one_by_one(
        self, records: Sequence[ProducerRecord]
    ) -> Delivery[list[RecordMetadataRange]]:
        seen: list[ProducerRecord] = []
        prepared: list[SerializedRecord] = []
        try:
            for record in records:
                seen.append(self._interceptors.on_send(record))
                serialized = self._core.serialized(seen[-1], self._interceptors.before(None))
                if self._core.partitioner is not None and serialized.partition is None:
                    # Now: what it raises later would lose what is known of those sent before.
                    serialized = self._core.partitioned(serialized)
                prepared.append(serialized)
        except KafkaError as error:
            self._interceptors.on_not_sent(seen, error)
            raise
        result = BulkResult(len(prepared), self._core.reports, self._core.waiting)
        for index, serialized in enumerate(prepared):
            try:
                delivery = self._core.append(serialized)
            except KafkaError as error:
                self._interceptors.on_not_sent(seen[index:], error)
                if not index:
                    raise
                result.refuse(range(index, len(prepared)), error)
                break
            batch = cast("ProduceResult", delivery.batch)
            result.add(AppendedRows(batch, delivery.index, range(index, index + 1)))
        result.seal()
        return Delivery(result, 0)


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
    """Appends a table's rows, and notes in `result` where they went.

    With `hash_keys` False, keys do not decide about partitions.
    """

    def __init__(
        self,
        table: RowTable,
        accumulator: RecordAccumulator,
        result: BulkResult,
        *,
        hash_keys: bool,
    ) -> None:
        self._topics = table.topics
        self._blocks = deque(table.blocks)
        self._accumulator = accumulator
        self._result = result
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
                    self._result.seal()
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
            self._result.add(appended)
            self._lanes.popleft()
            if len(lane.rows):
                self._lanes.append(lane)

    def give_up(self, error: KafkaError) -> None:
        for lane in self._lanes:
            self._result.refuse(lane.rows.take(len(lane.rows)), error)
        for block in self._blocks:
            first_row = block.rows.first_row
            self._result.refuse(range(first_row, first_row + len(block.rows)), error)
        self._lanes.clear()
        self._blocks.clear()
        self._result.seal()

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
