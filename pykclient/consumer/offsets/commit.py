"""Commit: offsets that one call, or the timer, wants the group's coordinator to have.

It is *waiting*, *in flight* or *ended*; `Commits` moves it.

Owner: `Commits`.
Source: none; Java's is a request and its future.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.network.manager import Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.errors import KafkaError
    from pykclient.network.manager import UserCall
    from pykclient.types import OffsetAndMetadata, TopicPartition

    Offsets = dict[TopicPartition, OffsetAndMetadata]
    CommitCallback = Callable[[Offsets, KafkaError | None], object]

__all__ = ["Commit"]


class Commit:
    """One commit. `operation` ends when it has; `last_error` tells why it has not yet."""

    __slots__ = (
        "callback",
        "deadline_ms",
        "failure_count",
        "is_retried",
        "is_sent",
        "keeps_partitions",
        "last_error",
        "number",
        "offsets",
        "operation",
        "owners",
        "report",
        "retry_at_ms",
    )

    def __init__(self, offsets: Offsets, deadline_ms: int) -> None:
        self.offsets = offsets
        self.deadline_ms = deadline_ms
        self.operation: Operation[None] = Operation()
        self.is_retried = False
        self.is_sent = False
        """Whether the coordinator may have it."""
        self.report: UserCall | None = None
        """The call of `callback`, once it is due."""
        self.keeps_partitions = False
        """Whether nobody else gets the partitions before it has ended: a newer epoch will do."""
        self.owners: dict[TopicPartition, AssignedPartition] | None = None
        """The assignment that it is for, if nobody but us chose what is in it."""
        self.callback: CommitCallback | None = None
        self.number = 0
        self.retry_at_ms = 0
        self.failure_count = 0
        self.last_error: KafkaError | None = None
