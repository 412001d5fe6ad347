"""Leaving: one LeaveGroup, which ends well whatever is answered.

A member that the coordinator does not know, or cannot be told about, is as good as gone: its
session ends by itself.

Owner: the core lock.
Source: ``maybeLeaveGroup`` of Java's ``AbstractCoordinator``; KIP-800 (reasons).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pykclient.consumer.group.classic.requests import leave_request
from pykclient.errors import error_for_code
from pykclient.network.manager import Request
from pykclient.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from pykclient.consumer.group.member import GroupMetadata
    from pykclient.errors import KafkaError
    from pykclient.network.client_log import ClientLog
    from pykclient.network.manager import Operation
    from pykclient.protocol.message import Message

__all__ = ["Leaving"]


class Leaving:
    """Tells the coordinator that `member` goes, and ends `left` then."""

    def __init__(
        self, member: GroupMetadata, reason: str, left: Operation[None], log: ClientLog
    ) -> None:
        self._member = member
        self._reason = reason
        self._left = left
        self._log = log

    def request(self, node_id: int) -> Request:
        """Return what is to be sent."""
        build = partial(leave_request, self._member, self._reason)
        self._log.info("group %r: leaving: %s", self._member.group_id, self._reason)
        return Request(
            build(LeaveGroupRequest.max_version),
            node_id,
            self._on_response,
            self._on_failure,
            build=build,
        )

    def _on_response(self, response: Message | None, now_ms: int) -> None:
        del now_ms
        assert isinstance(response, LeaveGroupResponse)
        codes = [response.error_code, *(member.error_code for member in response.members)]
        error_code = next((code for code in codes if code != 0), 0)
        if error_code != 0:
            about = f"LeaveGroup of group {self._member.group_id!r}"
            self._log.info("%s", error_for_code(error_code, about))
        self._left.succeed(None)

    def _on_failure(self, error: KafkaError, now_ms: int) -> None:
        del now_ms
        self._log.info(
            "group %r: the coordinator was not told of leaving, the session will end: %s",
            self._member.group_id,
            error,
        )
        self._left.succeed(None)
