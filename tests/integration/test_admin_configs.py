"""Admin's settings of topics and brokers, over real brokers and fake ones.

Goal: a program that alters settings works on both as tested here. Method: each change that Kafka
takes or refuses goes to a real topic and to a fake one, and what came of it has to be the same.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from pykclient import (
    Admin,
    AlterConfigOp,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    NewTopic,
)
from pykclient.errors import (
    AdminCallError,
    BrokerError,
    InvalidConfigError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    UsageError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import FakeKafka
from tests.integration.group_members import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import KafkaCluster

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
APPEND, SUBTRACT = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT

ELSEWHERE = frozenset({"min.insync.replicas", "retention.ms"})
"""Settings that the test's real brokers have from other places than Kafka's defaults."""

RATIO = "min.cleanable.dirty.ratio"
VALUES = (
    *(
        "",
        " x ",
        "-200000",
        "-6",
        "-3",
        "-2",
        "-1",
        "0",
        "1",
        "2",
        "18",
        "23",
        "1e3",
        "1_0",
        " +7 ",
    ),
    *("9223372036854775808", "0.5", "TRUE", "a,,b", "delete,,b", "compact, delete", "gzip", "*"),
)


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeKafka]:
    with FakeKafka(2) as fake:
        yield fake


def made(admin: Admin) -> ConfigResource:
    name = f"configs-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 1, 1)])
    return ConfigResource(TOPIC, name)


def setting(admin: Admin, resource: ConfigResource, name: str) -> ConfigEntry:
    return admin.describe_configs([resource])[resource][name]


def wait_for_value(admin: Admin, resource: ConfigResource, name: str, value: str) -> None:
    """Wait until the broker has a change, which it has after the controller."""
    what = f"{name} is {value} at the broker"
    wait_until(lambda: setting(admin, resource, name).value == value, what)


def end_of(admin: Admin, resource: ConfigResource, *changes: AlterConfigOp) -> str:
    """Return the result of a change: the broker's reason if it refuses."""
    try:
        admin.incremental_alter_configs({resource: changes}, validate_only=True)
    except BrokerError as error:
        return str(error).replace(resource.name, "TOPIC")
    return "taken"


@pytest.mark.kafka
@pytest.mark.promise("`Admin` describes settings and alters them, on 4.4.0 and 3.9.2")
def test_settings_are_described_and_altered(each_kafka_cluster: KafkaCluster) -> None:
    with Admin(bootstrap_servers=each_kafka_cluster.bootstrap_servers) as admin:
        topic, other = made(admin), made(admin)
        admin.incremental_alter_configs(
            {
                topic: [AlterConfigOp("segment.bytes", 2**21), AlterConfigOp("preallocate", True)],
                other: [AlterConfigOp("cleanup.policy", "compact", APPEND)],
            }
        )
        wait_for_value(admin, topic, "segment.bytes", "2097152")
        wait_for_value(admin, other, "cleanup.policy", "delete,compact")
        found = setting(admin, topic, "segment.bytes")
        assert (found.source, found.type) == (ConfigSource.TOPIC_CONFIG, ConfigType.INT)
        assert not found.is_sensitive
        assert not found.is_read_only
        described = admin.describe_configs(
            [topic], include_synonyms=True, include_documentation=True
        )[topic]["segment.bytes"]
        assert [(each.name, each.value) for each in described.synonyms] == [
            *(("segment.bytes", "2097152"), ("log.segment.bytes", str(2**30))),
        ]
        assert "segment file size" in (described.documentation or "")
        admin.incremental_alter_configs(
            {
                topic: [AlterConfigOp("segment.bytes", op_type=DELETE)],
                other: [AlterConfigOp("cleanup.policy", "delete", SUBTRACT)],
            }
        )
        wait_for_value(admin, topic, "segment.bytes", str(2**30))
        wait_for_value(admin, other, "cleanup.policy", "compact")
        assert setting(admin, topic, "segment.bytes").is_default
        assert setting(admin, topic, "preallocate").value == "true", "what was not named stays"


