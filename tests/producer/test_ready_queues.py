"""ReadyQueues: lists by node, and timers."""

from __future__ import annotations

from random import Random

from pykclient.network.manager import NEVER_MS
from pykclient.producer.accumulator.batch import Leader
from pykclient.producer.accumulator.queues import PartitionQueue, TopicQueues
from pykclient.producer.accumulator.ready import ReadyQueues
from pykclient.producer.partitioner import StickyPartitioner
from tests.producer.test_batch import new_batch


class Due:
    """Queues whose batches have lingered when the test says so."""

    def __init__(self) -> None:
        self.ready = ReadyQueues(lambda: True)
        sticky = StickyPartitioner(list, switch_bytes=1, is_adaptive=True, random=Random(1))
        self.topic = TopicQueues("t", sticky, hash_keys=True)

    def queue(self, *, due_ms: int, node_id: int | None = 1) -> PartitionQueue:
        queue = PartitionQueue(self.topic, 0, Leader(node_id, 1))
        queue.waiting.append(new_batch(1))
        queue.waiting[0].due_ms = due_ms
        return queue


def test_a_queue_that_is_due_is_listed_under_its_leader_once() -> None:
    due = Due()
    queue, leaderless = due.queue(due_ms=5), due.queue(due_ms=5, node_id=None)
    for each in (queue, queue, leaderless):
        due.ready.look_at(each, 5)
    assert due.ready.node_ids() == [1]
    assert due.ready.led_by(1) == [queue]
    assert due.ready.led_by(None) == [leaderless]
    assert due.ready.led_by(2) == []


def test_a_queue_that_is_not_due_is_looked_at_when_it_is() -> None:
    due = Due()
    later, sooner = due.queue(due_ms=20), due.queue(due_ms=10)
    for queue in (later, sooner, sooner):
        due.ready.look_at(queue, 0)
    assert due.ready.next_timer_ms() == 10
    due.ready.look_at_due(10)
    assert due.ready.led_by(1) == [sooner]
    due.ready.look_at_due(20)
    assert due.ready.led_by(1) == [sooner, later]
    assert due.ready.next_timer_ms() == NEVER_MS


def test_a_queue_that_becomes_due_sooner_gets_a_sooner_timer() -> None:
    due = Due()
    queue = due.queue(due_ms=100)
    due.ready.look_at(queue, 0)
    queue.waiting[0].due_ms = 10
    due.ready.look_at(queue, 0)
    assert due.ready.next_timer_ms() == 10


def test_a_stale_timer_is_harmless() -> None:
    due = Due()
    queue = due.queue(due_ms=10)
    due.ready.look_at(queue, 0)
    queue.waiting.clear()
    due.ready.look_at_due(10)
    assert due.ready.node_ids() == []


def test_queues_take_turns_in_the_order_in_which_they_became_ready() -> None:
    due = Due()
    queues = [due.queue(due_ms=0) for _ in range(3)]
    for queue in queues:
        due.ready.look_at(queue, 0)
    due.ready.remove(queues[0])
    due.ready.look_at(queues[0], 0)
    assert due.ready.led_by(1) == [queues[1], queues[2], queues[0]]
    for queue in queues:
        due.ready.remove(queue)
        due.ready.remove(queue)
    assert due.ready.node_ids() == []
