"""BulkProducer: `send_batch` and `send_arrow`, which send many records with one delivery.

What they were given becomes a `RowTable`, which `BulkSending` appends; here is what waits in
between. With interceptors, who want to see each record, they go one by one as with `send`.

Owner: any thread may call anything.
Source: no Java class: Java's producer has no bulk sending.
"""

from __future__ import annotations

from abc import abstractmethod
from array import array
from typing import TYPE_CHECKING, cast

from pykclient.accel import Delivery
from pykclient.errors import KafkaError
from pykclient.producer.accumulator.append import AppendedRows, Need
from pykclient.producer.bulk.arrow import ArrowTables
from pykclient.producer.bulk.delivery import BulkOutcome
from pykclient.producer.bulk.sending import BulkSending
from pykclient.producer.bulk.table import RowTables
from pykclient.producer.core import ProducerCore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from pykclient.accel.abc import OnDelivery
    from pykclient.producer.accumulator.buffer_pool import MemoryWaiter
    from pykclient.producer.bulk.delivery import RecordMetadataRange
    from pykclient.producer.bulk.table import BulkHeaders, RowTable, TableBlock, Timestamps
    from pykclient.producer.delivery import BatchOutcome
    from pykclient.producer.record import ProducerRecord, RecordMetadata, SerializedRecord

__all__ = ["BulkProducer"]


