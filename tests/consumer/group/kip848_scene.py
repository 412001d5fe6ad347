"""Kip848Scene: a KIP-848 membership; the test is its coordinator, and carries out its intents.

Owner: the test that made it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from pykclient.consumer.group.history import GroupHistory
from pykclient.consumer.group.kip848.membership import Assign, Kip848Membership
from pykclient.consumer.subscription import SubscriptionState
from pykclient.network.retry import Backoff
from pykclient.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from tests.consumer.group.classic_scene import (
    MAX_POLL_MS,
    RETRY_MS,
    CarriedOut,
    KnownCoordinator,
    group_config,
)
from tests.consumer.known_cluster import know, make_metadata, refresh, topic

if TYPE_CHECKING:
    from pykclient.consumer.group.kip848.membership import MemberState
    from pykclient.consumer.group.rebalance import Intent
    from pykclient.errors import KafkaError
    from pykclient.network.manager import Operation, Request

__all__ = ["INTERVAL_MS", "MAX_POLL_MS", "RETRY_MS", "Kip848Scene"]

A, B = bytes(15) + b"a", bytes(15) + b"b"
INTERVAL_MS = 5_000

TopicIdPartitions = dict[bytes, tuple[int, ...]]


class _CarriedOut(CarriedOut):
    def _described(self, intent: Intent) -> str:
        if not isinstance(intent, Assign):
            return super()._described(intent)
        shown = (f"{each.topic}{each.partition}" for each in intent.partitions)
        return f"assign {' '.join(shown) or 'nothing'}"


class Kip848Scene:
    """The membership, what is around it, and the clock. Heartbeats wait in `sent`."""

    def __init__(self, group_instance_id: str | None = None, server_assignor: str = "") -> None:
        self.now_ms = 1_000
        self.carried_out = _CarriedOut()
        self.coordinator = KnownCoordinator()
        self.history = GroupHistory()
        self.subscription = SubscriptionState()
        self.subscription.subscribe(["a", "b"])
        self.metadata = make_metadata()
        refresh(self.metadata)
        self.know("a", "b")
        self.membership = Kip848Membership(
            group_config(
                group_protocol="consumer",
                group_instance_id=group_instance_id,
                group_remote_assignor=server_assignor,
                client_rack="rack",
            ),
            self.coordinator,
            subscription=self.subscription,
            metadata=self.metadata,
            history=self.history,
            retry_backoff=Backoff(RETRY_MS, 1_000, jitter=0, random=Random(1)),
        )
        self.sent: list[Request] = []

    def know(self, *names: str) -> None:
        """Have metadata know these topics."""
        ids = {"a": A, "b": B}
        know(self.metadata, *(topic(name, [1, 1], topic_id=ids[name]) for name in names))

    def is_in(self, state: MemberState) -> bool:
        """Whether the member is as far as this."""
        return self.membership.state is state

    def poll(self, *, passed_ms: int = 0, times: int = 4) -> None:
        """Let time pass, and the application poll."""
        self.now_ms += passed_ms
        for _ in range(times):
            self.carried_out.add(self.membership.advance(self.now_ms))
            self.sent += self.membership.poll(self.now_ms, may_rebalance=True).requests

    def wait(self, passed_ms: int) -> None:
        """Let time pass with the application away."""
        self.now_ms += passed_ms
        self.sent += self.membership.poll(self.now_ms, may_rebalance=False).requests

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """The one heartbeat that waits for its answer."""
        (request,) = self.sent
        message = request.message
        assert isinstance(message, ConsumerGroupHeartbeatRequest)
        return message

    def last_epoch(self) -> int:
        """What the youngest heartbeat says of the member's epoch."""
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
        """Answer it; `assigned` None tells nothing about partitions."""
        self.heartbeat()
        request = self.sent.pop()
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
        request.on_response(response, self.now_ms)

    def lose_response(self, error: KafkaError) -> None:
        """Let the heartbeat under way fail."""
        self.heartbeat()
        self.sent.pop().on_failure(error, self.now_ms)

    def leave(self, *, sends: bool = True) -> Operation[None]:
        """Begin to leave."""
        intent = self.membership.begin_leave("done", sends=sends)
        self.carried_out.add(intent)
        return self.membership.left

    def join(self, assigned: TopicIdPartitions | None = None) -> None:
        """Become a stable member that has these partitions, and has acknowledged them."""
        self.membership.request_join()
        self.poll()
        self.respond(1, assigned or {})
        self.poll()
        if assigned:
            self.respond(1)
        self.carried_out.diary.clear()
