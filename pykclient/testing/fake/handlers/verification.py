"""Verification by a partition's leader that the partition is in a producer's transaction.

KIP-890 requires it for the first batch or offset of a transaction in a partition. With newer
clients the leader adds the partition itself. For older clients, unknown errors are translated.

Owner: none; it holds no state.
Source: KIP-890; Java class ``AddPartitionsToTxnManager``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
)
from pykclient.testing.fake.topics import NO_LEADER
from pykclient.testing.fake.transactions.metadata import BUMPING_VERSION

if TYPE_CHECKING:
    from collections.abc import Collection

    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.groups.group import Refusal
    from pykclient.testing.fake.state import ClusterState
    from pykclient.testing.fake.transactions.metadata import ProducerIdentity
    from pykclient.types import TopicPartition


class Verification(Enum):
    """Action of a partition's leader, depending on the request's version."""

    DEFAULT = "verify"
    ABORTABLE = "verify, and respond with TRANSACTION_ABORTABLE"
    ADD = "add the partition"

    @classmethod
    def of(cls, version: int, abortable_from: int) -> Verification:
        """Return the verification for a request version; above `abortable_from` it is ADD."""
        if version > abortable_from:
            return cls.ADD
        return cls.ABORTABLE if version == abortable_from else cls.DEFAULT


def verify(
    cluster: ClusterState,
    transactional_id: str,
    producer: ProducerIdentity,
    partitions: Collection[TopicPartition],
    *,
    verification: Verification,
) -> dict[TopicPartition, Refusal | None]:
    """Return why each partition must not be written to, None if it may be."""
    transactions = cluster.transactions
    if not (partitions and transactions.settings.transaction_partition_verification_enable):
        return dict.fromkeys(partitions)
    if transactions.partition(transactional_id).leader_id == NO_LEADER:
        return dict.fromkeys(partitions, CoordinatorNotAvailableError)
    if verification is Verification.ADD:
        refusal = transactions.add(
            transactional_id,
            producer,
            partitions,
            version=BUMPING_VERSION,
            now_ms=cluster.now_ms,
        )
        refusals = dict.fromkeys(partitions, refusal)
    else:
        refusals = transactions.verify(transactional_id, producer, partitions)
    return {name: _translated(refusal, verification) for name, refusal in refusals.items()}


def _translated(refusal: Refusal | None, verification: Verification) -> Refusal | None:
    if refusal is ProducerFencedError:
        return InvalidProducerEpochError
    if refusal is TransactionAbortableError and verification is Verification.DEFAULT:
        return InvalidTxnStateError
    return refusal


def fencing_code(refusal: Refusal, call: Call, fenced_from: int) -> int:
    """Return an error's code, translated for clients without PRODUCER_FENCED (KIP-588)."""
    is_unknown = refusal is ProducerFencedError and call.version < fenced_from
    return InvalidProducerEpochError.code if is_unknown else refusal.code
