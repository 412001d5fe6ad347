"""Consumers of a nearly idle topic while everything else changes, chosen by a seed.

Leaders move without a write, end transactions of former leaders, and are not known to have led. The
start of the log is compacted and deleted. Consumers of every reset policy and both isolation levels
seek, leave, and return to their committed offset, or to one as an older version of ours committed
it. No visible record is ever lost, so nothing justifies a skipped or repeated record.

Owner: the test that created it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, ClassVar

from pykclient.consumer.subscription import OffsetReset
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.clock import ManualClock
from pykclient.testing.fake.cluster import FakeCluster
from pykclient.testing.fake.log import Refused
from pykclient.testing.fake.topics import NO_LEADER
from pykclient.types import IsolationLevel, OffsetAndMetadata
from tests.consumer.fetched_records import LEADER_EPOCH_AT, compacted
from tests.records.batches import build, header_changed
from tests.simulation.position_judge import History, P, PositionConsumer, Reader
from tests.simulation.simulated_world import SimulatedWorld
from tests.simulation.simulation import API_FAULTS
from tests.testing.fake.requests import batch_of

if TYPE_CHECKING:
    from pykclient.records.batch import RecordBatch
    from tests.simulation.simulated_world import ApiFaults

BROKER_COUNT = 3
STEP_COUNT = 300
HEAL_STEP_COUNT_MAX = 5_000


class PositionSimulation(SimulatedWorld):
    """A run with a consumer of each reset policy."""

    api_faults: ClassVar[ApiFaults] = {
        key: errors for key, errors in API_FAULTS.items() if key is not ApiKey.PRODUCE
    }

    def __init__(self, seed: int) -> None:
        random, clock = Random(seed), ManualClock(1_000)
        delay_ms = random.choice((0, 1, 10))
        cluster = FakeCluster(BROKER_COUNT, replication_delay_ms=delay_ms, now_ms=clock.now_ms)
        super().__init__(random, clock, cluster)
        config = {"segment.bytes": str(random.choice((300, 5_000)))}
        cluster.create_topic(P.topic, 1, config=config)
        self._partition = cluster.partition(P)
        self._history = History(self._partition.log)
        self._value = self._producer_id = 0
        self._open: dict[int, int] = {}
        """Next sequence of each producer with an open transaction."""
        self._commits: dict[int, bool] = {}
        """Outcome of each transaction, which is the same for a later coordinator."""
        self._is_quiet = False
        self._has_written = True
        self.readers = [
            self._reader(seed, reset)
            for reset in (OffsetReset.EARLIEST, OffsetReset.LATEST, OffsetReset.NONE)
        ]
        self._reader_in_hand = self.readers[0]
        self._turns = [reader.consumer.turn for reader in self.readers]

    def _reader(self, seed: int, reset: OffsetReset) -> Reader:
        level = self.random.choice(list(IsolationLevel))
        consumer = PositionConsumer(
            self.network,
            seed,
            bootstrap_servers=self.bootstrap,
            auto_offset_reset=reset.value,
            isolation_level=level.name.lower(),
            request_timeout_ms=2_000,
            fetch_max_wait_ms=self.random.choice((10, 200)),
            max_partition_fetch_bytes=self.random.choice((100, 1_000_000)),
            max_poll_records=self.random.choice((5, 500)),
        )
        return Reader(consumer, self._history, reset, level)

    def run(self) -> None:
        """Break things, heal them, and wait until everything is read."""
        for _ in range(STEP_COUNT):
            self._change_log()
            self._change_readers()
            self._break_one(
                (0.02, self._stop_or_start),
                (0.04, self._stall_or_resume),
                (0.06, self._cut),
                (0.12, self._add_fault),
            )
            self._step_and_check()
        self._heal()
        for _ in range(HEAL_STEP_COUNT_MAX):
            self._step_and_check()
            if all(reader.is_done for reader in self.readers):
                break
        for reader in self.readers:
            reader.check_end()

    def _step_and_check(self) -> None:
        self._history.update()
        for reader in self.readers:
            reader.look()
        self._step(self._turns)
        self._history.update()
        for reader in self.readers:
            reader.check()

    # The log.

    def _change_log(self) -> None:
        if self.random.random() < 0.05:
            self._is_quiet = not self._is_quiet
        if self._partition.leader_id == NO_LEADER:
            return
        self._break_one((0.07, self._move_leader), (0.075, self._delete_head))
        if self._is_quiet:
            self._break_one((0.02, self._end_transaction), (0.03, self._compact_head))
        else:
            self._break_one(
                (0.50, self._write), (0.65, self._end_transaction), (0.67, self._compact_head)
            )

    def _move_leader(self) -> None:
        candidates = [each for each in self._partition.isr if each in self.cluster.alive]
        if candidates:
            self.met["leader move"] += 1
            if not self._has_written:
                self.met["epoch without a write"] += 1
            self.cluster.move_leader(P, self.random.choice(candidates))
            self._has_written = False

    def _write(self) -> None:
        values = [b"%d" % (self._value + each) for each in range(self.random.randrange(1, 4))]
        self._value += len(values)
        if self.random.random() < 0.5:
            self._append(batch_of(*values, timestamp_ms=self.cluster.wall_ms))
            return
        producer_id = self.random.choice([*self._open, self._producer_id])
        sequence = self._open.get(producer_id, 0)
        data = batch_of(
            *values,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            timestamp_ms=self.cluster.wall_ms,
            is_transactional=True,
        )
        if self._append(data):
            self._open[producer_id] = sequence + len(values)
            self._commits.setdefault(producer_id, self.random.random() < 0.5)
            self._producer_id += producer_id == self._producer_id

    def _append(self, data: bytes) -> bool:
        partition = self._partition
        appended = partition.log.append(
            data, leader_epoch=partition.leader_epoch, now_ms=self.cluster.wall_ms
        )
        self._note_append()
        return not isinstance(appended, Refused)

    def _end_transaction(self) -> None:
        if self._open:
            producer_id = self.random.choice(list(self._open))
            del self._open[producer_id]
            self._append_marker(producer_id)

    def _append_marker(self, producer_id: int) -> None:
        if not self._has_written:
            self.met["marker of a new leader"] += 1
        self._partition.log.append_marker(
            producer_id,
            0,
            is_commit=self._commits[producer_id],
            leader_epoch=self._partition.leader_epoch,
            now_ms=self.cluster.wall_ms,
        )
        self._note_append()

    def _note_append(self) -> None:
        self._has_written = True
        self.cluster.replication.on_append(self._partition, self.clock.now_ms)

    def _delete_head(self) -> None:
        log = self._partition.log
        self.met["deletion"] += 1
        log.delete_records(self.random.randint(log.log_start_offset, log.high_watermark))
        self._look()

    def _compact_head(self) -> None:
        """Compact what all replicas have, without their last batch, where a reader may continue."""
        log = self._partition.log
        end = min(log.high_watermark, *self._partition.replica_ends.values())
        self._history.update()
        if log.log_end_offset == log.log_start_offset:
            return
        self.met["compaction"] += 1

        def kept_of(batch: RecordBatch, data: bytes) -> bytes | None:
            if batch.last_offset >= end - 1 or batch.is_transactional:
                return data
            columns = batch.records()
            kept_count = self.random.choice((0, 0, 1, len(columns)))
            self._history.gone.update(list(columns.offsets)[kept_count:])
            if kept_count == 0:
                return None
            if kept_count == len(columns):
                return data
            rows = [(columns.timestamps_ms[0], None, columns.values[0], ())]
            left = build(rows, base_offset=batch.base_offset)
            left = compacted(left, last_offset_delta=batch.last_offset - batch.base_offset)
            return header_changed(left, LEADER_EPOCH_AT, batch.partition_leader_epoch, 4)

        log.clean(kept_of)

    def _look(self) -> None:
        for reader in self.readers:
            reader.look()

    # The readers.

    def _change_readers(self) -> None:
        reader = self.random.choice(self.readers)
        if reader.is_away:
            if self.random.random() < 0.2:
                reader.begin()
            return
        position = reader.position
        actions = [(0.02, self._seek_to_an_end), (0.10, self._begin_or_end_work)]
        if position is not None:
            actions += [(0.13, self._seek), (0.17, self._leave), (0.20, self._bound)]
        self._reader_in_hand = reader
        if reader.consumer.has_records:
            actions = [(0.5, self._take_one), (0.7, self._seek_ahead), *actions]
        self._break_one(*actions)

    def _seek_to_an_end(self) -> None:
        end = self.random.choice((OffsetReset.EARLIEST, OffsetReset.LATEST))
        self.met[f"seek to {end.value}"] += 1
        self._reader_in_hand.seek_to(end)

    def _seek(self) -> None:
        self.met["seek"] += 1
        log = self._partition.log
        self._reader_in_hand.seek(self.random.randint(log.log_start_offset, log.high_watermark))

    def _seek_ahead(self) -> None:
        """Seek into the buffered records, if there are any."""
        reader = self._reader_in_hand
        assert reader.position is not None
        offset = reader.position.offset + self.random.randrange(12)
        if offset <= self._partition.log.high_watermark:
            self.met["seek ahead"] += 1
            reader.seek(offset)
            if self.random.random() < 0.3:
                self._leave()

    def _bound(self) -> None:
        self.met["limit"] += 1
        reader = self._reader_in_hand
        assert reader.position is not None
        limits = (None, reader.position.offset + self.random.randrange(5))
        reader.consumer.bound(self.random.choice(limits))

    def _take_one(self) -> None:
        self._reader_in_hand.consumer.take_one(self.clock.now_ms)
        self._reader_in_hand.check()

    def _begin_or_end_work(self) -> None:
        consumer = self._reader_in_hand.consumer
        consumer.is_busy = not consumer.is_busy

    def _leave(self) -> None:
        """Leave and commit the position, or the log's end with the epoch that a lookup returned.

        Older versions of ours committed the latter, even if nothing was written in that epoch.
        """
        self.met["restart"] += 1
        reader = self._reader_in_hand
        committed = reader.position
        if self.random.random() < 0.3:
            self.met["old commit"] += 1
            committed = OffsetAndMetadata(reader.end, leader_epoch=self._partition.leader_epoch)
        reader.leave(committed)

    def _heal(self) -> None:
        super()._heal()
        self.cluster.move_leader(P)
        for producer_id in self._commits:  # a marker may have been truncated
            self._append_marker(producer_id)
        for reader in self.readers:
            if reader.is_away:
                reader.begin()
            reader.consumer.bound(None)
            reader.consumer.is_busy = False
