"""What a partition knows of its producers: epochs, sequences, and which transactions are open.

Of each producer id the last five batches are remembered, so that one that comes again gets the
response of the first, and is not appended (KIP-98). A producer that is not known may begin with
any sequence.

Owner: the log that it belongs to.
Source: KIP-98, KIP-360; Java classes ``ProducerStateManager``, ``ProducerAppendInfo``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors.broker import InvalidProducerEpochError, OutOfOrderSequenceNumberError

if TYPE_CHECKING:
    from pykclient.errors.base import BrokerError
    from pykclient.records.batch import RecordBatch

REMEMBERED_COUNT_MAX = 5
SEQUENCE_MAX = 2**31 - 1


class RememberedBatch(NamedTuple):
    """A batch as its producer numbered it, and where it stands."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    log_append_time_ms: int


class AbortedTransaction(NamedTuple):
    """One producer's transaction that was aborted: its first record, and its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class _Producer:
    __slots__ = ("batches", "epoch", "open_from")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[RememberedBatch] = deque(maxlen=REMEMBERED_COUNT_MAX)
        self.open_from: int | None = None
        """The first offset of its transaction under way."""


class ProducerStates:
    """The producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        self.aborted: list[AbortedTransaction] = []
        self._unreplicated: list[tuple[int, int]] = []
        """Where transactions began and ended whose markers may not be in all replicas yet."""

    def duplicate(self, batch: RecordBatch) -> RememberedBatch | None:
        """The batch that this one repeats, None when it is new."""
        producer = self._producers.get(batch.producer_id)
        if producer is None or producer.epoch != batch.producer_epoch:
            return None
        wanted = (batch.base_sequence, _last_sequence(batch))
        return next((old for old in producer.batches if old[:2] == wanted), None)

    def refusal(self, batch: RecordBatch) -> type[BrokerError] | None:
        """Why this batch, which is no duplicate, must not be appended; None when it may be."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            return None
        if batch.producer_epoch < producer.epoch:
            return InvalidProducerEpochError
        if batch.producer_epoch > producer.epoch:
            expected: int | None = 0
        elif producer.batches:
            expected = _next_sequence(producer.batches[-1].last_sequence)
        else:
            expected = None
        if expected is not None and batch.base_sequence != expected:
            return OutOfOrderSequenceNumberError
        return None

    def update(self, batch: RecordBatch, *, log_append_time_ms: int, is_commit: bool) -> None:
        """Take note of an appended batch; `is_commit` says what a control batch says."""
        producer = self._producers.get(batch.producer_id)
        if producer is None or producer.epoch < batch.producer_epoch:
            open_from = None if producer is None else producer.open_from
            producer = self._producers[batch.producer_id] = _Producer(batch.producer_epoch)
            producer.open_from = open_from
        if batch.is_control:
            self._end_transaction(batch, producer, is_commit=is_commit)
            return
        last = _last_sequence(batch)
        remembered = RememberedBatch(
            batch.base_sequence, last, batch.base_offset, log_append_time_ms
        )
        producer.batches.append(remembered)
        if batch.is_transactional and producer.open_from is None:
            producer.open_from = batch.base_offset

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the earliest transaction begins without a marker in all replicas; None if none."""
        self._unreplicated = [each for each in self._unreplicated if each[1] >= high_watermark]
        opened = [p.open_from for p in self._producers.values() if p.open_from is not None]
        return min([*opened, *(first for first, _ in self._unreplicated)], default=None)

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that touch these offsets."""
        return [
            each
            for each in self.aborted
            if each.last_offset >= start_offset and each.first_offset < end_offset
        ]

    def forget(self) -> None:
        """Lose all producers, as a broker does with those that were silent for long."""
        self._producers.clear()

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
    """The sequence of the last record; after the largest one comes zero."""
    last: int = batch.base_sequence + batch.last_offset_delta
    return last % (SEQUENCE_MAX + 1)


def _next_sequence(sequence: int) -> int:
    return 0 if sequence == SEQUENCE_MAX else sequence + 1
