"""Admin: whole calls over brokers that keep topics, without sockets."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from pykclient.admin import core as core_module
from pykclient.admin.admin import Admin
from pykclient.admin.core import TimeLimit
from pykclient.admin.topics import DeleteTopics, NewTopic
from pykclient.errors import (
    AdminCallError,
    ClosedError,
    KafkaTimeoutError,
    NotControllerError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    UsageError,
)
from pykclient.network.io.selector import SelectorPort
from pykclient.protocol.messages.create_topics import CreateTopicsRequest
from pykclient.protocol.messages.metadata import MetadataRequest
from pykclient.types import TopicPartition
from tests.admin.topic_port import TopicPort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHORT_S = 0.05


@pytest.fixture
def port() -> TopicPort:
    return TopicPort(broker_count=3)


@pytest.fixture
def admin(port: TopicPort, monkeypatch: pytest.MonkeyPatch) -> Iterator[Admin]:
    monkeypatch.setattr(SelectorPort, "from_config", lambda _: port)
    with Admin(bootstrap_servers="boot:9092", retry_backoff_ms=1) as admin:
        yield admin


def new(*names: str) -> list[NewTopic]:
    return [NewTopic(name, num_partitions=1, replication_factor=1) for name in names]


def test_a_creation_waits_until_it_has_reached_every_broker(admin: Admin, port: TopicPort) -> None:
    port.lag_count = 3
    created = admin.create_topics(new("a", "b"))
    assert {name: topic.num_partitions for name, topic in created.items()} == {"a": 1, "b": 1}
    assert ("broker-1", CreateTopicsRequest) in port.requests, "the controller"
    for host in ("broker-1", "broker-2", "broker-3"):
        assert port._metadata_of(host) == port.topics
        assert (host, MetadataRequest) in port.requests


@pytest.mark.promise("`Admin` creates, deletes, lists and describes topics")
def test_a_deletion_waits_until_the_topic_is_in_no_brokers_metadata(
    admin: Admin, port: TopicPort
) -> None:
    admin.create_topics(new("a"))
    port.lag_count = 3
    admin.delete_topics(["a"])
    assert all("a" not in port._known[host] for host in port._known)


def test_a_change_that_does_not_spread_is_logged_and_not_an_error(
    admin: Admin,
    port: TopicPort,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(core_module, "SPREAD_MS_MAX", 50)
    port.lag_count = 10**9
    with caplog.at_level(logging.WARNING, "pykclient.admin"):
        assert admin.create_topics(new("a")).keys() == {"a"}
    assert "1, 2, 3" in caplog.text


def test_several_topics_that_fail_are_all_named(admin: Admin, port: TopicPort) -> None:
    with pytest.raises(AdminCallError, match=r"2 of 3 failed.*'x'.*'y'") as raised:
        admin.delete_topics(["x", *admin.create_topics(new("a")), "y"])
    assert raised.value.errors.keys() == {"x", "y"}
    assert all(
        isinstance(error, UnknownTopicOrPartitionError) for error in raised.value.errors.values()
    )
    assert "a" not in port.topics


def test_a_list_leaves_out_kafkas_own_topics_by_default(admin: Admin) -> None:
    admin.create_topics(new("a"))
    assert set(admin.list_topics()) == {"a"}
    assert set(admin.list_topics(include_internal=True)) == {"a", "__consumer_offsets"}


def test_nothing_is_done_for_no_topics(admin: Admin, port: TopicPort) -> None:
    assert admin.create_topics([]) == {}
    assert admin.describe_topics([]) == {}
    admin.delete_topics([])
    assert {kind for _, kind in port.requests} <= {MetadataRequest}


@pytest.mark.parametrize("topics", [["a"], [NewTopic("a"), NewTopic("a")]])
def test_what_cannot_be_created_is_refused(admin: Admin, topics: list[NewTopic]) -> None:
    with pytest.raises(UsageError, match=r"NewTopic\(name|given twice"):
        admin.create_topics(topics)


def test_brokers_that_never_respond_are_named_when_time_is_up(
    admin: Admin, port: TopicPort
) -> None:
    port.is_hung = True
    calls: dict[str, Callable[[], object]] = {
        "creation of topics a, b": lambda: admin.create_topics(new("a", "b"), SHORT_S),
        "deletion of topics a": lambda: admin.delete_topics(["a"], SHORT_S),
        "list of all topics": lambda: admin.list_topics(SHORT_S),
        "description of topics a": lambda: admin.describe_topics(["a"], SHORT_S),
        "list of all brokers": lambda: admin.list_groups(SHORT_S),
        "description of groups g": lambda: admin.describe_groups(["g"], SHORT_S),
        "deletion of groups g": lambda: admin.delete_groups(["g"], SHORT_S),
        "coordinators of groups g": lambda: admin.find_coordinators(["g"], SHORT_S),
        "offsets of group g": lambda: admin.list_group_offsets("g", timeout=SHORT_S),
        "offsets of group 'g', partitions t-0": lambda: admin.alter_group_offsets(
            "g", {TopicPartition("t", 0): 1}, SHORT_S
        ),
    }
    for what, call in calls.items():
        with pytest.raises(
            KafkaTimeoutError, match=rf"waited 50 ms for (the )?{what}: .*boot:9092"
        ):
            call()


def test_a_fatal_error_is_raised_at_once(admin: Admin, port: TopicPort) -> None:
    port.is_hung = True
    too_old = UnsupportedVersionError("too old")
    port.on_wait = lambda: admin._core.metadata.on_verdict(too_old)
    with pytest.raises(UnsupportedVersionError):
        admin.create_topics(new("a"))
    port.is_hung = False
    port.on_wait = lambda: None
    assert set(admin.create_topics(new("b"))) == {"b"}, "the next call tries anew"


def test_calls_from_several_threads_queue(admin: Admin, port: TopicPort) -> None:
    names = [f"topic-{number}" for number in range(8)]
    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(lambda name: admin.create_topics(new(name)), names))
    assert [set(created) for created in done] == [{name} for name in names]


def test_waiting_for_another_threads_call_ends_in_time(admin: Admin, port: TopicPort) -> None:
    inside, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        port.on_wait = lambda: None
        inside.set()
        may_go.wait()

    port.on_wait = hold
    with ThreadPoolExecutor(1) as other:
        first = other.submit(admin.list_topics)
        inside.wait()
        try:
            with pytest.raises(KafkaTimeoutError, match="another thread"):
                admin.list_topics(SHORT_S)
            with pytest.raises(KafkaTimeoutError, match="another thread"):
                admin.close(SHORT_S)
        finally:
            may_go.set()
        assert first.result() == {}


def test_after_close_every_call_fails(admin: Admin, port: TopicPort) -> None:
    admin.close()
    admin.close()
    assert port.is_shut_down
    with pytest.raises(ClosedError, match="admin client is closed"):
        admin.list_topics()


def test_keys_that_are_not_done_in_time_are_named_once_beside_errors_and_the_last_error(
    admin: Admin,
) -> None:
    core, limit = admin._core, TimeLimit(0, 5)
    call = core.new_call(DeleteTopics(), ["a", "b", "c"], 0)
    call.last_error = NotControllerError("moved")
    with pytest.raises(KafkaTimeoutError, match=r"waited 5 ms for topics a, b, c: .*moved"):
        core.result(call, "topics", limit)
    call.errors["a"] = TopicAuthorizationFailedError("a")
    call._unfinished.pop("a")
    with pytest.raises(AdminCallError) as raised:
        core.result(call, "topics", limit)
    assert isinstance(raised.value.errors["a"], TopicAuthorizationFailedError)
    assert isinstance(raised.value.errors["b"], KafkaTimeoutError)


def test_idle_connections_close_sooner_than_those_of_other_clients(admin: Admin) -> None:
    assert admin._core.config.connections_max_idle_ms == 300_000
