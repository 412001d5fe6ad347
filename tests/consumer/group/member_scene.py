"""Scenes of one member, classic or KIP-848: the test plays its coordinator and its application.

Owner: the test that created it.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, TypeVar

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.group.assignors import GroupMember, RangeAssignor
from pykclient.consumer.group.classic.membership import ClassicMembership
from pykclient.consumer.group.classic.protocol import encode_assignment, encode_subscription
from pykclient.consumer.group.history import GroupHistory
from pykclient.consumer.group.identity import MemberIdentity
from pykclient.consumer.group.kip848.membership import Kip848Membership
from pykclient.consumer.group.rebalance import (
    Assign,
    GroupContext,
    LoseAll,
    RevokeAll,
    RevokeToJoin,
)
from pykclient.consumer.subscription import SubscriptionState
from pykclient.network.coordinators import CoordinatorLookup
from pykclient.network.manager import Operation
from pykclient.network.retry import Backoff
from pykclient.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykclient.types import TopicPartition
from tests.consumer.known_cluster import make_metadata, refresh, topic, update_metadata

if TYPE_CHECKING:
    from pykclient.consumer.group.kip848.membership import MemberState
    from pykclient.consumer.group.rebalance import Intent
    from pykclient.errors import KafkaError
    from pykclient.network.manager import Request
    from pykclient.protocol.message import Message

GROUP = "g"
NODE_ID = 7
OTHER_NODE_ID = 8
SESSION_MS = 9_000
INTERVAL_MS = 3_000
MAX_POLL_MS = 20_000
RETRY_MS = 100
COUNT = 10
"""Number of partitions of each topic in KIP-848 scenes."""
A, B = bytes(15) + b"a", bytes(15) + b"b"

MessageT = TypeVar("MessageT")
TopicIdPartitions = dict[bytes, tuple[int, ...]]


def group_config(**settings: object) -> ConsumerConfig:
    """Return the settings of a member."""
    return ConsumerConfig.from_settings(
        {
            "bootstrap_servers": "broker:9092",
            "group_id": GROUP,
            "max_poll_interval_ms": MAX_POLL_MS,
            **settings,
        }
    )


class KnownCoordinator(CoordinatorLookup):
    """The coordinator's address, which is known unless a test changes that."""

    def __init__(self) -> None:
        self.key = GROUP
        self.known: int | None = NODE_ID
        self.reasons: list[str] = []

    def node_id(self) -> int | None:
        return self.known

    def data_node_id(self) -> int | None:
        return OTHER_NODE_ID

    def mark_unknown(self, node_id: int, reason: object) -> None:
        assert node_id in (NODE_ID, OTHER_NODE_ID)
        self.reasons.append(str(reason))


def group_context(**parts: object) -> GroupContext:
    """Return a group's context, in which only these parts do anything."""
    done: Operation[None] = Operation()
    done.succeed(None)
    defaults: dict[str, object] = {
        "subscription": SubscriptionState(),
        "metadata": make_metadata(),
        "coordinator": KnownCoordinator(),
        "retry_backoff": Backoff(RETRY_MS, 1_000, jitter=0, random=Random(1)),
        "user_calls": deque(),
        "drop": lambda assigned: None,
        "refresh": lambda assigned: None,
        "commit": lambda deadline_ms: done,
        "why_late": lambda: "no response yet",
        "follow_topics": lambda: None,
    }
    return GroupContext(**(defaults | parts))  # type: ignore[arg-type]


class CarriedOut:
    """Carries out intents, at once unless `is_slow`, and records them."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.is_slow = False
        self.pending: list[Intent] = []

    def add(self, intent: Intent | None) -> None:
        """Carry out an intent of the membership."""
        if intent is None:
            return
        if isinstance(intent, Assign):
            shown = (f"{each.topic}{each.partition}" for each in intent.partitions)
            self.events.append(f"assign {' '.join(shown) or 'nothing'}")
        else:
            names = {RevokeToJoin: "revoke to join", RevokeAll: "revoke all", LoseAll: "lose all"}
            self.events.append(names[type(intent)])
        if self.is_slow:
            self.pending.append(intent)
        else:
            intent.succeed(None)

    def finish(self) -> None:
        """Complete the pending intents."""
        self.pending.pop().succeed(None)


class MemberScene:
    """A membership's surroundings and its clock. Requests wait in `sent`."""

    membership: ClassicMembership | Kip848Membership

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.carried_out = CarriedOut()
        self.coordinator = KnownCoordinator()
        self.history = GroupHistory()
        self.identity = MemberIdentity(GROUP, None)
        self.subscription = SubscriptionState()
        self.metadata = make_metadata()
        refresh(self.metadata)
        self.context = group_context(
            subscription=self.subscription, metadata=self.metadata, coordinator=self.coordinator
        )
        self.sent: list[Request] = []

    def poll(self, *, passed_ms: int = 0, times: int = 4) -> None:
        """Advance the clock, and poll as the application does."""
        self.now_ms += passed_ms
        for _ in range(times):
            self.carried_out.add(self.membership.advance(self.now_ms))
            self.sent += self.membership.poll(self.now_ms, may_rebalance=True).requests

    def wait(self, passed_ms: int) -> None:
        """Advance the clock while the application does not poll."""
        self.now_ms += passed_ms
        self.sent += self.membership.poll(self.now_ms, may_rebalance=False).requests

    def take(self, kind: type[MessageT]) -> MessageT:
        """Return the only request without a response, which must have this kind; do not respond."""
        [request] = self.sent
        assert isinstance(request.message, kind), request.message
        return request.message

    def fail(self, error: KafkaError) -> None:
        """Fail the oldest request."""
        self.sent.pop(0).on_failure(error, self.now_ms)

    def leave(self, *, sends: bool = True) -> Operation[None]:
        """Start to leave."""
        self.carried_out.add(self.membership.begin_leave("done", sends=sends))
        return self.membership.left


