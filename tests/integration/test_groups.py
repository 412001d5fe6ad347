"""Consumers in groups of fake brokers: subscribing, listeners, heartbeats, leaving.

Goal: what a program sees of its group. Method: real consumers and threads over the loopback; the
group is looked at in the broker.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, Producer, RebalanceListener, TopicPartition
from pykclient.consumer.group.assignors import Assignment, RoundRobinAssignor
from pykclient.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
    RebalanceListenerError,
    UsageError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import FakeKafka
from pykclient.testing.fake import faults
from tests.integration.fake_group import (
    GROUP,
    PARTITIONS,
    POLL_S,
    TIMEOUT_S,
    TOPIC,
    Diary,
    each_way_to_close,
    has_all,
    member,
    member_count,
    poll_until,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pykclient.consumer.group.assignors import GroupMember


@pytest.fixture(autouse=True)
def _topic(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, len(PARTITIONS))


@pytest.mark.promise("listeners are called on the polling thread, and may call the consumer")
def test_listeners_are_told_on_the_thread_that_polls(fake_kafka: FakeKafka) -> None:
    diary = Diary()
    with member(fake_kafka) as consumer:
        consumer.subscribe([TOPIC], listener=diary.listener)
        assert consumer.subscription() == {TOPIC}
        poll_until(has_all(consumer), consumer)
        consumer.unsubscribe()
        assert not consumer.assignment()
        assert not consumer.subscription()
    assert diary.lines == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3])]
    assert diary.threads == {threading.get_ident()}
    assert member_count(fake_kafka) == 0


@pytest.mark.promise("listeners are called on the polling thread, and may call the consumer")
def test_a_listener_may_call_the_consumer(fake_kafka: FakeKafka) -> None:
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        for number in range(8):
            producer.send(TOPIC, b"%d" % number, partition=number % 4)
        producer.flush(TIMEOUT_S)
    committed = []
    with member(fake_kafka, enable_auto_commit=False) as consumer:

        def on_assigned(partitions: Sequence[TopicPartition]) -> None:
            for partition in partitions:
                consumer.seek(partition, 1)

        def on_revoked(partitions: Sequence[TopicPartition]) -> None:
            consumer.commit()
            committed.append(consumer.committed(partitions))

        consumer.subscribe([TOPIC], listener=RebalanceListener(on_assigned, on_revoked))
        read: list[int] = []
        while len(read) < len(PARTITIONS):
            read += [record.offset for record in consumer.poll(1.0)]
        assert read == [1, 1, 1, 1]
        consumer.unsubscribe()
    [offsets] = committed
    assert {each.offset for each in offsets.values() if each is not None} == {2}


@pytest.mark.promise("listeners are called on the polling thread, and may call the consumer")
def test_what_a_listener_raises_is_raised_by_poll_after_the_rebalance(
    fake_kafka: FakeKafka,
) -> None:
    def fail(partitions: Sequence[TopicPartition]) -> None:
        raise ValueError("mine")

    with member(fake_kafka) as consumer:
        consumer.subscribe([TOPIC], listener=RebalanceListener(on_assigned=fail))
        with pytest.raises(RebalanceListenerError, match=r"on_assigned failed: ValueError") as told:
            poll_until(lambda: False, consumer)
        assert isinstance(told.value.__cause__, ValueError)
        assert has_all(consumer)()
        consumer.poll(POLL_S)


@pytest.mark.promise("heartbeats go on while the application or a listener works")
def test_heartbeats_go_on_while_the_application_works(fake_kafka: FakeKafka) -> None:
    with member(fake_kafka) as consumer:
        consumer.subscribe([TOPIC])
        poll_until(has_all(consumer), consumer)
        with fake_kafka.control() as cluster:
            beats = cluster.faults.add(faults.delay_response(0), ApiKey.HEARTBEAT, times=None)
        wait_until(lambda: beats.used_count >= 5)
        consumer.poll(POLL_S)
        assert has_all(consumer)()


@pytest.mark.promise("heartbeats go on while the application or a listener works")
def test_heartbeats_go_on_while_a_listener_works(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        beats = cluster.faults.add(faults.delay_response(0), ApiKey.HEARTBEAT, times=None)
    with member(fake_kafka) as consumer:
        listener = RebalanceListener(
            on_assigned=lambda _: wait_until(lambda: beats.used_count >= 5)
        )
        consumer.subscribe([TOPIC], listener=listener)
        poll_until(has_all(consumer), consumer)
    assert beats.used_count >= 5


@pytest.mark.promise("`max_poll_interval_ms` and `session_timeout_ms` are enforced")
def test_who_does_not_poll_leaves_and_hears_that_it_lost_everything(
    fake_kafka: FakeKafka,
) -> None:
    diary = Diary()
    with member(fake_kafka, max_poll_interval_ms=400, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC], listener=diary.listener)
        poll_until(has_all(consumer), consumer)
        wait_until(lambda: member_count(fake_kafka) == 0)
        with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
            consumer.commit({PARTITIONS[0]: 0})
        poll_until(lambda: len(diary.lines) == 3, consumer)
        reasons = [rebalance.reason for rebalance in consumer.group_history()]
    assert diary.lines[1:3] == [("lost", [0, 1, 2, 3]), ("assigned", [0, 1, 2, 3])]
    assert "consumer pro-actively leaving the group" in reasons


@pytest.mark.promise("every error of a group's responses is handled as in Java")
def test_a_member_that_was_thrown_out_joins_again(fake_kafka: FakeKafka) -> None:
    diary = Diary()
    with member(fake_kafka) as consumer:
        consumer.subscribe([TOPIC], listener=diary.listener)
        poll_until(has_all(consumer), consumer)
        with fake_kafka.control() as cluster:
            cluster.expire_member(GROUP, consumer.group_metadata().member_id)
        poll_until(lambda: len(diary.lines) == 3, consumer)
    assert diary.lines[1:3] == [("lost", [0, 1, 2, 3]), ("assigned", [0, 1, 2, 3])]


@pytest.mark.promise(
    "static members keep partitions over a restart; of two with one name the first is fenced"
)
def test_a_static_member_keeps_its_partitions_over_a_restart(fake_kafka: FakeKafka) -> None:
    diary = Diary()
    with member(fake_kafka, group_instance_id="stays") as stays:
        stays.subscribe([TOPIC], listener=diary.listener)
        restarts = member(fake_kafka, group_instance_id="restarts")
        restarts.subscribe([TOPIC])
        poll_until(
            lambda: len(stays.assignment()) == len(restarts.assignment()) == 2, stays, restarts
        )
        before, told_count = restarts.assignment(), len(diary.lines)
        restarts.close()
        with member(fake_kafka, group_instance_id="restarts") as again:
            again.subscribe([TOPIC])
            poll_until(lambda: again.assignment() == before, stays, again)
        assert len(diary.lines) == told_count, "nobody else noticed"


@pytest.mark.promise(
    "static members keep partitions over a restart; of two with one name the first is fenced"
)
def test_of_two_static_members_of_one_name_the_first_is_fenced(fake_kafka: FakeKafka) -> None:
    with member(fake_kafka, group_instance_id="i") as first:
        first.subscribe([TOPIC])
        poll_until(has_all(first), first)
        with member(fake_kafka, group_instance_id="i") as second:
            second.subscribe([TOPIC])
            poll_until(has_all(second), second)
            for _ in range(2):
                with pytest.raises(FencedInstanceIdError):
                    poll_until(lambda: False, first)
            second.poll(POLL_S)
            assert has_all(second)(), "the first one does not come back"


def test_a_fenced_member_does_not_read_on(fake_kafka: FakeKafka) -> None:
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        for number in range(100):
            producer.send(TOPIC, b"%d" % number, partition=number % 4)
        producer.flush(TIMEOUT_S)
    with member(fake_kafka, group_instance_id="i", max_poll_records=1) as first:
        first.subscribe([TOPIC])
        while not first.poll(1.0):
            assert first.subscription()
        with member(fake_kafka, group_instance_id="i") as second:
            second.subscribe([TOPIC])
            poll_until(has_all(second), second)
            with pytest.raises(FencedInstanceIdError):
                wait_until(lambda: not first.poll(0))


def test_unsubscribing_does_not_wait_for_the_coordinator(fake_kafka: FakeKafka) -> None:
    with member(fake_kafka, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC])
        poll_until(has_all(consumer), consumer)
        with fake_kafka.control() as cluster:
            left = cluster.faults.add(faults.drop(), ApiKey.LEAVE_GROUP)
        started_s = time.monotonic()
        consumer.unsubscribe()
        assert time.monotonic() - started_s < 5.0
        wait_until(lambda: left.used_count == 1)
        consumer.close(timeout=0.1)  # which does wait for the answer, as long as it may


@pytest.mark.promise("closing revokes, commits, leaves or remains (KIP-1092), and ends in its time")
@each_way_to_close
def test_closing_leaves_the_group_or_remains(
    group_membership: str, instance_id: str | None, left_count: int, fake_kafka: FakeKafka
) -> None:
    consumer = member(fake_kafka, group_instance_id=instance_id)
    consumer.subscribe([TOPIC])
    poll_until(has_all(consumer), consumer)
    consumer.close(group_membership=group_membership)
    assert member_count(fake_kafka) == left_count


@pytest.mark.promise("closing revokes, commits, leaves or remains (KIP-1092), and ends in its time")
def test_closing_ends_in_its_time_when_nobody_answers(fake_kafka: FakeKafka) -> None:
    diary = Diary()
    consumer = member(fake_kafka)
    consumer.subscribe([TOPIC], listener=diary.listener)
    poll_until(has_all(consumer), consumer)
    with fake_kafka.control() as cluster:
        for key in (ApiKey.OFFSET_COMMIT, ApiKey.LEAVE_GROUP, ApiKey.HEARTBEAT):
            cluster.faults.add(faults.drop(), key, times=None)
    started_s = time.monotonic()
    consumer.close(timeout=0.5)
    assert time.monotonic() - started_s < 5.0
    assert diary.lines[-1] == ("revoked", [0, 1, 2, 3])


@pytest.mark.promise(
    "subscriptions change in place; patterns follow new topics; topics that grow are reassigned"
)
def test_a_subscription_may_change_in_place(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic("u", 1)
    with member(fake_kafka) as consumer:
        consumer.subscribe([TOPIC])
        poll_until(has_all(consumer), consumer)
        consumer.subscribe(["u"])
        poll_until(lambda: consumer.assignment() == {TopicPartition("u", 0)}, consumer)
        reasons = [rebalance.reason for rebalance in consumer.group_history()]
    assert reasons[-1] == "subscription has changed"


@pytest.mark.promise(
    "subscriptions change in place; patterns follow new topics; topics that grow are reassigned"
)
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_partitions_that_a_topic_grows_by_are_shared_out(
    strategy: str, fake_kafka: FakeKafka
) -> None:
    settings = {"metadata_max_age_ms": 200, "partition_assignment_strategy": strategy}
    with member(fake_kafka, **settings) as one, member(fake_kafka, **settings) as two:
        one.subscribe([TOPIC])
        two.subscribe([TOPIC])
        poll_until(lambda: len(one.assignment()) == len(two.assignment()) == 2, one, two)
        with fake_kafka.control() as cluster:
            cluster.add_partitions(TOPIC, 6)
        poll_until(lambda: len(one.assignment()) == len(two.assignment()) == 3, one, two)


@pytest.mark.promise(
    "subscriptions change in place; patterns follow new topics; topics that grow are reassigned"
)
def test_a_pattern_matches_whole_names_and_no_internal_topics(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic("tt", 1)
    with member(fake_kafka) as consumer:
        consumer.subscribe(pattern="t|__.*")
        poll_until(has_all(consumer), consumer)
        assert consumer.subscription() == {TOPIC}


@pytest.mark.promise(
    "a cooperative group keeps what does not move, and a group changes to it member by member"
)
def test_a_cooperative_group_keeps_what_does_not_move(fake_kafka: FakeKafka) -> None:
    diary = Diary()
    settings = {"partition_assignment_strategy": "cooperative-sticky"}
    with member(fake_kafka, **settings) as stays:
        stays.subscribe([TOPIC], listener=diary.listener)
        poll_until(has_all(stays), stays)
        with member(fake_kafka, **settings) as comes:
            comes.subscribe([TOPIC])
            poll_until(lambda: len(comes.assignment()) == 2, stays, comes)
        poll_until(has_all(stays), stays)
    moved = [line for line in diary.lines if line[1]]
    assert [what for what, _ in moved] == ["assigned", "revoked", "assigned", "revoked"]
    assert moved[1][1] == moved[2][1] == [2, 3]


def test_a_cooperative_member_that_closes_in_a_rebalance_has_committed_before_it(
    fake_kafka: FakeKafka,
) -> None:
    """Nothing is accepted while the group rebalances, and what it keeps may be read for long."""
    settings = {
        "partition_assignment_strategy": "cooperative-sticky",
        "auto_commit_interval_ms": 60_000,
    }
    with member(fake_kafka, **settings) as other:
        with member(fake_kafka, **settings) as closes:
            for each in (other, closes):
                each.subscribe([TOPIC])
            poll_until(lambda: len(closes.assignment()) == 2, other, closes)
            poll_until(lambda: len(other.assignment()) == 2, other, closes)
            kept = closes.assignment()
            with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
                for partition in kept:
                    producer.send(TOPIC, b"value", partition=partition.partition)
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


@pytest.mark.promise(
    "members with a `client_rack` get partitions with a replica in their rack (KIP-881)"
)
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_get_what_is_in_their_rack(strategy: str) -> None:
    """KIP-881: without racks each would get two that follow each other, or every third."""
    racks = ("a", "b", "c")
    with FakeKafka(brokers=3, racks=racks) as fake, ExitStack() as stack:
        with fake.control() as cluster:
            cluster.create_topic(TOPIC, assignments=[[0], [2], [1], [1], [2], [0]])
        members = [
            stack.enter_context(
                member(fake, client_rack=rack, partition_assignment_strategy=strategy)
            )
            for rack in racks
        ]
        for each in members:
            each.subscribe([TOPIC])
        near = [{0, 5}, {2, 3}, {1, 4}]
        poll_until(
            lambda: [{had.partition for had in each.assignment()} for each in members] == near,
            *members,
        )


@pytest.mark.promise(
    "a cooperative group keeps what does not move, and a group changes to it member by member"
)
def test_a_group_is_upgraded_from_eager_to_cooperative_member_by_member(
    fake_kafka: FakeKafka,
) -> None:
    both = ["cooperative-sticky", "range"]

    def restart(old: Consumer, other: Consumer, strategy: object) -> Consumer:
        old.close()
        new = member(fake_kafka, partition_assignment_strategy=strategy)
        new.subscribe([TOPIC])
        poll_until(lambda: len(new.assignment()) == len(other.assignment()) == 2, new, other)
        return new

    one = member(fake_kafka, partition_assignment_strategy="range")
    two = member(fake_kafka, partition_assignment_strategy="range")
    for consumer in (one, two):
        consumer.subscribe([TOPIC])
    poll_until(lambda: len(one.assignment()) == len(two.assignment()) == 2, one, two)
    for strategy in (both, "cooperative-sticky"):
        one = restart(one, two, strategy)
        two = restart(two, one, strategy)
    with fake_kafka.control() as cluster:
        assert cluster.group(GROUP).protocol_name == "cooperative-sticky"
    one.close()
    two.close()


class FirstTakesAll(RoundRobinAssignor):
    """An application's own assignor."""

    name = "first-takes-all"  # type: ignore[misc]

    def assign(self, topics: object, members: object) -> dict[str, list[TopicPartition]]:
        assert isinstance(members, dict)
        first = min(members)
        return {name: list(PARTITIONS) if name == first else [] for name in members}


