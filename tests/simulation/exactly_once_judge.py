"""CopyJudge: invariants of the copiers of a topic, checked at each step from the brokers' logs.

It reads the committed records of both topics, by markers and without the client's code. An offset
of the group means that everything before it is copied, and committed or about to be: its markers
may be late.

Owner: the simulation.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from pykclient.records.control import ControlType, control_type
from pykclient.testing.fake.transactions.metadata import TransactionState

if TYPE_CHECKING:
    from pykclient.testing.fake.cluster import FakeCluster
    from pykclient.testing.fake.topics import Partition
    from pykclient.types import TopicPartition

OPEN = {
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
}


class Copy(NamedTuple):
    """A record of the sink: the partition, offset and value of its source."""

    partition: int
    offset: int
    value: bytes

    def to_value(self) -> bytes:
        """Return the value to send."""
        return b"%d %d %s" % self

    @classmethod
    def from_value(cls, sent: bytes) -> Copy:
        """Parse a sent value."""
        partition, offset, value = sent.split()
        return cls(int(partition), int(offset), value)


class CommittedRecords:
    """Committed records of a partition by offset, and those of open transactions."""

    def __init__(self, partition: Partition) -> None:
        self.records: dict[int, bytes] = {}
        """Committed values by offset, in the order of their commits."""
        self.open: dict[int, list[tuple[int, bytes]]] = {}
        """Records of open transactions by producer id."""
        self.ends: Counter[ControlType | None] = Counter()
        """Number of ended transactions, by type of marker."""
        self._partition = partition
        self._next_offset = 0

    def look(self) -> list[tuple[int, bytes]]:
        """Read new batches of the log, and return the records committed by them."""
        log = self._partition.log
        assert log.log_end_offset >= self._next_offset, "the log has lost its end"
        committed: list[tuple[int, bytes]] = []
        if log.log_end_offset == self._next_offset:
            return committed
        for batch in log.batches(self._next_offset):
            self._next_offset = batch.last_offset + 1
            if not batch.is_control:
                assert batch.is_transactional
                columns = batch.records()
                for offset, value in zip(columns.offsets, columns.values, strict=True):
                    assert value is not None
                    self.open.setdefault(batch.producer_id, []).append((offset, value))
                continue
            ended = self.open.pop(batch.producer_id, [])
            kind = control_type(batch)
            self.ends[kind] += bool(ended)
            if kind is ControlType.COMMIT:
                committed += ended
        self.records.update(committed)
        return committed


class CopyJudge:
    """Checks a run; see the module."""

    def __init__(self, cluster: FakeCluster, *, source: str, sink: str, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._partitions = [
            _CopiedPartition(*pair)
            for pair in zip(
                cluster.topics[source].partitions, cluster.topics[sink].partitions, strict=True
            )
        ]

    @property
    def copied_count(self) -> int:
        """Number of copied records."""
        return sum(len(each.copied) for each in self._partitions)

    @property
    def aborted_count(self) -> int:
        """Number of aborted transactions, counted once for each of their partitions."""
        return sum(each.sink.ends[ControlType.ABORT] for each in self._partitions)

    def check_step(self) -> None:
        """Check that nothing is committed twice or out of order, and no offset is too high."""
        for each in self._partitions:
            each.look()
        for name, committed in self._cluster.groups.offsets(self._group).all().items():
            partition = self._partitions[name.partition]
            if committed.offset != partition.committed_offset:
                partition.check_offset(committed.offset, self._decided())

    def is_complete(self) -> bool:
        """Return whether everything is copied and committed, and no transaction is open."""
        if any(each.log.last_stable_offset < each.log.log_end_offset for each in self._all()):
            return False
        transactions = self._cluster.transactions._known.values()
        if any(each.state in OPEN for each in transactions):
            return False
        return all(
            each.copied.keys() == each.source.records.keys() and each.is_committed
            for each in self._partitions
        )

    def check_end(self) -> None:
        """Check that each record is copied once, and nothing is open."""
        self.check_step()
        for each in self._partitions:
            lost = sorted(each.source.records.keys() - each.copied.keys())
            assert not lost, f"lost: {lost} of {each.name}"
            assert each.is_committed, f"not committed to the end: {each.name}"
        assert self.is_complete(), "a transaction is left open"

    def described(self) -> str:
        """Return what is left to do."""
        lines = [
            f"{each.transactional_id}: {each.state}"
            for each in self._cluster.transactions._known.values()
        ]
        for each in self._partitions:
            left = sorted(each.source.records.keys() - each.copied.keys())
            lines.append(f"{each.name}: {left} left, committed to {each.committed_offset}")
        return "\n".join(lines)

    def _all(self) -> list[Partition]:
        return [
            each
            for topic in self._cluster.topics.values()
            for each in topic.partitions
            if each.log.log_end_offset
        ]

    def _decided(self) -> set[int]:
        """Return the producers whose commit is prepared, but not complete."""
        return {
            each.producer.producer_id
            for each in self._cluster.transactions._known.values()
            if each.state is TransactionState.PREPARE_COMMIT
        }


class _CopiedPartition:
    """A partition of the source and its copy."""

    def __init__(self, source: Partition, sink: Partition) -> None:
        self.name: TopicPartition = source.name
        self.source, self.sink = CommittedRecords(source), CommittedRecords(sink)
        self.copied: dict[int, int] = {}
        """Offsets in the sink by offsets in the source."""
        self.committed_offset = 0
        self._order: list[tuple[int, int]] = []
        """Offsets in the sink and in the source, sorted."""

    @property
    def is_committed(self) -> bool:
        """True if the group's offset is after all records."""
        return self.committed_offset > max(self.source.records, default=-1)

    def look(self) -> None:
        """Read new records of both logs."""
        self.source.look()
        for offset, value in self.sink.look():
            self._check_copy(offset, Copy.from_value(value))

    def _check_copy(self, offset: int, copy: Copy) -> None:
        about = f"{self.name}: {copy} at {offset}"
        assert copy.partition == self.name.partition
        assert self.source.records.get(copy.offset) == copy.value, f"never committed: {about}"
        before = self.copied.setdefault(copy.offset, offset)
        assert before == offset, f"committed twice: {about}, and at {before}"
        place = bisect(self._order, (offset, copy.offset))
        insort(self._order, (offset, copy.offset))
        near = [each for _, each in self._order[max(0, place - 1) : place + 2]]
        assert near == sorted(near), f"out of order: {about}, among {near}"

    def check_offset(self, committed_offset: int, decided: set[int]) -> None:
        """Check that everything before the group's new offset is copied, or about to be."""
        before, self.committed_offset = self.committed_offset, committed_offset
        about = f"{self.name}: {committed_offset} after {before}"
        assert committed_offset >= before, f"committed backwards: {about}"
        coming = {
            Copy.from_value(value).offset
            for producer_id in decided
            for _, value in self.sink.open.get(producer_id, ())
        }
        left_out = [
            offset
            for offset in self.source.records
            if before <= offset < committed_offset
            and offset not in self.copied
            and offset not in coming
        ]
        assert not left_out, f"committed too far: {about}, without {left_out}"
