"""Consumers in groups of KIP-848, of fake brokers: sharing, being fenced, patterns, leaving.

Goal: what a program sees of its group. Method: real consumers and threads over the loopback, with
brokers that ask for a heartbeat every moment; the group is looked at in the broker.
"""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

import pytest

from pykclient import Consumer, OffsetAndMetadata, Producer, RebalanceListener, TopicPartition
from pykclient.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    InvalidRegularExpressionError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import FakeKafka
from pykclient.testing.fake import faults
from pykclient.testing.fake.groups.group import GroupSettings
from tests.integration.fake_group import (
    GROUP,
    PARTITIONS,
    POLL_S,
    TIMEOUT_S,
    TOPIC,
    Diary,
    each_way_to_close,
    has_all,
    member_count,
    poll_until,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERVAL_MS = 50
SESSION_MS = 2_500
COUNT = 400
SETTINGS = GroupSettings(
    group_consumer_session_timeout_ms=SESSION_MS,
    group_consumer_heartbeat_interval_ms=INTERVAL_MS,
    group_consumer_assignment_interval_ms=0,
)


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    """Three brokers with topic ``t``."""
    with FakeKafka(3, group_settings=SETTINGS) as fake:
        with fake.control() as cluster:
            cluster.create_topic(TOPIC, len(PARTITIONS))
        yield fake


def member(fake: FakeKafka, **settings: object) -> Consumer:
    return Consumer(
        bootstrap_servers=fake.bootstrap_servers,
        **{
            "group_id": GROUP,
            "group_protocol": "consumer",
            "auto_offset_reset": "earliest",
            **settings,
        },
    )


def write(fake: FakeKafka, count: int = COUNT) -> None:
    with Producer(bootstrap_servers=fake.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(TOPIC, b"%d" % number, partition=number % len(PARTITIONS))


def values(consumer: Consumer) -> list[bytes]:
    """What one short poll returns."""
    return [cast("bytes", record.value) for record in consumer.poll(POLL_S)]


def join(consumer: Consumer, **subscription: str | list[str]) -> None:
    """Subscribe, and poll until all partitions are there."""
    consumer.subscribe(**subscription)  # type: ignore[arg-type]  # topics or a pattern
    poll_until(has_all(consumer), consumer)


def fence(fake: FakeKafka, consumer: Consumer) -> None:
    """Have the coordinator forget a member."""
    with fake.control() as cluster:
        cluster.expire_member(GROUP, consumer.group_metadata().member_id)


@pytest.mark.promise("a KIP-848 member reads, commits with its epoch, and leaves")
def test_a_member_reads_commits_and_leaves(fake: FakeKafka) -> None:
    write(fake)
    diary = Diary()
    with member(fake) as consumer:
        consumer.subscribe([TOPIC], listener=diary.listener)
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
    assert diary.lines == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3])]
    assert diary.threads == {threading.get_ident()}
    assert member_count(fake) == 0


@pytest.mark.promise(
    "what is revoked is committed, passed to the listener and dropped before it is acknowledged"
)
def test_members_share_and_each_record_is_read_once(fake: FakeKafka) -> None:
    """A second member comes in the middle, and the first one goes before the end.

    What was handed out is committed before partitions change hands, so nothing is read twice.
    """
    write(fake)
    read: list[bytes] = []
    with ExitStack() as stack:
        first = stack.enter_context(member(fake, max_poll_records=5))
        second = stack.enter_context(member(fake, max_poll_records=5))

        def poll(*consumers: Consumer) -> None:
            for consumer in consumers:
                read.extend(values(consumer))
            if len(consumers) > 1:
                assert not first.assignment() & second.assignment()

        first.subscribe([TOPIC])
        while len(read) < COUNT // 4:
            poll(first)
        second.subscribe([TOPIC])
        while len(second.assignment()) < 2 or len(first.assignment()) > 2:
            poll(first, second)
        first.close()
        while len(read) < COUNT:
            poll(second)
    assert sorted(read) == sorted(b"%d" % number for number in range(COUNT))


@pytest.mark.promise(
    "what is revoked is committed, passed to the listener and dropped before it is acknowledged"
)
def test_what_is_revoked_is_committed_and_told_before_others_get_it(fake: FakeKafka) -> None:
    write(fake)
    seen: list[tuple[int, dict[TopicPartition, OffsetAndMetadata | None]]] = []
    with member(fake, max_poll_records=7) as first, member(fake) as second:

        def on_revoked(partitions: object) -> None:
            if not seen:
                seen.append((len(second.assignment()), first.committed(PARTITIONS)))

        first.subscribe([TOPIC], listener=RebalanceListener(on_revoked=on_revoked))
        poll_until(has_all(first), first)
        first.poll(TIMEOUT_S)
        first.poll(TIMEOUT_S)
        second.subscribe([TOPIC])
        poll_until(lambda: len(second.assignment()) == 2, first, second)
    owned_count, committed = seen[0]
    assert owned_count == 0
    assert sum(each.offset for each in committed.values() if each is not None) >= 7


