"""The fake coordinator of KIP-848 groups answers as Kafka's own does.

Goal: what a client learns from a fake group holds for a real one. Method: each script of heartbeats
goes to Kafka and to the fake broker, and what came of each step has to be the same.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.testing import FakeCluster
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from pykclient.testing.fake.groups.group import GroupSettings
from tests.integration.group_exchange import (
    Answer,
    Exchange,
    FakeExchange,
    GroupUser,
    RealExchange,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing.fixtures import KafkaClusterFactory

    Script = Callable[[GroupUser], Iterator[object]]

pytestmark = pytest.mark.kafka

TOPICS = {"a": 4, "b": 2, "copy-of-a": 4, "other": 1}
GROUP_SIZE_MAX = 3
BROKER_SETTINGS = {
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.max.size": GROUP_SIZE_MAX,
}


@pytest.fixture(scope="module")
def kafka(kafka_cluster_factory: KafkaClusterFactory) -> RealExchange:
    cluster = kafka_cluster_factory(version=KAFKA_VERSIONS[0], config=BROKER_SETTINGS)
    exchange = RealExchange(cluster.bootstrap_servers)
    user = GroupUser(exchange, "warm-up")
    user.create_topics(TOPICS)
    user.wait_for_coordinator()
    # The coordinator learns of topics by itself, and later than those who ask for metadata.
    wait_until(
        lambda: (
            user.join("m", TOPICS).assigned
            == tuple((name, tuple(range(count))) for name, count in sorted(TOPICS.items()))
        )
    )
    return exchange


@pytest.fixture
def fake() -> FakeExchange:
    settings = GroupSettings(
        group_consumer_assignment_interval_ms=0, group_consumer_max_size=GROUP_SIZE_MAX
    )
    return FakeExchange(FakeCluster(1, group_settings=settings))


def one_member(user: GroupUser) -> Iterator[object]:
    yield user.beat("m1", 1)
    yield user.join("m1", ["a"])
    yield user.state()
    yield user.beat("m1", 2)
    yield user.beat("m1", 2, owned={"a": range(4)})
    yield user.beat("m1", 2, topics=["a"], owned={"a": range(4)}, rebalance_timeout_ms=1000)
    yield user.beat("m1", 3)
    yield user.beat("m1", 1)
    yield user.beat("m1", 1, owned={})
    yield user.join("m1", ["a"])
    yield user.beat("m2", 2)
    yield user.beat("m1", -1)
    yield user.state()
    yield user.beat("m1", -1)


def two_members(user: GroupUser) -> Iterator[object]:
    yield user.join("m1", ["a"])
    yield user.join("m2", ["a"])
    yield user.state()
    yield user.beat("m1", 2)
    yield user.state()
    yield user.beat("m2", 3)
    yield user.beat("m1", 2, owned={"a": [0, 1, 2, 3]})
    yield user.beat("m1", 2, owned={"a": [0, 1, 3]})
    yield user.beat("m1", 2, owned={"a": [0, 1]})
    yield user.state()
    yield user.beat("m2", 3)
    yield user.beat("m2", 3, owned={"a": [2, 3]})
    yield user.state()
    yield user.beat("m1", -1)
    yield user.beat("m2", 3)
    yield user.state()


def a_member_leaves_while_it_gives_up(user: GroupUser) -> Iterator[object]:
    yield user.join("m1", ["a"])
    yield user.join("m2", ["a"])
    yield user.beat("m1", 2, owned={"a": range(4)})
    yield user.beat("m1", -1)
    yield user.beat("m2", 3, owned={})
    yield user.beat("m2", 4, owned={"a": range(4)})
    yield user.state()


def a_lost_answer(user: GroupUser) -> Iterator[object]:
    yield user.join("m1", ["a"])
    yield user.join("m2", ["a"])
    yield user.beat("m1", 2, owned={"a": range(4)})
    yield user.beat("m1", 2, owned={"a": [0, 1]})
    yield user.beat("m1", 2, owned={"a": [0, 1]})
    yield user.beat("m1", 2, owned={"a": [0, 1, 2]})
    yield user.beat("m1", 2)
    yield user.beat("m1", 3)


def subscriptions_that_change(user: GroupUser) -> Iterator[object]:
    yield user.join("m1", ["a"])
    yield user.beat("m1", 2, topics=["a", "b"])
    yield user.beat("m1", 3, topics=["b"], owned={"a": range(4), "b": range(2)})
    yield user.state()
    yield user.beat("m1", 3, owned={"b": range(2)})
    yield user.beat("m1", 4, topics=["b", "none"])
    yield user.beat("m1", 5, topics=[])
    yield user.beat("m1", 5, owned={})
    yield user.state()


def no_topics(user: GroupUser) -> Iterator[object]:
    yield user.join("m1", [])
    yield user.state()
    yield user.beat("m1", 1)
    yield user.join("m2", ["none"])
    yield user.state()
    yield user.join("m3", regex="")
    yield user.state()


def static_members(user: GroupUser) -> Iterator[object]:
    yield user.join("m1", ["a"], instance_id="i1")
    yield user.join("m2", ["a"], instance_id="i2")
    yield user.beat("m1", 2, owned={"a": range(4)}, instance_id="i1")
    yield user.beat("m1", 2, owned={"a": [0, 1]}, instance_id="i1")
    yield user.beat("m2", 3, owned={}, instance_id="i2")
    yield user.beat("m2", 3, owned={"a": [2, 3]}, instance_id="i2")
    yield user.beat("m2", 3, owned={"a": [2, 3]})
    yield user.join("m3", ["a"], instance_id="i2")
    yield user.join("m2", ["a"], instance_id="i2")
    yield user.beat("m2", -2, instance_id="i2")
    yield user.state()
    yield user.beat("m2", 3, instance_id="i2")
    yield user.join("m3", ["a"], instance_id="i2")
    yield user.state()
    yield user.beat("m2", 3, instance_id="i2")
    yield user.beat("m2", -1, instance_id="i2")
    yield user.beat("m3", -1, instance_id="i2")
    yield user.beat("m9", 3, instance_id="i9")
    yield user.beat("m9", -2, instance_id="i9")
    yield user.beat("m1", 3, owned={"a": [0, 1]}, instance_id="i1")
    yield user.state()


def a_static_member_comes_back_with_other_topics(user: GroupUser) -> Iterator[object]:
    yield user.join("m1", ["a"], instance_id="i1")
    yield user.beat("m1", -2, instance_id="i1")
    yield user.join("m2", ["b"], instance_id="i1")
    yield user.state()
    yield user.beat("m2", 3, owned={}, instance_id="i1")


def range_of_two_topics(user: GroupUser) -> Iterator[object]:
    yield user.join("m1", ["a", "copy-of-a", "b"], assignor="range")
    yield user.join("m2", ["a", "copy-of-a", "b"], assignor="range")
    yield user.join("m3", ["b"], assignor="range")
    yield user.state()


def most_votes_choose_the_assignor(user: GroupUser) -> Iterator[object]:
    yield user.join("m1", ["a"], assignor="range")
    yield user.state()
    yield user.join("m2", ["a"], assignor="uniform")
    yield user.join("m3", ["a"], assignor="uniform")
    yield user.state()[:4]


def what_is_refused(user: GroupUser) -> Iterator[object]:
    yield user.join("", ["a"])
    yield user.join("  ", ["a"])
    yield user.join("m1", ["a"], assignor="sticky")
    yield user.join("m1", ["a"], owned=None)
    yield user.join("m1", ["a"], owned={"a": [0]})
    yield user.join("m1", ["a"], rebalance_timeout_ms=-1)
    yield user.join("m1")
    yield user.join("m1", ["a"], instance_id="")
    yield user.beat("m1", -2)
    yield user.beat("m1", -3)
    yield user.beat("m1", -1)
    yield user.beat("m1", 1, version=0)
    yield user.beat("", 1, version=0)
    yield user.beat("", -2, instance_id="i", version=0)
    for pattern in ("(", "a**", "(?=a)", "[b-a]", "(?P<n>a)(?P<n>b)", "a{1001}", "\\1"):
        yield user.join("m1", regex=pattern)
    yield user.beat("m1", 1)
    yield user.join("m1", ["a"])
    yield user.join("m2", ["a"])
    yield user.join("m3", ["a"])
    yield user.join("m4", ["a"])
    yield user.join("m3", ["a"])


def regular_expressions(user: GroupUser) -> Iterator[object]:
    yield user.join("m1", regex="a|b")
    yield after_epoch(user, "m1", 1)
    yield user.state()
    yield user.join("m2", regex="a|b")
    yield user.beat("m1", 2, owned={"a": range(4), "b": range(2)})[:2]
    yield user.beat("m1", 2, regex="", owned={})
    yield user.beat("m2", 3, owned={})
    yield user.state()


def an_expression_and_names(user: GroupUser) -> Iterator[object]:
    yield user.join("m1", ["other"], regex="copy-.*")
    yield after_epoch(user, "m1", 2)
    yield user.beat("m1", 3, topics=[])
    yield user.state()


def after_epoch(user: GroupUser, member_id: str, epoch: int) -> Answer:
    """The first answer in a later epoch: expressions are resolved beside the heartbeats."""
    answers: list[Answer] = []

    def is_later() -> bool:
        answers.append(user.beat(member_id, epoch))
        return answers[-1].epoch > epoch

    wait_until(is_later)
    return answers[-1]


SCRIPTS = [
    one_member,
    two_members,
    a_member_leaves_while_it_gives_up,
    a_lost_answer,
    subscriptions_that_change,
    no_topics,
    static_members,
    a_static_member_comes_back_with_other_topics,
    range_of_two_topics,
    most_votes_choose_the_assignor,
    what_is_refused,
    regular_expressions,
    an_expression_and_names,
]


@pytest.mark.promise("fake KIP-848 groups respond as Kafka 4.3.1 does")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_fake_group_answers_as_kafkas_does(
    script: Script, kafka: RealExchange, fake: FakeExchange
) -> None:
    outcomes = []
    for exchange in (fake, kafka):
        user = GroupUser(exchange, f"g-{uuid.uuid4().hex}")
        user.create_topics(TOPICS)
        outcomes.append(list(script(user)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.promise("the fake cluster names the feature `group.version` as Kafka does")
@pytest.mark.parametrize("version", [3, 4])
def test_the_feature_of_such_groups_is_named_as_kafka_names_it(
    version: int, kafka: RealExchange, fake: FakeExchange
) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")

    def named(exchange: Exchange) -> list[tuple[int, ...]]:
        told = exchange.ask(request, ApiVersionsResponse, version)
        supported = [
            (each.min_version, each.max_version)
            for each in told.supported_features
            if each.name == "group.version"
        ]
        finalized = [
            (each.min_version_level, each.max_version_level)
            for each in told.finalized_features
            if each.name == "group.version"
        ]
        assert finalized
        return [*supported, *finalized]

    assert named(fake) == named(kafka)