@pytest.mark.promise("assignors of users assign, and are refused when they break the rules")
def test_an_own_assignor_shares_out(fake_kafka: FakeKafka) -> None:
    settings = {"partition_assignment_strategy": [FirstTakesAll]}
    with (
        member(fake_kafka, client_id="a", **settings) as first,
        member(fake_kafka, client_id="b", **settings) as second,
    ):
        first.subscribe([TOPIC])
        second.subscribe([TOPIC])
        poll_until(lambda: member_count(fake_kafka) == 2 and has_all(first)(), first, second)
        assert not second.assignment()


class ByWeight(RoundRobinAssignor):
    """Gives members partitions by what they weigh, and tells each the weight of all."""

    name = "by-weight"  # type: ignore[misc]

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.total: bytes | None = None

    def user_data(self, topics: frozenset[str]) -> bytes:  # type: ignore[override]
        return bytes([self.weight])

    def assign(self, topics: object, members: Mapping[str, GroupMember]) -> dict[str, Assignment]:  # type: ignore[override]
        weights = {name: (member.user_data or b"\0")[0] for name, member in members.items()}
        ours = iter(PARTITIONS)
        total = bytes([sum(weights.values())])
        return {
            name: Assignment(list(islice(ours, count)), total) for name, count in weights.items()
        }

    def on_assignment(
        self, partitions: Iterable[TopicPartition], generation: int, user_data: bytes | None = None
    ) -> None:
        self.total = user_data