class ClassicScene(MemberScene):
    """A classic member that subscribes to ``t``, with the range assignor."""

    membership: ClassicMembership

    def __init__(self, group_instance_id: str | None = None) -> None:
        super().__init__()
        self.subscription.subscribe(["t"])
        self.update_metadata()
        self.membership = ClassicMembership(
            group_config(
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=INTERVAL_MS,
                group_instance_id=group_instance_id,
            ),
            self.context,
            self.history,
            [RangeAssignor()],
            identity=self.identity,
        )

    def update_metadata(self) -> None:
        """Add the topic to the metadata."""
        update_metadata(self.metadata, topic("t", [1, 1]))

    def respond(self, response: Message) -> None:
        """Respond to the oldest request."""
        self.sent.pop(0).on_response(response, self.now_ms)

    # Steps of several requests.

    def start_joining(self) -> None:
        """Request to join, and poll until JoinGroup is sent."""
        self.membership.request_join("a test wants it")
        self.poll()

    def respond_to_join(
        self, *, member_id: str = "m-1", leader: str = "m-2", generation: int = 1
    ) -> None:
        """Accept the member; as a leader it is one of two members."""
        self.take(JoinGroupRequest)
        subscription = encode_subscription(GroupMember(frozenset({"t"})))
        members = [
            JoinGroupResponseMember(member_id=each, metadata=subscription)
            for each in (member_id, "m-2")
        ]
        self.respond(
            JoinGroupResponse(
                generation_id=generation,
                protocol_name="range",
                leader=leader,
                member_id=member_id,
                members=members if leader == member_id else [],
            )
        )

    def respond_to_sync(self) -> None:
        """Assign the first partition to the member."""
        self.take(SyncGroupRequest)
        self.respond(SyncGroupResponse(assignment=encode_assignment([TopicPartition("t", 0)])))

    def join(self, generation: int = 1) -> None:
        """Become a member, with all necessary requests."""
        self.start_joining()
        self.respond_to_join(generation=generation)
        self.poll()
        self.respond_to_sync()
        self.poll()
        assert not self.sent
        self.carried_out.events.clear()

    def beat(self, error_code: int = 0) -> None:
        """Wait until a heartbeat is due, and respond to it."""
        self.wait(INTERVAL_MS)
        self.take(HeartbeatRequest)
        self.respond(HeartbeatResponse(error_code=error_code))


class Kip848Scene(MemberScene):
    """A KIP-848 member that subscribes to ``a`` and ``b``."""

    membership: Kip848Membership

    def __init__(self, group_instance_id: str | None = None, server_assignor: str = "") -> None:
        super().__init__()
        self.subscription.subscribe(["a", "b"])
        self.update_metadata("a", "b")
        self.membership = Kip848Membership(
            group_config(
                group_protocol="consumer",
                group_instance_id=group_instance_id,
                group_remote_assignor=server_assignor,
                client_rack="rack",
            ),
            self.context,
            self.history,
            self.identity,
        )

    def update_metadata(self, *names: str, count: int = COUNT) -> None:
        """Set the topics in metadata, each with this number of partitions."""
        ids = {"a": A, "b": B}
        topics = (topic(name, [1] * count, topic_id=ids[name]) for name in names)
        update_metadata(self.metadata, *topics)

    def is_in(self, state: MemberState) -> bool:
        """Return whether the member is in this state."""
        return self.membership.state is state

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """Return the only heartbeat without a response."""
        return self.take(ConsumerGroupHeartbeatRequest)

    def last_epoch(self) -> int:
        """Return the member's epoch in the latest heartbeat."""
        message = self.sent[-1].message
        assert isinstance(message, ConsumerGroupHeartbeatRequest)
        return message.member_epoch

    def respond(
        self,
        epoch: int = 1,
        assigned: TopicIdPartitions | None = None,
        *,
        code: int = 0,
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        """Respond to it; if `assigned` is None, without an assignment."""
        self.heartbeat()
        assignment = None
        if assigned is not None:
            topics = [
                ResponseTopicPartitions(each, list(numbers)) for each, numbers in assigned.items()
            ]
            assignment = Assignment(topics)
        response = ConsumerGroupHeartbeatResponse(
            error_code=code,
            member_epoch=epoch,
            heartbeat_interval_ms=interval_ms,
            assignment=assignment,
        )
        self.sent.pop().on_response(response, self.now_ms)

    def join(self, assigned: TopicIdPartitions | None = None) -> None:
        """Become a stable member that has acknowledged these partitions."""
        self.membership.request_join()
        self.poll()
        self.respond(1, assigned or {})
        self.poll()
        self.respond(1)
        self.carried_out.events.clear()
