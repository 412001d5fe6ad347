"""The fake coordinator of KIP-848 groups responds as Kafka's own does.

Goal: what a client receives from a fake group holds for a real one. Method: each heartbeat script
goes to Kafka and to the fake broker, and each step must have the same result.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pykclient.errors import error_for_code
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pykclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from pykclient.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykclient.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from pykclient.testing import FakeCluster
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from pykclient.testing.fake.groups.group import GroupSettings
from tests.integration.exchange import TIMEOUT_S, FakeExchange, RealExchange
from tests.integration.group_members import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pykclient.testing.fixtures import KafkaClusterFactory
    from tests.integration.exchange import Exchange

    Script = Callable[["GroupUser"], Iterator[object]]

pytestmark = pytest.mark.kafka

Assigned = tuple[tuple[str, tuple[int, ...]], ...]
"""Topics by name with their partitions, in order."""

TOPICS = {"a": 4, "b": 2, "copy-of-a": 4, "other": 1}
GROUP_SIZE_MAX = 3
BROKER_SETTINGS = {
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.max.size": GROUP_SIZE_MAX,
}


class HeartbeatResult(NamedTuple):
    """Result of a heartbeat; `assigned` is None if the response had no assignment."""

    error: str
    epoch: int = 0
    assigned: Assigned | None = None


class GroupUser:
    """All members of one group, seen from the clients' side."""

    def __init__(self, exchange: Exchange, group: str) -> None:
        self._exchange = exchange
        self.group = group
        self._ids: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}

    def create_topics(self, partition_counts: Mapping[str, int]) -> None:
        """Create those topics that are not there yet, and wait until the broker has them."""
        self._exchange.send(
            CreateTopicsRequest(
                topics=[CreatableTopic(*each, 1) for each in partition_counts.items()],
                timeout_ms=int(TIMEOUT_S * 1000),
            ),
            CreateTopicsResponse,
        )
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in partition_counts]
        )

        def are_known() -> bool:
            topics = self._exchange.send(request, MetadataResponse).topics
            self._ids = {topic.name or "": topic.topic_id for topic in topics}
            self._names = {topic.topic_id: topic.name or "" for topic in topics}
            return all(topic.error_code == 0 for topic in topics)

        wait_until(are_known, "the topics are known")

    def wait_for_coordinator(self) -> None:
        """Wait until the broker coordinates the group; a new one makes its topic for that first."""
        request = FindCoordinatorRequest(coordinator_keys=[self.group])

        def is_there() -> bool:
            found = self._exchange.send(request, FindCoordinatorResponse).coordinators
            return all(coordinator.error_code == 0 for coordinator in found)

        wait_until(is_there, "the coordinator is known")

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        topics: Iterable[str] | None = None,
        owned: Mapping[str, Iterable[int]] | None = None,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = -1,
        version: int | None = None,
    ) -> HeartbeatResult:
        """One heartbeat."""
        response = self._exchange.send(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance_id,
                rebalance_timeout_ms=rebalance_timeout_ms,
                subscribed_topic_names=None if topics is None else list(topics),
                subscribed_topic_regex=regex,
                server_assignor=assignor,
                topic_partitions=(
                    None
                    if owned is None
                    else [
                        RequestTopicPartitions(self._ids[name], list(partitions))
                        for name, partitions in owned.items()
                    ]
                ),
            ),
            ConsumerGroupHeartbeatResponse,
            version,
        )
        if response.error_code:
            return HeartbeatResult(error_for_code(response.error_code).name)
        assignment = response.assignment
        return HeartbeatResult(
            "NONE",
            response.member_epoch,
            None
            if assignment is None
            else tuple(
                sorted(
                    (self._names[each.topic_id], tuple(sorted(each.partitions)))
                    for each in assignment.topic_partitions
                )
            ),
        )

    def join(
        self, member_id: str, topics: Iterable[str] | None = None, **more: object
    ) -> HeartbeatResult:
        """Return a first heartbeat."""
        settings: dict[str, object] = {"rebalance_timeout_ms": 60_000, "owned": {}, **more}
        return self.beat(member_id, 0, topics=topics, **settings)  # type: ignore[arg-type]

    def state(self) -> tuple[str, int, int, str, tuple[tuple[object, ...], ...]]:
        """State, group epoch, epoch of the target, assignor, and the members as described."""
        described = self._exchange.send(
            ConsumerGroupDescribeRequest(group_ids=[self.group]), ConsumerGroupDescribeResponse
        ).groups[0]
        members = sorted(described.members, key=lambda member: member.member_id)
        return (
            described.group_state,
            described.group_epoch,
            described.assignment_epoch,
            described.assignor_name,
            tuple(
                (
                    member.member_id,
                    member.instance_id,
                    member.member_epoch,
                    tuple(sorted(member.subscribed_topic_names)),
                    member.subscribed_topic_regex,
                    member.member_type,
                    *(
                        tuple(
                            (topic.topic_name, tuple(sorted(topic.partitions)))
                            for topic in sorted(each.topic_partitions, key=lambda t: t.topic_name)
                        )
                        for each in (member.assignment, member.target_assignment)
                    ),
                )
                for member in members
            ),
        )


