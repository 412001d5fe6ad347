"""GroupScene: a consumer's group; the test plays the rest of the consumer and the coordinator.

The coordinator is known. Requests of the group wait in `sent`; the test responds.

Owner: the test that created it.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from pykclient.consumer.group.assignors import CooperativeStickyAssignor, GroupMember, RangeAssignor
from pykclient.consumer.group.classic.protocol import encode_assignment, encode_subscription
from pykclient.consumer.group.group import ConsumerGroup
from pykclient.consumer.group.rebalance import RebalanceListener
from pykclient.consumer.subscription import SubscriptionState
from pykclient.network.cluster.cluster import Cluster
from pykclient.network.coordinators import (
    Coordinators,
    CoordinatorType,
)
from pykclient.network.manager import Operation
from pykclient.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from pykclient.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.consumer.group.member_scene import (
    GROUP,
    INTERVAL_MS,
    MAX_POLL_MS,
    group_config,
    group_context,
)
from tests.consumer.known_cluster import (
    RETRY_BACKOFF,
    START_MS,
    TOPIC_ID,
    ReachableNetwork,
    make_metadata,
    topic,
    update_metadata,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pykclient.consumer.group.assignors import Assignor
    from pykclient.consumer.group.history import Rebalance
    from pykclient.errors import BrokerError
    from pykclient.network.cluster.cluster import TopicInfo
    from pykclient.network.manager import Request, UserCall
    from pykclient.types import GroupMetadata, TopicPartition

__all__ = ["GROUP", "INTERVAL_MS", "MAX_POLL_MS", "GroupScene"]

TURN_COUNT = 4

MessageT = TypeVar("MessageT")


class GroupScene:
    """A group with a protocol, `classic` or `consumer`. `events` records the listener's calls.

    `committed_as` records the members that committed before a revocation.
    """

    def __init__(
        self, protocol: str, assignors: Sequence[Assignor] | None = None, **settings: object
    ) -> None:
        self.now_ms = START_MS
        self.metadata = make_metadata()
        self.subscription = SubscriptionState()
        self.coordinators = Coordinators(
            self.metadata, ReachableNetwork(), retry_backoff=RETRY_BACKOFF
        )
        self.events: list[str] = []
        self.sent: list[Request] = []
        self.committed_as: list[GroupMetadata] = []
        self._user_calls: deque[UserCall] = deque()
        self.is_classic = protocol == "classic"
        self.group = ConsumerGroup(
            group_config(group_protocol=protocol, **settings),
            group_context(
                subscription=self.subscription,
                metadata=self.metadata,
                coordinator=self.coordinators.find(CoordinatorType.GROUP, GROUP),
                user_calls=self._user_calls,
                commit=self._commit,
            ),
            assignors or [RangeAssignor(), CooperativeStickyAssignor()],
        )
        self.listener = RebalanceListener(
            lambda partitions: self._write("assigned", partitions),
            lambda partitions: self._write("revoked", partitions),
            lambda partitions: self._write("lost", partitions),
        )
        self.update_metadata()
        self.find_coordinator()

    # The cluster.

    def update_metadata(
        self, *topics: TopicInfo, errors: Mapping[str, BrokerError] | None = None
    ) -> None:
        """Set the topics in metadata."""
        update_metadata(self.metadata, *topics, errors=errors)
        self.group.on_cluster(self.metadata.cluster)

    def start_over(self) -> None:
        """Empty the metadata, as before a request to the bootstrap addresses."""
        self.metadata.cluster = Cluster(version=self.metadata.cluster.version + 1)
        self.group.on_cluster(self.metadata.cluster)

    @property
    def coordinator_id(self) -> int:
        """The coordinator's node id."""
        node_id = self.coordinators.find(CoordinatorType.GROUP, GROUP).node_id()
        assert node_id is not None
        return node_id

    def find_coordinator(self, broker_id: int = 2) -> None:
        """Find the coordinator: this broker."""
        self.coordinators.find(CoordinatorType.GROUP, GROUP).node()
        (request,) = self.coordinators.poll(self.now_ms).requests
        found = Coordinator(GROUP, broker_id, f"broker-{broker_id}", 9092)
        request.on_response(FindCoordinatorResponse(coordinators=[found]), self.now_ms)

    def _commit(self, deadline_ms: int) -> Operation[None]:
        del deadline_ms
        if self.group._membership.can_commit:
            self.committed_as.append(self.group.member())
        done: Operation[None] = Operation()
        done.succeed(None)
        return done

    def history(self) -> tuple[Rebalance, ...]:
        """Return the rebalances."""
        return self.group.history.rebalances(self.now_ms, datetime.now(UTC))

    def leave(self) -> Operation[None]:
        """Unsubscribe, and poll until nothing is left to do."""
        self.group.begin_poll()
        left = self.group.begin_leave(
            "test", sends=True, now_ms=self.now_ms, commit_deadline_ms=self.now_ms + 1_000
        )
        for _ in range(TURN_COUNT):
            self._run_user_calls()
            self.sent += self.group.poll(self.now_ms).requests
        self.group.end_poll()
        return left

    # Time.

    def poll(self, passed_ms: int = 0) -> None:
        """Advance the clock, and poll as the application does; no records are returned."""
        self.now_ms += passed_ms
        self.group.begin_poll()
        for _ in range(TURN_COUNT):
            self.sent += self.group.poll(self.now_ms).requests
            self._run_user_calls()
        self.group.end_poll()

    def wait(self, passed_ms: int) -> None:
        """Advance the clock while the application does not poll."""
        self.now_ms += passed_ms
        self.sent += self.group.poll_in_background(self.now_ms).requests

    # The coordinator.

    def sent_request(self, kind: type[MessageT]) -> MessageT:
        """Return the only request without a response, which must have this kind."""
        [request] = self.sent
        assert isinstance(request.message, kind), request.message
        return request.message

    def join(self, *partitions: TopicPartition) -> None:
        """Join with the present subscription, and get these partitions of ``t``."""
        self.update_metadata(topic("t", [1, 1]))
        self.group.on_subscribed(self.listener)
        self.poll()
        self.assign(partitions)
        assert self.subscription.partitions == set(partitions)
        self.events.clear()

    def lead(self, members: Mapping[str, Iterable[str]]) -> None:
        """Respond to JoinGroup: this member leads the given ones, which have these topics."""
        self.sent_request(JoinGroupRequest)
        found = [
            JoinGroupResponseMember(
                member_id=member_id,
                metadata=encode_subscription(GroupMember(topics=frozenset(topics))),
            )
            for member_id, topics in members.items()
        ]
        self._respond(
            JoinGroupResponse(
                generation_id=1,
                protocol_name="range",
                leader="m-1",
                member_id="m-1",
                members=found,
            )
        )

    def assign(self, partitions: Iterable[TopicPartition], generation: int = 1) -> None:
        """Respond to the member's JoinGroup and SyncGroup with these partitions."""
        if not self.is_classic:
            self.sent_request(ConsumerGroupHeartbeatRequest)
            self.beat(partitions, generation)
            self.poll()
            while self.sent:
                self.beat(epoch=generation)
            return
        self.sent_request(JoinGroupRequest)
        self._respond(
            JoinGroupResponse(
                generation_id=generation, protocol_name="range", leader="m-2", member_id="m-1"
            )
        )
        self.poll()
        self.sent_request(SyncGroupRequest)
        self._respond(SyncGroupResponse(assignment=encode_assignment(partitions)))
        self.poll()

    def beat(self, partitions: Iterable[TopicPartition] | None = None, epoch: int = 1) -> None:
        """Respond to the pending heartbeat; a KIP-848 heartbeat may get an assignment."""
        if self.is_classic:
            assert partitions is None
            self.sent_request(HeartbeatRequest)
            self._respond(HeartbeatResponse())
            return
        assignment = None
        if partitions is not None:
            numbers = [partition.partition for partition in partitions]
            assignment = Assignment([ResponseTopicPartitions(TOPIC_ID, numbers)])
        self._respond(
            ConsumerGroupHeartbeatResponse(
                member_id="m-1",
                member_epoch=epoch,
                heartbeat_interval_ms=INTERVAL_MS,
                assignment=assignment,
            )
        )

    def _respond(self, response: object) -> None:
        self.sent.pop(0).on_response(response, self.now_ms)  # type: ignore[arg-type]  # a Message

    # The consumer.

    def _run_user_calls(self) -> None:
        while self._user_calls:
            call = self._user_calls.popleft()
            call.function(*call.args)
            call.on_done(None)

    def _write(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(" ".join([what, *map(str, partitions)]))
