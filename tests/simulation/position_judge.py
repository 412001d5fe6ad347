"""Expected records of consumers of a log that loses nothing, and a check of what they read.

A reader has a position before which everything is read. It may only change for a reason: the
application seeks, or the next records are deleted. From there it reads each visible record once and
in order, and its position never claims a leader epoch that did not write the record before it.

Owner: the simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykclient.consumer.subscription import OffsetReset
from pykclient.errors import OffsetOutOfRangeError
from pykclient.records.control import ControlType, control_type
from pykclient.types import IsolationLevel, OffsetAndMetadata, TopicPartition
from tests.simulation.simulated_clients import SimulatedConsumer

if TYPE_CHECKING:
    from pykclient.consumer.record import ConsumerRecord
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.records.batch import RecordBatch
    from pykclient.testing.fake.log import PartitionLog
    from tests.simulation.simulated_network import SimulatedNetwork

P = TopicPartition("t", 0)


class Written(NamedTuple):
    """A written record; `producer_id` is -1 outside of transactions."""

    value: bytes | None
    producer_id: int


class History:
    """Everything written below the high watermark, deleted or not."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.gone: set[int] = set()
        """Offsets that compaction removed."""
        self._records: dict[int, Written] = {}
        self._epochs: dict[int, int] = {}
        self._outcomes: dict[int, ControlType] = {}
        self._end = 0

    def update(self) -> None:
        """Add the new records of the log."""
        for batch in self.log.batches(self._end):
            if batch.last_offset >= self.log.high_watermark:
                return
            self._note(batch)
            self._end = batch.last_offset + 1

    def _note(self, batch: RecordBatch) -> None:
        for offset in range(batch.base_offset, batch.last_offset + 1):
            self._epochs[offset] = batch.partition_leader_epoch
        if batch.is_control:
            kind = control_type(batch)
            assert kind is not None
            self._outcomes.setdefault(batch.producer_id, kind)
            return
        producer_id = batch.producer_id if batch.is_transactional else -1
        columns = batch.records()
        for offset, value in zip(columns.offsets, columns.values, strict=True):
            self._records[offset] = Written(value, producer_id)

    def end(self, level: IsolationLevel) -> int:
        """Return the end of the log for a reader."""
        is_committed = level is IsolationLevel.READ_COMMITTED
        return self.log.last_stable_offset if is_committed else self.log.high_watermark

    def visible(self, start: int, end: int, level: IsolationLevel) -> list[int]:
        """Return the offsets that a reader must read in a range."""
        first = max(start, self.log.log_start_offset)
        return [o for o in range(first, end) if o not in self.gone and self._is_data(o, level)]

    def check(self, record: ConsumerRecord, level: IsolationLevel) -> None:
        """Check that a record was written as it was read, and is visible."""
        assert self._is_data(record.offset, level), f"{record.offset} is not for this reader"
        assert record.value == self._records[record.offset].value, "read what was not written"

    def epoch_before(self, offset: int) -> int | None:
        """Return the leader epoch of the record before an offset."""
        return self._epochs.get(offset - 1)

    def _is_data(self, offset: int, level: IsolationLevel) -> bool:
        written = self._records.get(offset)
        if written is None or level is IsolationLevel.READ_UNCOMMITTED:
            return written is not None
        aborted = self._outcomes.get(written.producer_id) is ControlType.ABORT
        return written.producer_id < 0 or not aborted


class PositionConsumer(SimulatedConsumer):
    """A consumer of one partition, with an accessible position.

    While its application is busy it takes no fetched records.
    """

    def __init__(self, network: SimulatedNetwork, seed: int, **settings: object) -> None:
        super().__init__(network, seed, [P], **settings)
        self.is_busy = False

    @property
    def assigned(self) -> AssignedPartition | None:
        """The partition while it is assigned, or None."""
        return self._wiring.subscription.find(P)

    @property
    def has_records(self) -> bool:
        """True if it has fetched records that were not taken."""
        assigned = self.assigned
        return assigned is not None and self._wiring.buffer.has(assigned)

    def bound(self, limit: int | None) -> None:
        """Limit reading to an offset; None removes the limit."""
        limits = {} if limit is None else {P: limit}
        for assigned in self._wiring.subscription.set_limits(limits):
            self._wiring.buffer.refresh(assigned)

    def take_one(self, now_ms: int) -> None:
        """Take one fetched record."""
        for run in self._wiring.buffer.take(1, now_ms):
            self.read[P].extend(run.records()[0])

    def _take(self, now_ms: int) -> bool:
        return not self.is_busy and super()._take(now_ms)


class Due(NamedTuple):
    """A pending reset, and the range of the log's start or end since then."""

    to: OffsetReset
    lowest: int
    highest: int


