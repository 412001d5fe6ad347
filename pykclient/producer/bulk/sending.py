"""BulkSender: `send_batch` and `send_arrow`, which send many records with one delivery.

With interceptors, which see each record, and with serializers that take headers, records are sent
one by one as with `send`. Otherwise each block of a `RowTable` is divided by partition. The
partitions' rows then get a batch in turn: all brokers have work early, and the order within a
partition stays that of the input.

Owner: the thread that sends.
"""

from __future__ import annotations

from array import array
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, cast

from pykclient.accel import Delivery
from pykclient.accel.key_rule import IGNORE_KEYS
from pykclient.errors import KafkaError, RecordTooLargeError
from pykclient.producer.accumulator.acceptance import BulkCall
from pykclient.producer.accumulator.append import AppendedRows
from pykclient.producer.bulk.arrow import ArrowTables
from pykclient.producer.bulk.delivery import BulkResult
from pykclient.producer.bulk.table import RowTables
from pykclient.producer.partitioner import chooses_each_record, key_rule_of
from pykclient.producer.record import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.producer.bulk.delivery import RecordMetadataRange
    from pykclient.producer.bulk.table import BulkInput, RowTable, TableBlock
    from pykclient.producer.core import ProducerCore
    from pykclient.producer.delivery import ProduceResult
    from pykclient.producer.record import ProducerRecord, SerializedRecord


