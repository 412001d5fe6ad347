"""What a group has committed, and what transactions may yet commit."""

from __future__ import annotations

from pykclient.testing.fake.groups.offsets import CommittedOffset, GroupOffsets
from pykclient.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def test_the_last_commit_stands() -> None:
    offsets = GroupOffsets()
    offsets.commit(T0, CommittedOffset(5, 2, "note"))
    offsets.commit(T0, CommittedOffset(3))
    assert offsets.get(T0) == CommittedOffset(3, -1, "")
    assert offsets.all() == {T0: CommittedOffset(3)}
    offsets.remove(T0)
    offsets.remove(T0)
    assert offsets.get(T0) is None


def test_an_open_transactions_offset_is_unstable_and_stands_when_it_is_committed() -> None:
    offsets = GroupOffsets()
    offsets.commit(T0, CommittedOffset(1))
    offsets.hold(7, T0, CommittedOffset(9))
    offsets.hold(8, T1, CommittedOffset(4))
    assert offsets.get(T0) == CommittedOffset(1)
    assert offsets.is_unstable(T0)
    offsets.commit_held(7)
    assert (offsets.get(T0), offsets.is_unstable(T0)) == (CommittedOffset(9), False)
    offsets.drop_held(8)
    assert (offsets.get(T1), offsets.is_unstable(T1)) == (None, False)


def test_a_deleted_topic_is_forgotten_with_what_is_held_for_it() -> None:
    offsets = GroupOffsets()
    for name in (T0, T1, U0):
        offsets.commit(name, CommittedOffset(1))
        offsets.hold(7, name, CommittedOffset(2))
    offsets.remove_topic("t")
    offsets.commit_held(7)
    assert offsets.all() == {U0: CommittedOffset(2)}
