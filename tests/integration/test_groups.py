"""Consumers in groups of fake brokers, in both protocols: subscribing, listeners, rebalances.

Goal: what a program sees of its group. Method: real consumers and threads over the loopback; the
group is looked at in the broker.
"""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Consumer, OffsetAndMetadata, RebalanceListener, TopicPartition
from pykclient.consumer.group.assignors import RoundRobinAssignor
from pykclient.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceListenerError,
    UsageError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import FakeKafka
from pykclient.testing.fake import faults
from tests.integration.fake_group import (
    CLASSIC,
    GROUP,
    NUMBERS,
    PARTITIONS,
    POLL_S,
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
    from collections.abc import Iterable, Sequence

COUNT = 400
OTHER_TOPIC = "u"
SOME_POLLS = 10
LATE = {
    CLASSIC: "consumer pro-actively leaving the group",
    "consumer": "the application did not poll for max_poll_interval_ms",
}
"""Why a member has left that does not poll, in the history of its rebalances."""


# Reading and listeners.


@pytest.mark.promise("listeners are called on the polling thread, and may call the consumer")
@each_protocol
def test_a_member_reads_commits_and_leaves(protocol: str, fake: FakeKafka) -> None:
    write(fake, COUNT)
    recording = ListenerRecording()
    with member(fake, protocol) as consumer:
        consumer.subscribe([TOPIC], listener=recording.listener)
        assert consumer.subscription() == {TOPIC}
        count = 0
        while count < COUNT:
            count += len(consumer.poll(TIMEOUT_S))
        consumer.commit()
        assert consumer.committed(PARTITIONS) == dict.fromkeys(
            PARTITIONS, OffsetAndMetadata(COUNT // 4, leader_epoch=0)
        )
        metadata = consumer.group_metadata()
        assert metadata.is_member
        assert metadata.generation > 0
        consumer.unsubscribe()
        assert not consumer.assignment()
        assert not consumer.subscription()
        wait_until(lambda: member_count(fake) == 0)
        consumer.assign(PARTITIONS[:1])
        consumer.poll(POLL_S)
        assert consumer.assignment() == set(PARTITIONS[:1])
        assert member_count(fake) == 0
    assert recording.events == [("assigned", NUMBERS), ("revoked", NUMBERS)]
    assert recording.threads == {threading.get_ident()}


@pytest.mark.promise("listeners are called on the polling thread, and may call the consumer")
def test_a_listener_may_call_the_consumer(fake: FakeKafka) -> None:
    write(fake, 2 * len(PARTITIONS))
    committed = []
    with member(fake, enable_auto_commit=False) as consumer:

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
def test_what_a_listener_raises_is_raised_by_poll_after_the_rebalance(fake: FakeKafka) -> None:
    def fail(partitions: Sequence[TopicPartition]) -> None:
        raise ValueError("mine")

    with member(fake) as consumer:
        consumer.subscribe([TOPIC], listener=RebalanceListener(on_assigned=fail))
        with pytest.raises(
            RebalanceListenerError, match=r"on_assigned failed: ValueError"
        ) as raised:
            poll_until(lambda: False, consumer)
        assert isinstance(raised.value.__cause__, ValueError)
        assert has_all(consumer)()
        consumer.poll(POLL_S)


@pytest.mark.promise(
    "revoked partitions are committed, passed to the listener and dropped before the heartbeat"
)
def test_what_is_revoked_is_committed_and_reported_before_others_get_it(fake: FakeKafka) -> None:
    write(fake, COUNT)
    seen: list[tuple[int, dict[TopicPartition, OffsetAndMetadata | None]]] = []
    with (
        member(fake, "consumer", max_poll_records=7) as first,
        member(fake, "consumer") as second,
    ):

        def on_revoked(partitions: object) -> None:
            if not seen:
                seen.append((len(second.assignment()), first.committed(PARTITIONS)))

        first.subscribe([TOPIC], listener=RebalanceListener(on_revoked=on_revoked))
        poll_until(has_all(first), first)
        first.poll(TIMEOUT_S)
        first.poll(TIMEOUT_S)
        second.subscribe([TOPIC])
        poll_until(have_counts({second: 2}), first, second)
    owned_count, committed = seen[0]
    assert owned_count == 0
    assert sum(each.offset for each in committed.values() if each is not None) >= 7


# Staying a member.


@pytest.mark.parametrize("is_in_listener", [False, True])
@each_protocol
def test_heartbeats_go_on_while_the_application_works(
    protocol: str, is_in_listener: bool, fake: FakeKafka
) -> None:
    key = ApiKey.HEARTBEAT if protocol == CLASSIC else ApiKey.CONSUMER_GROUP_HEARTBEAT
    with fake.control() as cluster:
        beats = cluster.faults.add(faults.delay_response(0), key, times=None)

    def work(partitions: object = None) -> None:
        count = beats.used_count + 5
        wait_until(lambda: beats.used_count >= count)

    listener = RebalanceListener(on_assigned=work if is_in_listener else None)
    with member(fake, protocol) as consumer:
        consumer.subscribe([TOPIC], listener=listener)
        poll_until(has_all(consumer), consumer)
        generation = consumer.group_metadata().generation
        if not is_in_listener:
            work()
        consumer.poll(POLL_S)
        assert has_all(consumer)()
        assert consumer.group_metadata().generation == generation


@pytest.mark.promise("`max_poll_interval_ms` and `session_timeout_ms` are enforced")
@each_protocol
def test_a_member_that_does_not_poll_leaves_and_has_lost_everything(
    protocol: str, fake: FakeKafka
) -> None:
    recording = ListenerRecording()
    with member(fake, protocol, max_poll_interval_ms=400, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC], listener=recording.listener)
        poll_until(has_all(consumer), consumer)
        wait_until(lambda: member_count(fake) == 0)
        with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
            consumer.commit({PARTITIONS[0]: 0})
        poll_until(lambda: len(recording.events) == 3, consumer)
        reasons = [rebalance.reason for rebalance in consumer.group_history()]
    assert recording.events[1:3] == [("lost", NUMBERS), ("assigned", NUMBERS)]
    assert LATE[protocol] in reasons


@each_protocol
def test_a_fenced_member_loses_its_partitions_and_joins_again(
    protocol: str, fake: FakeKafka
) -> None:
    recording = ListenerRecording()
    with member(fake, protocol, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC], listener=recording.listener)
        poll_until(has_all(consumer), consumer)
        with fake.control() as cluster:
            cluster.expire_member(GROUP, consumer.group_metadata().member_id)

        def is_removed() -> bool:
            try:
                consumer.commit({PARTITIONS[0]: 1})
            except CommitFailedError as error:
                return "poll joins again" in str(error)
            return False

        wait_until(is_removed)
        poll_until(lambda: len(recording.events) == 3, consumer)
        consumer.commit({PARTITIONS[0]: 1})
    assert recording.calls == ["assigned", "lost", "assigned", "revoked"]