class BulkSender:
    """See the module. Any thread."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core
        self._interceptors = core.interceptors
        self._is_one_by_one = bool(core.interceptors) or core.serializer.takes_headers
        self._lifecycle = core.lifecycle
        self._rows = RowTables(core.serializer, core.wall_clock_ms)
        self._arrow = ArrowTables(core.serializer, core.wall_clock_ms)

    def send_batch(self, given: BulkInput) -> Delivery[list[RecordMetadataRange]]:
        self._lifecycle.check_usable()
        try:
            if self._is_one_by_one:
                return self._send_one_by_one(self._rows.records(given))
            return self._send_table(self._rows.table(given))
        except RecordTooLargeError as error:
            self._core.on_not_accepted(error)
            raise

    def send_arrow(self, topic: str | None, table: object) -> Delivery[list[RecordMetadataRange]]:
        self._lifecycle.check_usable()
        try:
            if self._is_one_by_one:
                return self._send_one_by_one(self._arrow.records(topic, table))
            return self._send_table(self._arrow.table(topic, table))
        except RecordTooLargeError as error:
            self._core.on_not_accepted(error)
            raise

    def _send_table(self, table: RowTable) -> Delivery[list[RecordMetadataRange]]:
        core = self._core
        deadline_ms = core.block_deadline_ms()
        for topic, partition in table.largest_partitions():
            if not core.has_partition(topic, partition):
                core.await_topic_to_send(topic, deadline_ms, partition)
        if core.partitioner is not None:
            blocks = tuple(self._partitioned(block, table.topics) for block in table.blocks)
            table = table._replace(blocks=blocks)
        result = BulkResult(table.row_count, core.reports, core.waiting)
        self._append_all(result, BulkSending(core, table, result).run)
        return Delivery(result, 0)

    def _append_all(self, result: BulkResult, append: Callable[[], KafkaError | None]) -> None:
        """Call `append`, which appends all rows and returns the error that ended it early.

        A transaction does not end while it runs. If rows are missing, it can only be aborted.
        """
        if self._core.transactions is None:
            append()
            return
        acceptance = self._core.accumulator.acceptance
        call = BulkCall()
        try:
            acceptance.bulk_calls[call] = None
            call.error = append()
            call.is_torn = call.error is not None
        except BaseException as error:
            call.error = error
            if isinstance(error, KafkaError) and not result.has_rows:
                call.is_torn = False
                self._core.on_not_accepted(error)
            raise
        finally:
            call.has_ended = True  # first: an interrupt may come after each call below
            if not call.is_torn:
                acceptance.bulk_calls.pop(call, None)
            self._core.accumulator.on_bulk_call_ended()

    def _partitioned(self, block: TableBlock, topics: Sequence[str]) -> TableBlock:
        """Ask the partitioner for the partition of rows without one."""
        if isinstance(block.partitions, int):
            return block
        named = [-1] * len(block.rows) if block.partitions is None else block.partitions
        codes = [0] * len(block.rows) if block.topics is None else block.topics
        chosen = array("i")
        is_blind = chooses_each_record(self._core.config)
        for row, (topic, partition) in enumerate(zip(codes, named, strict=True)):
            if partition < 0:
                key, value = (None, None) if is_blind else block.rows.key_and_value(row)
                partition = self._core.choose_partition(topics[topic], key, value)
            chosen.append(partition)
        return block._replace(partitions=chosen)

    def _send_one_by_one(
        self, records: Sequence[ProducerRecord[object, object]]
    ) -> Delivery[list[RecordMetadataRange]]:
        seen: list[ProducerRecord[object, object]] = []
        prepared: list[SerializedRecord] = []
        try:
            for record in records:
                seen.append(self._interceptors.on_send(record))
                serialized = self._core.serialized(seen[-1], self._interceptors.before(None))
                if self._core.partitioner is not None and serialized.partition is None:
                    # Now: an error later would hide the results of the records already sent.
                    serialized = self._core.partitioned(serialized)
                prepared.append(serialized)
        except KafkaError as error:
            self._interceptors.on_not_sent(seen, error)
            raise
        result = BulkResult(len(prepared), self._core.reports, self._core.waiting)
        self._append_all(result, partial(self._append_one_by_one, prepared, seen, result))
        return Delivery(result, 0)

    def _append_one_by_one(
        self,
        prepared: Sequence[SerializedRecord],
        seen: Sequence[ProducerRecord[object, object]],
        result: BulkResult,
    ) -> KafkaError | None:
        """Append records; return the error that ended it early, or None."""
        ended_by: KafkaError | None = None
        for index, serialized in enumerate(prepared):
            try:
                delivery = self._core.append(serialized, record_count=len(prepared) - index)
            except KafkaError as error:
                self._interceptors.on_not_sent(seen[index:], error)
                if not index:
                    raise
                result.refuse(range(index, len(prepared)), error)
                ended_by = error
                break
            batch = cast("ProduceResult", delivery.batch)
            result.add(AppendedRows(batch, delivery.index, range(index, index + 1)))
        result.seal()
        return ended_by


class BulkSending:
    """Appends a table's rows, and adds them to `result`."""

    def __init__(self, core: ProducerCore, table: RowTable, result: BulkResult) -> None:
        self._core = core
        self._topics = table.topics
        self._blocks = deque(table.blocks)
        self._key_rule = key_rule_of(core.config)
        self._result = result
        self._lanes: deque[Rows] = deque()

    def run(self) -> KafkaError | None:
        """Append all rows; return the error that ended it early, which the result has as well.

        Raises:
            KafkaError: not even the first row could be appended.
        """
        ended_by: KafkaError | None = None
        try:
            while self._blocks:
                self._lanes += self._divided(self._blocks[0])
                self._blocks.popleft()
                while self._lanes:
                    rows = self._lanes[0]
                    self._result.add(self._core.append_rows(rows, self._count_left))
                    self._lanes.popleft()
                    if len(rows.run):
                        self._lanes.append(rows)
        except KafkaError as error:
            if not self._result.has_rows:
                raise
            ended_by = error
            for rows in self._lanes:
                self._result.refuse(rows.run.take(len(rows.run)), error)
            for block in self._blocks:
                first_row = block.rows.first_row
                self._result.refuse(range(first_row, first_row + len(block.rows)), error)
        self._result.seal()
        return ended_by

    def _count_left(self) -> int:
        """Return the number of rows not appended yet."""
        lane_counts = (len(rows.run) for rows in self._lanes)
        return sum(lane_counts) + sum(len(block.rows) for block in self._blocks)

    def _divided(self, block: TableBlock) -> list[Rows]:
        rows, topics, partitions = block
        if isinstance(partitions, int):
            return [Rows(self._topics[0], partitions, rows.all_rows())]
        counts = list(map(self._partition_count, self._topics))
        groups = rows.by_partition(
            counts,
            # With one partition, keys need not be hashed.
            key_rule=IGNORE_KEYS if counts == [1] else self._key_rule,
            take_turn=self._take_turn,
            topics=topics,
            partitions=partitions,
        )
        return [Rows(self._topics[group.topic], group.partition, group.rows) for group in groups]

    def _partition_count(self, topic: str) -> int:
        while (count := self._core.accumulator.partition_count(topic)) is None:
            self._core.await_topic(topic, None, self._core.block_deadline_ms())
        return count

    def _take_turn(self, topic: int, size_bytes: int) -> tuple[int, int]:
        return self._core.accumulator.take_turn(self._topics[topic], size_bytes)
