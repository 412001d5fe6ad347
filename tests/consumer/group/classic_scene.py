"""MemberScene: a membership between a participant that records and a coordinator that a test plays.

Owner: the test that made it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, TypeVar

from pykclient.consumer.group.classic.heartbeat import Heartbeat
from pykclient.consumer.group.classic.membership import ClassicMembership
from pykclient.consumer.group.classic.requests import ClassicSettings
from pykclient.consumer.group.history import GroupHistory
from pykclient.network.manager import Operation
from pykclient.network.retry import Backoff
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.consumer.group.metadata import GroupMetadata
    from pykclient.errors import KafkaError
    from pykclient.network.manager import Request
    from pykclient.protocol.message import Message

__all__ = ["NODE_ID", "MemberScene"]

NODE_ID = 7
OTHER_NODE_ID = 8
SESSION_MS = 9_000
INTERVAL_MS = 3_000
MAX_POLL_MS = 20_000
RETRY_MS = 100

MessageT = TypeVar("MessageT")


class RecordingParticipant:
    """Does everything at once, unless `is_slow`, and writes it down."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.is_slow = False
        self.pending: list[Operation[None]] = []

    def _done(self, what: str) -> Operation[None]:
        self.diary.append(what)
        operation: Operation[None] = Operation()
        if self.is_slow:
            self.pending.append(operation)
        else:
            operation.succeed(None)
        return operation


class Participant(RecordingParticipant):
    """That of a classic group."""

    def __init__(self) -> None:
        super().__init__()
        self.knows_topics = True
        self.rejoin_reason: str | None = None
        self.shares: list[tuple[str, bytes]] | None = [("m-1", b"mine")]

    def may_join(self) -> bool:
        return self.knows_topics

    def protocols(self, member: GroupMetadata) -> Sequence[tuple[str, bytes]]:
        del member
        return [("range", b"topics")]

    def prepare(self, *, is_member: bool, now_ms: int) -> Operation[None]:
        del now_ms
        return self._done("prepare" if is_member else "prepare, lost")

    def lead(
        self, protocol: str, response: JoinGroupResponse
    ) -> Sequence[tuple[str, bytes]] | None:
        self.diary.append(f"lead {protocol} {len(response.members)}")
        return self.shares

    def take(self, protocol: str, assignment: bytes, now_ms: int) -> Operation[str | None]:
        del protocol, now_ms
        self.diary.append(f"take {assignment.decode()}")
        taken: Operation[str | None] = Operation()
        taken.succeed(self.rejoin_reason)
        return taken

    def give_up(self, *, is_member: bool, now_ms: int) -> Operation[None]:
        del now_ms
        return self._done("give up" if is_member else "give up, lost")


class Coordinator:
    """Where the coordinator is; known unless a test says otherwise."""

    def __init__(self) -> None:
        self.known: int | None = NODE_ID
        self.reasons: list[str] = []

    def node_id(self) -> int | None:
        return self.known

    def other_node_id(self) -> int | None:
        return OTHER_NODE_ID

    def mark_unknown(self, node_id: int, reason: object) -> None:
        assert node_id in (NODE_ID, OTHER_NODE_ID)
        self.reasons.append(str(reason))


class MemberScene:
    """The membership, its surroundings, and the clock. Requests wait in `sent`."""

    def __init__(self, group_instance_id: str | None = None) -> None:
        self.now_ms = 1_000
        self.participant = Participant()
        self.coordinator = Coordinator()
        self.history = GroupHistory()
        backoff = Backoff(RETRY_MS, 1_000, jitter=0, random=Random(1))
        self.membership = ClassicMembership(
            "g",
            self.participant,
            self.coordinator,
            settings=ClassicSettings(SESSION_MS, MAX_POLL_MS, 30_000),
            heartbeat=Heartbeat(
                interval_ms=INTERVAL_MS,
                session_timeout_ms=SESSION_MS,
                max_poll_interval_ms=MAX_POLL_MS,
                retry_backoff=backoff,
            ),
            history=self.history,
            retry_backoff=backoff,
            group_instance_id=group_instance_id,
        )
        self.sent: list[Request] = []

    def poll(self, *, passed_ms: int = 0, times: int = 3) -> None:
        """Let time pass, and the application poll."""
        self.now_ms += passed_ms
        for _ in range(times):
            self.sent += self.membership.poll(self.now_ms, may_rebalance=True).requests

    def wait(self, passed_ms: int) -> None:
        """Let time pass with the application away."""
        self.now_ms += passed_ms
        self.sent += self.membership.poll(self.now_ms, may_rebalance=False).requests

    def take(self, kind: type[MessageT]) -> MessageT:
        """The one request that waits, which is of this kind; it stays to be answered."""
        [request] = self.sent
        assert isinstance(request.message, kind), request.message
        return request.message

    def answer(self, response: Message) -> None:
        """Answer the oldest request."""
        self.sent.pop(0).on_response(response, self.now_ms)

    def fail(self, error: KafkaError) -> None:
        """Have the oldest request end without an answer."""
        self.sent.pop(0).on_failure(error, self.now_ms)

    # Whole steps.

    def ask(self) -> None:
        """Want to be a member, and poll until JoinGroup is sent."""
        self.membership.ask_to_join("a test wants it")
        self.poll()

    def answer_join(
        self, *, member_id: str = "m-1", leader: str = "m-2", generation: int = 1
    ) -> None:
        """Take the member in."""
        self.take(JoinGroupRequest)
        members = [JoinGroupResponseMember(member_id=member_id)] if leader == member_id else []
        self.answer(
            JoinGroupResponse(
                generation_id=generation,
                protocol_name="range",
                leader=leader,
                member_id=member_id,
                members=members,
            )
        )

    def answer_sync(self, assignment: bytes = b"share") -> None:
        """Give the member its share."""
        self.take(SyncGroupRequest)
        self.answer(SyncGroupResponse(assignment=assignment))

    def join(self, generation: int = 1) -> None:
        """Become a member, whatever that needs."""
        self.ask()
        self.answer_join(generation=generation)
        self.poll()
        self.answer_sync()
        self.poll()
        assert not self.sent

    def beat(self, error_code: int = 0) -> None:
        """Let a heartbeat fall due, and answer it."""
        self.wait(INTERVAL_MS)
        self.take(HeartbeatRequest)
        self.answer(HeartbeatResponse(error_code=error_code))
