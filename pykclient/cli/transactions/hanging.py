"""Hanging transactions: open in a partition, but no coordinator will ever end them.

A partition's leader keeps the last stable offset before an open transaction, so read_committed
consumers get nothing beyond it. If the coordinator has lost the partition, or the whole
transaction, no marker will come. They are found from both sides: transactions open in partitions
for longer than allowed, without those that coordinators have open there.

Owner: the main thread.
Source: Java class ``TransactionsCommand`` (``FindHangingTransactionsCommand``); KIP-664.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykclient import AbortTransactionSpec
from pykclient.errors import TransactionalIdNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient import Admin, ProducerState, TransactionDescription
    from pykclient.types import TopicPartition


class HangingTransaction(NamedTuple):
    """A hanging transaction in one partition.

    `transactional_id` is None if no coordinator knows the producer.
    """

    partition: TopicPartition
    producer: ProducerState
    transactional_id: str | None

    @property
    def spec(self) -> AbortTransactionSpec:
        """The request that aborts it."""
        producer = self.producer
        return AbortTransactionSpec(
            self.partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
        )


def hanging_transactions(
    admin: Admin, partitions: Iterable[TopicPartition], before_ms: int
) -> list[HangingTransaction]:
    """Return those of partitions whose producers wrote last before a time, in ms since 1970."""
    candidates = [
        (partition, producer)
        for partition, producers in admin.describe_producers(partitions).items()
        for producer in producers
        if producer.transaction_start_offset is not None and producer.last_timestamp_ms < before_ms
    ]
    if not candidates:
        return []
    listed = admin.list_transactions(producer_ids={each.producer_id for _, each in candidates})
    by_producer = {found.producer_id: _described(admin, name) for name, found in listed.items()}
    hanging = []
    for partition, producer in candidates:
        known = by_producer.get(producer.producer_id)
        if known is None or partition not in known.partitions:
            name = None if known is None else known.transactional_id
            hanging.append(HangingTransaction(partition, producer, name))
    return hanging


def _described(admin: Admin, transactional_id: str) -> TransactionDescription | None:
    try:
        return admin.describe_transactions([transactional_id])[transactional_id]
    except TransactionalIdNotFoundError:
        return None  # it expired after it was listed