def test_members_follow_a_coordinator_that_moves_and_one_that_stops(fake: FakeKafka) -> None:
    recording = ListenerRecording()
    with member(fake, "consumer", enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC], listener=recording.listener)
        poll_until(has_all(consumer), consumer)
        with fake.control() as cluster:
            cluster.move_coordinator(0, GROUP, (cluster.group(GROUP).coordinator_id + 1) % 3)
        consumer.commit({PARTITIONS[0]: 1})
        with fake.control() as cluster:
            cluster.stop_broker(cluster.group(GROUP).coordinator_id)
        consumer.commit({PARTITIONS[0]: 2})
        metadata = consumer.group_metadata()
        consumer.poll(TIMEOUT_S / 8)
        assert consumer.group_metadata() == metadata
        assert recording.events == [("assigned", NUMBERS)]


@pytest.mark.promise(
    "static members keep partitions over a restart; another one with the id fences the first"
)
@each_protocol
def test_a_static_member_keeps_its_partitions_over_a_restart(
    protocol: str, fake: FakeKafka
) -> None:
    recording = ListenerRecording()
    with member(fake, protocol, group_instance_id="stays") as stays:
        stays.subscribe([TOPIC], listener=recording.listener)
        with member(fake, protocol, group_instance_id="restarts") as restarts:
            restarts.subscribe([TOPIC])
            poll_until(have_counts({stays: 2, restarts: 2}), stays, restarts)
            before, event_count = restarts.assignment(), len(recording.events)
        for _ in range(SOME_POLLS):
            stays.poll(POLL_S)
        with member(fake, protocol, group_instance_id="restarts") as again:
            again.subscribe([TOPIC])
            poll_until(lambda: again.assignment() == before, stays, again)
        assert len(recording.events) == event_count, "the other member is not concerned"


