"""Slots: the transactional ids of a Python worker, and the producers that it keeps for them.

An id serves one attempt of a task per batch. It is used again for a later batch of the same turn,
which shows that the earlier batch has ended, and with it the transaction that the id wrote. Brokers
remember ids for a week, so a worker has only as many ids as it runs tasks of one batch.

A producer with a prepared transaction is kept, with its connections, until its id is used again. A
worker that runs many tasks of a batch keeps the first few producers; for other tasks it creates one
each time, with an id that is kept.

Owner: the worker process, which runs one task at a time. A forked process never touches the slots
of its parent.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient import Producer
from spark_connector.exactly_once.names import SlotName, slot_id
from spark_connector.idle_clients import IdleClients

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pykclient import PreparedTransaction

PRODUCERS_MAX: Final = 8
"""Producers that a worker keeps for one sink; each has a thread and connections."""
ABORT_S: Final = 2.0
"""Maximum time for the producer of a failed task to abort. The driver aborts what it leaves open,
when it decides or at its next start."""


class Attempt:
    """The open transaction of one attempt, for the task to write and to prepare."""

    def __init__(self, transactional_id: str, producer: Producer) -> None:
        self.transactional_id = transactional_id
        self.producer = producer
        self.prepared: PreparedTransaction | None = None

    def prepare(self) -> PreparedTransaction:
        """Wait until all records are written, and leave the transaction open for the driver.

        Raises: what `Producer.prepare_transaction` raises.
        """
        self.prepared = self.producer.prepare_transaction()
        assert self.prepared is not None, "a transaction is begun for rows"
        return self.prepared


class _Kept(NamedTuple):
    batch: int
    """The last batch that it has served."""
    producer: Producer | None


class Slots:
    """The slots of one sink in one process; `settings` are the producer's."""

    def __init__(self, sink_id: str, settings: Mapping[str, object]) -> None:
        self._sink_id = sink_id
        self._settings = settings
        self._worker = uuid.uuid4().hex[:12]
        self._made_count = 0
        self._kept: dict[SlotName, _Kept] = {}

    @contextmanager
    def attempt(self, turn: int, batch: int) -> Iterator[Attempt]:
        """Open the transaction of one attempt of a batch, which the block has to prepare.

        If the block raises, or does not prepare it, the transaction is aborted.
        """
        name, producer = self._take(turn, batch)
        transactional_id = slot_id(self._sink_id, name)
        try:
            producer = producer or Producer(
                {**self._settings, "transactional.id": transactional_id}
            )
            # Aborts its open transaction, which no driver will end (see the module).
            producer.init_transactions()
            producer.begin_transaction()
            attempt = Attempt(transactional_id, producer)
            yield attempt
        except BaseException:
            self._kept[name] = _Kept(batch, None)
            if producer is not None:
                producer.close(timeout=ABORT_S)
            raise
        self._put_back(name, batch, attempt)

    def close(self) -> None:
        """Close the producers; prepared transactions stay open."""
        for kept in self._kept.values():
            if kept.producer is not None:
                kept.producer.close(timeout=0)
        self._kept.clear()

    def _take(self, turn: int, batch: int) -> tuple[SlotName, Producer | None]:
        if any(name.turn != turn for name in self._kept):
            # Another turn has begun since.
            self.close()
        for name, kept in self._kept.items():
            if kept.batch < batch:
                del self._kept[name]
                return name, kept.producer
        self._made_count += 1
        return SlotName(turn, self._worker, self._made_count), None

    def _put_back(self, name: SlotName, batch: int, attempt: Attempt) -> None:
        producer: Producer | None = attempt.producer
        producer_count = sum(kept.producer is not None for kept in self._kept.values())
        if attempt.prepared is None or producer_count >= PRODUCERS_MAX:
            attempt.producer.close(timeout=ABORT_S)
            producer = None
        self._kept[name] = _Kept(batch, producer)


_slots: Final = IdleClients(Slots.close)


def slots_of(sink_id: str, settings: Mapping[str, object]) -> Slots:
    """Return the slots that this process has for a sink."""
    key = (sink_id, frozenset(settings.items()))
    found = _slots.take(key) or Slots(sink_id, settings)
    _slots.put(key, found)
    return found


def close_slots() -> None:
    """Close the producers that this process keeps."""
    _slots.close_all()
