"""Names that no request can carry are refused before anything is opened, sent or waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewPartitions, NewTopic, Producer, TopicPartition
from pykclient.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

SERVERS = "127.0.0.1:9"
LONG, BROKEN = "x" * 40_000, "a\udcff"


@pytest.mark.parametrize("text", [LONG, BROKEN], ids=["long", "no text"])
@pytest.mark.parametrize(
    "make",
    [
        lambda text: Producer(bootstrap_servers=SERVERS, client_id=text),
        lambda text: Consumer(bootstrap_servers=SERVERS, client_id=text),
        lambda text: Admin(bootstrap_servers=SERVERS, client_id=text),
        lambda text: Consumer(bootstrap_servers=SERVERS, group_id=text),
        lambda text: Consumer(bootstrap_servers=SERVERS, group_id="g", group_instance_id=text),
        lambda text: Consumer(bootstrap_servers=SERVERS, client_rack=text),
        lambda text: Consumer(
            bootstrap_servers=SERVERS,
            group_id="g",
            group_protocol="consumer",
            group_remote_assignor=text,
        ),
    ],
)
def test_a_setting_that_cannot_be_sent_is_refused(make: Callable[[str], object], text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not valid"):
        make(text)


@pytest.mark.parametrize("text", [LONG, BROKEN, ""], ids=["long", "no text", "empty"])
def test_a_topic_that_fits_in_no_request_is_refused(text: str) -> None:
    partition = TopicPartition(text, 0)
    with (
        Producer(bootstrap_servers=SERVERS) as producer,
        Consumer(bootstrap_servers=SERVERS, group_id="g") as consumer,
    ):
        calls: list[Callable[[], object]] = [
            lambda: producer.send(text, b"v"),
            lambda: producer.partitions_for(text),
            lambda: consumer.assign([partition]),
            lambda: consumer.subscribe([text]),
            lambda: consumer.partitions_for(text),
            lambda: consumer.committed([partition]),
            lambda: consumer.offsets_for_times({partition: 0}),
            lambda: consumer.beginning_offsets([partition]),
            lambda: consumer.end_offsets([partition]),
        ]
        for call in calls:
            with pytest.raises(UsageError):
                call()


@pytest.mark.parametrize("text", [LONG, BROKEN], ids=["long", "no text"])
def test_what_goes_to_a_groups_coordinator_is_refused(text: str) -> None:
    with (
        Consumer(bootstrap_servers=SERVERS, group_id="g", group_protocol="consumer") as consumer,
        pytest.raises(UsageError, match="cannot be sent"),
    ):
        consumer.subscribe(pattern=text)
    with Consumer(bootstrap_servers=SERVERS, group_id="g") as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(UsageError, match="cannot be sent"):
            consumer.enforce_rebalance(text)
        consumer.unsubscribe()


@pytest.mark.parametrize("text", [LONG, BROKEN], ids=["long", "no text"])
def test_names_given_to_an_admin_are_refused(text: str) -> None:
    with Admin(bootstrap_servers=SERVERS) as admin:
        calls: list[Callable[[], object]] = [
            lambda: admin.delete_topics([text]),
            lambda: admin.describe_topics([text]),
            lambda: admin.describe_groups([text]),
            lambda: admin.delete_groups([text]),
            lambda: admin.create_topics([NewTopic(text, 1, 1)]),
            lambda: admin.create_partitions({text: NewPartitions(2)}),
        ]
        for call in calls:
            with pytest.raises(UsageError):
                call()
