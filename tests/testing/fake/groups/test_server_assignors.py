"""Server-side assignors: everything is assigned, evenly, with few moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.testing.fake.groups.kip848.assignors import (
    SERVER_ASSIGNORS,
    AssignableMember,
    TopicIdPartition,
)

A, B, C = b"a", b"b", b"c"
NOTHING: frozenset[TopicIdPartition] = frozenset()
GONE_TOO = frozenset({TopicIdPartition(A, 0), TopicIdPartition(A, 7), TopicIdPartition(B, 0)})
"""Partitions of which all but the first were deleted."""


def member(
    name: str,
    topics: bytes,
    target: frozenset[TopicIdPartition] = NOTHING,
    *,
    instance_id: str | None = None,
) -> AssignableMember:
    """Return a member that subscribes to the topics whose ids are these bytes."""
    return AssignableMember(name, instance_id, frozenset(bytes([each]) for each in topics), target)


def shown(assignment: dict[str, frozenset[TopicIdPartition]]) -> dict[str, list[str]]:
    """Return partitions as texts such as ``a0``, in order."""
    return {
        name: [f"{topic_id.decode()}{number}" for topic_id, number in sorted(share)]
        for name, share in assignment.items()
    }


@pytest.mark.parametrize(
    ("assignor", "members", "counts", "expected"),
    [
        ("range", [member("m1", b"ab")], {A: 2, B: 1}, {"m1": ["a0", "a1", "b0"]}),
        (
            "range",
            [member("m1", b"ab"), member("m2", b"ab")],
            {A: 3, B: 3},
            {"m1": ["a0", "a1", "b0", "b1"], "m2": ["a2", "b2"]},
        ),
        (
            "range",
            [member("m1", b"ab"), member("m2", b"b")],
            {A: 3, B: 3},
            {"m1": ["a0", "a1", "a2", "b0", "b1"], "m2": ["b2"]},
        ),
        (
            "range",
            [member("m2", b"a"), member("m1", b"a"), member("m3", b"a", instance_id="z")],
            {A: 2},
            {"m2": [], "m1": ["a1"], "m3": ["a0"]},
        ),
        (
            "uniform",
            [member("m1", b"ab"), member("m2", b"b")],
            {A: 3, B: 3},
            {"m1": ["a0", "a1", "a2"], "m2": ["b0", "b1", "b2"]},
        ),
        ("uniform", [member("m1", b"a", GONE_TOO)], {A: 1}, {"m1": ["a0"]}),
    ],
)
def test_range_gives_ranges_of_each_topic_and_uniform_to_others_what_only_some_may_have(
    assignor: str,
    members: list[AssignableMember],
    counts: dict[bytes, int],
    expected: dict[str, list[str]],
) -> None:
    assert shown(SERVER_ASSIGNORS[assignor](members, counts)) == expected


def test_uniform_shares_by_number_over_all_topics() -> None:
    members = [member("m1", b"ab"), member("m2", b"ab")]
    assignment = SERVER_ASSIGNORS["uniform"](members, {A: 3, B: 3})
    assert [len(share) for share in assignment.values()] == [3, 3]


def test_uniform_moves_no_more_than_it_must() -> None:
    first = SERVER_ASSIGNORS["uniform"]([member("m1", b"a"), member("m2", b"a")], {A: 6})
    members = [member(name, b"a", first.get(name, NOTHING)) for name in ("m1", "m2", "m3")]
    second = SERVER_ASSIGNORS["uniform"](members, {A: 6})
    assert second["m1"] < first["m1"]
    assert second["m2"] < first["m2"]
    assert len(second["m3"]) == 2


@given(
    st.lists(st.sets(st.sampled_from([A, B, C])), min_size=1, max_size=6),
    st.tuples(*[st.integers(1, 9)] * 3),
    st.sampled_from(sorted(SERVER_ASSIGNORS)),
)
def test_each_partition_goes_to_one_subscriber(
    subscriptions: list[set[bytes]], numbers: tuple[int, int, int], assignor: str
) -> None:
    counts = dict(zip((A, B, C), numbers, strict=True))
    members = [
        AssignableMember(f"m{place}", None, frozenset(topics), NOTHING)
        for place, topics in enumerate(subscriptions)
    ]
    wanted = frozenset().union(*subscriptions)
    for _ in range(2):
        assignment = SERVER_ASSIGNORS[assignor](members, counts)
        given_away = [name for share in assignment.values() for name in share]
        assert sorted(given_away) == [
            (topic_id, number) for topic_id in sorted(wanted) for number in range(counts[topic_id])
        ]
        for each in members:
            assert {name.topic_id for name in assignment[each.member_id]} <= each.topic_ids
        # A second assignment to the same members moves nothing.
        settled = [
            AssignableMember(each.member_id, None, each.topic_ids, assignment[each.member_id])
            for each in members
        ]
        assert SERVER_ASSIGNORS[assignor](settled, counts) == assignment
        members = settled[1:] or settled
        wanted = frozenset().union(*(each.topic_ids for each in members))
