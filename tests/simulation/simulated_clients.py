"""The real producer and consumer without thread, socket and clock: one call makes one turn.

Owner: the simulation.
"""

from __future__ import annotations

import gc
from random import Random
from typing import TYPE_CHECKING

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.core import ConsumerCore
from pykclient.network.drive import run_user_calls
from pykclient.network.manager import NEVER_MS
from pykclient.producer.accumulator.append import Blocked, Need
from pykclient.producer.config import ProducerConfig
from pykclient.producer.core import ProducerCore
from tests.producer.sender_bench import NoWaiting
from tests.simulation.simulated_network import SimulatedNetwork, SimulatedPort

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.accel import Delivery
    from pykclient.accel.abc import HeadersInput, OnDelivery
    from pykclient.consumer.record import ConsumerRecord
    from pykclient.errors import KafkaError
    from pykclient.producer.record import RecordMetadata
    from pykclient.types import TopicPartition

__all__ = ["SimulatedConsumer", "SimulatedProducer", "TryLaterError"]

TURN_COUNT_MAX = 100


class TryLaterError(Exception):
    """A real front-end would wait now."""


class SimulatedProducer(ProducerCore):
    """`send` raises `TryLaterError` where a real producer would wait."""

    def __init__(self, network: SimulatedNetwork, seed: int, **settings: object) -> None:
        clock = network.clock
        self.port = SimulatedPort(network)
        super().__init__(
            ProducerConfig.from_settings(settings),
            self.port,
            waiting=NoWaiting(),
            clock_ms=lambda: clock.now_ms,
            wall_clock_ns=lambda: network.cluster.wall_ms * 1_000_000,
        )
        seed_all(self, seed)

    def turn(self, now_ms: int) -> int:
        """Make turns as long as there is something to do; when to come back."""
        for _ in range(TURN_COUNT_MAX):
            # As if the last turn had waited until now: absence would give brokers more time.
            self.port.wait(0)
            self._engine.complete(now_ms)
            run_user_calls(self._engine)
            next_ms = self._engine.step(now_ms)
            if next_ms > now_ms and not self.port.has_news:
                return next_ms
        raise AssertionError(f"the producer is still busy after {TURN_COUNT_MAX} turns")

    def _send_slowly(
        self,
        topic: object,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersInput | None,
        on_delivery: OnDelivery[RecordMetadata] | None,
    ) -> Delivery[RecordMetadata]:
        self._check_usable()
        record = self._serializer.serialize(
            topic,
            value,
            key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            on_delivery=on_delivery,
        )
        outcome = self._accumulator.append(record)
        if isinstance(outcome, Blocked):
            if outcome.need is Need.METADATA:
                self._want_topic(record.topic)
            raise TryLaterError(outcome)
        return outcome

    def _await_topic(self, topic: str, partition: int | None, deadline_ms: int) -> None:
        raise TryLaterError(f"{topic}-{partition}")

    def _block_deadline_ms(self) -> int:
        return NEVER_MS


class SimulatedConsumer(ConsumerCore):
    """Reads given partitions from their beginning; `read` has what came, `errors` what was told."""

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
            self.port,
            wall_clock_ms=lambda: network.cluster.wall_ms,
        )
        seed_all(self, seed)
        self.errors: list[KafkaError] = []
        self.read: dict[TopicPartition, list[ConsumerRecord]] = {p: [] for p in partitions}
        self.assign(self.read)

    def turn(self, now_ms: int) -> int:
        """Make turns as long as there is something to do; when to come back."""
        for _ in range(TURN_COUNT_MAX):
            self.port.wait(0)
            self._engine.complete(now_ms)
            run_user_calls(self._engine)
            has_read = self._take(now_ms)
            next_ms = self._engine.step(now_ms)
            if next_ms > now_ms and not self.port.has_news and not has_read:
                return next_ms
        raise AssertionError(f"the consumer is still busy after {TURN_COUNT_MAX} turns")

    def _take(self, now_ms: int) -> bool:
        if self._subscription.has_error:
            error = self._subscription.take_error()
            assert error is not None
            self.errors.append(error)
        runs = self._buffer.take(self._config.max_poll_records, now_ms)
        for run in runs:
            self.read[run.partition].extend(run.records())
        return bool(runs)


def seed_all(client: object, seed: int) -> None:
    """Make every source of randomness inside a client the seed's."""
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
    """Whether there may be randomness inside it."""
    return isinstance(each, list | tuple) or type(each).__module__.startswith("pykclient")