class Reader:
    """A consumer and its expected position."""

    looks_at_epochs = True
    """True to check the epochs of positions as well as records."""

    def __init__(
        self,
        consumer: PositionConsumer,
        history: History,
        reset: OffsetReset,
        level: IsolationLevel,
    ) -> None:
        self.consumer = consumer
        self.reset = reset
        self._history = history
        self._level = level
        self._next = 0
        self._read_count = 0
        self._due: Due | None = None
        self._committed: OffsetAndMetadata | None = None
        self._made_up: OffsetAndMetadata | None = None
        """A given position whose epoch is one in which nothing was written."""
        self._epoch = -1
        self._may_lose_position = False
        self.begin()

    # Actions of the application.

    def begin(self) -> None:
        """Begin, or return, at the committed offset or as the setting says."""
        self.consumer.assign([P])
        if self._committed is not None:
            self.seek(self._committed.offset, self._committed.leader_epoch)
        elif self.reset is OffsetReset.NONE:
            self.seek(self._history.log.log_start_offset)
        else:
            self._await(self.reset)

    def leave(self, committed: OffsetAndMetadata | None) -> None:
        """Leave, with this offset committed."""
        self.consumer.assign([])
        self._committed = committed
        self._due = None

    def seek(self, offset: int, leader_epoch: int | None = None) -> None:
        """Continue reading at an offset."""
        self.consumer.seek(P, OffsetAndMetadata(offset, leader_epoch=leader_epoch))
        is_true = leader_epoch in (None, self._history.epoch_before(offset))
        self._made_up = None if is_true else OffsetAndMetadata(offset, leader_epoch=leader_epoch)
        self._next, self._due = offset, None
        self._note_epoch()

    def seek_to(self, end: OffsetReset) -> None:
        """Continue reading at the log's start or end."""
        if end is OffsetReset.EARLIEST:
            self.consumer.seek_to_beginning()
        else:
            self.consumer.seek_to_end()
        self._await(end)

    def _await(self, reset: OffsetReset) -> None:
        place = self._place(reset)
        self._due = Due(reset, place, place)
        self._made_up = None
        self._note_epoch()

    def _place(self, reset: OffsetReset) -> int:
        if reset is OffsetReset.EARLIEST:
            return self._history.log.log_start_offset
        return self._history.end(self._level)

    def _note_epoch(self) -> None:
        assert self.consumer.assigned is not None
        self._epoch = self.consumer.assigned.epoch

    # Invariants.

    @property
    def is_away(self) -> bool:
        """True while it reads nothing."""
        return self.consumer.assigned is None

    @property
    def position(self) -> OffsetAndMetadata | None:
        """Current position, None while unknown."""
        assigned = self.consumer.assigned
        if assigned is None or not assigned.has_offset:
            return None
        return OffsetAndMetadata(assigned.offset, leader_epoch=assigned.leader_epoch)

    @property
    def end(self) -> int:
        """End of the log for this reader."""
        return self._history.end(self._level)

    def look(self) -> None:
        """Record changes of the log before the consumer sees them."""
        if self._due is not None:
            to, lowest, highest = self._due
            place = self._place(to)
            self._due = Due(to, min(lowest, place), max(highest, place))
        position = self.position
        if position is not None and position.offset < self._history.log.log_start_offset:
            self._may_lose_position = True

    def check(self) -> None:
        """Check what the consumer has done since the last check."""
        self.look()
        self._check_errors()
        assigned = self.consumer.assigned
        if assigned is None:
            return
        new = self.consumer.read[P][self._read_count :]
        self._read_count += len(new)
        for record in new:
            self._check_record(record)
        if assigned.epoch != self._epoch:
            self._note_epoch()
            if self._due is None:
                assert self._may_lose_position, f"lost the position {self._next} without a cause"
                if self.reset is not OffsetReset.NONE:
                    self._await(self.reset)
        if self._due is not None and assigned.has_offset:
            to, lowest, highest = self._due
            assert lowest <= assigned.offset <= highest, f"{to} began at {assigned.offset}"
            self._next, self._due = assigned.offset, None
        self._check_position(assigned)

    def check_end(self) -> None:
        """Check that everything was read."""
        assert not self._history.visible(self._next, self.end, self._level), "not all was read"

    @property
    def is_done(self) -> bool:
        """True if it has reached the end."""
        position = self.position
        return position is not None and position.offset == self.end

    def _check_record(self, record: ConsumerRecord) -> None:
        assert self._due is None, "read from nowhere"
        assert record.offset >= self._next, f"read {record.offset} again, {self._next} is due"
        skipped = self._history.visible(self._next, record.offset, self._level)
        assert not skipped, f"skipped {skipped}, and read {record.offset}"
        self._history.check(record, self._level)
        self._next = record.offset + 1

    def _check_position(self, assigned: AssignedPartition) -> None:
        if not assigned.has_offset:
            return
        if assigned.offset >= self._history.log.log_start_offset:
            self._may_lose_position = False
        epoch = assigned.leader_epoch
        is_given = self._made_up is not None and self._made_up.offset == assigned.offset
        if epoch is None or is_given or not self.looks_at_epochs:
            return
        before = self._history.epoch_before(assigned.offset)
        assert epoch == before, f"{assigned.offset} has epoch {epoch}, {before} wrote before it"

    def _check_errors(self) -> None:
        for error in self.consumer.errors:
            assert type(error) is OffsetOutOfRangeError, error
            assert self.reset is OffsetReset.NONE, error
            assert self._may_lose_position, error
        if self.consumer.errors:
            self.consumer.errors.clear()
            if not self.is_away:
                self.seek(self._history.log.log_start_offset)
