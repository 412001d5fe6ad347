"""What a poll returned goes to other processes, and says where reading goes on."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from pykclient import Consumer, OffsetAndMetadata, Producer, TopicPartition
from pykclient.serialization import StringDeserializer

if TYPE_CHECKING:
    from pykclient.testing import FakeKafka

PARTITION = TopicPartition("t", 0)


def test_the_next_offsets_are_the_positions_and_can_be_committed(fake_kafka: FakeKafka) -> None:
    servers = fake_kafka.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        producer.send_batch("t", [b"a", b"b", b"c"]).result()
    with Consumer(
        bootstrap_servers=servers, group_id="g", value_deserializer=StringDeserializer()
    ) as consumer:
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, 0)
        records = consumer.poll(10, max_records=2)
        assert records.next_offsets == {PARTITION: OffsetAndMetadata(2, leader_epoch=0)}
        consumer.commit(records.next_offsets)
        assert consumer.committed([PARTITION]) == records.next_offsets
        sent = pickle.loads(pickle.dumps(records))
        assert [record.value for record in sent[PARTITION]] == ["a", "b"]
        assert sent.next_offsets == records.next_offsets
