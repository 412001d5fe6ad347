"""Admin: whole calls over brokers that keep topics, without sockets."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from pykclient.admin import core as core_module
from pykclient.admin.admin import Admin
from pykclient.admin.topics import NewTopic
from pykclient.errors import (
    AdminCallError,
    ClosedError,
    ConfigError,
    KafkaTimeoutError,
    TopicAlreadyExistsError,
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


def test_topics_are_created_by_the_controller(admin: Admin, port: TopicPort) -> None:
    created = admin.create_topics(new("a", "b"))
    assert {name: topic.num_partitions for name, topic in created.items()} == {"a": 1, "b": 1}
    assert ("broker-1", CreateTopicsRequest) in port.asked
    assert {"a", "b"} <= set(port.topics)


def test_a_creation_waits_until_every_broker_has_heard_of_it(admin: Admin, port: TopicPort) -> None:
    port.lag_count = 3
    admin.create_topics(new("a"))
    for host in ("broker-1", "broker-2", "broker-3"):
        assert port._heard(host) == port.topics
        assert (host, MetadataRequest) in port.asked


@pytest.mark.promise("`Admin` creates, deletes, lists and describes topics")
def test_a_deletion_waits_until_no_broker_knows_the_topic(admin: Admin, port: TopicPort) -> None:
    admin.create_topics(new("a"))
    port.lag_count = 3
    admin.delete_topics(["a"])
    assert all("a" not in port._known[host] for host in port._known)


def test_a_word_that_does_not_spread_is_logged_and_not_an_error(
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


def test_one_topic_that_fails_raises_its_error_and_the_others_are_done(
    admin: Admin, port: TopicPort
) -> None:
    admin.create_topics(new("a"))
    with pytest.raises(TopicAlreadyExistsError, match="'a'"):
        admin.create_topics(new("a", "b"))
    assert "b" in port.topics


def test_several_topics_that_fail_are_all_named(admin: Admin, port: TopicPort) -> None:
    with pytest.raises(AdminCallError, match=r"2 of 3 failed.*'x'.*'y'") as raised:
        admin.delete_topics(["x", *admin.create_topics(new("a")), "y"])
    assert raised.value.errors.keys() == {"x", "y"}
    assert all(
        isinstance(error, UnknownTopicOrPartitionError) for error in raised.value.errors.values()
    )
    assert "a" not in port.topics


def test_a_list_leaves_out_kafkas_own_topics_unless_asked(admin: Admin) -> None:
    admin.create_topics(new("a"))
    assert set(admin.list_topics()) == {"a"}
    assert set(admin.list_topics(include_internal=True)) == {"a", "__consumer_offsets"}


def test_a_description_has_the_partitions(admin: Admin) -> None:
    admin.create_topics(new("a"))
    description = admin.describe_topics(["a"])["a"]
    assert [(p.partition, p.leader_id) for p in description.partitions] == [(0, 1)]


def test_an_unknown_topic_is_told_at_once(admin: Admin) -> None:
    for call in (admin.describe_topics, admin.delete_topics):
        with pytest.raises(UnknownTopicOrPartitionError, match="'absent'"):
            call(["absent"])


def test_nothing_is_done_for_no_topics(admin: Admin, port: TopicPort) -> None:
    assert admin.create_topics([]) == {}
    assert admin.describe_topics([]) == {}
    admin.delete_topics([])
    assert {kind for _, kind in port.asked} <= {MetadataRequest}


@pytest.mark.parametrize("topics", ["abc", [1], [None]])
def test_what_are_no_names_is_refused(admin: Admin, topics: list[str]) -> None:
    for call in (admin.describe_topics, admin.delete_topics):
        with pytest.raises(UsageError, match=r"_topics.*(list of topic names|no name of a topic)"):
            call(topics)


@pytest.mark.parametrize("topics", [["a"], [NewTopic("a"), NewTopic("a")]])
def test_what_cannot_be_created_is_refused(admin: Admin, topics: list[NewTopic]) -> None:
    with pytest.raises(UsageError, match=r"NewTopic\(name|given twice"):
        admin.create_topics(topics)


def test_brokers_that_never_answer_are_named_when_time_is_up(admin: Admin, port: TopicPort) -> None:
    port.is_silent = True
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
    port.is_silent = True
    too_old = UnsupportedVersionError("too old")
    port.on_wait = lambda: admin._core.metadata.on_verdict(too_old)
    with pytest.raises(UnsupportedVersionError):
        admin.create_topics(new("a"))
    port.is_silent = False
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


def test_after_close_every_call_says_so(admin: Admin, port: TopicPort) -> None:
    admin.close()
    admin.close()
    assert port.is_shut_down
    calls: list[Callable[[], object]] = [
        admin.list_topics,
        lambda: admin.create_topics(new("a")),
        lambda: admin.delete_topics(["a"]),
        lambda: admin.describe_topics(["a"]),
    ]
    for call in calls:
        with pytest.raises(ClosedError, match="admin client is closed"):
            call()


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_that_is_none_is_refused(admin: Admin, timeout: float) -> None:
    with pytest.raises(UsageError, match="seconds, from 0"):
        admin.list_topics(timeout)


def test_a_setting_that_is_unknown_is_refused() -> None:
    with pytest.raises(ConfigError, match="bootstrap"):
        Admin(bootstrap_server="localhost:1")


def test_it_shows_its_name(port: TopicPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SelectorPort, "from_config", lambda _: port)
    with Admin({"bootstrap.servers": "boot:9092", "client.id": "keeper"}) as admin:
        assert repr(admin) == "<Admin keeper at boot:9092: open>"
