"""The answers of one classic group, kept back until it has finished changing.

An answer may let a connection's next request in, which may change the group again.

Owner: the group.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pykclient.protocol.messages.join_group import JoinGroupResponse
from pykclient.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from pykclient.protocol.message import Message
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.groups.classic_members import ClassicMember
    from pykclient.testing.fake.groups.group import Refusal

__all__ = ["ClassicAnswers"]


class ClassicAnswers:
    """Answers in the order in which they are to be sent."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Call, Message]] = deque()

    def add(self, call: Call, response: Message) -> None:
        """Answer a request that nobody waits with."""
        self._waiting.append((call, response))

    def refuse_join(self, call: Call, member_id: str, error: Refusal) -> None:
        """Refuse a member that is none yet, or no more."""
        self.add(call, JoinGroupResponse(error_code=error.code, member_id=member_id))

    def join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        """Answer a member's JoinGroup, if it waits with one."""
        if member.join_call is not None:
            self.add(member.join_call, response)
            member.join_call = None

    def sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        """Answer a member's SyncGroup; whether it waited with one."""
        if member.sync_call is None:
            return False
        self.add(member.sync_call, response)
        member.sync_call = None
        return True

    def end(self, member: ClassicMember, member_id: str, error: Refusal) -> None:
        """Refuse whatever a member waits with; `member_id` is what it is told that it is."""
        self.join(member, JoinGroupResponse(error_code=error.code, member_id=member_id))
        self.sync(member, SyncGroupResponse(error_code=error.code))

    def send(self, now_ms: int) -> None:
        """Send them all."""
        while self._waiting:
            call, response = self._waiting.popleft()
            call.answer(response, now_ms)