@pytest.mark.promise("a fenced or late KIP-848 member loses everything and joins again")
def test_a_fenced_member_loses_its_partitions_and_joins_again(fake: FakeKafka) -> None:
    diary = Diary()
    with member(fake, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC], listener=diary.listener)
        poll_until(has_all(consumer), consumer)
        fence(fake, consumer)
        wait_until(lambda: not consumer.group_metadata().is_member)
        with pytest.raises(CommitFailedError, match="poll joins again"):
            consumer.commit({PARTITIONS[0]: 1})
        poll_until(lambda: len(diary.lines) == 3, consumer)
        consumer.commit({PARTITIONS[0]: 1})
    assert [what for what, _ in diary.lines] == ["assigned", "lost", "assigned", "revoked"]


def test_heartbeats_go_on_while_the_application_works(fake: FakeKafka) -> None:
    diary = Diary()
    with member(fake) as consumer, member(fake, group_id="other") as clock:
        consumer.subscribe([TOPIC], listener=diary.listener)
        poll_until(has_all(consumer), consumer)
        generation = consumer.group_metadata().generation
        clock.subscribe([TOPIC])
        clock.poll(1.5 * SESSION_MS / 1_000)  # and the first one is away for longer than a session
        assert member_count(fake) == 1
        poll_until(has_all(consumer), consumer)
        assert consumer.group_metadata().generation == generation
        assert diary.lines == [("assigned", [0, 1, 2, 3])]


@pytest.mark.promise("a fenced or late KIP-848 member loses everything and joins again")
def test_an_application_that_does_not_poll_gives_its_partitions_up(fake: FakeKafka) -> None:
    diary = Diary()
    with member(fake, max_poll_interval_ms=500) as late, member(fake) as other:
        late.subscribe([TOPIC], listener=diary.listener)
        poll_until(has_all(late), late)
        other.subscribe([TOPIC])
        poll_until(has_all(other), other)
        poll_until(lambda: len(late.assignment()) == 2, late, other)
    assert [what for what, _ in diary.lines][:3] == ["assigned", "lost", "assigned"]


@pytest.mark.promise(
    "KIP-848 members follow their coordinator; a lost response loses no membership"
)
def test_members_follow_a_coordinator_that_moves_and_one_that_stops(fake: FakeKafka) -> None:
    diary = Diary()
    with member(fake, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC], listener=diary.listener)
        poll_until(has_all(consumer), consumer)
        with fake.control() as cluster:
            cluster.move_coordinator(0, GROUP, (cluster.group(GROUP).coordinator_id + 1) % 3)
        consumer.commit({PARTITIONS[0]: 1})
        with fake.control() as cluster:
            cluster.stop_broker(cluster.group(GROUP).coordinator_id)
        consumer.commit({PARTITIONS[0]: 2})
        metadata = consumer.group_metadata()
        consumer.poll(SESSION_MS / 1_000)
        assert consumer.group_metadata() == metadata
        assert diary.lines == [("assigned", [0, 1, 2, 3])]


@pytest.mark.promise("assignors and patterns are the brokers'; what they refuse is raised")
def test_brokers_match_a_pattern_that_is_a_string(fake: FakeKafka) -> None:
    """RE2 knows classes that Python does not, and matches whole names."""
    with fake.control() as cluster:
        cluster.create_topic("new-7", 1)
        cluster.create_topic("new-x", 1)
    with member(fake) as consumer:
        consumer.subscribe(pattern=r"t|new-[[:digit:]]+")
        expected = {*PARTITIONS, TopicPartition("new-7", 0)}
        poll_until(lambda: consumer.assignment() == expected, consumer)


@pytest.mark.promise("assignors and patterns are the brokers'; what they refuse is raised")
def test_a_compiled_pattern_is_matched_here(fake: FakeKafka) -> None:
    with member(fake, metadata_max_age_ms=100) as consumer:
        consumer.subscribe(pattern=re.compile(r"t|new-\d+"))
        poll_until(has_all(consumer), consumer)
        assert consumer.subscription() == {TOPIC}
        with fake.control() as cluster:
            cluster.create_topic("new-7", 1)
        poll_until(lambda: len(consumer.assignment()) == len(PARTITIONS) + 1, consumer)
        assert consumer.subscription() == {TOPIC, "new-7"}


