"""Whatever classic groups are asked, brokers answer: nothing raises, and nobody stays for ever.

Method: random requests with fields that are right, stale or garbage, in random versions, with the
time moving on and coordinators moving between them. How members wait for each other is left to
`test_random_walk`, whose clients are better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykclient.protocol.message import Request
from pykclient.protocol.messages.delete_groups import DeleteGroupsRequest
from pykclient.protocol.messages.describe_groups import DescribeGroupsRequest
from pykclient.protocol.messages.heartbeat import HeartbeatRequest
from pykclient.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
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
from tests.testing.fake.groups.classic_client import subscription_to

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call

LONGEST_MS = 1_800_000

group_names = st.sampled_from(["g", "g", "g", "h", "", "\U0001f600"])
instance_ids = st.sampled_from([None, None, "i", "j", ""])
generations = st.integers(-1, 6) | st.sampled_from([-(2**31), 2**31 - 1])
# Member ids are counted, so that these are often those of members.
member_ids = st.sampled_from(["", "nobody"]) | st.builds(
    lambda prefix, number: f"{prefix}-00000000-0000-fa4e-0000-{number:012x}",
    st.sampled_from(["test", "i", "j"]),
    st.integers(1, 8),
)
small_bytes = st.sampled_from([b"", b"\0", subscription_to("t"), b"\0\0\x7f\xff\xff\xff"])
protocol_names = st.sampled_from(["range", "sticky", ""])
numbers = st.sampled_from([0, 1, -1, 2**31 - 1])

joins = st.builds(
    JoinGroupRequest,
    group_id=group_names,
    session_timeout_ms=st.sampled_from([6_000, 10_000, LONGEST_MS, 0, -1, 2**31 - 1]),
    rebalance_timeout_ms=st.sampled_from([-(2**31), -1, 0, 500, 60_000, 2**31 - 1]),
    member_id=member_ids,
    group_instance_id=instance_ids,
    protocol_type=st.sampled_from(["consumer", "consumer", "connect", ""]),
    protocols=st.lists(
        st.builds(JoinGroupRequestProtocol, protocol_names, small_bytes), max_size=3
    ),
)
syncs = st.builds(
    SyncGroupRequest,
    group_id=group_names,
    generation_id=generations,
    member_id=member_ids,
    group_instance_id=instance_ids,
    protocol_type=st.sampled_from([None, "consumer"]),
    protocol_name=st.sampled_from([None, "range", "sticky"]),
    assignments=st.lists(
        st.builds(SyncGroupRequestAssignment, member_ids, small_bytes), max_size=3
    ),
)
heartbeats = st.builds(
    HeartbeatRequest,
    group_id=group_names,
    generation_id=generations,
    member_id=member_ids,
    group_instance_id=instance_ids,
)
leaves = st.builds(
    LeaveGroupRequest,
    group_id=group_names,
    member_id=member_ids,
    members=st.lists(st.builds(MemberIdentity, member_ids, instance_ids), max_size=3),
)
commits = st.builds(
    OffsetCommitRequest,
    group_id=group_names,
    generation_id_or_member_epoch=generations,
    member_id=member_ids,
    group_instance_id=instance_ids,
    topics=st.lists(
        st.builds(
            OffsetCommitRequestTopic,
            name=st.sampled_from(["t", "none", ""]),
            partitions=st.lists(
                st.builds(
                    OffsetCommitRequestPartition,
                    partition_index=numbers,
                    committed_offset=st.integers(-5, 5),
                    committed_metadata=st.sampled_from([None, "", "x" * 5_000]),
                ),
                max_size=2,
            ),
        ),
        max_size=2,
    ),
)
fetches = st.builds(
    OffsetFetchRequest,
    groups=st.lists(
        st.builds(
            OffsetFetchRequestGroup,
            group_id=group_names,
            member_id=st.none() | member_ids,
            topics=st.none()
            | st.lists(
                st.builds(
                    OffsetFetchRequestTopics,
                    name=st.just("t"),
                    partition_indexes=st.lists(numbers, max_size=2),
                ),
                max_size=2,
            ),
        ),
        max_size=2,
    ),
    require_stable=st.booleans(),
)
offset_deletes = st.builds(
    OffsetDeleteRequest,
    group_id=group_names,
    topics=st.lists(
        st.builds(
            OffsetDeleteRequestTopic,
            st.just("t"),
            st.lists(st.builds(OffsetDeleteRequestPartition, numbers), max_size=2),
        ),
        max_size=2,
    ),
)
administration = st.one_of(
    st.builds(DescribeGroupsRequest, st.lists(group_names, max_size=2)),
    st.builds(DeleteGroupsRequest, st.lists(group_names, max_size=2)),
    st.builds(ListGroupsRequest),
)
requests = st.one_of(
    joins, joins, syncs, syncs, heartbeats, leaves, commits, fetches, offset_deletes,
    administration,
)  # fmt: skip
steps = st.one_of(
    st.tuples(st.just("ask"), requests, st.integers(0, 2), st.integers(0, 20)),
    st.tuples(st.just("ask"), requests, st.just(-1), st.integers(0, 20)),
    st.tuples(st.just("ask"), requests, st.just(-1), st.just(20)),
    st.tuples(st.just("wait"), st.sampled_from([0, 1, 50, 6_000, 60_000]), st.just(0), st.just(0)),
    st.tuples(st.just("move"), st.integers(0, 2), st.just(0), st.just(0)),
)


def version_of(request: Request, wish: int) -> int:
    """A version in which these fields can be had; the newest when the wish is beyond it."""
    low = request.min_version
    if isinstance(request, OffsetFetchRequest):
        low = 8
    return max(low, min(wish, request.max_version))


def ask(cluster: FakeCluster, request: Request, broker_id: int, wish: int) -> Call:
    if broker_id < 0:
        broker = cluster.coordinator(0, getattr(request, "group_id", "g"))
        assert broker is not None
        broker_id = broker.id
    version = version_of(request, wish)
    return cluster.ask(broker_id, request, cluster.now_ms, version=version)


@pytest.mark.promise(
    "a malformed request gets Kafka's error or a closed connection, never an exception"
)
@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=40))
def test_no_request_is_too_strange(walk: list[tuple[str, object, int, int]]) -> None:
    cluster = FakeCluster(3, group_settings=GroupSettings(50, group_max_size=3))
    cluster.create_topic("t", 2)
    for kind, what, broker_id, wish in walk:
        if kind == "ask":
            assert isinstance(what, Request)
            ask(cluster, what, broker_id, wish)
        elif kind == "wait":
            assert isinstance(what, int)
            cluster.advance(cluster.now_ms + what)
        else:
            assert isinstance(what, int)
            cluster.move_coordinator(0, "g", what)
        for name in ("g", "h"):
            if cluster.groups.find(name) is not None:
                assert cluster.group(name).generation >= 0
    # Sessions end one after the other, when members have waited for each other.
    for _ in range(4):
        cluster.advance(cluster.now_ms + LONGEST_MS + NEW_MEMBER_JOIN_TIMEOUT_MS)
    for name in ("g", "h"):
        if cluster.groups.find(name) is not None:
            assert cluster.group(name).members == ()
            assert cluster.group(name).state == "Empty"
