"""ProduceCall: what a request holds, and which answer belongs to which batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import (
    DecodeError,
)
from pykclient.network.cluster import Cluster, PartitionInfo, TopicInfo
from pykclient.protocol.messages.produce import (
    PartitionProduceResponse,
)
from pykclient.types import Node, TopicPartition
from tests.producer.sender_bench import TOPIC, SenderBench

if TYPE_CHECKING:
    import pytest

PARTITION = TopicPartition(TOPIC, 0)


def test_a_topic_without_an_id_is_named_in_a_version_that_has_names() -> None:
    bench = SenderBench()
    info = TopicInfo(TOPIC, bytes(16), False, (PartitionInfo(TOPIC, 0, 1, 1),))
    bench.learn(Cluster(nodes=[Node(1, "localhost", 9_001)], topics=[info]))
    bench.send()
    (request,) = bench.poll()
    assert request.max_version == 12


def test_an_answer_about_something_else_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bench = SenderBench()
    delivery = bench.send_batch()
    answers = {
        TopicPartition(TOPIC, 5): PartitionProduceResponse(index=5, base_offset=1),
        PARTITION: PartitionProduceResponse(index=0, base_offset=7),
    }
    bench.answer_each(bench.requests[0], answers)
    assert delivery.result().offset == 7
    assert "t-5" in caplog.text


def test_an_answer_that_leaves_out_a_partition_fails_it() -> None:
    bench = SenderBench(leaders=(1, 1))
    deliveries = [bench.send(partition=partition) for partition in (0, 1)]
    (request,) = bench.poll()
    bench.answer_each(request, {PARTITION: PartitionProduceResponse(index=0, base_offset=7)})
    assert deliveries[0].result().offset == 7
    assert isinstance(deliveries[1].exception(), DecodeError)
    assert "t-1" in str(deliveries[1].exception())
