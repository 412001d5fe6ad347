"""ModernScene: a KIP-848 membership between a participant that records and a coordinator by hand.

Owner: the test that made it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from pykclient.consumer.group.history import GroupHistory
from pykclient.consumer.group.kip848.membership import ModernMembership
from pykclient.consumer.group.kip848.requests import Interest, ModernSettings
from pykclient.network.retry import Backoff
from pykclient.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from tests.consumer.group.classic_scene import Coordinator, RecordingParticipant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.consumer.group.kip848.state import ModernState
    from pykclient.errors import KafkaError
    from pykclient.network.manager import Operation, Request

__all__ = ["INTERVAL_MS", "MAX_POLL_MS", "RETRY_MS", "ModernScene"]

A, B = bytes(15) + b"a", bytes(15) + b"b"
NAMES = {A: "a", B: "b"}
INTERVAL_MS = 5_000
MAX_POLL_MS = 20_000
RETRY_MS = 100

Had = dict[bytes, tuple[int, ...]]


class ModernParticipant(RecordingParticipant):
    """That of a group of KIP-848, for topics ``a`` and ``b``."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted = Interest(frozenset({"a", "b"}))
        self.known = set(NAMES)
        self.has: Had = {}

    def interest(self) -> Interest:
        return self.wanted

    def resolve(self, target: Mapping[bytes, tuple[int, ...]]) -> Had:
        return {topic: numbers for topic, numbers in target.items() if topic in self.known}

    def ask_for_names(self) -> None:
        self.diary.append("ask for names")

    def reconcile(self, assigned: Had, now_ms: int) -> Operation[None]:
        del now_ms
        self.has = assigned
        shown = [f"{NAMES[topic]}{number}" for topic in assigned for number in assigned[topic]]
        return self._done(f"have {' '.join(shown) or 'nothing'}")

    def give_up(self, *, is_member: bool, now_ms: int) -> Operation[None]:
        del now_ms
        self.has = {}
        return self._done("give up" if is_member else "lose")

    def stop(self, now_ms: int) -> None:
        del now_ms
        self.pending.clear()


class ModernScene:
    """The membership, its surroundings, and the clock. Heartbeats wait in `sent`."""

    def __init__(
        self, group_instance_id: str | None = None, server_assignor: str | None = None
    ) -> None:
        self.now_ms = 1_000
        self.participant = ModernParticipant()
        self.coordinator = Coordinator()
        self.history = GroupHistory()
        self.membership = ModernMembership(
            "g",
            self.participant,
            self.coordinator,
            settings=ModernSettings(MAX_POLL_MS, 30_000, server_assignor, "rack"),
            history=self.history,
            retry_backoff=Backoff(RETRY_MS, 1_000, jitter=0, random=Random(1)),
            group_instance_id=group_instance_id,
        )
        self.sent: list[Request] = []

    def is_in(self, state: ModernState) -> bool:
        """Whether the member is as far as this."""
        return self.membership.state is state

    def poll(self, *, passed_ms: int = 0, times: int = 4) -> None:
        """Let time pass, and the application poll."""
        self.now_ms += passed_ms
        for _ in range(times):
            self.sent += self.membership.poll(self.now_ms, may_rebalance=True).requests

    def wait(self, passed_ms: int) -> None:
        """Let time pass with the application away."""
        self.now_ms += passed_ms
        self.sent += self.membership.poll(self.now_ms, may_rebalance=False).requests

    def told(self) -> ConsumerGroupHeartbeatRequest:
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

    def answer(
        self,
        epoch: int = 1,
        assigned: Had | None = None,
        *,
        code: int = 0,
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        """Answer it; `assigned` None tells nothing about partitions."""
        self.told()
        request = self.sent.pop()
        assignment = None
        if assigned is not None:
            topics = [ResponseTopicPartitions(each, list(told)) for each, told in assigned.items()]
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
        self.told()
        self.sent.pop().on_failure(error, self.now_ms)

    def finish(self) -> None:
        """End what the slow participant is busy with."""
        self.participant.pending.pop().succeed(None)

    def join(self, assigned: Had | None = None) -> None:
        """Become a stable member that has these partitions, and has told so."""
        self.membership.ask_to_join()
        self.poll()
        self.answer(1, assigned or {})
        self.poll()
        if assigned:
            self.answer(1)
        self.participant.diary.clear()
