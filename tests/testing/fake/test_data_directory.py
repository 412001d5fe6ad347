"""A broker's folder: acknowledged data survives, and damaged ends are cut off."""

from __future__ import annotations

import gc
import json
import logging
import os
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pykclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pykclient.testing.fake import data_directory
from pykclient.testing.fake.cluster import FakeCluster
from pykclient.testing.fake.data_directory import METADATA_NAME, DataDirectory
from pykclient.testing.fake.log import Appended
from pykclient.testing.fake.storage import StorageError
from pykclient.types import TopicPartition
from tests.testing.fake.requests import batch_of, response_to

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
FIRST_SEGMENT = f"{0:020}.log"


@contextmanager
def kept_in(path: Path, *, is_killed: bool = False) -> Iterator[FakeCluster]:
    """Run a cluster of one broker with its data in a folder, until it is stopped or killed."""
    directory = DataDirectory(path)
    try:
        cluster = FakeCluster(1, storage=directory)
        directory.restore(cluster)
        yield cluster
    finally:
        if is_killed:
            # Like the operating system at a kill: close the files; written data survives.
            for file in (*directory._files._files.values(), directory._metadata, directory._lock):
                assert file is not None
                file.close()
        else:
            directory.close()


def append(cluster: FakeCluster, *values: bytes, partition: TopicPartition = T0) -> int:
    log = cluster.partition(partition).log
    appended = log.append(batch_of(*values), leader_epoch=0, now_ms=1_000)
    assert isinstance(appended, Appended)
    return appended.base_offset


def offsets(cluster: FakeCluster, partition: TopicPartition = T0) -> list[int]:
    batches = cluster.partition(partition).log.batches()
    return [offset for batch in batches for offset in batch.records().offsets]


