"""SinkJudge: the rules of an exactly-once sink after each step, checked in the brokers' logs.

Of the topic it reads what a reader of committed records gets, by markers and not by the client's
code; of the sink's record what is committed for its group, and what a transaction has whose commit
is decided: its markers may come late.

Owner: the simulation.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, NamedTuple

from pykclient.records.control import ControlType, control_type
from pykclient.testing.fake.transactions.metadata import TransactionState
from spark_connector.exactly_once.names import driver_id, sink_group, slot_prefix
from spark_connector.exactly_once.record import NEXT, SinkRecord, Stage, Written, part_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.records.batch import RecordBatch
    from pykclient.testing.fake.cluster import FakeCluster
    from pykclient.testing.fake.topics import Partition


class Row(NamedTuple):
    """A row as an attempt of a task writes it."""

    batch: int
    number: int
    attempt: int

    def to_value(self) -> bytes:
        """Return the rows to send."""
        return b"%d %d %d" % self

    @classmethod
    def from_value(cls, value: bytes | None) -> Row:
        """Return the rows that were sent."""
        assert value is not None
        return cls(*map(int, value.split()))


class Identity(NamedTuple):
    """The identity of a transaction."""

    transactional_id: str
    producer_id: int
    epoch: int

    @classmethod
    def of(cls, written: Written) -> Identity:
        """Return that of an attempt's transaction."""
        return cls(written.transactional_id, written.producer_id, written.producer_epoch)


class SinkJudge:
    """The judge of a simulation (see the module).

    `prepared` are the transactions of attempts, by their numbers; `lost` are those that may be
    missing though they were decided (`SinkWorld.lost`).
    """

    def __init__(self, cluster: FakeCluster, sink_id: str, topic: str, lost: set[Identity]) -> None:
        self.record: SinkRecord | None = None
        """The newest; None before the first."""
        self.prepared: dict[int, Identity] = {}
        self.missing: set[Identity] = set()
        """Transactions that were decided, and that the record says are not committed."""
        self._cluster = cluster
        self._lost = lost
        self._sink_id = sink_id
        self._topic = topic
        self._partitions = [
            _CommittedRows(partition, self) for partition in cluster.topics[topic].partitions
        ]
        self._decided: dict[Identity, Written] = {}
        self._complete: set[Identity] = set()
        """Transactions that the record lists as committed."""
        self._shown: set[Identity] = set()
        """Transactions with committed rows."""
        self._seen: dict[tuple[int, int], Row] = {}
        """The rows that are committed, by batch and number."""

    def check_step(self) -> None:
        """See that nothing is committed which was not decided, and no decision is lost."""
        self._look_at_record()
        for each in self._partitions:
            each.look()

    def check_end(self, rows: set[tuple[int, int]]) -> None:
        """See that each row is there, and nothing is open."""
        self.check_step()
        assert set(self._seen) == rows, f"lost: {sorted(rows - set(self._seen))}"
        lost = self._complete - self._shown
        assert not lost, f"said to be committed, and not: {lost}"
        left = [
            each.transactional_id
            for broker_id in self._cluster.brokers
            for each in self._cluster.transactions.coordinated_by(broker_id)
            if each.state is TransactionState.ONGOING
        ]
        assert not left, f"left open: {left}"
        for partition in self._cluster.topics[self._topic].partitions:
            log = partition.log
            assert log.last_stable_offset == log.log_end_offset, "readers wait"

    def rows(self, partition: int) -> list[Row]:
        """Return the committed rows of a partition, in order."""
        return [row for _, row in self._partitions[partition].rows]

    # The record.

    def _look_at_record(self) -> None:
        newest = self._part(0)
        if newest is None or (self.record is not None and newest[0] == self.record.number):
            return
        found = self._record_of(*newest)
        before, self.record = self.record, found
        before = before or SinkRecord(turn=0, number=-1)
        self._decided.update({Identity.of(each): each for each in found.written})
        assert found.number > before.number, f"{before} was followed by {found}"
        assert found.turn >= before.turn, f"{before} was followed by {found}"
        assert found.batch >= before.batch, f"{before} was followed by {found}"
        if before.stage is Stage.DECIDED:
            assert found.batch == before.batch, f"decided, and lost: {before}"
            self._note_end(before, found)
        elif found.stage is not before.stage:
            assert found.stage in NEXT[before.stage], f"{before} was followed by {found}"

    def _note_end(self, decided: SinkRecord, ended: SinkRecord) -> None:
        missing = {each.task for each in ended.missing}
        for each in decided.written:
            if each.task in missing:
                identity = Identity.of(each)
                assert identity in self._lost, f"decided, and lost: {each}"
                self.missing.add(identity)
            else:
                self._complete.add(Identity.of(each))

    def _record_of(self, number: int, first: str) -> SinkRecord:
        """Return a record with all its parts."""
        count, text = part_of(first)
        pieces = [text]
        for part in range(1, count):
            found = self._part(part)
            assert found is not None
            assert found[0] == number, "a record in part"
            pieces.append(part_of(found[1])[1])
        return SinkRecord.from_text(self._sink_id, number, "".join(pieces))

    def _part(self, part: int) -> tuple[int, str] | None:
        """Return number and text of the decided rows, whether or not their markers are written."""
        offsets = self._cluster.groups.offsets(sink_group(self._sink_id, part))
        found = [(each.offset, each.metadata) for each in offsets._committed.values()]
        driver = self._cluster.transactions.find(driver_id(self._sink_id))
        if driver is not None and driver.state is TransactionState.PREPARE_COMMIT:
            held = offsets._pending.get(driver.producer.producer_id, {})
            found += [(each.committed.offset, each.committed.metadata) for each in held.values()]
        return max(found, default=None)

    # The rows.

    def on_committed(self, row: Row) -> None:
        """Check a row that was committed."""
        identity = self.prepared.get(row.attempt)
        assert identity is not None, f"committed before it was prepared: {row}"
        assert identity in self._decided, f"committed, and not decided: {row} by {identity}"
        assert identity not in self.missing, f"said to be missing: {row} by {identity}"
        assert identity.transactional_id.startswith(slot_prefix(self._sink_id))
        other = self._seen.setdefault((row.batch, row.number), row)
        assert other == row, f"twice: {row} and {other}"
        self._shown.add(identity)


