"""librdkafka, through `confluent-kafka`, as an independent client beside Java.

Owner: the calling thread, for the length of one call.
"""

from __future__ import annotations

import re
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.integration.java_tools import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pykclient.testing import KafkaCluster

TIMEOUT_S = 60.0
LINGER_MS = 200
MESSAGE_BYTES_MAX = 2**21


def confluent_settings(settings: Mapping[str, str]) -> dict[str, str | bool]:
    """Return the settings of `KafkaCluster.client_settings` under librdkafka's names."""
    found: dict[str, str | bool] = {
        _CONFLUENT_NAMES[name]: value
        for name, value in settings.items()
        if name in _CONFLUENT_NAMES
    }
    if "ssl_keystore_location" in settings:
        # One file has both.
        found["ssl.certificate.location"] = settings["ssl_keystore_location"]
    jaas = dict(_JAAS_OPTION.findall(settings.get("sasl_jaas_config", "")))
    options = {name: re.sub(r"\\(.)", r"\1", value) for name, value in jaas.items()}
    if settings.get("sasl_mechanism") == "OAUTHBEARER":
        found["enable.sasl.oauthbearer.unsecure.jwt"] = True
        found["sasl.oauthbearer.config"] = f"principal={options['unsecuredLoginStringClaim_sub']}"
    elif options:
        found["sasl.username"] = options["username"]
        found["sasl.password"] = options["password"]
    return found


_CONFLUENT_NAMES = {
    "bootstrap_servers": "bootstrap.servers",
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "ssl_truststore_location": "ssl.ca.location",
    "ssl_keystore_location": "ssl.key.location",
    "ssl_key_password": "ssl.key.password",
}
_JAAS_OPTION = re.compile(r'"([^"]+)"="((?:[^"\\]|\\.)*)"')


def confluent_create_topic(
    cluster: KafkaCluster, stem: str, *, partition_count: int = 1, replication_factor: int = 1
) -> str:
    """Create a topic with a unique name, even on a long-lived cluster; return the name."""
    topic = f"{stem}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    created = admin.create_topics([NewTopic(topic, partition_count, replication_factor)])
    created[topic].result(TIMEOUT_S)
    return topic


def confluent_produce(
    cluster: KafkaCluster,
    topic: str,
    records: Iterable[Record],
    codec: str = "none",
    *,
    settings: Mapping[str, str] | None = None,
) -> list[Record]:
    """Write records; return them as acknowledged, in the given order.

    Keys choose partitions as Java's do; librdkafka's own default differs.
    """
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "compression.codec": codec,
            "linger.ms": LINGER_MS,
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            **(settings or {}),
        }
    )
    acknowledged: dict[int, Message] = {}
    failures: list[KafkaError] = []
    given = list(records)
    for index, record in enumerate(given):

        def note(error: KafkaError | None, message: Message, index: int = index) -> None:
            if error is None:
                acknowledged[index] = message
            else:
                failures.append(error)

        producer.produce(
            topic,
            record.value,
            record.key,
            # The defaults of librdkafka for "you choose".
            partition=-1 if record.partition is None else record.partition,
            timestamp=record.timestamp_ms or 0,
            headers=list(record.headers),
            on_delivery=note,
        )
    unsent_count = producer.flush(TIMEOUT_S)
    if failures or unsent_count:
        raise RuntimeError(f"{unsent_count} records were not sent, and these failed: {failures}")
    return [_placed(record, acknowledged[index]) for index, record in enumerate(given)]


@contextmanager
def confluent_transaction(
    cluster: KafkaCluster, topic: str, values: Iterable[bytes]
) -> Iterator[Callable[[], None]]:
    """Write records in an open transaction; call the yielded function to commit it."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": uuid.uuid4().hex,
            "log_level": 0,  # brokers may come and go meanwhile
        }
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    yield lambda: producer.commit_transaction(TIMEOUT_S)


def confluent_consume(
    cluster: KafkaCluster, topic: str, count: int, *, settings: Mapping[str, str] | None = None
) -> list[Record]:
    """Read `count` records of a topic from its start, in the order received.

    Fewer are returned when time runs out. Checksums are checked, which is not its default.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "check.crcs": True,
            **(settings or {}),
        }
    )
    records: list[Record] = []
    try:
        partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(records) < count and time.monotonic() < deadline_s:
            records.extend(map(_record, consumer.consume(count - len(records), timeout=1.0)))
    finally:
        consumer.close()
    return records


def _record(message: Message) -> Record:
    error = message.error()
    if error is not None:
        raise RuntimeError(f"librdkafka cannot read {message.topic()}: {error}")
    # What it reads is bytes; only what one writes may be text.
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return _placed(Record(message.value(), message.key(), tuple(headers)), message)


def _placed(record: Record, message: Message) -> Record:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return record.placed(partition, offset, message.timestamp()[1])
