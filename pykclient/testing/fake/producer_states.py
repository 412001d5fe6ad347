"""Producer states of a partition: epochs, sequences and open transactions.

The last five batches of each producer id are remembered: a duplicate gets the first response again
and is not appended (KIP-98). An unknown producer may begin with any sequence, except in
transactions of KIP-890, to which the broker itself adds partitions.

Owner: the log it belongs to.
Source: KIP-98, KIP-360, KIP-890; Java classes ``ProducerStateManager``, ``ProducerAppendInfo``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors.broker import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)

if TYPE_CHECKING:
    from pykclient.errors.base import BrokerError
    from pykclient.records.batch import RecordBatch

REMEMBERED_COUNT_MAX = 5
SEQUENCE_MAX = 2**31 - 1
NOTHING = -1


class LastRecord(NamedTuple):
    """End of a producer's last batch, None if a marker came last, and its epoch."""

    offset: int | None
    epoch: int


class RememberedBatch(NamedTuple):
    """Sequences of a batch, and its place in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    log_append_time_ms: int


class AbortedTransaction(NamedTuple):
    """An aborted transaction of a producer, from its first record to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class ActiveProducer(NamedTuple):
    """A producer as DescribeProducers shows it; -1 for a missing value."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    open_from: int


class _Producer:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_data_offset",
        "last_timestamp_ms",
        "open_from",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[RememberedBatch] = deque(maxlen=REMEMBERED_COUNT_MAX)
        self.open_from: int | None = None
        """First offset of the open transaction."""
        self.coordinator_epoch = NOTHING
        """Epoch of the coordinator that wrote the last marker."""
        self.last_timestamp_ms = NOTHING
        self.last_data_offset: int | None = None
        """Last offset written in this epoch; None if only a marker was written."""

    def begin_epoch(self, epoch: int) -> None:
        """Forget the batches of an older epoch."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.last_data_offset = None


class ProducerStates:
    """The producers of a partition."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        self.aborted: list[AbortedTransaction] = []
        self._unreplicated: list[tuple[int, int]] = []
        """Starts and ends of transactions whose markers may not be fully replicated."""

    def duplicate(self, batch: RecordBatch) -> RememberedBatch | None:
        """Return the batch that this one duplicates, None if it is new."""
        producer = self._producers.get(batch.producer_id)
        if producer is None or producer.epoch != batch.producer_epoch:
            return None
        wanted = (batch.base_sequence, _last_sequence(batch))
        return next((old for old in producer.batches if old[:2] == wanted), None)

    def refusal(
        self, batch: RecordBatch, *, begins_at_zero: bool = False
    ) -> type[BrokerError] | None:
        """Return why a batch that is no duplicate must be refused, None if it may be appended.

        With `begins_at_zero`, an unknown producer must begin with sequence 0 (KIP-890).
        """
        producer = self._producers.get(batch.producer_id)
        expected: int | None = 0
        if producer is None:
            expected = 0 if begins_at_zero else None
        elif batch.producer_epoch < producer.epoch:
            return InvalidProducerEpochError
        elif batch.producer_epoch == producer.epoch and producer.batches:
            expected = _next_sequence(producer.batches[-1].last_sequence)
        if expected is not None and batch.base_sequence != expected:
            return OutOfOrderSequenceNumberError
        is_open = producer is not None and producer.open_from is not None
        return InvalidTxnStateError if is_open and not batch.is_transactional else None

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether the producer has an open transaction here in this epoch."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.epoch == epoch and producer.open_from is not None

    def has_later_epoch(self, producer_id: int, epoch: int) -> bool:
        """Return whether the producer wrote here in a later epoch, as far as known."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.epoch > epoch

    def marker_refusal(
        self, producer_id: int, epoch: int, coordinator_epoch: int
    ) -> type[BrokerError] | None:
        """Return why a marker must be refused: its producer or coordinator is fenced."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        if epoch < producer.epoch:
            return InvalidProducerEpochError
        is_old = coordinator_epoch < producer.coordinator_epoch
        return TransactionCoordinatorFencedError if is_old else None

    def update(
        self,
        batch: RecordBatch,
        *,
        log_append_time_ms: int,
        is_commit: bool,
        coordinator_epoch: int = NOTHING,
    ) -> None:
        """Record an appended batch.

        `is_commit` and `coordinator_epoch` are the contents of a control batch.
        """
        producer = self._producers.setdefault(batch.producer_id, _Producer(batch.producer_epoch))
        producer.begin_epoch(max(producer.epoch, batch.producer_epoch))
        producer.last_timestamp_ms = batch.max_timestamp_ms
        if batch.is_control:
            producer.coordinator_epoch = coordinator_epoch
            self._end_transaction(batch, producer, is_commit=is_commit)
            return
        producer.last_data_offset = batch.last_offset
        if batch.base_sequence >= 0:  # coordinators do not number their records
            last = _last_sequence(batch)
            producer.batches.append(
                RememberedBatch(batch.base_sequence, last, batch.base_offset, log_append_time_ms)
            )
        if batch.is_transactional and producer.open_from is None:
            producer.open_from = batch.base_offset

    def active(self) -> list[ActiveProducer]:
        """Return all known producers, in order of arrival."""
        return [
            ActiveProducer(
                producer_id,
                producer.epoch,
                producer.batches[-1].last_sequence if producer.batches else NOTHING,
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                NOTHING if producer.open_from is None else producer.open_from,
            )
            for producer_id, producer in self._producers.items()
        ]

    def last_records(self) -> dict[int, LastRecord]:
        """Return the last record of each producer, which compaction must keep."""
        return {
            producer_id: LastRecord(producer.last_data_offset, producer.epoch)
            for producer_id, producer in self._producers.items()
        }

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the start of the first transaction without a fully replicated marker, or None."""
        self._unreplicated = [each for each in self._unreplicated if each[1] >= high_watermark]
        opened = [p.open_from for p in self._producers.values() if p.open_from is not None]
        return min([*opened, *(first for first, _ in self._unreplicated)], default=None)

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap these offsets."""
        return [
            each
            for each in self.aborted
            if each.last_offset >= start_offset and each.first_offset < end_offset
        ]

    def forget(self) -> None:
        """Forget all producers, as a broker does with inactive ones."""
        self._producers.clear()

    def expire(self, last_ms: int) -> None:
        """Forget producers without a batch after `last_ms` (since 1970).

        A producer with an open transaction stays (KIP-98).
        """
        for producer_id, producer in list(self._producers.items()):
            if producer.open_from is None and producer.last_timestamp_ms <= last_ms:
                del self._producers[producer_id]

    def _end_transaction(self, batch: RecordBatch, producer: _Producer, *, is_commit: bool) -> None:
        if producer.open_from is None:
            return
        self._unreplicated.append((producer.open_from, batch.last_offset))
        if not is_commit:
            self.aborted.append(
                AbortedTransaction(batch.producer_id, producer.open_from, batch.last_offset)
            )
        producer.open_from = None


def _last_sequence(batch: RecordBatch) -> int:
    """Return the sequence of the last record; sequences wrap around to zero."""
    last: int = batch.base_sequence + batch.last_offset_delta
    return last % (SEQUENCE_MAX + 1)


def _next_sequence(sequence: int) -> int:
    return 0 if sequence == SEQUENCE_MAX else sequence + 1