@pytest.fixture(scope="module")
def kafka(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[RealExchange]:
    with kafka_cluster_factory(version=KAFKA_VERSIONS[0], config=BROKER_SETTINGS) as cluster:
        exchange = RealExchange(cluster.bootstrap_servers)
        user = GroupUser(exchange, "warm-up")
        user.create_topics(TOPICS)
        user.wait_for_coordinator()
        # The coordinator sees new topics by itself, and later than clients that request metadata.
        wait_until(
            lambda: (
                user.join("m", TOPICS).assigned
                == tuple((name, tuple(range(count))) for name, count in sorted(TOPICS.items()))
            ),
            "the coordinator has the topics",
        )
        yield exchange


@pytest.fixture
def fake() -> FakeExchange:
    settings = GroupSettings(
        group_consumer_assignment_interval_ms=0, group_consumer_max_size=GROUP_SIZE_MAX
    )
    return FakeExchange(FakeCluster(1, group_settings=settings))


def one_member(user: GroupUser) -> Iterator[object]:
    """Goal: as in 4.4, where the target of a group that became empty has the group's epoch.

    Kafka 4.3 leaves it at the epoch of the last assignment.
    """
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


def a_lost_response(user: GroupUser) -> Iterator[object]:
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


def after_epoch(user: GroupUser, member_id: str, epoch: int) -> HeartbeatResult:
    """Heartbeat until the epoch has moved: brokers resolve patterns beside the heartbeats."""
    results: list[HeartbeatResult] = []

    def is_later() -> bool:
        results.append(user.beat(member_id, epoch))
        return results[-1].epoch > epoch

    wait_until(is_later, "a later epoch")
    return results[-1]


SCRIPTS = [
    one_member,
    two_members,
    a_member_leaves_while_it_gives_up,
    a_lost_response,
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


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_fake_group_responds_as_kafkas_does(
    script: Script, kafka: RealExchange, fake: FakeExchange
) -> None:
    outcomes = []
    for exchange in (fake, kafka):
        user = GroupUser(exchange, f"g-{uuid.uuid4().hex}")
        user.create_topics(TOPICS)
        outcomes.append(list(script(user)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("version", [3, 4])
def test_the_feature_of_such_groups_is_named_as_kafka_names_it(
    version: int, kafka: RealExchange, fake: FakeExchange
) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")

    def named(exchange: Exchange) -> list[tuple[int, ...]]:
        response = exchange.send(request, ApiVersionsResponse, version)
        supported = [
            (each.min_version, each.max_version)
            for each in response.supported_features
            if each.name == "group.version"
        ]
        finalized = [
            (each.min_version_level, each.max_version_level)
            for each in response.finalized_features
            if each.name == "group.version"
        ]
        assert finalized
        return [*supported, *finalized]

    assert named(fake) == named(kafka)
