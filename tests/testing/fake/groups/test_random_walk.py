"""Members that come, go, stall and lie, in every order: a group always ends empty.

Method: each step is mostly what a good client would do, with ids and generations that are right,
and sometimes strange; the time moves on and coordinators move between the steps. The seed decides.
At the end all sessions end: whoever waited was answered, and nobody is left.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, TypeVar

import pytest

from pykclient.protocol.messages.heartbeat import HeartbeatRequest
from pykclient.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from pykclient.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pykclient.testing import FakeCluster, GroupSettings
from pykclient.testing.fake.groups.classic.group import NEW_MEMBER_JOIN_TIMEOUT_MS
from pykclient.testing.fake.groups.classic.state import ClassicState
from tests.testing.fake.groups.classic_client import assignment_of, subscription_to

if TYPE_CHECKING:
    from pykclient.protocol.message import Request
    from pykclient.testing.fake.call import Call

T = TypeVar("T")

SEED_COUNT = 60
STEP_COUNT = 150
SESSION_MS = 30_000


class Walk:
    """One seed's group."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        settings = GroupSettings(50, group_max_size=4)
        self.cluster = FakeCluster(3, group_settings=settings)
        self.cluster.create_topic("t", 4)
        self.calls: list[Call] = []
        self.last: dict[tuple[str, int], Call] = {}
        """Each member's last request of each kind; one before it is never answered if it waited, as
        in Kafka: its client has given it up."""
        self.met: Counter[str] = Counter()

    def step(self) -> None:
        """One thing happens."""
        kind = self.random.choices(
            [self.join, self.sync, self.heartbeat, self.commit, self.leave, self.wait, self.move],
            [40, 40, 15, 10, 5, 15, 2],
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
            group_id="g",
            session_timeout_ms=self.mostly(SESSION_MS, 6_000, 0, 2**31 - 1),
            rebalance_timeout_ms=self.mostly(5_000, -1, 0, 2**31 - 1),
            member_id=self.mostly(self.member_id(), "", "nobody"),
            group_instance_id=instance_id,
            protocol_type=self.mostly("consumer", "connect", ""),
            protocols=[
                JoinGroupRequestProtocol("range", subscription_to("t")),
                *[JoinGroupRequestProtocol(name, b"") for name in names],
            ],
        )
        self.ask(request, versions=[3, 5, 8, 9])

    def sync(self) -> None:
        members = self.known_ids()
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation(),
            member_id=self.member_id(),
            protocol_type="consumer",
            protocol_name=self.protocol_name(),
            assignments=[
                SyncGroupRequestAssignment(each, assignment_of("t", 0)) for each in members[::2]
            ],
        )
        self.ask(request, versions=[0, 3, 5])

    def heartbeat(self) -> None:
        self.ask(HeartbeatRequest("g", self.generation(), self.member_id()), versions=[0, 4])

    def commit(self) -> None:
        partition = OffsetCommitRequestPartition(self.mostly(0, -1, 9), 5)
        topic = OffsetCommitRequestTopic(name=self.mostly("t", "none"), partitions=[partition])
        request = OffsetCommitRequest("g", self.generation(), self.member_id(), topics=[topic])
        self.ask(request, versions=[2, 7, 9])

    def leave(self) -> None:
        identity = MemberIdentity(self.member_id(), self.random.choice([None, None, "i", "j"]))
        self.ask(LeaveGroupRequest("g", members=[identity, identity]), versions=[3, 5])

    def wait(self) -> None:
        duration_ms = self.random.choice([0, 50, 50, 1_000, 5_000, SESSION_MS])
        self.cluster.advance(self.cluster.now_ms + duration_ms)

    def move(self) -> None:
        self.cluster.move_coordinator(0, "g", self.random.randrange(3))

    def ask(self, request: Request, *, versions: list[int]) -> None:
        broker = self.cluster.coordinator(0, "g")
        assert broker is not None
        broker_id = self.mostly(broker.id, 0, 1, 2)
        version = self.random.choice(versions)
        # Fields that a version lacks are not sent.
        if version < 5 and isinstance(request, JoinGroupRequest):
            request.group_instance_id = None
        before = self.present()
        call = self.cluster.ask(broker_id, request, self.cluster.now_ms, version=version)
        self.calls.append(call)
        member_id = getattr(request, "member_id", "") or next(iter(self.present() - before), "")
        self.last[member_id, request.api_key] = call

    def present(self) -> set[str]:
        group = self.cluster.groups.snapshot("g")
        return set() if group is None else {each.member_id for each in group.members}

    def known_ids(self) -> list[str]:
        """The members, and who was given an id lately."""
        group = self.cluster.groups.snapshot("g")
        members = [] if group is None else [each.member_id for each in group.members]
        given = [
            call.response.member_id
            for call in self.calls[-5:]
            if isinstance(call.response, JoinGroupResponse)
        ]
        return members + [each for each in given if each]

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
        """Let all sessions end."""
        for _ in range(4):
            self.cluster.advance(self.cluster.now_ms + SESSION_MS + NEW_MEMBER_JOIN_TIMEOUT_MS)


def walked(seed: int) -> Walk:
    walk = Walk(seed)
    for _ in range(STEP_COUNT):
        walk.step()
    return walk


@pytest.mark.promise(
    "a malformed request gets Kafka's error or a closed connection, never an exception"
)
@pytest.mark.parametrize("seed", range(SEED_COUNT))
def test_nobody_is_left_waiting_and_the_group_ends_empty(seed: int) -> None:
    walk = walked(seed)
    walk.end()
    assert [call.header for call in walk.last.values() if not call.is_ended] == []
    group = walk.cluster.group("g")
    assert (group.state, group.members) == ("Empty", ())


def test_the_walks_meet_every_state_and_full_groups() -> None:
    met = sum((walked(seed).met for seed in range(SEED_COUNT)), Counter[str]())
    states = {state.value for state in ClassicState} - {ClassicState.DEAD.value}
    assert states | {f"{count} members" for count in range(5)} <= met.keys()
