"""Errors that a program in a group gets, on fake brokers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Consumer
from pykclient.errors import (
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    InvalidRegularExpressionError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
    UsageError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults
from tests.integration.fake_group import (
    CLASSIC,
    PARTITIONS,
    TOPIC,
    has_all,
    member,
    poll_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.errors import BrokerError
    from pykclient.testing import FakeKafka


TOPICS = {"topics": [TOPIC]}


@pytest.mark.parametrize(
    ("protocol", "settings", "subscription", "response", "raised"),
    [
        (
            CLASSIC,
            {},
            TOPICS,
            (ApiKey.METADATA, TopicAuthorizationFailedError),
            (TopicAuthorizationFailedError, "'t'"),
        ),
        (
            CLASSIC,
            {"session_timeout_ms": 300},
            TOPICS,
            (ApiKey.FIND_COORDINATOR, CoordinatorNotAvailableError),
            (KafkaTimeoutError, "coordinator of group 'g' was not found"),
        ),
        (
            CLASSIC,
            {"allow_auto_create_topics": False},
            {"topics": ["absent"]},
            None,
            (UnknownTopicOrPartitionError, "'absent'"),
        ),
        (
            "consumer",
            {"group_remote_assignor": "absent"},
            TOPICS,
            None,
            (UnsupportedAssignorError, "range"),
        ),
        ("consumer", {}, {"pattern": "(t"}, None, (InvalidRegularExpressionError, r"\(t")),
    ],
    ids=["topic", "coordinator", "absent topic", "assignor", "pattern"],
)
def test_what_keeps_a_group_from_reading_is_raised_by_poll(
    protocol: str,
    settings: dict[str, Any],
    subscription: dict[str, Any],
    response: tuple[ApiKey, type[BrokerError]] | None,
    raised: tuple[type[Exception], str],
    fake: FakeKafka,
) -> None:
    error, match = raised
    if response is not None:
        key, refusal = response
        with fake.control() as cluster:
            cluster.faults.add(faults.fail_with(refusal), key, times=None)
    with member(fake, protocol, **settings) as consumer:
        consumer.subscribe(**subscription)
        with pytest.raises(error, match=match):
            poll_until(lambda: False, consumer)


def test_a_group_that_refuses_raises_from_poll_and_is_tried_again(fake: FakeKafka) -> None:
    with fake.control() as cluster:
        cluster.faults.add(faults.fail_with(GroupAuthorizationFailedError), ApiKey.JOIN_GROUP)
    with member(fake) as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(GroupAuthorizationFailedError, match="'g'"):
            poll_until(lambda: False, consumer)
        poll_until(has_all(consumer), consumer)


def test_brokers_without_groups_of_kip_848_are_reported(fake: FakeKafka) -> None:
    with fake.control() as cluster:
        cluster.limit_versions({ApiKey.CONSUMER_GROUP_HEARTBEAT: None})
    with member(fake, "consumer") as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(UnsupportedVersionError, match="group_protocol=classic"):
            poll_until(lambda: False, consumer)


def test_a_broker_that_hangs_does_not_hide_the_coordinator(fake: FakeKafka) -> None:
    with fake.control() as cluster:
        lost = cluster.faults.add(faults.drop(), ApiKey.FIND_COORDINATOR)
    with member(fake, session_timeout_ms=6_000) as consumer:
        started_s = time.monotonic()
        consumer.subscribe([TOPIC])
        poll_until(has_all(consumer), consumer)
        assert time.monotonic() - started_s < 6.0
    assert lost.used_count == 1


@pytest.mark.parametrize(
    ("subscribe", "message"),
    [
        (lambda c: c.subscribe("t"), r"give a list"),
        (lambda c: c.subscribe(["t/"]), r"is not a topic name"),
        (lambda c: c.subscribe([]), r"topics or a pattern"),
        (lambda c: c.subscribe(["t"], pattern="t"), r"topics or a pattern"),
        (lambda c: c.subscribe(pattern="("), r"not a regular expression"),
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
    subscribe: Callable[[Consumer], object], message: str, fake: FakeKafka
) -> None:
    with member(fake) as consumer, pytest.raises(UsageError, match=message):
        subscribe(consumer)


def test_a_subscription_needs_a_group(fake: FakeKafka) -> None:
    with Consumer(bootstrap_servers=fake.bootstrap_servers) as consumer:
        for call in (lambda: consumer.subscribe(["t"]), consumer.group_metadata):
            with pytest.raises(UsageError, match="group_id"):
                call()
        consumer.unsubscribe()


def test_another_way_to_close_is_refused(fake: FakeKafka) -> None:
    with member(fake) as consumer, pytest.raises(UsageError, match="leave_group"):
        consumer.close(group_membership="stay")
