"""UnassignedPartitions: whether members have all that this leader would have assigned.

A static leader that has restarted is to send no assignment (KIP-814): that of before holds.
Partitions that topics have grown by meanwhile are then unassigned, so the coordinator is requested
to describe the group. *Idle*; *requesting*, now or after a back-off; idle again with the response.

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
from pykclient.network.retry import Attempt
from pykclient.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from pykclient.errors import KafkaError
    from pykclient.network.coordinators import GroupCoordinator
    from pykclient.network.log import ClientLog
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.describe_groups import DescribedGroup
    from pykclient.types import TopicPartition

__all__ = ["UnassignedPartitions"]

STABLE: Final = "Stable"
"""In other states of the group its leader is about to assign."""


class UnassignedPartitions:
    """Describes one group; sets `has_found` if partitions that it should read are unassigned."""

    def __init__(
        self, coordinator: GroupCoordinator, *, retry_backoff: Backoff, log: ClientLog
    ) -> None:
        self.has_found = False
        self._coordinator = coordinator
        self._retry_backoff = retry_backoff
        self._log = log
        self._wanted: frozenset[TopicPartition] | None = None
        """What should be assigned; None while nothing is to be compared."""
        self._attempt = Attempt(retry_backoff)
        """Of the request under way; responses to others come too late."""

    def compare(self, wanted: frozenset[TopicPartition]) -> None:
        """Find out whether members have all of `wanted`."""
        self.forget()
        self._wanted = wanted

    def forget(self) -> None:
        """Compare nothing: the group rebalances."""
        self._wanted = None
        self._attempt = Attempt(self._retry_backoff)
        self.has_found = False

    def restart(self) -> None:
        """Send the request anew, if one was in flight."""
        self._attempt = Attempt(self._retry_backoff)

    def poll(self, now_ms: int) -> PollResult:
        """Describe the group, if that is due."""
        if self._wanted is None:
            return PollResult()
        attempt = self._attempt
        if not attempt.is_due(now_ms):
            return PollResult(next_poll_ms=attempt.next_ms)
        node_id = self._coordinator.node_id()
        if node_id is None:
            return PollResult()
        attempt.sent()
        request = Request(
            DescribeGroupsRequest(groups=[self._coordinator.group_id]),
            node_id,
            partial(self._on_response, attempt, node_id),
            partial(self._on_failure, attempt, node_id),
        )
        return PollResult([request], NEVER_MS)

    def _on_response(
        self, attempt: Attempt, node_id: int, message: Message | None, now_ms: int
    ) -> None:
        assert isinstance(message, DescribeGroupsResponse)
        if self._attempt is not attempt:
            return
        group_id = self._coordinator.group_id
        described = next((each for each in message.groups if each.group_id == group_id), None)
        if described is None:
            self._fail(DecodeError(f"a DescribeGroups response lacks {group_id!r}"), now_ms)
        elif described.error_code != 0:
            error = error_for_code(described.error_code, f"DescribeGroups of {group_id!r}")
            if isinstance(error, (CoordinatorNotAvailableError, NotCoordinatorError)):
                self._coordinator.mark_unknown(node_id, error.name)
            self._fail(error, now_ms)
        else:
            self._on_described(described)

    def _on_described(self, described: DescribedGroup) -> None:
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
            self._log.info("group %r: its assignment cannot be read: %s", described.group_id, error)
            return
        self.has_found = bool(wanted - assigned)

    def _on_failure(self, attempt: Attempt, node_id: int, error: KafkaError, now_ms: int) -> None:
        if self._attempt is not attempt:
            return
        if error.retriable:
            self._coordinator.mark_unknown(node_id, error)
        self._fail(error, now_ms)

    def _fail(self, error: KafkaError, now_ms: int) -> None:
        final_error = self._attempt.failed(error, now_ms)
        if final_error is not None:
            group_id = self._coordinator.group_id
            self._log.info("group %r: its assignment is not known: %s", group_id, final_error)
            self.forget()
