"""Idempotence: the producer id, and the sequence numbers of batches in each partition.

States of the producer id: *none*, *requested*, *assigned*, *failed* (there will be none). Each
partition has a run of sequence numbers: *starting* (nothing acknowledged yet), *running*, *broken*
(a batch in the middle failed, or the broker lost its place), *outdated* (the topic was recreated,
so the log that the numbers count for is gone). These rules keep records from being lost, duplicated
or reordered:

- A batch keeps its place in the run until its result is certain, however often it is sent, and
  whatever the metadata says about its topic meanwhile.
- At most five batches of a partition are undecided, since a broker remembers the last five: a batch
  that is out of order and not remembered is not in the log.
- A batch that is retried goes first and alone; those behind it wait for it.
- A run begins with one batch alone: a broker that does not know the producer accepts whatever
  number comes first, which could be that of the second batch.
- A broken or outdated run ends. A new one begins under the next epoch, once no request of the old
  run is in flight and it is certain that none of its batches was or will be written. A batch that
  may have been written, and whose result can no longer be found out, fails; it is never sent under
  another number (KAFKA-14034).
- A new topic id does not tell whether a batch was written. A request that names its topics (before
  Produce version 13) may have been appended to the new log long before this producer learned the
  new id, and the response of a broker with stale metadata may name the old id.
- While a batch of an ending run may have been written, its batches are sent under their numbers,
  one by one and in order. The log tells which of them it has: it recognises a duplicate, and a log
  that does not know the producer accepts the number that comes first. A batch that it refuses as
  out of order, and that no earlier attempt can have written, waits for the new run.

In a transaction no run ends by itself: the transaction is aborted instead, and all runs start over
together, under the identity that the coordinator assigns. A transactional producer therefore never
chooses an epoch itself, and this class is not a manager there.

Owner: the sender thread.
Source: Java class ``TransactionManager``, ``TxnPartitionMap``; KIP-98, KIP-360 (epoch bump).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from pykclient.errors import BrokerError, DecodeError, error_for_code
from pykclient.network.cluster.cluster import NO_TOPIC_ID, Cluster
from pykclient.network.log import ClientLog
from pykclient.network.manager import IDLE, PollResult, Request
from pykclient.producer.accumulator.batch import NO_IDENTITY, ProducerIdentity, sequence_after
from pykclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pykclient.errors import KafkaError
    from pykclient.network.retry import Backoff
    from pykclient.producer.accumulator.batch import ProducerBatch
    from pykclient.protocol.message import Message
    from pykclient.types import TopicPartition

EPOCH_MAX = 32_767
"""Largest epoch; the producer then needs another id."""

UNDECIDED_MAX = 5
"""Number of batches per producer and partition that a broker remembers (KIP-98)."""

NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1


class IdentityState(Enum):
    """State of the producer id."""

    NONE = "none"
    REQUESTED = "requested"
    ASSIGNED = "assigned"
    FAILED = "failed"


NEXT_IDENTITY: dict[IdentityState, frozenset[IdentityState]] = {
    IdentityState.NONE: frozenset({IdentityState.REQUESTED}),
    IdentityState.REQUESTED: frozenset(
        {IdentityState.ASSIGNED, IdentityState.NONE, IdentityState.FAILED}
    ),
    IdentityState.ASSIGNED: frozenset({IdentityState.NONE}),
    IdentityState.FAILED: frozenset(),
}


class RunState(Enum):
    """State of a partition's run of sequence numbers."""

    STARTING = "starting"
    RUNNING = "running"
    BROKEN = "broken"
    OUTDATED = "outdated"


NEXT_RUN: dict[RunState, frozenset[RunState]] = {
    RunState.STARTING: frozenset({RunState.RUNNING, RunState.BROKEN, RunState.OUTDATED}),
    RunState.RUNNING: frozenset({RunState.BROKEN, RunState.OUTDATED}),
    RunState.BROKEN: frozenset({RunState.STARTING, RunState.RUNNING, RunState.OUTDATED}),
    RunState.OUTDATED: frozenset({RunState.STARTING}),
}

ENDING = frozenset({RunState.BROKEN, RunState.OUTDATED})
"""States in which a run accepts no more batches, and ends once nothing of it is uncertain."""