class _CommittedRows:
    """The committed rows of one partition, with their offsets."""

    def __init__(self, partition: Partition, judge: SinkJudge) -> None:
        self.rows: list[tuple[int, Row]] = []
        self._partition = partition
        self._judge = judge
        self._next_offset = 0
        self._open: dict[int, list[tuple[int, Row]]] = {}
        """By producer id."""

    def look(self) -> None:
        """Read the new records of the log."""
        log = self._partition.log
        assert log.log_end_offset >= self._next_offset, "the log has lost its end"
        if log.log_end_offset == self._next_offset:
            return
        for batch in log.batches(self._next_offset):
            self._next_offset = batch.last_offset + 1
            if not batch.is_control:
                self._open.setdefault(batch.producer_id, []).extend(self._rows_of(batch))
                continue
            ended = self._open.pop(batch.producer_id, [])
            if control_type(batch) is ControlType.COMMIT:
                numbers = [row.number for _, row in ended]
                assert numbers == sorted(set(numbers)), f"out of order: {ended}"
                for each in ended:
                    self._commit(*each)

    def _rows_of(self, batch: RecordBatch) -> Iterator[tuple[int, Row]]:
        assert batch.is_transactional
        columns = batch.records()
        for offset, value in zip(columns.offsets, columns.values, strict=True):
            yield offset, Row.from_value(value)

    def _commit(self, offset: int, row: Row) -> None:
        self._judge.on_committed(row)
        insort(self.rows, (offset, row))
        place = self.rows.index((offset, row))
        batches = [each.batch for _, each in self.rows[max(0, place - 1) : place + 2]]
        assert batches == sorted(batches), f"out of order: {row} among {batches}"
