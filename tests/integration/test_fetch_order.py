"""Which partitions come first where a fetch has no room for all (`fetch_order`)."""

from __future__ import annotations

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pykclient.testing import FakeKafka

BEHIND, AHEAD = TopicPartition("order", 0), TopicPartition("order", 1)
COUNTS = {BEHIND: 600, AHEAD: 60}
SIZE_BYTES = 1_000
ANSWER_COUNT = 10
"""About how many records an answer has room for."""

TIMEOUT_S = 20.0


def lag_when_the_other_is_read(servers: str, order: str) -> int:
    """Return how far one partition is behind when the one with less to read is at its end."""
    with Consumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        fetch_order=order,
        fetch_max_bytes=ANSWER_COUNT * SIZE_BYTES,
        max_partition_fetch_bytes=ANSWER_COUNT * SIZE_BYTES,
        max_poll_records=ANSWER_COUNT,
    ) as consumer:
        consumer.assign([BEHIND, AHEAD])
        while consumer.current_lag(AHEAD) != 0:
            assert consumer.poll(TIMEOUT_S)
        return COUNTS[BEHIND] - consumer.position(BEHIND)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> object:
    if request.param == "real":
        yield request.getfixturevalue("kafka_cluster").bootstrap_servers
        return
    with FakeKafka(1) as fake:
        yield fake.bootstrap_servers


@pytest.mark.promise("with `fetch_order=lag` the partition furthest behind comes first")
def test_partitions_take_turns_or_the_one_furthest_behind_comes_first(servers: str) -> None:
    with (
        Admin(bootstrap_servers=servers) as admin,
        Producer(bootstrap_servers=servers, batch_size=SIZE_BYTES) as producer,
    ):
        admin.create_topics([NewTopic("order", 2, 1)])
        for partition, count in COUNTS.items():
            for _ in range(count):
                producer.send("order", bytes(SIZE_BYTES), partition=partition.partition)
    assert lag_when_the_other_is_read(servers, "fair") > COUNTS[BEHIND] / 2
    assert lag_when_the_other_is_read(servers, "lag") < 4 * ANSWER_COUNT
