"""What a member gives up before it joins again."""

from __future__ import annotations

from pykclient.consumer.group.assignors import RebalanceProtocol
from pykclient.consumer.group.rebalance import given_up_to_join
from pykclient.types import TopicPartition

OWNED = [TopicPartition("b", 0), TopicPartition("a", 1), TopicPartition("a", 0)]


def test_in_an_eager_group_it_is_everything_in_order() -> None:
    assert given_up_to_join(RebalanceProtocol.EAGER, OWNED, {"a", "b"}) == sorted(OWNED)


def test_in_a_cooperative_one_it_is_what_is_not_wanted_any_more() -> None:
    given_up = given_up_to_join(RebalanceProtocol.COOPERATIVE, OWNED, {"a"})
    assert given_up == [TopicPartition("b", 0)]
