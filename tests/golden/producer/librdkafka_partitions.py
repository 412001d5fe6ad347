"""Writes librdkafka_partitions.tsv: where librdkafka's partitioners put keys.

`python -m tests.golden.producer.librdkafka_partitions`, with confluent-kafka installed. What a
partitioner ending in _random does with null, and consistent_random with an empty key, is chance.
"""

from __future__ import annotations

import random

from confluent_kafka import Message, Producer

from pykclient import Admin, NewTopic
from pykclient.testing import FakeKafka

NAMES = ("consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random")
PARTITION_COUNTS = (1, 2, 3, 7, 12)


def keys() -> list[bytes | None]:
    numbers = random.Random(20261124)
    made = [numbers.randbytes(size) for size in range(1, 25) for _ in range(3)]
    words = ("UA", "AA", "B6", "customer-1", "customer-2", "foobar", "21")
    return [None, b"", *made, *(word.encode() for word in words)]


def partitions(servers: str, name: str, topic: str) -> list[int | None]:
    producer = Producer({"bootstrap.servers": servers, "partitioner": name})
    found: dict[int, int | None] = {}
    for number, key in enumerate(keys()):

        def note(error: object, message: Message, number: int = number) -> None:
            found[number] = message.partition()

        producer.produce(topic, b"", key, on_delivery=note)
    producer.flush(30)
    return [found[number] for number in range(len(found))]


def main() -> None:
    columns = [(name, count) for name in NAMES for count in PARTITION_COUNTS]
    with FakeKafka() as kafka:
        servers = kafka.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(f"t{count}", count) for count in PARTITION_COUNTS])
        found = [partitions(servers, name, f"t{count}") for name, count in columns]
    lines = ["\t".join(["key (hex)", *(f"{name} {count}" for name, count in columns)])]
    for key, row in zip(keys(), zip(*found, strict=True), strict=True):
        lines.append("\t".join(["null" if key is None else key.hex(), *map(str, row)]))
    print("\n".join(lines))  # noqa: T201  # it is what the program is for


if __name__ == "__main__":
    main()