@pytest.mark.kafka
def test_settings_of_a_group_are_described_and_altered(kafka_cluster: KafkaCluster) -> None:
    """Alter settings of KIP-848 groups and of share groups, dead letters too (KIP-1191)."""
    group = ConfigResource(ConfigResourceType.GROUP, f"group-{uuid.uuid4().hex[:8]}")
    values = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "6000",
        "share.auto.offset.reset": "earliest",
        "share.delivery.count.limit": "3",
        "errors.deadletterqueue.topic.name": "dead-letters",
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
        before = admin.describe_configs([group])[group]
        assert values.keys() <= before.keys()
        assert all(before[name].is_default for name in values)
        admin.incremental_alter_configs(
            {group: [AlterConfigOp(name, value) for name, value in values.items()]}
        )
        for name, value in values.items():
            wait_for_value(admin, group, name, value)
        found = admin.describe_configs([group], include_synonyms=True)[group]
        assert {found[name].source for name in values} == {ConfigSource.GROUP_CONFIG}
        assert found["consumer.session.timeout.ms"].synonyms[-1].name == (
            "group.consumer.session.timeout.ms"
        )
        for wrong in (
            AlterConfigOp("consumer.session.timeout.ms", 1),
            AlterConfigOp("retention.ms", 1),
        ):
            with pytest.raises(InvalidConfigError):
                admin.incremental_alter_configs({group: [wrong]})
        admin.incremental_alter_configs(
            {group: [AlterConfigOp(name, op_type=DELETE) for name in values]}
        )
        for name in values:
            wait_for_value(admin, group, name, before[name].value or "")


@pytest.mark.kafka
@pytest.mark.promise("`Admin` describes settings and alters them, on 4.4.0 and 3.9.2")
def test_a_broker_describes_itself_and_keeps_its_secrets(each_kafka_cluster: KafkaCluster) -> None:
    with Admin(bootstrap_servers=each_kafka_cluster.bootstrap_servers) as admin:
        (partition,) = admin.describe_topics([made(admin).name]).popitem()[1].partitions
        broker = ConfigResource(BROKER, str(partition.leader_id))
        all_brokers = ConfigResource(BROKER, "")
        found = admin.describe_configs([broker])[broker]
        assert found["node.id"].value == broker.name
        assert found["node.id"].is_read_only
        password = found["ssl.keystore.password"]
        assert (password.value, password.is_sensitive) == (None, True)
        admin.incremental_alter_configs({all_brokers: [AlterConfigOp("log.cleaner.threads", 2)]})
        wait_for_value(admin, broker, "log.cleaner.threads", "2")
        source = setting(admin, broker, "log.cleaner.threads").source
        assert source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        admin.incremental_alter_configs(
            {all_brokers: [AlterConfigOp("log.cleaner.threads", op_type=DELETE)]}
        )
        wait_for_value(admin, broker, "log.cleaner.threads", "1")
        absent = ConfigResource(BROKER, "99")
        with pytest.raises(KafkaTimeoutError, match="broker 99 is not in the metadata"):
            admin.describe_configs([absent], timeout=0.2)


@pytest.mark.kafka
def test_fake_brokers_have_kafkas_settings_and_refuse_what_kafka_refuses(
    kafka_cluster: KafkaCluster, fake: FakeKafka
) -> None:
    with (
        Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as real_admin,
        Admin(bootstrap_servers=fake.bootstrap_servers) as fake_admin,
    ):
        sides = [(admin, made(admin)) for admin in (real_admin, fake_admin)]
        of_kafka, of_fake = (
            admin.describe_configs([topic], include_synonyms=True)[topic] for admin, topic in sides
        )
        assert of_kafka.keys() == of_fake.keys()
        assert {name: of_fake[name].type for name in of_fake} == {
            name: of_kafka[name].type for name in of_kafka
        }
        assert {name: of_fake[name] for name in of_fake.keys() - ELSEWHERE} == {
            name: of_kafka[name] for name in of_kafka.keys() - ELSEWHERE
        }
        for changes in changes_of_every_kind(list(of_kafka)):
            by_kafka, by_fake = (end_of(admin, topic, *changes) for admin, topic in sides)
            assert by_fake == by_kafka, [(each, each.value) for each in changes]
        for admin, topic in sides:
            for value in (" compact , delete ", ""):
                admin.incremental_alter_configs({topic: [AlterConfigOp("cleanup.policy", value)]})
            twice = [AlterConfigOp("cleanup.policy", "compact,compact", APPEND)]
            admin.incremental_alter_configs({topic: [*twice, AlterConfigOp("flush.ms", " +7 ")]})
            wait_for_value(admin, topic, "flush.ms", "7")
            assert setting(admin, topic, "cleanup.policy").value == "compact"


