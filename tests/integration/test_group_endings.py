"""Ends of members of groups, both protocols: in time, and from inside a listener.

Goal: `close` and `unsubscribe` end whatever the brokers do, and wherever they are called. Method:
real consumers, fake brokers that say nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults
from tests.integration.test_groups import (
    GROUP,
    PARTITIONS,
    TOPIC,
    Diary,
    has_all,
    poll_until,
)

if TYPE_CHECKING:
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
