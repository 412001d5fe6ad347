"""Copiers that make the calls of a transaction themselves, in an application that stalls between.

The world is that of `exactly_once_simulation`, without `ExactlyOnce`. The copiers poll, begin,
send, send the offsets with `group_metadata()`, and commit, as with any Kafka client. The
application stalls in the gaps between these calls, for less or more than `max_poll_interval_ms`,
the session timeout and the transaction timeout. In one kind of stall heartbeats continue, as during
a slow call of the application. In the other the whole process stops, as in a native call that holds
the GIL, and its heartbeat thread may be the first to continue.

Owner: the test that created it.
Source: KIP-447; Java's guide to ``KafkaProducer`` (consume, transform, produce).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from pykclient.consumer.consumer import Consumer
from pykclient.errors import (
    CommitFailedError,
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortableError,
    WakeupError,
)
from pykclient.producer.producer import Producer
from tests.simulation.exactly_once_judge import Copy
from tests.simulation.exactly_once_simulation import Copier, ExactlyOnceSimulation
from tests.simulation.exactly_once_world import (
    KIP848_FAULTS,
    MAX_POLL_INTERVAL_MS,
    SINK,
    SOURCE,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.record import ConsumerRecords
    from tests.simulation.simulated_world import ApiFaults

LONG_POLL_INTERVAL_MS: Final = 10_000
"""An interval longer than the session: a stopped process loses its session first."""

POLL_S: Final = 1.0
STALL_PROBABILITY: Final = 0.05
"""Probability of a stall in a gap."""

GAPS: Final = (
    "between poll and begin",
    "between begin and send",
    "between two sends",
    "between send and send_offsets",
    "between send_offsets and commit",
    "between abort and rewind",
)


class RawCopySimulation(ExactlyOnceSimulation):
    """A run with a classic group."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.max_poll_interval_ms = self.random.choice(
            (MAX_POLL_INTERVAL_MS, LONG_POLL_INTERVAL_MS)
        )
        self.stop_ms = (*self.stop_ms, self.max_poll_interval_ms + 500)

    def new_copier(self, name: str) -> Copier:
        return RawCopier(self, name)


class Kip848RawCopySimulation(RawCopySimulation):
    """A run with a group of KIP-848."""

    api_faults: ClassVar[ApiFaults] = KIP848_FAULTS

    def _draw_group_settings(self) -> dict[str, object]:
        assignor = self.random.choice(("", "uniform", "range"))
        return {"group_protocol": "consumer", "group_remote_assignor": assignor}


class RawCopier(Copier):
    """A group member whose application makes the calls itself and stalls between them."""

    def _run(self) -> None:
        """Copy until an error, then close the clients."""
        world = self.world
        consumer = self.consumer = Consumer[bytes, bytes](world.consumer_settings(self.name))
        producer = Producer[bytes, bytes](world.producer_settings(self.name))
        try:
            producer.init_transactions()
            consumer.subscribe([SOURCE], listener=self._listener())
            while True:
                records = consumer.poll(POLL_S)
                if records:
                    self._copy(records, consumer, producer)
        finally:
            if not self.process.is_dead:
                producer.close(5)
                consumer.close(5)

    def _copy(
        self,
        records: ConsumerRecords[bytes, bytes],
        consumer: Consumer[bytes, bytes],
        producer: Producer[bytes, bytes],
    ) -> None:
        """Copy in a transaction, or abort it and return to the committed offsets."""
        try:
            self._stall("between poll and begin")
            producer.begin_transaction()
            self._stall("between begin and send")
            self._send(records, producer)
            self._stall("between send and send_offsets")
            producer.send_offsets_to_transaction(records.next_offsets, consumer.group_metadata())
            self._stall("between send_offsets and commit")
            if not self.world.chance(0.05):
                _until_it_ends(producer.commit_transaction)
                return
        except WakeupError:
            raise
        except KafkaError as error:
            if error.fatal:
                raise
            self._note(error)
        self.world.met["abort"] += 1
        _until_it_ends(producer.abort_transaction)
        self._stall("between abort and rewind")
        self._rewind(consumer)

    def _send(
        self, records: ConsumerRecords[bytes, bytes], producer: Producer[bytes, bytes]
    ) -> None:
        for record in records:
            assert record.value is not None
            value = Copy(record.partition, record.offset, record.value).to_value()
            producer.send(SINK, value, partition=record.partition)
            if self.world.chance(0.2):
                producer.flush()  # nothing else sends while the application stalls
            self._stall("between two sends")

    def _stall(self, gap: str) -> None:
        assert gap in GAPS
        if self.world.chance(STALL_PROBABILITY):
            self.world.met[f"stall {gap}"] += 1
            self.stop_here(1)

    def _note(self, error: KafkaError) -> None:
        is_refused = isinstance(error, TransactionAbortableError) and isinstance(
            error.__cause__, CommitFailedError
        )
        self.world.met["offsets refused"] += is_refused

    def _rewind(self, consumer: Consumer[bytes, bytes]) -> None:
        self.world.met["rewind"] += 1
        for partition, committed in consumer.committed(consumer.assignment()).items():
            if committed is None:
                consumer.seek_to_beginning([partition])
            else:
                consumer.seek(partition, committed)


def _until_it_ends(call: Callable[[], None]) -> None:
    """Repeat a call that timed out, because it continues meanwhile."""
    while True:
        try:
            return call()
        except KafkaTimeoutError:
            pass