@pytest.mark.promise("assignors exchange user data with their subscriptions and assignments")
def test_assignors_of_ones_own_tell_each_other_what_they_like(fake_kafka: FakeKafka) -> None:
    light, heavy = ByWeight(1), ByWeight(3)
    with (
        member(fake_kafka, partition_assignment_strategy=[light]) as one,
        member(fake_kafka, partition_assignment_strategy=[heavy]) as three,
    ):
        one.subscribe([TOPIC])
        three.subscribe([TOPIC])
        poll_until(lambda: len(one.assignment()) == 1 and len(three.assignment()) == 3, one, three)
        assert light.total == heavy.total == bytes([4])


@pytest.mark.promise("an assignor that raises is reported and tried again")
def test_an_own_assignor_that_fails_is_told_of_and_tried_again(fake_kafka: FakeKafka) -> None:
    failures = [ValueError("not this time")]

    class Failing(RoundRobinAssignor):
        def on_assignment(
            self,
            partitions: Iterable[TopicPartition],
            generation: int,
            user_data: bytes | None = None,
        ) -> None:
            if failures:
                raise failures.pop()

    with member(fake_kafka, partition_assignment_strategy=[Failing()]) as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(UsageError, match="not this time"):
            poll_until(lambda: False, consumer)
        poll_until(has_all(consumer), consumer)