def commit(cluster: FakeCluster, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
    response = response_to(cluster, request, OffsetCommitResponse, version=8)
    assert response.topics[0].partitions[0].error_code == 0


def append_to_metadata(folder: Path, line: str) -> None:
    """Append a line to the file of a stopped broker."""
    with kept_in(folder):
        pass
    with (folder / METADATA_NAME).open("a") as file:
        file.write(f"{line}\n")


def topic_line(**fields: object) -> str:
    topic = {"topic": "x", "topic_id": "0" * 32, "assignments": [[0]], "config": {}}
    return json.dumps({"type": "topic", **topic, **fields})


def offset_line(**fields: object) -> str:
    offset = {"topic": "t", "partition": 0, "offset": 0, "leader_epoch": -1, "metadata": ""}
    return json.dumps({"type": "offset", "group": "g", **offset, **fields})


@pytest.mark.parametrize("is_killed", [False, True])
def test_topics_records_and_offsets_are_there_again(tmp_path: Path, is_killed: bool) -> None:
    with kept_in(tmp_path, is_killed=is_killed) as cluster:
        topic = cluster.create_topic("t", 2, config={"segment.bytes": "200"})
        for number in range(10):
            append(cluster, b"%d" % number, b"more")
        append(cluster, b"other", partition=T1)
        commit(cluster, 7)
    for _ in range(2):  # restored data is stored again
        with kept_in(tmp_path, is_killed=is_killed) as cluster:
            again = cluster.topics["t"]
            assert (again.topic_id, again.config) == (topic.topic_id, topic.config)
            assert (offsets(cluster), offsets(cluster, T1)) == (list(range(20)), [0])
            assert cluster.partition(T0).log.high_watermark == 20
            assert cluster.partition(T0).log.segment_count > 3
            assert cluster.group("g").offsets[T0].offset == 7
    with kept_in(tmp_path) as cluster:
        assert append(cluster, b"next") == 20


def test_what_was_deleted_stays_deleted(tmp_path: Path) -> None:
    with kept_in(tmp_path) as cluster:
        cluster.create_topic("t", config={"segment.bytes": "100"})
        cluster.create_topic("gone")
        append(cluster, b"old", partition=TopicPartition("gone", 0))
        for number in range(6):
            append(cluster, b"%d" % number)
        cluster.partition(T0).log.delete_records(3)
        commit(cluster, 4)
        old = (tmp_path / "gone-0" / FIRST_SEGMENT).read_bytes()
        cluster.delete_topic("gone")
        assert not (tmp_path / "gone-0").exists()
    with kept_in(tmp_path) as cluster:
        assert cluster.partition(T0).log.log_start_offset == 3
        assert (offsets(cluster), "gone" in cluster.topics) == ([3, 4, 5], False)
        cluster.groups.remove("g", 0)
        (tmp_path / "gone-0").mkdir()
        (tmp_path / "gone-0" / FIRST_SEGMENT).write_bytes(old)  # the deletion was interrupted
        assert cluster.create_topic("gone").partitions[0].log.log_end_offset == 0
    with kept_in(tmp_path) as cluster:
        assert cluster.groups.snapshot("g") is None
        cluster.delete_topic("t")
        cluster.create_topic("t")
        assert offsets(cluster) == []


@pytest.mark.parametrize("damage", ["cut", "zeros", "flip", "twice"])
def test_a_damaged_end_is_cut_off_and_the_rest_is_served(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    with kept_in(tmp_path, is_killed=True) as cluster:
        cluster.create_topic("t")
        append(cluster, b"first", b"second")
        append(cluster, b"third")
    path = tmp_path / "t-0" / FIRST_SEGMENT
    data = path.read_bytes()
    last = data[-len(batch_of(b"third")) :]
    path.write_bytes(
        {
            "cut": data[:-1],
            "zeros": data[: -len(last)] + bytes(100),
            "flip": data[:-1] + bytes((data[-1] ^ 1,)),
            "twice": data[: -len(last)] + data[: -len(last)],
        }[damage]
    )
    with kept_in(tmp_path) as cluster, caplog.at_level(logging.WARNING):
        assert offsets(cluster) == [0, 1]
        assert append(cluster, b"new") == 2
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("t-0 was cut off at its damaged end: ")
    caplog.clear()
    with kept_in(tmp_path) as cluster:
        assert offsets(cluster) == [0, 1, 2]
    assert not caplog.records


def test_segments_behind_a_damaged_one_are_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with kept_in(tmp_path) as cluster:
        cluster.create_topic("t", config={"segment.bytes": "100"})
        for _ in range(4):
            append(cluster, b"v")
    (tmp_path / "t-0" / f"{1:020}.log").write_bytes(b"no batch")
    with kept_in(tmp_path) as cluster:
        assert (offsets(cluster), append(cluster, b"new")) == ([0], 1)
    assert "segment 2 after it is removed" in caplog.text
    assert not (tmp_path / "t-0" / f"{3:020}.log").exists()


def test_a_log_that_is_cut_before_its_start_begins_there_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with kept_in(tmp_path) as cluster:
        cluster.create_topic("t")
        for _ in range(10):
            append(cluster, b"v")
        cluster.partition(T0).log.delete_records(8)
    path = tmp_path / "t-0" / FIRST_SEGMENT
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with kept_in(tmp_path) as cluster:
        assert (append(cluster, b"new"), offsets(cluster)) == (8, [8])
    assert "t-0 ends at 5, before its start at 8: its segments are removed" in caplog.text
    assert not path.exists()
    with kept_in(tmp_path) as cluster:
        assert (append(cluster, b"newer"), offsets(cluster)) == (9, [8, 9])


def test_a_producer_that_sends_a_batch_again_after_a_restart_adds_nothing(tmp_path: Path) -> None:
    with kept_in(tmp_path) as cluster:
        cluster.create_topic("t")
        ids = cluster.new_producer_id(), cluster.topics["t"].topic_id
        batch = batch_of(b"v", producer_id=ids[0], producer_epoch=0, base_sequence=0)
        cluster.partition(T0).log.append(batch, leader_epoch=0, now_ms=1)
    with kept_in(tmp_path) as cluster:
        appended = cluster.partition(T0).log.append(batch, leader_epoch=0, now_ms=1)
        assert isinstance(appended, Appended)
        assert (appended.is_duplicate, appended.base_offset) == (True, 0)
        assert cluster.new_producer_id() > ids[0]
        assert cluster.create_topic("u").topic_id != ids[1]


def test_a_last_line_that_was_cut_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with kept_in(tmp_path) as cluster:
        cluster.create_topic("t")
    with (tmp_path / METADATA_NAME).open("ab") as file:
        file.write(b'{"type": "topic_dele')
    with kept_in(tmp_path) as cluster:
        assert list(cluster.topics) == ["t"]
    assert "ignoring the incomplete last line" in caplog.text


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("no JSON", "line 2 of .*Expecting value"),
        ('{"type": "magic"}', "line 2 of .*there is no type 'magic'"),
        ('{"type": "broker", "version": 9}', "line 2 of .*version is 9, not 1.*fix it, or name"),
        ("[" * 100_000, "line 2 of .*recursion"),
        ('{"type": "topic", "topic": "x"}', "line 2 of .*'assignments'"),
        (topic_line(topic=7), "line 2 of .*topic is 7"),
        (topic_line(topic_id="q"), "line 2 of .*UUID"),
        (topic_line(assignments=[]), "line 2 of .*no partition"),
        (topic_line(assignments=[[]]), "line 2 of .*no partition, or one without a replica"),
        (topic_line(assignments=[["0"]]), "line 2 of .*a replica is '0'"),
        (topic_line(config={"a": 1}), "line 2 of .*a is 1"),
        (offset_line(offset="q"), "line 2 of .*offset is 'q'"),
        (offset_line(offset=2**63), "line 2 of .*offset is 9223372036854775808"),
        (offset_line(leader_epoch=None), "line 2 of .*leader_epoch is None"),
        (offset_line(group=[]), r"line 2 of .*group is \[\]"),
        (offset_line(partition=0.5), r"line 2 of .*partition is 0\.5"),
    ],
)
def test_a_damaged_metadata_file_is_refused_with_the_line(
    tmp_path: Path, line: str, reason: str
) -> None:
    append_to_metadata(tmp_path, line)
    for _ in range(2):  # the second time shows that the lock was released
        with pytest.raises(StorageError, match=reason):
            DataDirectory(tmp_path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (topic_line(assignments=[[5]]), "there is no broker 5.*start as many brokers as before"),
        (topic_line(topic="../x"), "its name is invalid.*fix it, or name another folder"),
        (topic_line(config={"segment.bytes": "q"}), "invalid settings for topic"),
    ],
)
def test_topics_that_the_cluster_cannot_have_are_refused(
    tmp_path: Path, line: str, reason: str
) -> None:
    append_to_metadata(tmp_path, line)
    for _ in range(2):  # the damaged file stays, and the lock is released
        with (
            pytest.raises(StorageError, match=rf"{METADATA_NAME} does not fit: .*{reason}"),
            kept_in(tmp_path),
        ):
            pass


