"""What a program in a group is told when something is wrong, on fake brokers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer
from pykclient.errors import (
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults
from tests.integration.fake_group import (
    PARTITIONS,
    TOPIC,
    has_all,
    member,
    poll_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import FakeKafka


@pytest.fixture(autouse=True)
def _topic(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, len(PARTITIONS))


@pytest.mark.promise("what keeps a group from reading is raised from `poll`")
def test_a_group_that_refuses_raises_from_poll_and_is_tried_again(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.faults.add(faults.fail_with(GroupAuthorizationFailedError), ApiKey.JOIN_GROUP)
    with member(fake_kafka) as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(GroupAuthorizationFailedError, match="'g'"):
            poll_until(lambda: False, consumer)
        poll_until(has_all(consumer), consumer)


@pytest.mark.promise("what keeps a group from reading is raised from `poll`")
def test_a_topic_that_does_not_exist_is_told_of(fake_kafka: FakeKafka) -> None:
    with member(fake_kafka, allow_auto_create_topics=False) as consumer:
        consumer.subscribe(["absent"])
        with pytest.raises(UnknownTopicOrPartitionError, match="'absent'"):
            poll_until(lambda: False, consumer)


@pytest.mark.promise("what keeps a group from reading is raised from `poll`")
def test_a_topic_that_may_not_be_read_is_told_of(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.faults.add(
            faults.fail_with(TopicAuthorizationFailedError), ApiKey.METADATA, times=None
        )
    with member(fake_kafka) as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(TopicAuthorizationFailedError, match="'t'"):
            poll_until(lambda: False, consumer)


@pytest.mark.promise("what keeps a group from reading is raised from `poll`")
def test_a_coordinator_that_nobody_finds_is_told_of_after_a_session(
    fake_kafka: FakeKafka,
) -> None:
    with fake_kafka.control() as cluster:
        cluster.faults.add(
            faults.fail_with(CoordinatorNotAvailableError), ApiKey.FIND_COORDINATOR, times=None
        )
    with member(fake_kafka, session_timeout_ms=300) as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(KafkaTimeoutError, match=r"coordinator of group 'g' was not found"):
            poll_until(lambda: False, consumer)


def test_a_broker_that_hangs_does_not_hide_the_coordinator(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        lost = cluster.faults.add(faults.drop(), ApiKey.FIND_COORDINATOR)
    with member(fake_kafka, session_timeout_ms=6_000) as consumer:
        started_s = time.monotonic()
        consumer.subscribe([TOPIC])
        poll_until(has_all(consumer), consumer)
        assert time.monotonic() - started_s < 6.0
    assert lost.used_count == 1


@pytest.mark.promise(
    "subscriptions change in place; patterns follow new topics; topics that grow are reassigned"
)
@pytest.mark.parametrize(
    ("subscribe", "message"),
    [
        (lambda c: c.subscribe("t"), r"give a list"),
        (lambda c: c.subscribe(["t/"]), r"can be no topic"),
        (lambda c: c.subscribe([]), r"topics or a pattern"),
        (lambda c: c.subscribe(["t"], pattern="t"), r"topics or a pattern"),
        (lambda c: c.subscribe(pattern="("), r"no regular expression"),
        (
            lambda c: c.subscribe(["t"], listener=print),
            r"make a RebalanceListener",
        ),
        (lambda c: (c.subscribe(["t"]), c.subscribe(pattern="t")), r"exclude each other"),
        (lambda c: (c.subscribe(["t"]), c.assign(PARTITIONS)), r"exclude each other"),
        (lambda c: (c.assign(PARTITIONS), c.subscribe(["t"])), r"exclude each other"),
    ],
)
def test_what_is_no_subscription_is_refused(
    subscribe: Callable[[Consumer], object], message: str, fake_kafka: FakeKafka
) -> None:
    with member(fake_kafka) as consumer, pytest.raises(UsageError, match=message):
        subscribe(consumer)


@pytest.mark.promise("`subscribe` without `group_id` is refused, with what to use")
def test_a_subscription_needs_a_group(fake_kafka: FakeKafka) -> None:
    servers = fake_kafka.bootstrap_servers
    with Consumer(bootstrap_servers=servers) as consumer:
        for call in (lambda: consumer.subscribe(["t"]), consumer.group_metadata):
            with pytest.raises(UsageError, match="group_id"):
                call()
        consumer.unsubscribe()


def test_another_way_to_close_is_refused(fake_kafka: FakeKafka) -> None:
    with member(fake_kafka) as consumer, pytest.raises(UsageError, match="leave_group"):
        consumer.close(group_membership="stay")