class SequenceRun:
    """Sequence of one partition under one identity.

    `undecided` are the batches that have numbers and no certain result, in order. `topic_id` is the
    topic id that the numbers count for, if it is known.
    """

    __slots__ = (
        "_doubted",
        "_never_written_serial",
        "_refused",
        "identity",
        "last_acked_end",
        "next_sequence",
        "state",
        "topic_id",
        "undecided",
    )

    def __init__(self, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self.state = RunState.STARTING
        self.identity = NO_IDENTITY
        self.next_sequence = 0
        self.last_acked_end = 0
        """Number after the last batch that is known to be written."""
        self.undecided: list[ProducerBatch] = []
        self._never_written_serial: tuple[int, ...] | None = None
        """Earliest batch of the run that will certainly never be written under its number."""
        self._refused: tuple[ProducerBatch, ...] = ()
        """Undecided batches that wait for the next run: the log refuses their numbers."""
        self._doubted: ProducerBatch | None = None
        """Batch that may be written and was refused once: the next refusal is final."""

    def may_send(self, batch: ProducerBatch, undecided_max: int) -> bool:
        """Return True if it is the batch's turn."""
        if batch.has_sequence:
            return self._next() is batch and (self.state not in ENDING or self._is_in_doubt)
        if self.state is RunState.RUNNING:
            return len(self.undecided) < undecided_max
        return self.state is RunState.STARTING and not self.undecided

    def begin(self, identity: ProducerIdentity, *, is_known: bool = False) -> None:
        """Start over under another identity. No batch may be undecided.

        With `is_known` the broker accepts only the first number at first, so that several batches
        may be sent at once.
        """
        assert not self.undecided
        self.identity = identity
        self.next_sequence = self.last_acked_end = 0
        self._never_written_serial = None
        self._refused = ()
        self._doubted = None
        if self.state is not RunState.STARTING:
            self._to(RunState.STARTING)
        if is_known:
            self._to(RunState.RUNNING)

    def assign(self, batch: ProducerBatch) -> None:
        """Assign the next numbers to a batch."""
        batch.identity = self.identity
        batch.base_sequence = self.next_sequence
        self.next_sequence = sequence_after(self.next_sequence, batch.record_count)
        self.undecided.append(batch)

    def on_success(self, batch: ProducerBatch) -> None:
        """Handle a batch that was written."""
        self.undecided.remove(batch)
        self.last_acked_end = sequence_after(batch.base_sequence, batch.record_count)
        if self.state is RunState.STARTING:
            self._to(RunState.RUNNING)

    def on_given_up(self, batch: ProducerBatch) -> None:
        """Handle a batch that has failed for good and that no request carries."""
        self.undecided.remove(batch)
        self._refused = tuple(b for b in self._refused if b is not batch)
        if not batch.may_be_written:
            self._note_never_written(batch)
        self._break()

    def on_lost_place(self, batch: ProducerBatch, *, may_renew: bool = True) -> bool:
        """Handle a response that the broker does not accept this batch as the next one.

        Return whether the batch may wait: for an earlier batch, for the leader, or for a new run. A
        batch that may be in the log is sent once more under its number: a leader that hung and was
        replaced refuses batches that follow records it lacks. A second refusal is final, as is any
        refusal if no run may follow this one.
        """
        if self._next() is not batch:
            return True
        self._break()
        if not may_renew:
            return False
        if batch.may_be_written and not self._is_never_written(batch):
            is_first_refusal = self._doubted is not batch
            self._doubted = batch
            return is_first_refusal
        batch.may_be_written = False
        self._note_never_written(batch)
        if batch not in self._refused:
            self._refused = (*self._refused, batch)
        return True

    def on_new_log(self) -> None:
        """Handle a new topic id: the log may contain nothing of this run.

        It may also contain requests that named the topic, and a broker with stale metadata names
        the old id. A batch that may be written still may be.
        """
        if self.state is RunState.STARTING and not self.undecided:
            return
        self._refused = ()
        if self.state is not RunState.OUTDATED:
            self._to(RunState.OUTDATED)

    def on_split(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """Replace a batch by its parts, which share its numbers."""
        position = self.undecided.index(batch)
        del self.undecided[position]
        for part in parts:
            self.undecided.insert(position, part)
            position += 1

    def take_unwritten(self) -> list[ProducerBatch] | None:
        """Remove and return the batches to be sent under new numbers, without their old ones.

        None while this run must continue: it is not ending, a request is in flight, or a batch may
        be written, which only the log can tell.
        """
        if self.state not in ENDING or any(b.is_in_request for b in self.undecided):
            return None
        is_whole = not self.undecided and self.last_acked_end == self.next_sequence
        if is_whole and self.state is RunState.BROKEN:
            self._to(RunState.RUNNING)  # a failed batch turned out to be written
            return None
        if self._is_in_doubt:
            return None
        unwritten = list(self.undecided)
        self.undecided.clear()
        for batch in unwritten:
            batch.identity, batch.base_sequence = NO_IDENTITY, -1
        return unwritten

    @property
    def _is_in_doubt(self) -> bool:
        return any(batch.may_be_written for batch in self.undecided)

    def _next(self) -> ProducerBatch | None:
        """Return the next batch to be sent among those that have numbers."""
        return next((b for b in self.undecided if b not in self._refused), None)

    def _note_never_written(self, batch: ProducerBatch) -> None:
        earliest = self._never_written_serial
        self._never_written_serial = min(earliest or batch.serial, batch.serial)

    def _is_never_written(self, batch: ProducerBatch) -> bool:
        """Return True if a batch that the log has just refused was not and will not be written.

        An earlier batch will never be written. Without that batch, a log that knows the producer
        never accepts this one, and a log that does not would have accepted it now. If the topic was
        recreated, the log that refused it may not be the log that it was sent to.
        """
        earliest = self._never_written_serial
        is_behind = earliest is not None and earliest < batch.serial
        return is_behind and self.state is RunState.BROKEN

    def _break(self) -> None:
        if self.state not in ENDING:
            self._to(RunState.BROKEN)

    def _to(self, state: RunState) -> None:
        assert state in NEXT_RUN[self.state], f"{self.state} -> {state}"
        self.state = state


def check_identity(message: Message) -> None:
    """Raise `DecodeError` for a negative producer id or epoch, which no broker assigns."""
    assert isinstance(message, InitProducerIdResponse)
    if message.error_code == 0 and min(message.producer_id, message.producer_epoch) < 0:
        raise DecodeError(
            f"an InitProducerId response has producer id {message.producer_id}, epoch "
            f"{message.producer_epoch}"
        )


class Idempotence:
    """Manager that requests a producer id, and keeper of all runs.

    `on_assigned` is called for each id that is assigned, `on_failed` when there will be none. With
    transactions, `on_broken` is called with the reason when a run would have to end, and
    `restart_all` sets the identity.
    """

    def __init__(
        self,
        *,
        in_flight_max: int,
        backoff: Backoff,
        on_assigned: Callable[[int], None],
        on_failed: Callable[[KafkaError, int], None],
        on_broken: Callable[[str], None] | None = None,
        client_id: str = "",
    ) -> None:
        self._log = ClientLog("pykclient.producer", client_id)
        self._on_broken = on_broken
        self.state = IdentityState.NONE
        self.identity = NO_IDENTITY
        self._undecided_max = min(in_flight_max, UNDECIDED_MAX)
        self._backoff = backoff
        self._on_assigned = on_assigned
        self._on_failed = on_failed
        self._attempt_count = 0
        self._retry_ms = 0
        self._cluster = Cluster()
        self._runs: dict[TopicPartition, SequenceRun] = {}
        """Runs, kept also for topics that have left the metadata: a broker that knows the producer
        id accepts only the next number."""
        self._written: set[TopicPartition] = set()
        """Partitions whose runs before `restart_all` had the same producer id. Their brokers know
        it, and accept only 0 as the first number of a new epoch."""

    # Requesting an id.

    def poll(self, now_ms: int) -> PollResult:
        """Request a producer id if there is none."""
        if self.state is not IdentityState.NONE:
            return IDLE
        if now_ms < self._retry_ms:
            return PollResult(next_poll_ms=self._retry_ms)
        self._to(IdentityState.REQUESTED)
        request = Request(
            InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS
            ),
            node_id=None,
            on_response=self._on_response,
            on_failure=self._on_failure,
            check=check_identity,
        )
        return PollResult(requests=(request,))

    def _on_response(self, response: Message | None, now_ms: int) -> None:
        assert isinstance(response, InitProducerIdResponse)
        if response.error_code != 0:
            error = error_for_code(response.error_code, "no producer id for an idempotent producer")
            self._on_failure(error, now_ms)
            return
        self._to(IdentityState.ASSIGNED)
        self._attempt_count = 0
        self.identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        self._log.info("producer id %d, epoch %d", *self.identity)
        for run in self._runs.values():
            if run.identity is NO_IDENTITY:
                run.begin(self.identity)
        self._on_assigned(now_ms)

    def _on_failure(self, error: KafkaError, now_ms: int) -> None:
        is_final = (
            error.fatal
            or error.is_refusal
            or (isinstance(error, BrokerError) and not error.retriable)
        )
        if not is_final:
            self._to(IdentityState.NONE)
            self._retry_ms = now_ms + self._backoff.delay_ms(self._attempt_count)
            self._attempt_count += 1
            self._log.debug("no producer id yet, requesting it again: %s", error)
            return
        self._to(IdentityState.FAILED)
        self._on_failed(error, now_ms)

    # With transactions: the coordinator's identity, for all runs together.

    @property
    def has_undecided(self) -> bool:
        """True if a batch has numbers and no certain result, in a request or not."""
        return any(run.undecided for run in self._runs.values())

    def restart_all(self, identity: ProducerIdentity) -> None:
        """Start all runs over under the coordinator's identity. No batch may be undecided."""
        assert not self.has_undecided
        is_same_id = identity.producer_id == self.identity.producer_id
        self._written = {
            partition
            for partition, run in self._runs.items()
            if is_same_id and run.state is RunState.RUNNING
        }
        self._runs.clear()
        self.identity = identity
        if self.state is IdentityState.NONE:
            self._to(IdentityState.REQUESTED)
            self._to(IdentityState.ASSIGNED)

    # The runs: the sender reports what happens to each batch.

    def on_cluster(self, cluster: Cluster) -> None:
        """Update the topics' ids: a recreated topic has another one."""
        before, self._cluster = self._cluster, cluster
        changed = {
            name for name, info in cluster.topics.items() if info.topic_id != before.topic_id(name)
        }
        if not changed:
            return
        self._written = {partition for partition in self._written if partition.topic not in changed}
        for partition, run in self._runs.items():
            topic_id, known_id = cluster.topic_id(partition.topic), run.topic_id
            if partition.topic not in changed or topic_id in (NO_TOPIC_ID, known_id):
                continue
            run.topic_id = topic_id
            if known_id != NO_TOPIC_ID:
                run.on_new_log()
                self._renew(run, partition)

    def may_send(self, batch: ProducerBatch) -> bool:
        """Return True if a batch may be sent now."""
        run = self._run(batch)
        return run.identity is not NO_IDENTITY and run.may_send(batch, self._undecided_max)

    def assign(self, batch: ProducerBatch) -> None:
        """Assign sequence numbers to a batch that has none."""
        if not batch.has_sequence:
            self._run(batch).assign(batch)

    def on_success(self, batch: ProducerBatch) -> None:
        """Handle a batch that was written."""
        run = self._run(batch)
        run.on_success(batch)
        self._renew(run, batch.partition)

    def on_retry(self, batch: ProducerBatch) -> None:
        """Handle a batch that waits for a retry."""
        self._renew(self._run(batch), batch.partition)

    def on_lost_place(self, batch: ProducerBatch) -> bool:
        """Handle a response that the broker expects another number, or knows no such producer.

        Return whether the batch may be retried.
        """
        return self._run(batch).on_lost_place(batch, may_renew=self._on_broken is None)

    def on_given_up(self, batch: ProducerBatch) -> None:
        """Handle a batch that has failed for good and that no request carries."""
        if batch.has_sequence:
            run = self._run(batch)
            run.on_given_up(batch)
            self._renew(run, batch.partition)

    def on_split(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """Replace a batch by its parts, which wait to be sent."""
        run = self._run(batch)
        run.on_split(batch, parts)
        self._renew(run, batch.partition)

    def _run(self, batch: ProducerBatch) -> SequenceRun:
        run = self._runs.get(batch.partition)
        if run is None:
            topic_id = self._cluster.topic_id(batch.partition.topic)
            run = self._runs[batch.partition] = SequenceRun(topic_id)
            if self.state is IdentityState.ASSIGNED:
                run.begin(self.identity, is_known=batch.partition in self._written)
        return run

    def _renew(self, run: SequenceRun, partition: TopicPartition) -> None:
        """Begin a new run if the partition's run is ending and this is safe."""
        if self._on_broken is not None:
            if run.state in ENDING:
                what = "its sequence has a gap"
                if run.state is RunState.OUTDATED:
                    what = "the topic was recreated"
                self._on_broken(f"{partition}: {what}")
            return
        unwritten = run.take_unwritten()
        if unwritten is None:
            return
        if run.identity == self.identity:
            self._bump_epoch()
        self._log.info(
            "%s: %s, at producer %d, epoch %d; %d batches continue under epoch %d",
            partition,
            "a gap in the sequence" if run.state is RunState.BROKEN else "the topic was recreated",
            *run.identity,
            len(unwritten),
            self.identity.epoch,
        )
        run.begin(self.identity)

    def _bump_epoch(self) -> None:
        if self.state is not IdentityState.ASSIGNED:
            return  # a new id is already requested
        producer_id, epoch = self.identity
        if epoch < EPOCH_MAX:
            self.identity = ProducerIdentity(producer_id, epoch + 1)
        else:
            self.identity = NO_IDENTITY
            self._to(IdentityState.NONE)

    def _to(self, state: IdentityState) -> None:
        assert state in NEXT_IDENTITY[self.state], f"{self.state} -> {state}"
        self.state = state
