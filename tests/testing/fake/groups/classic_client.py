"""A client of a classic group that does nothing by itself: tests send each request for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from pykclient.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pykclient.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.testing import FakeCluster
    from pykclient.testing.fake.call import Call

__all__ = [
    "REBALANCE_MS",
    "SESSION_MS",
    "ClassicClient",
    "assignment_of",
    "begin",
    "joined",
    "settle",
    "share_out",
    "subscription_to",
    "synced",
]

SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription_to(*topics: str) -> bytes:
    """What a consumer tells the leader."""
    out = bytearray(b"\0\0")
    ConsumerProtocolSubscription(topics=list(topics)).write(out, 0)
    return bytes(out)


def assignment_of(topic: str, *partitions: int) -> bytes:
    """What a leader gives a consumer."""
    out = bytearray(b"\0\0")
    part = ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=list(partitions))
    ConsumerProtocolAssignment(assigned_partitions=[part]).write(out, 0)
    return bytes(out)


def joined(call: Call) -> JoinGroupResponse:
    """The answer to JoinGroup."""
    response = call.answered()
    assert isinstance(response, JoinGroupResponse)
    return response


def synced(call: Call) -> SyncGroupResponse:
    """The answer to SyncGroup."""
    response = call.answered()
    assert isinstance(response, SyncGroupResponse)
    return response


class ClassicClient:
    """One member of group ``g``; it remembers its id and generation when it is told to `accept`."""

    def __init__(
        self,
        cluster: FakeCluster,
        instance_id: str | None = None,
        *,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> None:
        self.cluster = cluster
        self.instance_id = instance_id
        self.protocols = dict(protocols or {"range": subscription_to("t")})
        self.protocol_type = protocol_type
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.member_id = ""
        self.generation = -1
        self.leader_id = ""

    @property
    def broker_id(self) -> int:
        """The coordinator."""
        broker = self.cluster.coordinator(0, "g")
        assert broker is not None
        return broker.id

    def join(self, *, version: int = 9, broker_id: int | None = None, group: str = "g") -> Call:
        """Ask to be in the next generation."""
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(*each) for each in self.protocols.items()],
        )
        asked = self.broker_id if broker_id is None else broker_id
        return self.cluster.ask(asked, request, self.cluster.now_ms, version=version)

    def join_by_id(self) -> Call:
        """Ask for a member id first, as newer clients must, and then join with it."""
        self.member_id = joined(self.join()).member_id
        return self.join()

    def accept(self, call: Call) -> JoinGroupResponse:
        """Keep what the answer says of this member."""
        response = joined(call)
        assert response.error_code == 0
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.leader_id = response.leader
        return response

    def sync(self, assignments: Mapping[str, bytes] | None = None, *, version: int = 5) -> Call:
        """Ask for its own share; a leader gives everybody's."""
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=next(iter(self.protocols)),
            assignments=[SyncGroupRequestAssignment(*each) for each in (assignments or {}).items()],
        )
        return self.cluster.ask(self.broker_id, request, self.cluster.now_ms, version=version)

    def heartbeat(self) -> int:
        """Say that it is alive; the error code."""
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        response = self.cluster.ask(self.broker_id, request, self.cluster.now_ms).answered()
        assert isinstance(response, HeartbeatResponse)
        return response.error_code

    def leave(self) -> int:
        """Go; the error code."""
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id="g", members=[identity])
        response = self.cluster.ask(self.broker_id, request, self.cluster.now_ms).answered()
        assert isinstance(response, LeaveGroupResponse)
        return response.error_code or response.members[0].error_code

    def commit(
        self, offsets: Mapping[int, int], *, metadata: str = "", version: int = 9, topic: str = "t"
    ) -> list[int]:
        """Commit offsets by partition; the error codes."""
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=metadata
            )
            for number, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
        )
        call = self.cluster.ask(self.broker_id, request, self.cluster.now_ms, version=version)
        response = call.answered()
        assert isinstance(response, OffsetCommitResponse)
        return [each.error_code for each in response.topics[0].partitions]


def begin(cluster: FakeCluster) -> None:
    """Let a group that was empty begin: its first delay, and once more for those who came in it."""
    delay_ms = cluster.groups.settings.group_initial_rebalance_delay_ms
    cluster.advance(cluster.now_ms + 2 * delay_ms)


def settle(*clients: ClassicClient) -> None:
    """Have these join and get to a stable group; the first is the leader of a new group."""
    calls = [client.join_by_id() for client in clients]
    begin(clients[0].cluster)
    share_out(clients, calls)


def share_out(clients: Sequence[ClassicClient], calls: Sequence[Call]) -> None:
    """Accept the generation, and have the leader give each member the partition of its number."""
    for client, call in zip(clients, calls, strict=True):
        client.accept(call)
    shares = {each.member_id: assignment_of("t", number) for number, each in enumerate(clients)}
    waiting = [client.sync() for client in clients if client.member_id != client.leader_id]
    leader = next(client for client in clients if client.member_id == client.leader_id)
    waiting.append(leader.sync(shares))
    assert [synced(call).error_code for call in waiting] == [0] * len(clients)