def test_a_changed_subscription_is_followed(fake: FakeKafka) -> None:
    with fake.control() as cluster:
        cluster.create_topic("u", 2)
    with member(fake) as consumer:
        consumer.subscribe([TOPIC])
        poll_until(has_all(consumer), consumer)
        consumer.subscribe(["u"])
        poll_until(lambda: {each.topic for each in consumer.assignment()} == {"u"}, consumer)


@pytest.mark.promise("static KIP-848 members find their partitions again")
def test_a_static_member_finds_its_partitions_again(fake: FakeKafka) -> None:
    with member(fake, group_instance_id="i") as other_first:
        with member(fake, group_instance_id="j") as leaving:
            other_first.subscribe([TOPIC])
            leaving.subscribe([TOPIC])
            poll_until(lambda: len(leaving.assignment()) == 2, other_first, leaving)
            had = leaving.assignment()
        other_first.poll(10 * INTERVAL_MS / 1_000)
        assert len(other_first.assignment()) == 2
        with member(fake, group_instance_id="j") as back:
            back.subscribe([TOPIC])
            poll_until(lambda: len(back.assignment()) == 2, other_first, back)
            assert back.assignment() == had


@each_way_to_close
def test_closing_leaves_the_group_or_remains(
    group_membership: str, instance_id: str | None, left_count: int, fake: FakeKafka
) -> None:
    """KIP-1092, where a static member that remains says that it will be back."""
    consumer = member(fake, group_instance_id=instance_id)
    join(consumer, topics=[TOPIC])
    consumer.close(group_membership=group_membership)
    assert member_count(fake) == left_count


@pytest.mark.promise("assignors and patterns are the brokers'; what they refuse is raised")
def test_the_assignor_is_the_coordinators(fake: FakeKafka) -> None:
    with member(fake, group_remote_assignor="range") as consumer:
        join(consumer, topics=[TOPIC])
    with (
        member(fake, group_remote_assignor="no-such") as consumer,
        pytest.raises(UnsupportedAssignorError, match=r"range"),
    ):
        join(consumer, topics=[TOPIC])


@pytest.mark.promise("assignors and patterns are the brokers'; what they refuse is raised")
def test_a_pattern_that_brokers_cannot_read_is_told(fake: FakeKafka) -> None:
    with (
        member(fake) as consumer,
        pytest.raises(InvalidRegularExpressionError, match=r"\(t"),
    ):
        join(consumer, pattern="(t")


def test_a_member_whose_place_is_taken_is_told(fake: FakeKafka) -> None:
    with fake.control() as cluster:
        refusal = faults.fail_with(FencedInstanceIdError)
        cluster.faults.add(refusal, ApiKey.CONSUMER_GROUP_HEARTBEAT)
    with member(fake, group_instance_id="i") as consumer:
        consumer.subscribe([TOPIC])
        for _ in range(2):
            with pytest.raises(FencedInstanceIdError):
                poll_until(has_all(consumer), consumer)


@pytest.mark.promise("assignors and patterns are the brokers'; what they refuse is raised")
def test_brokers_that_know_no_such_groups_are_told(fake: FakeKafka) -> None:
    with fake.control() as cluster:
        cluster.limit_versions({ApiKey.CONSUMER_GROUP_HEARTBEAT: None})
    with (
        member(fake) as consumer,
        pytest.raises(UnsupportedVersionError, match="group_protocol=classic"),
    ):
        join(consumer, topics=[TOPIC])


@pytest.mark.promise(
    "KIP-848 members follow their coordinator; a lost response loses no membership"
)
def test_lost_answers_lose_no_membership(fake: FakeKafka) -> None:
    write(fake)
    with fake.control() as cluster:
        for api_key in (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.OFFSET_COMMIT):
            cluster.faults.add(faults.lose_response(closes=True), api_key, times=3)
    read: list[bytes] = []
    with member(fake, auto_commit_interval_ms=20) as first, member(fake) as second:
        first.subscribe([TOPIC])
        second.subscribe([TOPIC])
        while len(read) < COUNT:
            for consumer in (first, second):
                read.extend(values(consumer))
    assert sorted(set(read)) == sorted(b"%d" % number for number in range(COUNT))


def test_a_group_changes_its_protocol_once_it_is_empty(fake: FakeKafka) -> None:
    write(fake)
    with member(fake, group_protocol="classic", max_poll_records=50) as consumer:
        consumer.subscribe([TOPIC])
        read = 0
        while read < 50:
            read += len(consumer.poll(TIMEOUT_S))
    with member(fake) as consumer:
        consumer.subscribe([TOPIC])
        while read < COUNT:
            read += len(consumer.poll(TIMEOUT_S))
    assert read == COUNT
