"""ProduceCall: what a request holds, and which answer belongs to which batch."""

from __future__ import annotations

import pytest

from pykclient.network.cluster.cluster import Cluster, PartitionInfo, TopicInfo
from pykclient.protocol.messages.produce import (
    PartitionProduceResponse,
)
from pykclient.types import Node, TopicPartition
from tests.producer.sender_bench import TOPIC, SenderBench, batches_of

PARTITION = TopicPartition(TOPIC, 0)


def test_a_topic_without_an_id_is_named_in_a_version_that_has_names() -> None:
    bench = SenderBench()
    info = TopicInfo(TOPIC, bytes(16), False, (PartitionInfo(TOPIC, 0, 1, 1),))
    bench.learn(Cluster(nodes=[Node(1, "localhost", 9_001)], topics=[info]))
    bench.send()
    (request,) = bench.poll()
    assert request.max_version == 12


@pytest.mark.promise(
    "a response that contradicts its request is retried on a new connection, and fails no batch"
)
@pytest.mark.parametrize(
    ("indexes", "complaint"),
    [
        ([5], "names t-5, which was not asked for"),
        ([0, 5], "names t-5, which was not asked for"),
        ([0, 1, 0], "names t-0, which was not asked for, or twice"),
        ([0], "says nothing of t-1"),
        ([], "says nothing of t-0"),
    ],
)
def test_an_answer_that_contradicts_its_request_counts_as_none_and_is_sent_again(
    indexes: list[int], complaint: str
) -> None:
    """A flipped bit would otherwise fail a batch that a new connection delivers."""
    bench = SenderBench(leaders=(1, 1))
    deliveries = [bench.send(partition=partition) for partition in (0, 1)]
    (request,) = bench.poll()
    answers = [PartitionProduceResponse(index=index, base_offset=7) for index in indexes]
    error = bench.respond_with(request, answers)
    assert complaint in str(error)
    assert not any(delivery.done() for delivery in deliveries)
    (again,) = bench.poll(after_ms=100)
    assert batches_of(again)[PARTITION].base_sequence == 0
    bench.answer(again)
    assert [delivery.result().offset for delivery in deliveries] == [100, 100]


def test_an_answer_of_a_topic_id_that_was_not_asked_for_contradicts_its_request() -> None:
    bench = SenderBench()
    bench.send()
    (request,) = bench.poll()
    answer = PartitionProduceResponse(index=0, base_offset=7)
    assert bench.respond_with(request, [answer], topic_id=bytes(16)) is not None