@pytest.mark.promise(
    "static members keep partitions over a restart; another one with the id fences the first"
)
def test_of_two_static_members_of_one_name_the_first_is_fenced(fake: FakeKafka) -> None:
    """It does not continue to read, even if it has records."""
    write(fake, COUNT)
    with member(fake, group_instance_id="i", max_poll_records=1) as first:
        first.subscribe([TOPIC])
        poll_until(lambda: bool(first.poll(POLL_S)), first)
        with member(fake, group_instance_id="i") as second:
            second.subscribe([TOPIC])
            poll_until(has_all(second), second)
            for _ in range(2):
                with pytest.raises(FencedInstanceIdError):
                    wait_until(lambda: not first.poll(0))
            second.poll(POLL_S)
            assert has_all(second)(), "the first one does not come back"


# Subscriptions and patterns.


@each_protocol
def test_a_subscription_may_change_in_place(protocol: str, fake: FakeKafka) -> None:
    with fake.control() as cluster:
        cluster.create_topic(OTHER_TOPIC, 1)
    with member(fake, protocol) as consumer:
        consumer.subscribe([TOPIC])
        poll_until(has_all(consumer), consumer)
        consumer.subscribe([OTHER_TOPIC])
        poll_until(lambda: consumer.assignment() == {TopicPartition(OTHER_TOPIC, 0)}, consumer)
        if protocol == CLASSIC:
            assert consumer.group_history()[-1].reason == "subscription has changed"


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky", "fewest-brokers"])
def test_partitions_that_a_topic_grows_by_are_assigned(strategy: str, fake: FakeKafka) -> None:
    settings: dict[str, Any] = {
        "metadata_max_age_ms": 200,
        "partition_assignment_strategy": strategy,
    }
    with member(fake, **settings) as one, member(fake, **settings) as two:
        one.subscribe([TOPIC])
        two.subscribe([TOPIC])
        poll_until(have_counts({one: 2, two: 2}), one, two)
        with fake.control() as cluster:
            cluster.add_partitions(TOPIC, 6)
        poll_until(have_counts({one: 3, two: 3}), one, two)


@each_protocol
def test_a_pattern_of_pythons_follows_topics_that_appear(protocol: str, fake: FakeKafka) -> None:
    """It matches whole names, and excludes internal topics."""
    with fake.control() as cluster:
        cluster.create_topic("tt", 1)
    with member(fake, protocol, metadata_max_age_ms=100) as consumer:
        consumer.subscribe(pattern=re.compile(r"t|new-\d+|__.*"))
        poll_until(has_all(consumer), consumer)
        assert consumer.subscription() == {TOPIC}
        with fake.control() as cluster:
            cluster.create_topic("new-7", 1)
        poll_until(lambda: TopicPartition("new-7", 0) in consumer.assignment(), consumer)
        assert consumer.subscription() == {TOPIC, "new-7"}


def test_brokers_match_a_pattern_that_is_a_string(fake: FakeKafka) -> None:
    """RE2 has classes that Python does not, and matches whole names."""
    with fake.control() as cluster:
        cluster.create_topic("new-7", 1)
        cluster.create_topic("new-x", 1)
    with member(fake, "consumer") as consumer:
        consumer.subscribe(pattern=r"t|new-[[:digit:]]+")
        expected = {*PARTITIONS, TopicPartition("new-7", 0)}
        poll_until(lambda: consumer.assignment() == expected, consumer)


