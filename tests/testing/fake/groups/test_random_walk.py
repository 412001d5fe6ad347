"""Members that join, leave, stall and lie, in any order: a group always ends empty.

Method: a step is mostly what a correct client does, with valid ids and generations, and sometimes
stale or random ones. In between, time advances, coordinators move, and administrators describe and
delete. The seed decides. In the end all sessions expire: every waiting member has received a
response, and no member is left.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, TypeVar

import pytest

from pykclient.protocol.messages.delete_groups import DeleteGroupsRequest
from pykclient.protocol.messages.describe_groups import DescribeGroupsRequest
from pykclient.protocol.messages.heartbeat import HeartbeatRequest
from pykclient.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from pykclient.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykclient.protocol.messages.list_groups import ListGroupsRequest
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykclient.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pykclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pykclient.testing import FakeCluster, GroupSettings
from pykclient.testing.fake.groups.classic.group import NEW_MEMBER_JOIN_TIMEOUT_MS
from pykclient.testing.fake.groups.classic.state import ClassicState
from tests.testing.fake.groups.classic_client import assignment_of, subscription_to
from tests.testing.fake.requests import coordinator_id

if TYPE_CHECKING:
    from pykclient.protocol.message import Request
    from pykclient.testing.fake.call import Call

T = TypeVar("T")

SEED_COUNT = 60
STEP_COUNT = 150
SESSION_MS = 30_000
OTHER_NAMES = ("h", "", "\U0001f600")
GARBAGE = (b"", b"\0", b"\0\0\x7f\xff\xff\xff")


class Walk:
    """The group of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        settings = GroupSettings(50, group_max_size=4)
        self.cluster = FakeCluster(3, group_settings=settings)
        self.cluster.create_topic("t", 4)
        self.calls: list[Call] = []
        self.last: dict[tuple[str, int], Call] = {}
        """Each member's last request of each kind; as in Kafka, an earlier one that waits gets no
        response, because the client has abandoned it."""
        self.met: Counter[str] = Counter()

    def step(self) -> None:
        """Do one random step."""
        kind = self.random.choices(
            [
                *(self.join, self.sync, self.heartbeat, self.commit, self.leave, self.wait),
                *(self.move, self.administer),
            ],
            [40, 40, 15, 10, 5, 15, 2, 5],
        )[0]
        kind()
        if self.cluster.groups.find("g") is not None:
            group = self.cluster.group("g")
            self.met[group.state] += 1
            self.met[f"{len(group.members)} members"] += 1

    def join(self) -> None:
        instance_id = self.random.choice([None, None, None, "i", "j"])
        names = self.random.sample(["range", "sticky", "odd"], self.random.choice([1, 2, 2, 3]))
        request = JoinGroupRequest(
            group_id=self.mostly("g", *OTHER_NAMES),
            session_timeout_ms=self.mostly(SESSION_MS, 6_000, 0, -1, 2**31 - 1),
            rebalance_timeout_ms=self.mostly(5_000, -(2**31), -1, 0, 2**31 - 1),
            member_id=self.mostly(self.member_id(), "", "nobody"),
            group_instance_id=instance_id,
            protocol_type=self.mostly("consumer", "connect", ""),
            protocols=[
                JoinGroupRequestProtocol("range", self.mostly(subscription_to("t"), *GARBAGE)),
                *[JoinGroupRequestProtocol(name, b"") for name in names],
            ],
        )
        self.handle_request(request, versions=[3, 5, 8, 9])

    def sync(self) -> None:
        members = self.known_ids()
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation(),
            member_id=self.member_id(),
            protocol_type="consumer",
            protocol_name=self.protocol_name(),
            assignments=[
                SyncGroupRequestAssignment(each, self.mostly(assignment_of("t", 0), *GARBAGE))
                for each in members[::2]
            ],
        )
        self.handle_request(request, versions=[0, 3, 5])

    def heartbeat(self) -> None:
        self.handle_request(
            HeartbeatRequest("g", self.generation(), self.member_id()), versions=[0, 4]
        )

    def commit(self) -> None:
        partition = OffsetCommitRequestPartition(
            self.mostly(0, -1, 9, 2**31 - 1),
            self.mostly(5, -5),
            committed_metadata=self.mostly("", None, "x" * 5_000),
        )
        topic = OffsetCommitRequestTopic(name=self.mostly("t", "none"), partitions=[partition])
        request = OffsetCommitRequest("g", self.generation(), self.member_id(), topics=[topic])
        self.handle_request(request, versions=[2, 7, 9])

    def leave(self) -> None:
        identity = MemberIdentity(self.member_id(), self.random.choice([None, None, "i", "j"]))
        self.handle_request(LeaveGroupRequest("g", members=[identity, identity]), versions=[3, 5])

    def administer(self) -> None:
        names = ["g", self.random.choice(OTHER_NAMES)]
        number = self.mostly(0, -1, 2**31 - 1)
        fetched = [OffsetFetchRequestTopics("t", partition_indexes=[number])]
        groups = [OffsetFetchRequestGroup(each, topics=fetched) for each in names]
        deleted = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(number)])]
        request: Request = self.random.choice(
            [
                OffsetFetchRequest(groups=groups, require_stable=self.mostly(True, False)),
                OffsetDeleteRequest("g", deleted),
                DescribeGroupsRequest(names),
                DeleteGroupsRequest(names),
                ListGroupsRequest(),
            ]
        )
        low = 8 if isinstance(request, OffsetFetchRequest) else request.min_version
        self.handle_request(request, versions=[low, request.max_version])

    def wait(self) -> None:
        duration_ms = self.random.choice([0, 50, 50, 1_000, 5_000, SESSION_MS])
        self.cluster.advance(self.cluster.now_ms + duration_ms)

    def move(self) -> None:
        self.cluster.move_coordinator(0, "g", self.random.randrange(3))

    def handle_request(self, request: Request, *, versions: list[int]) -> None:
        name = getattr(request, "group_id", "g")
        broker_id = self.mostly(coordinator_id(self.cluster, name), 0, 1, 2)
        version = self.random.choice(versions)
        # Fields that a version lacks are not sent.
        if version < 5 and isinstance(request, JoinGroupRequest):
            request.group_instance_id = None
        before = set(self.present())
        call = self.cluster.handle_request(broker_id, request, self.cluster.now_ms, version=version)
        self.calls.append(call)
        member_id = getattr(request, "member_id", "") or next(
            iter(set(self.present()) - before), ""
        )
        self.last[member_id, request.api_key] = call

    def present(self) -> list[str]:
        group = self.cluster.groups.snapshot("g")
        return [] if group is None else [each.member_id for each in group.members]

    def known_ids(self) -> list[str]:
        """Return the members and recently assigned ids."""
        given = [
            call.response.member_id
            for call in self.calls[-5:]
            if isinstance(call.response, JoinGroupResponse)
        ]
        return self.present() + [each for each in given if each]

    def member_id(self) -> str:
        return self.random.choice([*self.known_ids(), ""])

    def generation(self) -> int:
        group = self.cluster.groups.snapshot("g")
        return self.mostly(0 if group is None else group.generation, -1, 1, 2**31 - 1)

    def protocol_name(self) -> str:
        group = self.cluster.groups.snapshot("g")
        return self.mostly((group.protocol_name if group else None) or "range", "other")

    def mostly(self, good: T, *odd: T) -> T:
        return good if self.random.random() < 0.9 else self.random.choice(odd)

    def end(self) -> None:
        """Expire all sessions."""
        for _ in range(4):
            self.cluster.advance(self.cluster.now_ms + SESSION_MS + NEW_MEMBER_JOIN_TIMEOUT_MS)


def walked(seed: int) -> Walk:
    walk = Walk(seed)
    for _ in range(STEP_COUNT):
        walk.step()
    return walk


@pytest.mark.parametrize("seed", range(SEED_COUNT))
def test_no_member_is_left_waiting_and_the_group_ends_empty(seed: int) -> None:
    walk = walked(seed)
    walk.end()
    assert [call.header for call in walk.last.values() if not call.is_ended] == []
    for name in ("g", *OTHER_NAMES):
        group = walk.cluster.groups.snapshot(name)
        assert group is None or (group.state, group.members) == ("Empty", ())


def test_the_walks_meet_every_state_and_full_groups() -> None:
    met = sum((walked(seed).met for seed in range(SEED_COUNT)), Counter[str]())
    states = {state.value for state in ClassicState} - {ClassicState.DEAD.value}
    assert states | {f"{count} members" for count in range(5)} <= met.keys()
