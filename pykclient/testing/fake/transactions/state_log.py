"""Records of ``__transaction_state``: one for each change of a transactional id.

Owner: none; it holds no state.
Source: KIP-98, KIP-890 (version 1 of the value); Java class ``TransactionLog``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.protocol.messages.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from pykclient.protocol.reader import Reader
from pykclient.testing.fake.coordinator_log import VERSION_BYTES, CoordinatorRecord, encode
from pykclient.testing.fake.transactions.metadata import (
    NO_ID,
    ProducerIdentity,
    TransactionMetadata,
    TransactionState,
)
from pykclient.types import TopicPartition, by_topic

if TYPE_CHECKING:
    from collections.abc import Callable

STATE_TOPIC: Final = "__transaction_state"
_KEY_VERSION: Final = 0


def state_record(metadata: TransactionMetadata, value_version: int) -> CoordinatorRecord:
    """Encode a transactional id's state; a dead one becomes a tombstone.

    Version 0 of the value cannot hold the fields of KIP-890.
    """
    key = encode(TransactionLogKey(metadata.transactional_id), _KEY_VERSION)
    if metadata.state is TransactionState.DEAD:
        return CoordinatorRecord(key, None)
    is_flexible = value_version >= 1
    value = TransactionLogValue(
        producer_id=metadata.producer.producer_id,
        previous_producer_id=metadata.previous_producer_id if is_flexible else NO_ID,
        next_producer_id=metadata.next_producer_id if is_flexible else NO_ID,
        producer_epoch=metadata.producer.epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.number,
        # Kafka writes null, not an empty list, if nothing was ever added.
        transaction_partitions=None
        if metadata.state is TransactionState.EMPTY
        else [
            PartitionsSchema(topic, numbers)
            for topic, numbers in by_topic(metadata.partitions).items()
        ],
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.started_ms,
        client_transaction_version=metadata.version if is_flexible else 0,
    )
    return CoordinatorRecord(key, encode(value, value_version))


def transactional_id_of(key: bytes) -> str:
    """Return the transactional id in a record's key."""
    return TransactionLogKey.read(Reader(key[VERSION_BYTES:]), _KEY_VERSION).transactional_id


def read_state(
    transactional_id: str, data: bytes, new_producer_id: Callable[[], int]
) -> TransactionMetadata:
    """Decode the state of a transactional id; it lacks the previous epoch."""
    version = int.from_bytes(data[:VERSION_BYTES], "big")
    value = TransactionLogValue.read(Reader(data[VERSION_BYTES:]), version)
    metadata = TransactionMetadata(
        transactional_id, lambda: value.producer_id, value.transaction_last_update_timestamp_ms
    )
    metadata.new_producer_id = new_producer_id
    metadata.producer = ProducerIdentity(value.producer_id, value.producer_epoch)
    metadata.previous_producer_id = value.previous_producer_id
    metadata.next_producer_id = value.next_producer_id
    metadata.timeout_ms = value.transaction_timeout_ms
    metadata.state = list(TransactionState)[value.transaction_status]
    metadata.started_ms = value.transaction_start_timestamp_ms
    metadata.version = value.client_transaction_version
    metadata.partitions = {
        TopicPartition(each.topic, number): None
        for each in value.transaction_partitions or ()
        for number in each.partition_ids
    }
    return metadata
