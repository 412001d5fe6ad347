"""The real producer and consumer without threads, sockets and clocks: a call makes a turn.

Owner: the simulation.
"""

from __future__ import annotations

import gc
from random import Random
from typing import TYPE_CHECKING

from pykclient.accel import SendCore
from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.core import ConsumerCore
from pykclient.network.drive import run_user_calls
from pykclient.producer.bulk.sending import BulkSender
from pykclient.producer.config import ProducerConfig
from pykclient.producer.core import ProducerCore
from pykclient.producer.record import RecordMetadata
from tests.producer.sender_bench import NoWaiting
from tests.simulation.simulated_network import SimulatedNetwork, SimulatedPort

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.consumer.record import ConsumerRecord
    from pykclient.errors import KafkaError
    from pykclient.types import TopicPartition

TURN_COUNT_MAX = 100


class NeverWaiting(NoWaiting):
    """The waiting of a thread that is not the sender's, in which every wait times out."""

    def is_current(self) -> bool:
        return False


class SimulatedProducer(SendCore[RecordMetadata]):
    """A producer that never waits: `max_block_ms` is 0."""

    def __init__(self, network: SimulatedNetwork, seed: int, **settings: object) -> None:
        clock = network.clock
        self.port = SimulatedPort(network)
        core = self.core = ProducerCore(
            ProducerConfig.from_settings(settings | {"max_block_ms": 0}),
            port=self.port,
            waiting=NeverWaiting(),
            clock_ms=lambda: clock.now_ms,
            clock_ns=lambda: clock.now_ms * 1_000_000,
            wall_clock_ns=lambda: network.cluster.wall_ms * 1_000_000,
        )
        super().__init__(core.send_slowly, lambda: network.cluster.wall_ms * 1_000_000, core.topics)
        self.send_batch = BulkSender(core).send_batch
        seed_all(self, seed)

    def turn(self, now_ms: int) -> int:
        """Make turns while there is something to do; return when to call again."""
        for _ in range(TURN_COUNT_MAX):
            # As if the last turn had waited until now; an absence would extend timeouts.
            self.port.wait(0)
            self.core.engine.complete(now_ms)
            run_user_calls(self.core.engine)
            next_ms = self.core.engine.step(now_ms)
            if next_ms > now_ms and not self.port.has_news:
                return next_ms
        raise AssertionError(f"the producer is still busy after {TURN_COUNT_MAX} turns")


class SimulatedConsumer(ConsumerCore):
    """A consumer of given partitions from their beginning; collects records and errors."""

    def __init__(
        self,
        network: SimulatedNetwork,
        seed: int,
        partitions: Iterable[TopicPartition],
        **settings: object,
    ) -> None:
        self.port = SimulatedPort(network)
        super().__init__(
            ConsumerConfig.from_settings(settings),
            port=self.port,
            wall_clock_ms=lambda: network.cluster.wall_ms,
        )
        seed_all(self, seed)
        self.errors: list[KafkaError] = []
        self.read: dict[TopicPartition, list[ConsumerRecord]] = {p: [] for p in partitions}
        self.assign(self.read)

    def turn(self, now_ms: int) -> int:
        """Make turns while there is something to do; return when to call again."""
        for _ in range(TURN_COUNT_MAX):
            self.port.wait(0)
            self._wiring.engine.complete(now_ms)
            run_user_calls(self._wiring.engine)
            has_read = self._take(now_ms)
            next_ms = self._wiring.engine.step(now_ms)
            if next_ms > now_ms and not self.port.has_news and not has_read:
                return next_ms
        raise AssertionError(f"the consumer is still busy after {TURN_COUNT_MAX} turns")

    @property
    def cluster_id(self) -> str | None:
        """Id of the consumer's cluster; None before it has reached one."""
        return self._wiring.metadata.cluster_id

    def _take(self, now_ms: int) -> bool:
        subscription = self._wiring.subscription
        if subscription.has_error:
            error = subscription.take_error()
            assert error is not None
            self.errors.append(error)
        runs = self._wiring.buffer.take(self._wiring.config.max_poll_records, now_ms)
        for run in runs:
            self.read[run.partition].extend(run.records()[0])
        return bool(runs)


def seed_all(client: object, seed: int) -> None:
    """Seed every random number generator inside a client."""
    seen: set[int] = set()
    pending: list[object] = [client]
    number = 0
    while pending:
        each = pending.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, Random):
            each.seed(f"{seed} {number}")
            number += 1
        elif each is client or _is_part(each):
            pending.extend(o for o in gc.get_referents(each) if not isinstance(o, type))
        elif isinstance(each, dict) and len(each) < 1_000:
            pending.extend(each.values())


def _is_part(each: object) -> bool:
    """Return whether there may be random number generators inside."""
    return isinstance(each, list | tuple) or type(each).__module__.startswith("pykclient")