@pytest.mark.parametrize("is_killed", [False, True])
def test_metadata_has_a_few_times_the_lines_that_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    monkeypatch.setattr(data_directory, "LINES_MIN", 10)
    metadata = tmp_path / METADATA_NAME
    with kept_in(tmp_path, is_killed=is_killed) as cluster:
        topic_id = cluster.create_topic("t", 2, config={"segment.bytes": "100"}).topic_id
        append(cluster, b"v")
        append(cluster, b"v")
        cluster.partition(T0).log.delete_records(1)
        line_counts = set()
        for offset in range(200):
            commit(cluster, offset)
            line_counts.add(len(metadata.read_bytes().splitlines()))
        cluster.create_topic("later")
    assert max(line_counts) <= data_directory.GROWTH_MAX * min(line_counts)
    with kept_in(tmp_path) as cluster:
        again = cluster.topics["t"]
        assert (again.topic_id, again.config) == (topic_id, {"segment.bytes": "100"})
        assert (len(again.partitions), offsets(cluster)) == (2, [1])
        assert (cluster.group("g").offsets[T0].offset, cluster.run_number) == (199, 2)
        assert "later" in cluster.topics


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"has files that are not a broker's.*name an empty"):
        DataDirectory(tmp_path)
    with pytest.raises(StorageError, match=r"thesis\.txt cannot be used: .*xist"):
        DataDirectory(tmp_path / "thesis.txt")
    with (
        kept_in(tmp_path / "used"),
        pytest.raises(StorageError, match=r"another broker uses .*stop it"),
    ):
        DataDirectory(tmp_path / "used")
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["thesis.txt"]


def test_few_files_are_open_however_many_segments_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_directory, "OPEN_FILES_MAX", 2)
    with kept_in(tmp_path) as cluster:
        cluster.create_topic("t", config={"segment.bytes": "100"})
        for _ in range(6):
            append(cluster, b"v")
        assert offsets(cluster) == list(range(6))
        assert isinstance(cluster.storage, DataDirectory)
        assert len(cluster.storage._files._files) == 2


def test_only_the_end_waits_for_the_disk_and_for_all_that_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    sync = os.fsync

    def sync_noted(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(data_directory, "OPEN_FILES_MAX", 2)
    with kept_in(tmp_path) as cluster:
        cluster.create_topic("t", config={"segment.bytes": "100"})
        monkeypatch.setattr(os, "fsync", sync_noted)
        for _ in range(6):
            append(cluster, b"v")
        assert (offsets(cluster), synced) == (list(range(6)), [])
        cluster.partition(T0).log.delete_records(1)
    written = [*(tmp_path / "t-0").iterdir(), tmp_path / METADATA_NAME]
    assert sorted(synced) == sorted(path.stat().st_ino for path in written)
    synced.clear()
    with kept_in(tmp_path) as cluster:
        assert offsets(cluster) == list(range(1, 6))
        synced.clear()  # metadata.jsonl, which was rewritten
    assert synced == [(tmp_path / METADATA_NAME).stat().st_ino], "other files were only read"


def test_what_is_in_files_is_not_in_memory(tmp_path: Path) -> None:
    values = [bytes(50_000)] * 10
    with kept_in(tmp_path) as cluster:
        cluster.create_topic("t")
        append(cluster, *values)
        # Finalizers of earlier tests' garbage would allocate in frames of this test.
        gc.collect()
        gc.disable()
        tracemalloc.start(25)
        try:
            for _ in range(40):
                append(cluster, *values)
            # Ignore allocations of other threads.
            of_this_test = tracemalloc.Filter(
                inclusive=True, filename_pattern=__file__, all_frames=True
            )
            snapshot = tracemalloc.take_snapshot().filter_traces([of_this_test])
        finally:
            tracemalloc.stop()
            gc.enable()
    assert (tmp_path / "t-0" / FIRST_SEGMENT).stat().st_size > 20_000_000
    in_memory = sum(trace.size for trace in snapshot.traces)
    assert in_memory < 1_000_000, snapshot.statistics("traceback")[0].traceback.format()
