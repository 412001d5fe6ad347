"""A position validator with what it works on, and leaders that answer by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.fetch.buffer import FetchBuffer
from pykclient.consumer.fetch.stalls import Stalls
from pykclient.consumer.offsets.validate import PositionValidator
from pykclient.consumer.subscription import AssignedPartition, OffsetReset, SubscriptionState
from pykclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from pykclient.types import TopicPartition
from tests.consumer.known_cluster import (
    RETRY_BACKOFF,
    START_MS,
    know,
    make_metadata,
    refresh,
    topic,
)
from tests.network.answering import answer_checked

if TYPE_CHECKING:
    from pykclient.network.manager import Request
    from pykclient.network.retry import Backoff

__all__ = ["NEW", "OLD", "A", "B", "Scene", "asked", "reply"]

A, B = (TopicPartition("t", number) for number in range(2))
OLD, NEW = 4, 6
"""Epochs of leaders."""


class Scene:
    """Partition 0 is led by broker 1, partition 1 by broker 2, both in epoch `OLD`."""

    def __init__(
        self,
        reset: OffsetReset = OffsetReset.EARLIEST,
        *,
        retry_backoff: Backoff = RETRY_BACKOFF,
    ) -> None:
        self.metadata = make_metadata()
        refresh(self.metadata)
        know(self.metadata, topic("t", [1, 2], leader_epoch=OLD))
        self.subscription = SubscriptionState()
        self.stalls = Stalls()
        self.buffer = FetchBuffer(RETRY_BACKOFF, parked_max_bytes=50_000)
        self.validator = PositionValidator(
            self.subscription,
            self.buffer,
            self.metadata,
            auto_offset_reset=reset,
            retry_backoff=retry_backoff,
            stalls=self.stalls,
        )

    def read(self, *partitions: TopicPartition, epoch: int | None = OLD) -> AssignedPartition:
        """Stand at offset 50 of partitions, after a record of an epoch; return the first."""
        self.subscription.assign(partitions)
        for assigned in self.subscription:
            self.subscription.seek(assigned, 50)
        assert self.requests() == []
        for assigned in self.subscription:
            assigned.leader_epoch = epoch
        return self.subscription.require(partitions[0])

    def elect(self) -> None:
        """Have the next broker lead each partition."""
        know(self.metadata, topic("t", [2, 3], leader_epoch=NEW))

    def requests(self, now_ms: int = START_MS) -> list[Request]:
        return list(self.validator.poll(now_ms).requests)

    def ask(self, now_ms: int = START_MS) -> Request:
        (request,) = self.requests(now_ms)
        return request

    def asked_after_election(self) -> tuple[AssignedPartition, Request]:
        assigned = self.read(A)
        self.elect()
        return assigned, self.ask()


def asked(request: Request) -> list[tuple[int, int, int]]:
    assert isinstance(request.message, OffsetForLeaderEpochRequest)
    (asked_topic,) = request.message.topics
    return [(p.partition, p.current_leader_epoch, p.leader_epoch) for p in asked_topic.partitions]


def reply(request: Request, epoch: int, end_offset: int, *, index: int = 0, code: int = 0) -> None:
    answer = EpochEndOffset(
        error_code=code, partition=index, leader_epoch=epoch, end_offset=end_offset
    )
    answer_checked(
        request,
        OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult("t", [answer])]),
        START_MS,
    )
