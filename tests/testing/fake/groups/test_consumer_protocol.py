"""What a broker reads of consumers' metadata, and what it makes of garbage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from pykclient.testing.fake.groups.classic.state import assigned_partitions, subscribed_topics
from pykclient.types import TopicPartition
from tests.testing.fake.groups.classic_client import assignment_of, subscription_to


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_all_versions_are_read(version: int) -> None:
    out = bytearray(version.to_bytes(2))
    ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"x").write(out, version)
    assert subscribed_topics([bytes(out), subscription_to("c")]) == frozenset("abc")


def test_assignments_are_read() -> None:
    assert assigned_partitions(assignment_of("t", 1, 3)) == (
        TopicPartition("t", 1),
        TopicPartition("t", 3),
    )


@given(st.binary())
def test_garbage_is_nothing_known(data: bytes) -> None:
    assert isinstance(assigned_partitions(data), tuple)
    topics = subscribed_topics([data])
    assert topics is None or isinstance(topics, frozenset)


def test_one_unreadable_subscription_makes_all_unknown() -> None:
    assert subscribed_topics([subscription_to("a"), b"\0"]) is None
    assert assigned_partitions(b"") == ()
