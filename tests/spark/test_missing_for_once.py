"""A topic that is missing from a response of real brokers, and is back in the next one.

The right to describe it is taken from the query's user, and given back when the query pauses before
it requests the topics again. A query that names the topic gets an error, one with a pattern a list
without it. No Spark: a query in this process, which calls the reader as Spark does.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from pykclient import Admin, NewTopic, Producer
from pykclient.errors import BrokerError
from pykclient.testing import Acl, ClusterSecurity
from spark_connector.offsets import DataLossError
from spark_connector.retries import Retries
from tests.integration.confluent_tools import confluent_settings
from tests.soak import OWN_BROKERS
from tests.spark.logged_stream import LoggedStream
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = [pytest.mark.soak, pytest.mark.kafka, OWN_BROKERS]

SECURITY: Final = ClusterSecurity(
    listeners=("SASL_PLAINTEXT",),
    mechanisms=("SCRAM-SHA-512",),
    users={"reader": "reader-secret", "boss": "boss-secret"},
    acls=(),
    super_users=("User:boss",),
)
TIMEOUT_S: Final = 30


class World:
    """Two topics on brokers that hide the first one from the query's user when they are to."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._reader, self._boss = (
            cluster.client_settings("SASL_PLAINTEXT", user=user) for user in ("reader", "boss")
        )
        self.prefix = f"once-{uuid.uuid4().hex}-"
        self.hidden, self.beside = f"{self.prefix}a", f"{self.prefix}b"
        self.wanted: list[str] = []
        self.stream = LoggedStream()
        with Admin(self._boss) as admin:
            admin.create_topics([NewTopic(self.hidden, 1), NewTopic(self.beside, 1)])

    def send(self, count: int) -> None:
        with Producer(self._boss) as producer:
            for topic in (self.hidden, self.beside):
                for _ in range(count):
                    self.wanted.append(f"{topic} {len(self.wanted)}")
                    producer.send(topic, self.wanted[-1].encode())

    def hide(self) -> None:
        rule = Acl("User:reader", "DESCRIBE", permission="DENY", topic=self.hidden)
        self._cluster.create_acls(rule)

    def show(self) -> None:
        rule = AclBindingFilter(
            ResourceType.TOPIC,
            self.hidden,
            ResourcePatternType.LITERAL,
            "User:reader",
            "*",
            AclOperation.DESCRIBE,
            AclPermissionType.DENY,
        )
        boss = AdminClient({**confluent_settings(self._boss)})
        (deleted,) = boss.delete_acls([rule]).values()
        deleted.result(TIMEOUT_S)
        with Admin(self._reader) as admin:

            def is_shown() -> bool:
                try:
                    return bool(admin.describe_topics([self.hidden]))
                except BrokerError:
                    return False

            await_true(is_shown, "the user may describe the topic")

    def run(self, chosen: Mapping[str, str]) -> None:
        options = {f"kafka.{name.replace('_', '.')}": text for name, text in self._reader.items()}
        words = {"$HIDDEN": self.hidden, "$BESIDE": self.beside, "$PREFIX": self.prefix}
        for name, text in chosen.items():
            for word, value in words.items():
                text = text.replace(word, value)
            options[name] = text
        options |= {"startingOffsets": "earliest", "offsetPollIntervalMs": "0"}
        options |= {"fetchOffset.retryIntervalMs": "1", "kafka.metadata.max.age.ms": "100"}
        self.stream.run(options)

    def is_read_once(self) -> bool:
        return self.stream.values == sorted(self.wanted)


@pytest.fixture(scope="module")
def guarded(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[KafkaCluster]:
    """Start a broker that knows two users, and lets them do what no rule forbids."""
    config = {"allow.everyone.if.no.acl.found": True}
    with kafka_cluster_factory(security=SECURITY, config=config) as cluster:
        yield cluster


@pytest.fixture
def world(guarded: KafkaCluster) -> World:
    made = World(guarded)
    made.send(3)
    return made


@pytest.fixture
def at_pause(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], list[int]]:
    """Run something more in the first pause of a query; return the number of all pauses so far."""

    def arrange(act: Callable[[], None]) -> list[int]:
        count = [0]
        pause = Retries.pause

        def paused(self: Retries) -> None:
            if not count[0]:
                act()
            count[0] += 1
            pause(self)

        monkeypatch.setattr(Retries, "pause", paused)
        return count

    return arrange


NAMED: Final = {"subscribe": "$HIDDEN,$BESIDE"}
ASSIGNED: Final = {"assign": '{"$HIDDEN":[0],"$BESIDE":[0]}'}
BY_PATTERN: Final = {"subscribePattern": "$PREFIX.*"}


@pytest.mark.promise("A stream restarts from its checkpoint once the problem is fixed")
@pytest.mark.parametrize(
    ("chosen", "is_new"),
    [(NAMED, True), (NAMED, False), (ASSIGNED, False), (BY_PATTERN, False)],
    ids=["named, new", "named", "assigned", "by a pattern"],
)
def test_a_topic_that_is_missing_from_one_response_is_requested_again(
    world: World,
    at_pause: Callable[[Callable[[], None]], list[int]],
    chosen: dict[str, str],
    *,
    is_new: bool,
) -> None:
    if not is_new:
        world.run(chosen)
        world.send(2)
    world.hide()
    pause_count = at_pause(world.show)
    world.run(chosen)
    assert pause_count == [1]
    assert world.is_read_once()


@pytest.mark.promise("A stream restarts from its checkpoint once the problem is fixed")
@pytest.mark.parametrize("chosen", [NAMED, BY_PATTERN], ids=["named", "by a pattern"])
def test_a_topic_that_stays_missing_fails_a_query_that_goes_on_when_it_is_back(
    world: World,
    at_pause: Callable[[Callable[[], None]], list[int]],
    chosen: dict[str, str],
) -> None:
    world.run(chosen)
    logged = list(world.stream.log)
    world.send(2)
    world.hide()
    pause_count = at_pause(lambda: None)
    with pytest.raises(DataLossError, match=world.hidden):
        world.run(chosen)
    assert pause_count == [3]
    assert world.stream.log == logged
    world.show()
    world.run(chosen)
    assert world.is_read_once()
