"""Ends of members of groups, both protocols: in time, and from inside a listener.

Goal: `close` and `unsubscribe` end whatever the brokers do, and wherever they are called. Method:
real consumers, fake brokers that send nothing.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Consumer, RebalanceListener
from pykclient.errors import ClosedError, RebalanceInProgressError
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults
from tests.integration.fake_group import (
    CLASSIC,
    NUMBERS,
    PARTITIONS,
    TIMEOUT_S,
    TOPIC,
    ListenerRecording,
    each_protocol,
    has_all,
    have_counts,
    member,
    member_count,
    poll_until,
    wait_until,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient import TopicPartition
    from pykclient.testing import FakeKafka

CLOSE_S = 1.0
SLACK_S = 0.8
"""For a machine that is busy; less than the close itself, of which there must not be two."""


@pytest.fixture(params=[CLASSIC, "consumer"])
def consumer(request: pytest.FixtureRequest, fake: FakeKafka) -> Consumer:
    return member(fake, request.param)


@pytest.mark.promise(
    "closing revokes, commits, leaves or remains in the group (KIP-1092), and ends in time"
)
@pytest.mark.parametrize(
    ("group_membership", "instance_id", "left_count"),
    [
        ("default", None, 0),
        ("leave_group", None, 0),
        ("remain_in_group", None, 1),
        ("default", "i", 1),
        ("leave_group", "i", 0),
        ("remain_in_group", "i", 1),
    ],
)
@each_protocol
def test_closing_leaves_the_group_or_remains(
    protocol: str,
    group_membership: str,
    instance_id: str | None,
    left_count: int,
    fake: FakeKafka,
) -> None:
    """KIP-1092; a static member of KIP-848 that remains leaves with epoch -2."""
    consumer = member(fake, protocol, group_instance_id=instance_id)
    consumer.subscribe([TOPIC])
    poll_until(has_all(consumer), consumer)
    consumer.close(group_membership=group_membership)
    assert member_count(fake) == left_count


@pytest.mark.promise(
    "closing revokes, commits, leaves or remains in the group (KIP-1092), and ends in time"
)
def test_close_has_one_deadline_for_all_that_it_does(consumer: Consumer, fake: FakeKafka) -> None:
    recording = ListenerRecording()
    consumer.subscribe([TOPIC], listener=recording.listener)
    poll_until(has_all(consumer), consumer)
    with fake.control() as cluster:
        for key in (
            ApiKey.OFFSET_COMMIT,
            ApiKey.LEAVE_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ):
            cluster.faults.add(faults.drop(), key, times=None)
    consumer.commit_async({PARTITIONS[0]: 1})
    started_s = time.monotonic()
    consumer.close(timeout=CLOSE_S)
    assert time.monotonic() - started_s < CLOSE_S + SLACK_S
    assert recording.events[-1] == ("revoked", NUMBERS), "the commit left time for the listener"


@pytest.mark.parametrize("inner", ["close", "unsubscribe"])
@pytest.mark.parametrize("outer", ["close", "unsubscribe"])
def test_a_listener_may_close_or_unsubscribe_at_a_revocation(
    outer: str, inner: str, consumer: Consumer
) -> None:
    revoked_counts: list[int] = []

    def on_revoked(partitions: Sequence[TopicPartition]) -> None:
        revoked_counts.append(len(partitions))
        getattr(consumer, inner)()

    consumer.subscribe([TOPIC], listener=RebalanceListener(on_revoked=on_revoked))
    poll_until(has_all(consumer), consumer)
    started_s = time.monotonic()
    is_closed_meanwhile = inner == "close" and outer == "unsubscribe"
    with pytest.raises(ClosedError) if is_closed_meanwhile else nullcontext():
        getattr(consumer, outer)()
    consumer.close()
    assert revoked_counts == [len(PARTITIONS)], "once"
    assert time.monotonic() - started_s < TIMEOUT_S / 2


def test_a_poll_whose_listener_closes_the_consumer_raises(consumer: Consumer) -> None:
    def on_assigned(partitions: Sequence[TopicPartition]) -> None:
        consumer.close()

    consumer.subscribe([TOPIC], listener=RebalanceListener(on_assigned=on_assigned))
    with pytest.raises(ClosedError):
        poll_until(lambda: False, consumer)
    consumer.close()


def test_a_listener_may_unsubscribe_at_a_revocation(fake: FakeKafka) -> None:
    revoked_counts: list[int] = []
    with member(fake) as leaving, member(fake) as staying:

        def on_revoked(partitions: Sequence[TopicPartition]) -> None:
            revoked_counts.append(len(partitions))
            leaving.unsubscribe()

        leaving.subscribe([TOPIC], listener=RebalanceListener(on_revoked=on_revoked))
        poll_until(has_all(leaving), leaving)
        staying.subscribe([TOPIC])
        poll_until(lambda: bool(revoked_counts), leaving, staying)
        poll_until(has_all(staying), staying)
        assert revoked_counts == [len(PARTITIONS)], "once"
        assert not leaving.assignment()


def test_unsubscribing_does_not_wait_for_the_coordinator(fake: FakeKafka) -> None:
    with member(fake, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC])
        poll_until(has_all(consumer), consumer)
        with fake.control() as cluster:
            left = cluster.faults.add(faults.drop(), ApiKey.LEAVE_GROUP)
        started_s = time.monotonic()
        consumer.unsubscribe()
        assert time.monotonic() - started_s < 5.0
        wait_until(lambda: left.used_count == 1)
        consumer.close(timeout=0.1)  # which does wait for the response, as long as it may


def test_a_cooperative_member_that_closes_in_a_rebalance_has_committed_before_it(
    fake: FakeKafka,
) -> None:
    """No commit is accepted during the rebalance, and kept partitions may be read for long."""
    settings: dict[str, Any] = {
        "partition_assignment_strategy": "cooperative-sticky",
        "auto_commit_interval_ms": 60_000,
    }
    with member(fake, **settings) as other:
        with member(fake, **settings) as closes:
            for each in (other, closes):
                each.subscribe([TOPIC])
            poll_until(have_counts({other: 2, closes: 2}), other, closes)
            kept = closes.assignment()
            write(fake, len(PARTITIONS))
            count = 0
            while count < len(kept):
                count += len(closes.poll(1.0))
            closes.enforce_rebalance("a test")
            for _ in range(3):
                closes.poll(0.1)  # the other one does not poll, so the group waits for it
            with pytest.raises(RebalanceInProgressError):
                closes.commit()
        committed = other.committed(kept)
    assert {None if each is None else each.offset for each in committed.values()} == {1}