def changes_of_every_kind(names: list[str]) -> Iterator[list[AlterConfigOp]]:
    for name in (*names, "no.such", "message.downconversion.enable"):
        for value in VALUES:
            # Tiers are a matter of the broker; Java's notation of large doubles is another.
            if (name, value) not in (("remote.storage.enable", "TRUE"), (RATIO, str(2**63))):
                yield [AlterConfigOp(name, value)]
        yield [AlterConfigOp(name, "1", APPEND)]
        yield [AlterConfigOp(name, op_type=DELETE)]
    bad, unknown = AlterConfigOp("retention.ms", "x"), AlterConfigOp("no.such", 1)
    yield [bad, unknown]
    yield [unknown, bad]
    yield [bad, AlterConfigOp("retention.bytes", 1, SUBTRACT)]
    yield [AlterConfigOp("min.compaction.lag.ms", 9), AlterConfigOp("max.compaction.lag.ms", 8)]


def test_what_a_fake_topic_was_given_holds_for_its_log(fake: FakeKafka) -> None:
    with Admin(bootstrap_servers=fake.bootstrap_servers) as admin:
        topic = made(admin)
        small = AlterConfigOp("max.message.bytes", 100)
        admin.incremental_alter_configs({topic: [small]}, validate_only=True)
        assert setting(admin, topic, "max.message.bytes").is_default
        admin.incremental_alter_configs({topic: [small, AlterConfigOp("min.insync.replicas", 2)]})
    with fake.control() as cluster:
        kept = cluster.topics[topic.name]
        assert [each.log.settings.max_message_bytes for each in kept.partitions] == [100]
        assert kept.min_insync_replicas == 2


def test_what_cannot_be_described_or_altered_is_an_error_of_its_own(fake: FakeKafka) -> None:
    change = [AlterConfigOp("retention.ms", "long")]
    with Admin(bootstrap_servers=fake.bootstrap_servers) as admin:
        topic, absent = made(admin), ConfigResource(TOPIC, "absent")
        with pytest.raises(UnknownTopicOrPartitionError, match="'absent'"):
            admin.describe_configs([topic, absent])
        with pytest.raises(
            InvalidConfigError, match=r"long for configuration retention\.ms: Not a"
        ):
            admin.incremental_alter_configs({topic: change})
        with pytest.raises(AdminCallError) as raised:
            admin.incremental_alter_configs({topic: change, absent: change})
        assert {name: type(error) for name, error in raised.value.errors.items()} == {
            str(topic): InvalidConfigError,
            str(absent): UnknownTopicOrPartitionError,
        }


def test_a_broker_that_is_too_old_is_named() -> None:
    limits = {ApiKey.DESCRIBE_CONFIGS: (1, 2), ApiKey.INCREMENTAL_ALTER_CONFIGS: None}
    with FakeKafka(1) as old, Admin(bootstrap_servers=old.bootstrap_servers) as admin:
        with old.control() as cluster:
            cluster.limit_versions(limits)
        topic = made(admin)
        assert setting(admin, topic, "flush.ms").type is ConfigType.UNKNOWN
        with pytest.raises(UnsupportedVersionError, match="include_documentation"):
            admin.describe_configs([topic], include_documentation=True)
        with pytest.raises(UnsupportedVersionError, match="cannot serve INCREMENTAL_ALTER_CONFIGS"):
            admin.incremental_alter_configs({topic: [AlterConfigOp("flush.ms", 1)]})


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        ({ConfigResource(TOPIC, "t"): []}, "topic 't': there is no change"),
        ({ConfigResource(TOPIC, "t"): [AlterConfigOp("a", 1), AlterConfigOp("a", 2)]}, "twice"),
        ({ConfigResource(TOPIC, "t"): AlterConfigOp("a", 1)}, "give a list, each AlterConfigOp"),
        ({ConfigResource(TOPIC, "t"): [("a", 1)]}, "is not a change; give AlterConfigOp"),
        ({"t": [AlterConfigOp("a", 1)]}, "'t' has no settings; give ConfigResource"),
        ({ConfigResource(BROKER, "x"): [AlterConfigOp("a", 1)]}, "give the broker's id"),
    ],
)
def test_changes_that_cannot_be_requested_are_refused(
    fake: FakeKafka, configs: dict[ConfigResource, list[AlterConfigOp]], text: str
) -> None:
    with (
        Admin(bootstrap_servers=fake.bootstrap_servers) as admin,
        pytest.raises(UsageError, match=text),
    ):
        admin.incremental_alter_configs(configs)


def test_one_resource_is_no_list(fake: FakeKafka) -> None:
    with (
        Admin(bootstrap_servers=fake.bootstrap_servers) as admin,
        pytest.raises(UsageError, match=r"as in describe_configs\(\[ConfigResource"),
    ):
        admin.describe_configs(ConfigResource(TOPIC, "t"))  # type: ignore[arg-type]
