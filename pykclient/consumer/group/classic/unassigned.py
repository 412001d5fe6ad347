"""Coverage: whether somebody reads all that this leader would share out.

A static leader that is back is told to share nothing out (KIP-814): what was shared out before it
restarted holds. What topics grew by meanwhile is then nobody's, so it asks its coordinator who has
what. *Idle*; *asking*, now or after a back-off; idle again with the answer.

Owner: the core lock.
Source: ours; the DescribeGroups API.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pykclient.consumer.group.classic.protocol import read_assignment
from pykclient.errors import (
    CoordinatorNotAvailableError,
    DecodeError,
    NotCoordinatorError,
    error_for_code,
)
from pykclient.network.manager import NEVER_MS, PollResult, Request
from pykclient.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.group.participant import GroupCoordinator
    from pykclient.errors import KafkaError
    from pykclient.network.log import ClientLog
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.describe_groups import DescribedGroup
    from pykclient.types import TopicPartition

__all__ = ["Coverage"]

STABLE: Final = "Stable"
"""In other states of the group somebody is about to share out."""


class Coverage:
    """Asks about one group, and calls `on_gap` when partitions that it should read are nobody's."""

    def __init__(
        self,
        group_id: str,
        coordinator: GroupCoordinator,
        on_gap: Callable[[], None],
        *,
        retry_backoff: Backoff,
        log: ClientLog,
    ) -> None:
        self._group_id = group_id
        self._coordinator = coordinator
        self._on_gap = on_gap
        self._retry_backoff = retry_backoff
        self._log = log
        self._wanted: frozenset[TopicPartition] | None = None
        """What should be read; None while nothing is to be asked."""
        self._call: object | None = None
        """The question in flight; answers to others come too late."""
        self._retry_at_ms = 0
        self._failure_count = 0

    def ask(self, wanted: frozenset[TopicPartition]) -> None:
        """Find out whether members have all of `wanted`."""
        self._wanted = wanted
        self._call = None
        self._retry_at_ms = self._failure_count = 0

    def forget(self) -> None:
        """Ask no more: the group shares out anew."""
        self._wanted = self._call = None

    def restart(self) -> None:
        """Ask anew, if there is something to ask."""
        self._call = None

    def poll(self, now_ms: int) -> PollResult:
        """Ask, if that is due."""
        if self._wanted is None or self._call is not None:
            return PollResult()
        if now_ms < self._retry_at_ms:
            return PollResult(next_poll_ms=self._retry_at_ms)
        node_id = self._coordinator.node_id()
        if node_id is None:
            return PollResult()
        call = self._call = object()
        request = Request(
            DescribeGroupsRequest(groups=[self._group_id]),
            node_id,
            partial(self._on_response, call, node_id),
            partial(self._on_failure, call, node_id),
        )
        return PollResult([request], NEVER_MS)

    def _on_response(
        self, call: object, node_id: int, message: Message | None, now_ms: int
    ) -> None:
        assert isinstance(message, DescribeGroupsResponse)
        if self._call is not call:
            return
        described = next((each for each in message.groups if each.group_id == self._group_id), None)
        if described is None:
            error: KafkaError = DecodeError(
                f"a DescribeGroups answer says nothing of {self._group_id!r}"
            )
            self._fail(error, now_ms)
        elif described.error_code != 0:
            error = error_for_code(described.error_code, f"DescribeGroups of {self._group_id!r}")
            if isinstance(error, (CoordinatorNotAvailableError, NotCoordinatorError)):
                self._coordinator.mark_unknown(node_id, error.name)
            self._fail(error, now_ms)
        else:
            self._compare(described)

    def _compare(self, described: DescribedGroup) -> None:
        wanted = self._wanted
        assert wanted is not None
        self.forget()
        if described.group_state != STABLE:
            return
        try:
            assigned = frozenset(
                partition
                for member in described.members
                for partition in read_assignment(member.member_assignment).partitions
            )
        except DecodeError as error:
            self._log.info("group %r: what members have cannot be read: %s", self._group_id, error)
            return
        if wanted - assigned:
            self._on_gap()

    def _on_failure(self, call: object, node_id: int, error: KafkaError, now_ms: int) -> None:
        if self._call is not call:
            return
        if error.retriable:
            self._coordinator.mark_unknown(node_id, error)
        self._fail(error, now_ms)

    def _fail(self, error: KafkaError, now_ms: int) -> None:
        self._call = None
        if not error.retriable:
            self._log.info("group %r: what members have is not told: %s", self._group_id, error)
            self.forget()
            return
        self._retry_at_ms = now_ms + self._retry_backoff.delay_ms(self._failure_count)
        self._failure_count += 1
