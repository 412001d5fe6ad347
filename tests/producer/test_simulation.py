"""Random faults against fake brokers: nothing lost, duplicated or reordered.

A seed chooses what happens to each request. It is written and gets its response; it is written,
but the response is lost; it is lost with its connection; it is rejected; or a broker that was
paused reads it after the producer has abandoned it. Leaders move, topics are unknown for a while,
records are rejected for good, and time runs out. With `recreates` the topic is also deleted and
recreated: requests that name it go to the new log before the producer learns the new id, and stale
metadata gives the former one. In the end the network heals, and each partition's log is compared
with what the producer reported. To reproduce a failure, use its seed: ``pytest -k "simulation and
123"``.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pykclient.errors import DisconnectedError, KafkaTimeoutError
from pykclient.producer.sender.idempotence import ENDING, RunState, SequenceRun
from pykclient.protocol.messages.produce import ProduceResponse
from tests.network.responding import respond_checked
from tests.producer.fake_broker import FakeBroker
from tests.producer.sender_bench import TOPIC, SenderBench
from tests.soak import seeds

if TYPE_CHECKING:
    from pykclient.accel import Delivery
    from pykclient.network.manager import Request
    from pykclient.producer.accumulator.batch import ProducerBatch
    from pykclient.producer.record import RecordMetadata
    from pykclient.protocol.message import Message

PARTITION_COUNT = 2
NODE_IDS = (1, 2, 3)
STEP_COUNT = 250
MEETING_SEED_COUNT = 30
"""Number of first seeds that together meet every fault."""

REFUSED_BEFORE_APPEND = (
    6,  # NOT_LEADER_OR_FOLLOWER
    19,  # NOT_ENOUGH_REPLICAS
    56,  # KAFKA_STORAGE_ERROR
    3,  # UNKNOWN_TOPIC_OR_PARTITION
)
REFUSED_AFTER_APPEND = (
    6,  # NOT_LEADER_OR_FOLLOWER
    7,  # REQUEST_TIMED_OUT
    20,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
)
REFUSED_FOR_GOOD = (
    87,  # INVALID_RECORD
    29,  # TOPIC_AUTHORIZATION_FAILED
    44,  # POLICY_VIOLATION
)
MESSAGE_TOO_LARGE = 10
BY_NAME = 12
"""Last version of Produce that names topics."""
NONE = 0


class Sent(NamedTuple):
    """One record and its delivery."""

    value: bytes
    partition: int
    delivery: Delivery[RecordMetadata]


class Simulation:
    """One run. With `recreates` the topic is recreated, and metadata may give a former id.

    `names_topics` is True if requests name the topic (Produce before version 13).
    """

    def __init__(
        self,
        seed: int,
        *,
        is_idempotent: bool = True,
        recreates: bool = False,
        names_topics: bool = True,
    ) -> None:
        self.random = Random(seed)
        self.bench = SenderBench(
            leaders=[self.random.choice(NODE_IDS) for _ in range(PARTITION_COUNT)],
            enable_idempotence=is_idempotent,
            max_in_flight_requests_per_connection=self.random.choice((1, 2, 5)),
            batch_size=self.random.choice((200, 1_000, 16_384)),
            linger_ms=self.random.choice((0, 5)),
            delivery_timeout_ms=self.random.choice((500, 2_000, 10_000)),
            seed=seed,
        )
        self.in_flight_max = self.bench.random.choice((1, 3, 5))
        self.recreates = recreates
        self.names_topics = names_topics
        self.broker = FakeBroker(PARTITION_COUNT)
        self.topic_ids = [self.broker.topic.topic_id]
        """Ids of the topic and its predecessors, oldest first."""
        self.gone: list[list[list[bytes | None]]] = []
        """Values of the predecessors, by partition."""
        self.sent: list[Sent] = []
        self.called: list[bytes] = []
        self.late: list[Request] = []
        self.faults: Counter[str] = Counter()

    def run(self) -> None:
        for _ in range(STEP_COUNT):
            self._step()
        self._heal()

    def _step(self) -> None:
        random, bench = self.random, self.bench
        for _ in range(random.randrange(4)):
            self._send()
        bench.poll(after_ms=random.choice((0, 1, 5, 20, 150)))
        self._hold_back()
        bench.run_user_calls()
        for request in list(bench.requests):
            if request in bench.requests and random.random() < 0.5:
                self._end(self._first_of(request.node_id))
        if self.late and random.random() < 0.1:
            self._read_late()
        if random.random() < 0.05:
            self._move_leaders()
        if random.random() < 0.02:
            self.faults["unknown topic"] += 1
            bench.forget_topic()
            bench.poll(after_ms=10)
            self._move_leaders()
        if random.random() < 0.02:
            bench.now_ms += 600
        if self.recreates:
            self._change_topic()

    def _change_topic(self) -> None:
        drawn = self.random.random()
        if drawn < 0.03:
            self._recreate()
        elif drawn < 0.05 and len(self.topic_ids) > 1:
            self.faults["stale metadata"] += 1
            self._move_leaders(self.random.choice(self.topic_ids[:-1]))
        elif drawn < 0.2:
            self._move_leaders()

    def _recreate(self) -> None:
        """Delete and recreate the topic; the producer does not learn it yet."""
        self.faults["topic recreated"] += 1
        self.gone.append(self.broker.values())
        self.broker.recreate_topic()
        self.topic_ids.append(self.broker.topic.topic_id)
        self.late.clear()  # the broker that would read it late is not the new topic's leader

    def _send(self) -> None:
        partition = self.random.randrange(PARTITION_COUNT)
        value = b"%d-%d" % (partition, len(self.sent))
        value += bytes(self.random.choice((0, 20, 150)))
        if self.bench.accumulator.partition_count(TOPIC) is None:
            return
        delivery = self.bench.send(
            value, partition=partition, on_delivery=lambda *_: self.called.append(value)
        )
        self.sent.append(Sent(value, partition, delivery))

    def _hold_back(self) -> None:
        """Limit a node to the number of requests that one connection allows."""
        counts = Counter(request.node_id for request in self.bench.requests)
        self.bench.client.unready = {
            node_id for node_id in NODE_IDS if counts[node_id] >= self.in_flight_max
        }

    def _first_of(self, node_id: int | None) -> Request:
        return next(r for r in self.bench.requests if r.node_id == node_id)

    def _end(self, request: Request) -> None:
        """Choose and apply an event for the first request on a connection."""
        drawn = self.random.random()
        if drawn < 0.55:
            self._respond(request)
        elif drawn < 0.63:
            self._disconnect(request, written=True)
        elif drawn < 0.70:
            self._disconnect(request, written=False)
        elif drawn < 0.78:
            self._refuse(request, self.random.choice(REFUSED_BEFORE_APPEND), written=False)
        elif drawn < 0.86:
            self._refuse(request, self.random.choice(REFUSED_AFTER_APPEND), written=True)
        elif drawn < 0.89:
            self._refuse(request, self.random.choice(REFUSED_FOR_GOOD), written=False)
        elif drawn < 0.93:
            self._refuse(request, MESSAGE_TOO_LARGE, written=False)
        else:
            self.faults["time out"] += 1
            self._disconnect(request, written=False, is_timeout=True)

    def _write(self, request: Request) -> ProduceResponse:
        response = self.broker.handle(request, version_max=BY_NAME if self.names_topics else None)
        assert isinstance(response, ProduceResponse)
        return response

    def _respond(self, request: Request) -> None:
        self._take(request, self._write(request))

    def _refuse(self, request: Request, error_code: int, *, written: bool) -> None:
        self.faults[f"error {error_code}"] += 1
        if not written:
            self._take(request, self.broker.refuse(request, error_code))
            return
        response = self._write(request)
        for topic in response.responses:
            for each in topic.partition_responses:
                if each.error_code == NONE:
                    each.error_code, each.base_offset = error_code, -1
        self._take(request, response)

    def _take(self, request: Request, response: Message) -> None:
        self.bench.requests.remove(request)
        assert respond_checked(request, response, self.bench.now_ms) is None

    def _disconnect(self, request: Request, *, written: bool, is_timeout: bool = False) -> None:
        """Break a connection and fail all its requests; the first may have been written."""
        self.faults["disconnect"] += 1
        lost = [r for r in self.bench.requests if r.node_id == request.node_id]
        if written:
            self._write(request)
        elif self.random.random() < 0.5:
            # The bytes stay in the buffers of a paused broker.
            self.late.extend(lost)
        error = KafkaTimeoutError("no response") if is_timeout else DisconnectedError("lost")
        for each in lost:
            self.bench.lose(each, error)

    def _read_late(self) -> None:
        """Make a paused broker read the requests it had received, all or the first ones."""
        self.faults["read late"] += 1
        for request in self.late[: self.random.randrange(len(self.late)) + 1]:
            self._write(request)
        self.late.clear()

    def _move_leaders(self, topic_id: bytes | None = None) -> None:
        self.faults["leader move"] += 1
        leaders = (self.random.choice(NODE_IDS) for _ in range(PARTITION_COUNT))
        self.bench.lead(*leaders, topic_id=topic_id or self.topic_ids[-1])

    def _heal(self) -> None:
        self.in_flight_max = 5
        self.bench.client.unready.clear()
        self._move_leaders()
        for _ in range(2_000):
            self.bench.poll(after_ms=20)
            self.bench.run_user_calls()
            for request in list(self.bench.requests):
                self._respond(request)
            if self.bench.accumulator.is_empty and not self.bench.requests:
                break
        if self.late:
            self._read_late()

    # Invariants.

    def check(self) -> None:
        bench = self.bench
        assert bench.accumulator.is_empty
        assert all(sent.delivery.done() for sent in self.sent)
        assert bench.pool.free_bytes == bench.pool.size_bytes
        assert Counter(self.called) == Counter(sent.value for sent in self.sent)
        logs = [*self.gone, self.broker.values()]
        for partition in range(PARTITION_COUNT):
            self._check_logs(partition, [each[partition] for each in logs])

    def _check_logs(self, partition: int, logs: list[list[bytes | None]]) -> None:
        sent = [entry for entry in self.sent if entry.partition == partition]
        places = {entry.value: place for place, entry in enumerate(sent)}
        for each in logs:
            assert max(Counter(each).values(), default=0) <= 1, "doubled"
            order = [places[value] for value in each if value is not None]
            # A new log that accepts a batch after it has rejected the previous one cannot have
            # both in order, unless requests contain its id.
            assert order == sorted(order) or (self.gone and self.names_topics), "reordered"
        written = {value for each in logs for value in each}
        for entry in sent:
            if entry.delivery.exception() is None:
                assert entry.value in written, "lost"
                offset = entry.delivery.result().offset
                assert offset is None or any(
                    offset < len(each) and each[offset] == entry.value for each in logs
                )
        called = [places[value] for value in self.called if value in places]
        assert sorted(called) == list(range(len(sent)))


@pytest.mark.promise("the producer is idempotent by default: every batch has a sequence")
@pytest.mark.parametrize("seed", seeds(50, soak_count=150)[MEETING_SEED_COUNT:])
def test_idempotent_records_are_not_lost_doubled_or_reordered(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run()
    simulation.check()


def test_the_simulation_meets_every_fault_and_most_records_arrive() -> None:
    """A run without faults, or one in which nothing gets through, would prove nothing."""
    faults: Counter[str] = Counter()
    delivered = failed = 0
    for seed in range(MEETING_SEED_COUNT):
        simulation = Simulation(seed)
        simulation.run()
        simulation.check()
        faults.update(simulation.faults)
        errors = [entry.delivery.exception() for entry in simulation.sent]
        delivered += errors.count(None)
        failed += len(errors) - errors.count(None)
    expected = {"disconnect", "time out", "read late", "leader move", "unknown topic", "error 10"}
    assert expected <= faults.keys()
    assert min(faults[name] for name in expected) >= 10
    assert delivered > failed > 100


@pytest.mark.promise("the producer is idempotent by default: every batch has a sequence")
@pytest.mark.parametrize("names_topics", [True, False])
@pytest.mark.parametrize("seed", seeds(20, soak_count=150))
def test_records_for_a_topic_that_is_recreated_are_not_doubled(
    seed: int, *, names_topics: bool
) -> None:
    simulation = Simulation(seed, recreates=True, names_topics=names_topics)
    simulation.run()
    simulation.check()
    assert simulation.faults["topic recreated"]


def drop_all_doubts(run: SequenceRun) -> None:
    """Inject a defect: treat any new topic id as that of a log without batches of the run."""
    for batch in run.undecided:
        if not batch.is_in_request:
            batch.may_be_written = False
    if run.state is not RunState.OUTDATED:
        run._to(RunState.OUTDATED)


def ask_about_the_first_only(run: SequenceRun) -> None:
    """Inject a defect: assume that a log without one batch has none of the later ones either."""
    if run.state in ENDING and run.undecided and not run.undecided[0].may_be_written:
        for batch in run.undecided:
            batch.may_be_written = False


@pytest.mark.parametrize("names_topics", [True, False])
def test_the_simulation_notices_a_producer_that_trusts_a_new_topic_id(
    monkeypatch: pytest.MonkeyPatch, *, names_topics: bool
) -> None:
    """By name, the new log has it already; by id, the former id in stale metadata misleads it."""
    monkeypatch.setattr(SequenceRun, "on_new_log", drop_all_doubts)
    assert any_is_doubled(names_topics=names_topics)


def test_the_simulation_notices_a_producer_that_asks_about_the_first_batch_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = SequenceRun.take_unwritten

    def take_unwritten(run: SequenceRun) -> list[ProducerBatch] | None:
        ask_about_the_first_only(run)
        return whole(run)

    monkeypatch.setattr(SequenceRun, "take_unwritten", take_unwritten)
    assert any_is_doubled(names_topics=True)


def any_is_doubled(*, names_topics: bool) -> bool:
    for seed in range(200):
        simulation = Simulation(seed, recreates=True, names_topics=names_topics)
        simulation.run()
        try:
            simulation.check()
        except AssertionError as error:
            if "doubled" in str(error):
                return True
    return False


def test_the_simulation_notices_what_a_producer_without_sequences_doubles() -> None:
    simulation = Simulation(0, is_idempotent=False)
    simulation.run()
    with pytest.raises(AssertionError, match="doubled"):
        simulation.check()
