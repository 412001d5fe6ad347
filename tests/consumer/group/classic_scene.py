"""ClassicScene: a classic membership; the test is its coordinator, and carries out its intents.

Owner: the test that made it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, TypeVar

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.group.assignors import RangeAssignor
from pykclient.consumer.group.classic.leader import GroupLeader
from pykclient.consumer.group.classic.membership import Assign, ClassicMembership, RevokeToJoin
from pykclient.consumer.group.history import GroupHistory
from pykclient.consumer.group.rebalance import LoseAll, RevokeAll
from pykclient.consumer.subscription import SubscriptionState
from pykclient.network.coordinators import GroupCoordinator
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

    from pykclient.consumer.group.rebalance import Intent
    from pykclient.errors import KafkaError
    from pykclient.network.manager import Operation, Request
    from pykclient.protocol.message import Message

__all__ = ["NODE_ID", "CarriedOut", "ClassicScene", "KnownCoordinator", "group_config"]

GROUP = "g"
NODE_ID = 7
OTHER_NODE_ID = 8
SESSION_MS = 9_000
INTERVAL_MS = 3_000
MAX_POLL_MS = 20_000
RETRY_MS = 100

MessageT = TypeVar("MessageT")


def group_config(**settings: object) -> ConsumerConfig:
    """The settings of a member."""
    return ConsumerConfig.from_settings(
        {
            "bootstrap_servers": "broker:9092",
            "group_id": GROUP,
            "max_poll_interval_ms": MAX_POLL_MS,
            **settings,
        }
    )


class CarriedOut:
    """Carries out intents, at once unless `is_slow`, and writes them down."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.is_slow = False
        self.pending: list[Intent] = []

    def add(self, intent: Intent | None) -> None:
        """Carry out what a membership wants, if it wants anything."""
        if intent is None:
            return
        self.diary.append(self._described(intent))
        if self.is_slow:
            self.pending.append(intent)
        else:
            intent.succeed(None)

    def finish(self) -> None:
        """End what is slow."""
        self.pending.pop().succeed(None)

    def _described(self, intent: Intent) -> str:
        names = {RevokeToJoin: "revoke to join", RevokeAll: "revoke all", LoseAll: "lose all"}
        return names[type(intent)]


class _CarriedOut(CarriedOut):
    rejoin_reason: str | None = None
    """Of an assignment."""

    def _described(self, intent: Intent) -> str:
        if not isinstance(intent, Assign):
            return super()._described(intent)
        intent.rejoin_reason = self.rejoin_reason
        return f"assign {intent.assignment.decode()}"


class KnownCoordinator(GroupCoordinator):
    """Where the coordinator is; known unless a test says otherwise."""

    def __init__(self) -> None:
        self.group_id = GROUP
        self.known: int | None = NODE_ID
        self.reasons: list[str] = []

    def node_id(self) -> int | None:
        return self.known

    def data_node_id(self) -> int | None:
        return OTHER_NODE_ID

    def mark_unknown(self, node_id: int, reason: object) -> None:
        assert node_id in (NODE_ID, OTHER_NODE_ID)
        self.reasons.append(str(reason))


class Leader(GroupLeader):
    """One that assigns what a test says."""

    def __init__(self) -> None:
        self.assigned: list[tuple[str, bytes]] | None = [("m-1", b"mine")]
        self.call_count = 0

    def assign(
        self, protocol: str, response: JoinGroupResponse
    ) -> Sequence[tuple[str, bytes]] | None:
        assert protocol == "range"
        assert len(response.members) == 1
        self.call_count += 1
        return self.assigned


class ClassicScene:
    """The membership, what is around it, and the clock. Requests wait in `sent`."""

    def __init__(self, group_instance_id: str | None = None) -> None:
        self.now_ms = 1_000
        self.carried_out = _CarriedOut()
        self.coordinator = KnownCoordinator()
        self.leader = Leader()
        self.history = GroupHistory()
        self.subscription = SubscriptionState()
        self.subscription.subscribe(["t"])
        self.membership = ClassicMembership(
            group_config(
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=INTERVAL_MS,
                group_instance_id=group_instance_id,
            ),
            self.coordinator,
            subscription=self.subscription,
            assignors={"range": RangeAssignor()},
            leader=self.leader,
            history=self.history,
            retry_backoff=Backoff(RETRY_MS, 1_000, jitter=0, random=Random(1)),
        )
        self.sent: list[Request] = []

    def poll(self, *, passed_ms: int = 0, times: int = 3) -> None:
        """Let time pass, and the application poll."""
        self.now_ms += passed_ms
        for _ in range(times):
            self.carried_out.add(self.membership.advance(self.now_ms))
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

    def respond(self, response: Message) -> None:
        """Answer the oldest request."""
        self.sent.pop(0).on_response(response, self.now_ms)

    def fail(self, error: KafkaError) -> None:
        """Have the oldest request end without an answer."""
        self.sent.pop(0).on_failure(error, self.now_ms)

    def leave(self, *, sends: bool = True) -> Operation[None]:
        """Begin to leave."""
        intent = self.membership.begin_leave("done", sends=sends)
        self.carried_out.add(intent)
        return self.membership.left

    # Whole steps.

    def start_joining(self) -> None:
        """Want to be a member, and poll until JoinGroup is sent."""
        self.membership.request_join("a test wants it")
        self.poll()

    def respond_to_join(
        self, *, member_id: str = "m-1", leader: str = "m-2", generation: int = 1
    ) -> None:
        """Take the member in."""
        self.take(JoinGroupRequest)
        members = [JoinGroupResponseMember(member_id=member_id)] if leader == member_id else []
        self.respond(
            JoinGroupResponse(
                generation_id=generation,
                protocol_name="range",
                leader=leader,
                member_id=member_id,
                members=members,
            )
        )

    def respond_to_sync(self, assignment: bytes = b"share") -> None:
        """Give the member its share."""
        self.take(SyncGroupRequest)
        self.respond(SyncGroupResponse(assignment=assignment))

    def join(self, generation: int = 1) -> None:
        """Become a member, whatever that needs."""
        self.start_joining()
        self.respond_to_join(generation=generation)
        self.poll()
        self.respond_to_sync()
        self.poll()
        assert not self.sent

    def beat(self, error_code: int = 0) -> None:
        """Let a heartbeat fall due, and answer it."""
        self.wait(INTERVAL_MS)
        self.take(HeartbeatRequest)
        self.respond(HeartbeatResponse(error_code=error_code))