@pytest.mark.promise(
    "a rebalance is enforced with a reason (KIP-568, KIP-800), and shown by `group_history`"
)
def test_a_rebalance_is_enforced_with_a_reason(fake_kafka: FakeKafka) -> None:
    diary = Diary()
    with member(fake_kafka) as consumer:
        with pytest.raises(UsageError, match="subscribe"):
            consumer.enforce_rebalance()
        consumer.subscribe([TOPIC], listener=diary.listener)
        poll_until(has_all(consumer), consumer)
        generation = consumer.group_metadata().generation
        consumer.enforce_rebalance("my weights have changed")
        poll_until(lambda: consumer.group_metadata().generation > generation, consumer)
        poll_until(has_all(consumer), consumer)
        assert consumer.group_history()[-1].reason == "my weights have changed"
    assert [what for what, _ in diary.lines] == ["assigned", "revoked", "assigned", "revoked"]


def test_assigned_by_hand_again_after_unsubscribing(fake_kafka: FakeKafka) -> None:
    with member(fake_kafka) as consumer:
        consumer.subscribe([TOPIC])
        poll_until(has_all(consumer), consumer)
        consumer.unsubscribe()
        consumer.assign(PARTITIONS[:1])
        consumer.poll(POLL_S)
        assert consumer.assignment() == set(PARTITIONS[:1])
        assert member_count(fake_kafka) == 0
