"""Ends of members of groups, both protocols: in time, and from inside a listener.

Goal: `close` and `unsubscribe` end whatever the brokers do, and wherever they are called. Method:
real consumers, fake brokers that say nothing.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, RebalanceListener
from pykclient.errors import ClosedError
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults
from tests.integration.fake_group import (
    GROUP,
    PARTITIONS,
    TIMEOUT_S,
    TOPIC,
    Diary,
    has_all,
    member,
    poll_until,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient import TopicPartition
    from pykclient.testing import FakeKafka

CLOSE_S = 1.0
SLACK_S = 0.8
"""For a machine that is busy; less than the close itself, of which there must not be two."""
NUMBERS = [partition.partition for partition in PARTITIONS]


@pytest.fixture(autouse=True)
def _topic(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, len(PARTITIONS))


@pytest.fixture(params=["classic", "consumer"])
def consumer(request: pytest.FixtureRequest, fake_kafka: FakeKafka) -> Consumer:
    return Consumer(
        bootstrap_servers=fake_kafka.bootstrap_servers,
        group_id=GROUP,
        group_protocol=request.param,
        auto_offset_reset="earliest",
    )


@pytest.mark.promise(
    "`close` has one deadline, in both protocols; a listener may close or unsubscribe"
)
def test_close_has_one_deadline_for_all_that_it_does(
    consumer: Consumer, fake_kafka: FakeKafka
) -> None:
    diary = Diary()
    consumer.subscribe([TOPIC], listener=diary.listener)
    poll_until(has_all(consumer), consumer)
    with fake_kafka.control() as cluster:
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
    assert diary.lines[-1] == ("revoked", NUMBERS), "the commit left time for the listener"


@pytest.mark.promise(
    "`close` has one deadline, in both protocols; a listener may close or unsubscribe"
)
@pytest.mark.parametrize("inner", ["close", "unsubscribe"])
@pytest.mark.parametrize("outer", ["close", "unsubscribe"])
def test_a_listener_that_hears_of_an_end_may_end_it_itself(
    outer: str, inner: str, consumer: Consumer
) -> None:
    told: list[int] = []

    def on_revoked(partitions: Sequence[TopicPartition]) -> None:
        told.append(len(partitions))
        getattr(consumer, inner)()

    consumer.subscribe([TOPIC], listener=RebalanceListener(on_revoked=on_revoked))
    poll_until(has_all(consumer), consumer)
    started_s = time.monotonic()
    is_closed_meanwhile = inner == "close" and outer == "unsubscribe"
    with pytest.raises(ClosedError) if is_closed_meanwhile else nullcontext():
        getattr(consumer, outer)()
    consumer.close()
    assert told == [len(PARTITIONS)], "once"
    assert time.monotonic() - started_s < TIMEOUT_S / 2


@pytest.mark.promise(
    "`close` has one deadline, in both protocols; a listener may close or unsubscribe"
)
def test_a_poll_whose_listener_closes_the_consumer_says_so(consumer: Consumer) -> None:
    def on_assigned(partitions: Sequence[TopicPartition]) -> None:
        consumer.close()

    consumer.subscribe([TOPIC], listener=RebalanceListener(on_assigned=on_assigned))
    with pytest.raises(ClosedError):
        poll_until(lambda: False, consumer)
    consumer.close()


@pytest.mark.promise(
    "`close` has one deadline, in both protocols; a listener may close or unsubscribe"
)
def test_a_listener_that_hears_of_a_revocation_may_unsubscribe(fake_kafka: FakeKafka) -> None:
    told: list[int] = []
    with member(fake_kafka) as leaving, member(fake_kafka) as staying:

        def on_revoked(partitions: Sequence[TopicPartition]) -> None:
            told.append(len(partitions))
            leaving.unsubscribe()

        leaving.subscribe([TOPIC], listener=RebalanceListener(on_revoked=on_revoked))
        poll_until(has_all(leaving), leaving)
        staying.subscribe([TOPIC])
        poll_until(lambda: bool(told), leaving, staying)
        poll_until(has_all(staying), staying)
        assert told == [len(PARTITIONS)], "once"
        assert not leaving.assignment()