def test_a_leader_by_pattern_waits_for_no_topic_that_does_not_exist(fake: FakeKafka) -> None:
    """It finds topics only in the list of all topics."""
    with member(fake) as leader, member(fake, allow_auto_create_topics=False) as other:
        leader.subscribe(pattern=TOPIC)
        poll_until(has_all(leader), leader)
        other.subscribe([TOPIC, "absent"])
        poll_until(have_counts({other: 2}), leader, other)
        assert leader.assignment().isdisjoint(other.assignment())


@each_protocol
def test_a_topic_that_is_deleted_holds_up_no_rebalance(protocol: str, fake: FakeKafka) -> None:
    """Its records can no longer be committed, and the group does not wait for that."""
    with fake.control() as cluster:
        cluster.create_topic(OTHER_TOPIC, 1)
    with member(fake, protocol, metadata_max_age_ms=100) as consumer:
        consumer.subscribe(pattern=re.compile(TOPIC))
        poll_until(has_all(consumer), consumer)
        consumer.subscribe(pattern=re.compile(f"{TOPIC}|{OTHER_TOPIC}"))
        poll_until(have_counts({consumer: len(PARTITIONS) + 1}), consumer)
        for partition in consumer.assignment():
            consumer.position(partition)
        with fake.control() as cluster:
            cluster.delete_topic(OTHER_TOPIC)
        poll_until(has_all(consumer), consumer)


# Assigning, in the classic protocol.


@pytest.mark.promise(
    "a cooperative group keeps partitions that do not move; groups migrate to it member by member"
)
def test_a_cooperative_group_keeps_what_does_not_move(fake: FakeKafka) -> None:
    recording = ListenerRecording()
    settings = {"partition_assignment_strategy": "cooperative-sticky"}
    with member(fake, **settings) as stays:
        stays.subscribe([TOPIC], listener=recording.listener)
        poll_until(has_all(stays), stays)
        with member(fake, **settings) as comes:
            comes.subscribe([TOPIC])
            poll_until(have_counts({comes: 2}), stays, comes)
        poll_until(has_all(stays), stays)
    moved = [line for line in recording.events if line[1]]
    assert [what for what, _ in moved] == ["assigned", "revoked", "assigned", "revoked"]
    assert moved[1][1] == moved[2][1] == [2, 3]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_get_what_is_in_their_rack(strategy: str) -> None:
    """KIP-881: without racks each would get two consecutive partitions, or every third."""
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
    "a cooperative group keeps partitions that do not move; groups migrate to it member by member"
)
def test_a_group_is_upgraded_from_eager_to_cooperative_member_by_member(fake: FakeKafka) -> None:
    def start(strategy: object) -> Consumer:
        consumer = member(fake, partition_assignment_strategy=strategy)
        consumer.subscribe([TOPIC])
        return consumer

    one, two = start("range"), start("range")
    poll_until(have_counts({one: 2, two: 2}), one, two)
    for strategy in (["cooperative-sticky", "range"], "cooperative-sticky"):
        for _ in range(2):
            one.close()
            one, two = two, start(strategy)
            poll_until(have_counts({one: 2, two: 2}), one, two)
    with fake.control() as cluster:
        assert cluster.group(GROUP).protocol_name == "cooperative-sticky"
    one.close()
    two.close()


def test_an_own_assignor_that_fails_is_reported_and_tried_again(fake: FakeKafka) -> None:
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

    with member(fake, partition_assignment_strategy=[Failing()]) as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(UsageError, match="not this time"):
            poll_until(lambda: False, consumer)
        poll_until(has_all(consumer), consumer)


def test_a_rebalance_is_enforced_with_a_reason(fake: FakeKafka) -> None:
    recording = ListenerRecording()
    with member(fake) as consumer:
        with pytest.raises(UsageError, match="subscribe"):
            consumer.enforce_rebalance()
        consumer.subscribe([TOPIC], listener=recording.listener)
        poll_until(has_all(consumer), consumer)
        generation = consumer.group_metadata().generation
        consumer.enforce_rebalance("my weights have changed")
        poll_until(lambda: consumer.group_metadata().generation > generation, consumer)
        poll_until(has_all(consumer), consumer)
        assert consumer.group_history()[-1].reason == "my weights have changed"
    assert recording.calls == ["assigned", "revoked", "assigned", "revoked"]
