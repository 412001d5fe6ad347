"""A member of a KIP-848 group that behaves like a client; the test changes what it owns.

Owner: the test that created it.
Source: KIP-848; Java class ``ConsumerMembershipManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    FencedMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)
from pykclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from tests.testing.fake.requests import coordinator_id, response_to

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.testing import FakeCluster

GROUP = "g"
REBALANCE_MS = 20_000
_FENCING = {FencedMemberEpochError.code, UnknownMemberIdError.code}

Owned = set[tuple[bytes, int]]


class Kip848Client:
    """A member; `owned` are its partitions, `assigned` its last assignment."""

    def __init__(
        self,
        cluster: FakeCluster,
        member_id: str,
        topics: Iterable[str] = (),
        *,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: Owned = set()
        self.assigned: Owned = set()
        self.topics = list(topics)
        self._cluster = cluster
        self._regex = regex
        self._assignor = assignor

    def beat(self, *, has_response: bool = True) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat with its partitions; lose the response if not `has_response`."""
        joins = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            rebalance_timeout_ms=REBALANCE_MS if joins else -1,
            subscribed_topic_names=self.topics if joins else None,
            subscribed_topic_regex=self._regex if joins else None,
            server_assignor=self._assignor if joins else None,
            topic_partitions=[
                RequestTopicPartitions(topic_id, [partition])
                for topic_id, partition in sorted(self.owned)
            ],
        )
        response = self._send(request)
        if has_response:
            self._on_response(response)
        return response

    def subscribe(self, topics: Iterable[str]) -> ConsumerGroupHeartbeatResponse:
        """Change the subscription, in a heartbeat with no other field."""
        self.topics = list(topics)
        response = self._send(ConsumerGroupHeartbeatRequest(subscribed_topic_names=self.topics))
        self._on_response(response)
        return response

    def reconcile(self) -> None:
        """Adopt the assignment; the next heartbeat reports it."""
        self.owned = set(self.assigned)

    def settle(self) -> ConsumerGroupHeartbeatResponse:
        """Heartbeat, reconcile, heartbeat again, and return the last response."""
        self.beat()
        self.reconcile()
        response = self.beat()
        self.reconcile()
        return response

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        """Leave; with epoch -2, temporarily."""
        self.epoch = epoch
        response = self._send(ConsumerGroupHeartbeatRequest())
        self._lose_all()
        return response

    def _on_response(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code in _FENCING:
            self._lose_all()
            return
        if response.error_code == UnreleasedInstanceIdError.code:
            return
        assert response.error_code == 0, response.error_message
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.assigned = {
                (topic.topic_id, partition)
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            }

    def _lose_all(self) -> None:
        self.epoch = 0
        self.owned = set()
        self.assigned = set()

    def _send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        request.group_id = GROUP
        request.member_id = self.member_id
        request.member_epoch = self.epoch
        request.instance_id = self.instance_id
        return response_to(
            self._cluster,
            request,
            ConsumerGroupHeartbeatResponse,
            broker_id=coordinator_id(self._cluster),
        )


def owned_by(cluster: FakeCluster, client: Kip848Client) -> dict[str, list[int]]:
    """Return a client's partitions by topic name."""
    names = {topic.topic_id: topic.name for topic in cluster.topics.values()}
    found: dict[str, list[int]] = {}
    for topic_id, partition in sorted(client.owned):
        found.setdefault(names[topic_id], []).append(partition)
    return found
