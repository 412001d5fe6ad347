"""What a refusal says: which records were refused, and whether the bytes may be in the log."""

from __future__ import annotations

import pytest

from pykclient.errors import DisconnectedError, InvalidRecordError, error_for_code
from pykclient.producer.sender.request import may_be_written
from pykclient.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
)
from pykclient.types import TopicPartition
from tests.producer.sender_bench import TOPIC, SenderBench

PARTITION = TopicPartition(TOPIC, 0)


def test_refused_records_are_told_apart_from_those_refused_with_them() -> None:
    bench = SenderBench()
    deliveries = [bench.send() for _ in range(3)]
    bench.poll()
    answer = PartitionProduceResponse(
        index=0,
        error_code=87,
        base_offset=-1,
        error_message="one or more records",
        record_errors=[BatchIndexAndErrorMessage(1, "no key in a compacted topic")],
    )
    bench.answer_each(bench.requests[0], {PARTITION: answer})
    errors = [str(delivery.exception()) for delivery in deliveries]
    assert all(isinstance(delivery.exception(), InvalidRecordError) for delivery in deliveries)
    assert "no key in a compacted topic" in errors[1]
    assert "other records of its batch" in errors[0]
    assert errors[0] == errors[2]


@pytest.mark.parametrize(
    ("code", "may_be"),
    [
        (2, False),  # CORRUPT_MESSAGE
        (10, False),  # MESSAGE_TOO_LARGE
        (19, False),  # NOT_ENOUGH_REPLICAS
        (45, False),  # OUT_OF_ORDER_SEQUENCE_NUMBER
        (87, False),  # INVALID_RECORD
        (100, False),  # UNKNOWN_TOPIC_ID
        (103, False),  # INCONSISTENT_TOPIC_ID
        (3, False),  # UNKNOWN_TOPIC_OR_PARTITION
        (6, True),  # NOT_LEADER_OR_FOLLOWER
        (7, True),  # REQUEST_TIMED_OUT
        (20, True),  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    ],
)
def test_what_a_broker_checks_before_it_appends_is_not_in_the_log(code: int, may_be: bool) -> None:
    assert may_be_written(error_for_code(code)) is may_be


def test_a_lost_answer_leaves_it_open_whether_the_batch_is_in_the_log() -> None:
    assert may_be_written(DisconnectedError("lost"))