class BulkProducer(ProducerCore):
    """A producer's core with the bulk methods. A front-end adds how to wait."""

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
        """Send many records to a topic, with one delivery for all of them.

        `values` and `keys` have one entry for each record: bytes or None, or what the serializers
        take. All records go to `partition`; with None those with a key go where its hash says, the
        others fill batches, one partition after the other. `timestamps_ms` is in milliseconds since
        1970, one for all or one for each, None for now; `headers` are pairs of a name and bytes or
        None that all records get, or for each record its pairs or None. Within a partition the
        order is that of the input.

        Everything is checked before any record is sent. Then the records are appended a batch at a
        time, each wait for memory at most ``max_block_ms``. The delivery's result is a list of
        `RecordMetadataRange`: without keys, in the order of the input. If some records failed, or
        all, it raises `BatchDeliveryError`, which has their indexes; when this call itself can go
        no further, the rest of the records are among them.

        Serializers, an own partitioner and interceptors work as with `send`, and cost as much.

        Raises:
            UsageError: an argument has a value that no record can have, or the lengths differ.
            SerializationError: a serializer failed, or something is not bytes and has none.
            RecordTooLargeError: more than ``max_request_size`` or ``buffer_memory`` allow.
            KafkaTimeoutError: no metadata in time; the message tells why.
            BufferExhaustedError: no memory in time for the first of the records.
            ClosedError, ForkedClientError: the producer was closed, or is another process's.
            KafkaError: brokers refuse the topic, or us, for good.
        """
        self._check_usable()
        tables = RowTables(self._serializer, self._wall_clock_ms)
        if self._interceptors:
            records = tables.records(
                topic,
                values,
                keys,
                partition=partition,
                timestamps_ms=timestamps_ms,
                headers=headers,
            )
            return self._send_one_by_one(records)
        return self._send_table(
            tables.table(
                topic,
                values,
                keys,
                partition=partition,
                timestamps_ms=timestamps_ms,
                headers=headers,
            )
        )

    def send_arrow(self, topic: str | None, table: object) -> Delivery[list[RecordMetadataRange]]:
        """Send the rows of an Arrow table or record batch, with one delivery for all of them.

        `table` is pyarrow's, or anything with ``__arrow_c_stream__``. Its columns are ``value``
        and, where wanted, ``key`` (both binary or string), ``headers`` (``list<struct<key: string,
        value: binary>>``), ``partition`` (integers), ``timestamp`` (of any unit) and, when `topic`
        is None, ``topic`` (string). A null is what None is for `send`. With a serializer, ``value``
        or ``key`` may have any type; it gets Python's objects.

        Everything else is as with `send_batch`; indexes are those of the rows.

        Raises:
            UsageError: pyarrow is missing, or a column has a wrong name, type or content.
            KafkaError: as `send_batch`.
        """
        self._check_usable()
        tables = ArrowTables(self._serializer, self._wall_clock_ms)
        if self._interceptors:
            return self._send_one_by_one(tables.records(topic, table))
        return self._send_table(tables.table(topic, table))

    # What a front-end adds.

    @abstractmethod
    def _append(self, record: SerializedRecord) -> Delivery[RecordMetadata]:
        """Append a record, waiting for what it needs."""

    @abstractmethod
    def _memory(
        self, topic: str, size_bytes: int, deadline_ms: int
    ) -> AbstractContextManager[MemoryWaiter]:
        """Wait for memory; what is not used in the context goes back."""

    # A table at a time.

    def _send_table(self, table: RowTable) -> Delivery[list[RecordMetadataRange]]:
        deadline_ms = self._block_deadline_ms()
        for topic, partition in table.largest_partitions():
            if not self._has_partition(topic, partition):
                self._await_topic(topic, partition, deadline_ms)
        if self._partitioner is not None:
            blocks = tuple(self._partitioned(block, table.topics) for block in table.blocks)
            table = table._replace(blocks=blocks)
        outcome = BulkOutcome(table.row_count, self._reports, self._waiting)
        hash_keys = not self._config.partitioner_ignore_keys
        sending = BulkSending(table, self._accumulator, outcome, hash_keys=hash_keys)
        try:
            blocked = sending.go_on()
            while blocked is not None:
                deadline_ms = self._block_deadline_ms()
                if blocked.need is Need.METADATA:
                    self._await_topic(blocked.topic, blocked.partition, deadline_ms)
                    blocked = sending.go_on()
                else:
                    with self._memory(blocked.topic, blocked.size_bytes, deadline_ms) as memory:
                        blocked = sending.go_on(memory)
        except KafkaError as error:
            if not outcome.has_rows:
                raise
            sending.give_up(error)
        return Delivery(outcome, 0)

    def _partitioned(self, block: TableBlock, topics: Sequence[str]) -> TableBlock:
        """Ask the application's own partitioner about the rows that name no partition."""
        assert self._partitioner is not None
        if isinstance(block.partitions, int):
            return block
        named = [-1] * len(block.rows) if block.partitions is None else block.partitions
        codes = [0] * len(block.rows) if block.topics is None else block.topics
        chosen = array("i")
        for row, (topic, partition) in enumerate(zip(codes, named, strict=True)):
            if partition < 0:
                key, value = block.rows.key_and_value(row)
                partition = self._ask_partitioner(topics[topic], key, value)
            chosen.append(partition)
        return block._replace(partitions=chosen)

    # One by one.

    def _send_one_by_one(
        self, records: Sequence[ProducerRecord]
    ) -> Delivery[list[RecordMetadataRange]]:
        """Send records that the interceptors want to see."""
        seen: list[ProducerRecord] = []
        prepared: list[SerializedRecord] = []
        try:
            for record in records:
                seen.append(self._interceptors.on_send(record))
                serialized = self._serialized(seen[-1], self._interceptors.before(None))
                if self._partitioner is not None and serialized.partition is None:
                    # Now: what it raises later would lose what is known of those sent before.
                    serialized = self._choose_partition(serialized)
                prepared.append(serialized)
        except KafkaError as error:
            self._interceptors.on_not_sent(seen, error)
            raise
        outcome = BulkOutcome(len(prepared), self._reports, self._waiting)
        for index, serialized in enumerate(prepared):
            try:
                delivery = self._append(serialized)
            except KafkaError as error:
                self._interceptors.on_not_sent(seen[index:], error)
                if not index:
                    raise
                outcome.refuse(range(index, len(prepared)), error)
                break
            batch = cast("BatchOutcome", delivery.batch)
            outcome.add(AppendedRows(batch, delivery.index, range(index, index + 1)))
        outcome.seal()
        return Delivery(outcome, 0)

    def _serialized(
        self, record: ProducerRecord, on_delivery: OnDelivery[RecordMetadata] | None
    ) -> SerializedRecord:
        return self._serializer.serialize(
            record.topic,
            record.value,
            record.key,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            headers=record.headers,
            on_delivery=on_delivery,
        )
