"""A passive client of a classic group: tests send every request for it."""

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
from tests.testing.fake.requests import coordinator_id, response_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.protocol.message import Request
    from pykclient.testing import FakeCluster
    from pykclient.testing.fake.call import Call

SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription_to(*topics: str) -> bytes:
    """Return the metadata of a consumer that subscribes to these topics."""
    out = bytearray(b"\0\0")
    ConsumerProtocolSubscription(topics=list(topics)).write(out, 0)
    return bytes(out)


def assignment_of(topic: str, *partitions: int) -> bytes:
    """Return an assignment of partitions of a topic."""
    out = bytearray(b"\0\0")
    part = ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=list(partitions))
    ConsumerProtocolAssignment(assigned_partitions=[part]).write(out, 0)
    return bytes(out)


def joined(call: Call) -> JoinGroupResponse:
    """Return the response to JoinGroup."""
    return response_of(call, JoinGroupResponse)


def synced(call: Call) -> SyncGroupResponse:
    """Return the response to SyncGroup."""
    return response_of(call, SyncGroupResponse)


class ClassicClient:
    """A member of group ``g``; `accept` sets its id and generation."""

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

    def join(self, *, version: int = 9, broker_id: int | None = None, group: str = "g") -> Call:
        """Join the next generation."""
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(*each) for each in self.protocols.items()],
        )
        return self._send(request, version, broker_id)

    def join_by_id(self) -> Call:
        """Join; a dynamic member first requests its id, as newer clients must."""
        if self.instance_id is None:
            self.member_id = joined(self.join()).member_id
        return self.join()

    def accept(self, call: Call) -> JoinGroupResponse:
        """Store the member id and generation of the response."""
        response = joined(call)
        assert response.error_code == 0
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.leader_id = response.leader
        return response

    def sync(self, assignments: Mapping[str, bytes] | None = None, *, version: int = 5) -> Call:
        """Request the member's assignment; the leader sends those of all."""
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=next(iter(self.protocols)),
            assignments=[SyncGroupRequestAssignment(*each) for each in (assignments or {}).items()],
        )
        return self._send(request, version)

    def heartbeat(self, version: int = 4) -> int:
        """Send a heartbeat and return the error code."""
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return response_of(self._send(request, version), HeartbeatResponse).error_code

    def leave(self, version: int = 5) -> int:
        """Leave the group and return the error code."""
        request = LeaveGroupRequest(group_id="g", member_id=self.member_id)
        if version >= 3:
            identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
            request = LeaveGroupRequest(group_id="g", members=[identity])
        response = response_of(self._send(request, version), LeaveGroupResponse)
        return response.error_code or sum(each.error_code for each in response.members)

    def commit(
        self, offsets: Mapping[int, int], *, metadata: str = "", topic: str = "t"
    ) -> list[int]:
        """Commit offsets by partition and return the error codes."""
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
        response = response_of(self._send(request, 9), OffsetCommitResponse)
        return [each.error_code for each in response.topics[0].partitions]

    def _send(self, request: Request, version: int, broker_id: int | None = None) -> Call:
        if broker_id is None:
            broker_id = coordinator_id(self.cluster)
        return self.cluster.handle_request(broker_id, request, self.cluster.now_ms, version=version)


def begin(cluster: FakeCluster) -> None:
    """Complete an empty group's join: the initial delay, and its extension for new members."""
    delay_ms = cluster.groups.settings.group_initial_rebalance_delay_ms
    cluster.advance(cluster.now_ms + 2 * delay_ms)


def settle(*clients: ClassicClient) -> None:
    """Join and form a stable group; in a new group the first client is the leader."""
    calls = [client.join_by_id() for client in clients]
    begin(clients[0].cluster)
    assign_each(clients, calls)


def settled(cluster: FakeCluster, *instance_ids: str | None) -> list[ClassicClient]:
    """Return the members of a new stable group; those without an instance id are dynamic."""
    clients = [ClassicClient(cluster, instance_id) for instance_id in instance_ids]
    settle(*clients)
    return clients


def begun(*clients: ClassicClient) -> list[JoinGroupResponse]:
    """Join a new group and return the responses, before anything is assigned."""
    calls = [client.join_by_id() for client in clients]
    begin(clients[0].cluster)
    return [client.accept(call) for client, call in zip(clients, calls, strict=True)]


def assign_each(clients: Sequence[ClassicClient], calls: Sequence[Call]) -> None:
    """Accept the generation, and let the leader assign one partition to each member."""
    for client, call in zip(clients, calls, strict=True):
        client.accept(call)
    assigned = {each.member_id: assignment_of("t", number) for number, each in enumerate(clients)}
    waiting = [client.sync() for client in clients if client.member_id != client.leader_id]
    leader = next(client for client in clients if client.member_id == client.leader_id)
    waiting.append(leader.sync(assigned))
    assert [synced(call).error_code for call in waiting] == [0] * len(clients)
