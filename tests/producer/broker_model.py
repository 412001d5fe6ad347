"""A model of one partition's log that checks producers' sequences as Kafka's brokers do.

Small, and written from the protocol's side: it shares the reading of batches with the client and
nothing else.

Source: KIP-98, KIP-360; Java classes ``ProducerStateManager``, ``ProducerAppendInfo``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pykclient.records.batch import RecordBatch

__all__ = ["Appended", "PartitionLog"]

NONE = 0
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47

REMEMBERED_MAX = 5


class Appended(NamedTuple):
    """What an append came to: an error code, and the first record's offset, -1 for none."""

    error_code: int
    base_offset: int


class _Remembered(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int


class PartitionLog:
    """The values in the log, and for each producer id its epoch and its last five batches."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self._epochs: dict[int, int] = {}
        self._remembered: dict[int, list[_Remembered]] = {}

    def append(self, batch: RecordBatch) -> Appended:
        """Append a batch, recognise it as one that is there, or refuse it."""
        producer_id = batch.producer_id
        if producer_id < 0:
            return self._write(batch)
        epoch = self._epochs.get(producer_id)
        first = batch.base_sequence
        last = first + batch.record_count - 1
        if epoch is not None and batch.producer_epoch < epoch:
            return Appended(INVALID_PRODUCER_EPOCH, -1)
        if epoch is not None and batch.producer_epoch == epoch:
            remembered = self._remembered[producer_id]
            for old in remembered:
                if (old.first_sequence, old.last_sequence) == (first, last):
                    return Appended(NONE, old.base_offset)
            if first != remembered[-1].last_sequence + 1:
                return Appended(OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        elif epoch is not None and first != 0:
            return Appended(OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        # A producer that the log has never seen may begin with any number.
        appended = self._write(batch)
        if epoch != batch.producer_epoch:
            self._epochs[producer_id] = batch.producer_epoch
            self._remembered[producer_id] = []
        remembered = self._remembered[producer_id]
        remembered.append(_Remembered(first, last, appended.base_offset))
        del remembered[:-REMEMBERED_MAX]
        return appended

    def forget_producers(self) -> None:
        """Lose what is known of producers, as a broker does once they have been silent long."""
        self._epochs.clear()
        self._remembered.clear()

    def _write(self, batch: RecordBatch) -> Appended:
        base_offset = len(self.values)
        self.values.extend(batch.records().values)
        return Appended(NONE, base_offset)
