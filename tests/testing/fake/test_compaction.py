"""When a fake log is compacted, and that the result works like the original log.

`tests/integration/test_fake_compaction_against_kafka.py` compares the results with Kafka's.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from pykclient.protocol.messages.offset_records import OffsetCommitKey, OffsetCommitValue
from pykclient.protocol.messages.transaction_records import TransactionLogKey
from pykclient.protocol.reader import Reader
from pykclient.records.batch import iterate_batches
from pykclient.records.builder import RecordBatchBuilder
from pykclient.testing import FakeCluster
from pykclient.testing.fake import data_directory
from pykclient.testing.fake.data_directory import DataDirectory
from pykclient.testing.fake.groups.offsets import CommittedOffset
from pykclient.testing.fake.log import Appended, LogSettings, PartitionLog
from pykclient.testing.fake.state import CLEANER_BACKOFF_MS
from pykclient.testing.fake.transactions.metadata import ProducerIdentity
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

SEGMENT_MS = 1_000
COMPACTED = LogSettings(is_compacted=True, is_deleted=False, segment_ms=SEGMENT_MS)
LATER_MS = 10 * SEGMENT_MS


def put(log: PartitionLog, time_ms: int, *keys: str, value: bytes | None = b"v") -> None:
    builder: RecordBatchBuilder[None] = RecordBatchBuilder(batch_size_bytes=10_000)
    for key in keys:
        builder.try_append(time_ms, key.encode(), value)
    appended = log.append(bytes(builder.close()), leader_epoch=0, now_ms=time_ms)
    assert isinstance(appended, Appended)
    log.high_watermark = log.log_end_offset


def offsets(log: PartitionLog) -> list[int]:
    """Return the offsets of all records, as a consumer reads them."""
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, end_offset=log.high_watermark, max_bytes=100_000, whole_first=True)
        assert isinstance(data, bytes)
        for batch in iterate_batches(memoryview(data), topic="t", partition=0):
            found += list(batch.records().offsets) if batch.record_count else []
            offset = batch.last_offset + 1
    return found


def test_a_log_is_cleaned_when_enough_of_it_is_dirty() -> None:
    log = PartitionLog(COMPACTED._replace(min_cleanable_dirty_ratio=0.5))
    put(log, 0, "a")
    put(log, 1, "a")
    assert not log.compact(0), "the only segment is active"
    put(log, LATER_MS, "b")
    assert log.compact(LATER_MS)
    assert offsets(log) == [1, 2]
    assert not log.compact(LATER_MS)
    put(log, 2 * LATER_MS, "a")
    assert not log.compact(2 * LATER_MS), "one of two segments is half of the log"
    put(log, 3 * LATER_MS, "c")
    assert log.compact(3 * LATER_MS)
    assert offsets(log) == [2, 3, 4]


def test_what_is_too_young_waits_and_what_is_too_old_does_not() -> None:
    log = PartitionLog(COMPACTED._replace(min_compaction_lag_ms=5 * LATER_MS))
    for number in range(4):
        put(log, number * LATER_MS, "a")
    assert not log.compact(5 * LATER_MS - 1)
    assert log.compact(6 * LATER_MS)
    assert offsets(log) == [1, 2, 3]
    log = PartitionLog(
        COMPACTED._replace(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=3 * LATER_MS)
    )
    for number in range(1, 4):
        put(log, number * LATER_MS, "a")
    assert not log.compact(4 * LATER_MS)
    assert log.compact(4 * LATER_MS + 1)
    assert offsets(log) == [1, 2]


def test_tombstones_go_once_their_time_is_over() -> None:
    settings = COMPACTED._replace(delete_retention_ms=LATER_MS, segment_ms=0)
    log = PartitionLog(settings._replace(min_cleanable_dirty_ratio=0.1))
    put(log, 1, "a")
    put(log, 2, "a", value=None)
    read = []
    for number in range(3, 6):
        put(log, number, f"b{number}")
        log.compact(number * LATER_MS)
        read.append(offsets(log))
    assert read == [[1, 2], [2, 3], [2, 3, 4]]


def test_the_sequence_of_a_producer_outlives_its_records(tmp_path: Path) -> None:
    """A restarted broker rebuilds its producer states from the log alone."""
    repeated = None
    for _ in range(2):
        directory = DataDirectory(tmp_path)
        cluster = FakeCluster(1, storage=directory)
        directory.restore(cluster)
        if "t" not in cluster.topics:
            config = {"cleanup.policy": "compact", "segment.ms": "1"}
            log = cluster.create_topic("t", 1, config=config).partitions[0].log
            repeated = keyed(cluster.wall_ms, producer_id=7, base_sequence=0)
            log.append(repeated, leader_epoch=0, now_ms=0)
            put(log, cluster.wall_ms + LATER_MS, "a")
            put(log, cluster.wall_ms + 2 * LATER_MS, "b")
            cluster.clean_logs()
            assert offsets(log) == [1, 2]
        log = cluster.partition(TopicPartition("t", 0)).log
        assert repeated is not None
        appended = log.append(repeated, leader_epoch=0, now_ms=0)
        assert isinstance(appended, Appended)
        assert (appended.base_offset, appended.is_duplicate) == (0, True)
        cluster.storage.close()


def keyed(time_ms: int, *, producer_id: int, base_sequence: int) -> bytes:
    builder: RecordBatchBuilder[None] = RecordBatchBuilder(batch_size_bytes=10_000)
    builder.try_append(time_ms, b"a", b"v")
    return bytes(
        builder.close(producer_id=producer_id, producer_epoch=0, base_sequence=base_sequence)
    )


def test_without_the_policy_nothing_is_compacted_and_only_with_it_deleted() -> None:
    old_ms = 10 * 24 * 3600 * 1000
    for is_compacted, is_deleted in ((False, True), (True, False), (True, True)):
        settings = COMPACTED._replace(is_compacted=is_compacted, is_deleted=is_deleted)
        log = PartitionLog(settings)
        for number in range(3):
            put(log, number * LATER_MS, "a")
        assert log.compact(LATER_MS) is is_compacted
        log.retain(old_ms)
        assert log.log_start_offset == (2 if is_deleted else 0)


def test_a_cleaned_log_is_found_by_offset_and_time_and_goes_on() -> None:
    log = PartitionLog(COMPACTED)
    for number in range(6):
        put(log, number * LATER_MS + 1, "a", "b", "c"[: number % 2])
    log.compact(6 * LATER_MS)
    kept = offsets(log)
    assert 0 < len(kept) < log.log_end_offset
    for offset in range(log.log_end_offset):
        data = log.read(offset, end_offset=log.high_watermark, max_bytes=100_000, whole_first=True)
        assert isinstance(data, bytes)
        batch = next(iterate_batches(memoryview(data), topic="t", partition=0))
        assert batch.records(offset).first_offset == min(each for each in kept if each >= offset)
    found = log.find_timestamp(0, log.log_end_offset)
    assert found is not None
    assert found.offset == kept[0]
    end = log.log_end_offset
    log.truncate(kept[-1])
    assert log.log_end_offset < end
    put(log, 7 * LATER_MS, "d")
    assert offsets(log)[-1] == log.log_end_offset - 1


def test_the_cleaner_runs_while_a_topic_is_compacted() -> None:
    cluster = FakeCluster(1)
    log = cluster.create_topic("t", 1).partitions[0].log
    ratio = {"min.cleanable.dirty.ratio": "0.1"}
    cluster.topics["t"].configure(
        {"cleanup.policy": "compact", "segment.ms": str(SEGMENT_MS), **ratio}
    )
    cluster.watch_compaction()
    for number in range(2):
        put(log, cluster.wall_ms + number * LATER_MS, "a")
    cluster.advance(CLEANER_BACKOFF_MS - 1)
    assert offsets(log) == [0, 1]
    cluster.advance(CLEANER_BACKOFF_MS)
    put(log, cluster.wall_ms + 2 * LATER_MS, "a")
    cluster.advance(2 * CLEANER_BACKOFF_MS)
    assert offsets(log) == [1, 2], "the active segment stays"


def test_kafkas_own_topics_keep_the_newest_of_each_group_and_transactional_id() -> None:
    cluster = FakeCluster(1)
    cluster.create_topic("t", 1)
    partition = TopicPartition("t", 0)
    names = "g", "h"
    for number in range(5):
        cluster.advance(cluster.now_ms + LATER_MS)
        for name in names:
            cluster.groups.commit(name, partition, CommittedOffset(number), cluster.now_ms)
            begun = cluster.transactions.initialize(name, None, 1_000, cluster.now_ms)
            assert begun == ProducerIdentity(names.index(name) + 1, number)
        for own in ("__consumer_offsets", "__transaction_state"):
            cluster.topics[own].configure(
                {"cleanup.policy": "compact", "segment.ms": str(SEGMENT_MS)}
            )
    cluster.clean_logs()
    for name in names:
        log = cluster.groups.partition(name).log
        committed = [
            OffsetCommitValue.read(Reader((value or b"")[2:]), 4).offset
            for key, value in records(log)
            if OffsetCommitKey.read(Reader(key[2:]), 0).group == name
        ]
        assert committed == [3, 4], "the active segment stays"
        log = cluster.transactions.partition(name).log
        assert [TransactionLogKey.read(Reader(key[2:]), 0) for key, _ in records(log)] == [
            TransactionLogKey(name)
        ] * 2


def records(log: PartitionLog) -> list[tuple[bytes, bytes | None]]:
    """Return keys and values."""
    found: list[tuple[bytes | None, bytes | None]] = []
    for batch in log.batches():
        if batch.record_count:
            columns = batch.records()
            found += zip(columns.keys, columns.values, strict=True)
    return [(key or b"", value) for key, value in found]


def test_a_cleaned_log_in_a_folder_is_there_after_a_restart(tmp_path: Path) -> None:
    kept: list[tuple[list[int], int, int]] = []
    for _ in range(2):
        directory = DataDirectory(tmp_path)
        cluster = FakeCluster(1, storage=directory)
        directory.restore(cluster)
        if not kept:
            config = {"cleanup.policy": "compact", "segment.ms": str(SEGMENT_MS)}
            log = cluster.create_topic("t", 1, config=config).partitions[0].log
            for number in range(4):
                put(log, cluster.wall_ms + number * LATER_MS, "a", "b")
            cluster.clean_logs()
        log = cluster.partition(TopicPartition("t", 0)).log
        kept.append((offsets(log), log.segment_count, log.log_end_offset))
        cluster.storage.close()
    assert kept[0] == kept[1] == ([4, 5, 6, 7], 2, 8)


class Killed(BaseException):
    """The process ends here; no error handler may run."""


def test_compaction_that_is_killed_at_any_moment_leaves_the_log_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart each key has its newest value, and no offset occurs twice.

    Method: kill the cleaner at its n-th change of the disk, for each n.
    """
    moment, is_killed = 0, True
    while is_killed:
        folder = tmp_path / str(moment)
        is_killed = _clean_until_killed(folder, moment, monkeypatch)
        directory = DataDirectory(folder)
        cluster = FakeCluster(1, storage=directory)
        directory.restore(cluster)
        log = cluster.partition(TopicPartition("t", 0)).log
        found = offsets(log)
        assert found == sorted(set(found)), moment
        newest = dict(records(log))
        assert newest == {b"a": b"3", b"b": b"5", b"c": b"4", b"d": b"0"}, moment
        put(log, cluster.wall_ms, "e")
        assert offsets(log) == [*found, 9], moment
        assert not list((folder / "t-0").glob("*.cleaned")), moment
        directory.close()
        moment += 1
    assert moment > 5


def _clean_until_killed(folder: Path, moment: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Fill a log and clean it until the given change of the disk; return whether it was reached."""
    directory = DataDirectory(folder)
    cluster = FakeCluster(1, storage=directory)
    directory.restore(cluster)
    config = {"cleanup.policy": "compact", "segment.ms": str(SEGMENT_MS)}
    log = cluster.create_topic("t", 1, config=config).partitions[0].log
    for number, keys in enumerate(["abcd", "a", "a", "a", "c", "b"]):
        put(log, cluster.wall_ms + number * LATER_MS, *keys, value=str(number).encode())
    left = iter(range(moment))

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **more: object) -> object:
            if next(left, None) is None:
                raise Killed
            return function(*arguments, **more)

        return call

    with monkeypatch.context() as patched:
        for owner, name in (
            (data_directory, "_write_all"),
            (pathlib.Path, "replace"),
            (pathlib.Path, "unlink"),
            (pathlib.Path, "touch"),
        ):
            patched.setattr(owner, name, counted(getattr(owner, name)))
        try:
            cluster.clean_logs()
        except Killed:
            is_killed = True
        else:
            is_killed = False
    for file in (*directory._files._files.values(), directory._metadata, directory._lock):
        assert file is not None
        file.close()
    return is_killed
