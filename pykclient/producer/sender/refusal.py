"""What a broker's refusal of a batch says of its bytes and of its records.

Owner: nobody; functions of their arguments.
Source: KIP-98 (what may be in the log), KIP-467 (refused records).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import (
    ClusterAuthorizationFailedError,
    CorruptMessageError,
    InconsistentTopicIdError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTimestampError,
    InvalidTopicError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    OutOfOrderSequenceNumberError,
    PolicyViolationError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    UnknownProducerIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
    error_for_code,
)

if TYPE_CHECKING:
    from pykclient.errors import KafkaError
    from pykclient.producer.accumulator.batch import ProducerBatch
    from pykclient.protocol.messages.produce import PartitionProduceResponse

__all__ = ["may_be_written", "record_errors"]

NOT_WRITTEN = (
    ClusterAuthorizationFailedError,
    CorruptMessageError,
    InconsistentTopicIdError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTimestampError,
    InvalidTopicError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    OutOfOrderSequenceNumberError,
    PolicyViolationError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    UnknownProducerIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
"""Errors that a broker answers before it appends, or (those that say the topic is unknown) while it
waits for followers of a log that is deleted meanwhile. After any other one the batch may stand in
the log: a leader that is deposed while it waits answers NOT_LEADER_OR_FOLLOWER."""


def may_be_written(error: KafkaError) -> bool:
    """Whether a batch may stand in the log although its attempt ended with `error`."""
    return not isinstance(error, NOT_WRITTEN)


def record_errors(
    batch: ProducerBatch, answer: PartitionProduceResponse
) -> dict[int, KafkaError] | None:
    """Tell the records that a broker refused from those that were refused with them (KIP-467)."""
    if not answer.record_errors:
        return None
    errors: dict[int, KafkaError] = {
        index: InvalidRecordError(
            f"{batch.partition}: not written, since other records of its batch were refused: "
            f"{answer.error_message or 'no reason given'}"
        )
        for index in range(batch.record_count)
    }
    for refused in answer.record_errors:
        reason = refused.batch_index_error_message or answer.error_message
        errors[refused.batch_index] = error_for_code(
            answer.error_code, f"{batch.partition}: the record was refused: {reason}"
        )
    return errors
