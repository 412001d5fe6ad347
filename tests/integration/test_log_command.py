"""`pykclient log` prints what Java's DumpLogSegments prints, on segments that brokers wrote.

On both tested Kafka versions one broker is filled with everything that a segment may hold: all
codecs, headers, nulls, an idempotent producer, transactions committed and aborted, the broker's own
timestamps, gaps of a compaction, several segments; and there is the log of its metadata, with
snapshots. Every line of every file is compared.
"""

from __future__ import annotations

import io
import json
import random
import re
import shutil
import time
import uuid
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pykclient import Consumer, TopicPartition
from pykclient import Producer as OurProducer
from pykclient.cli import main
from pykclient.records.compression import Codec
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from tests.integration.confluent_tools import confluent_create_topic, confluent_produce
from tests.integration.java_tools import (
    CODECS,
    Record,
    dump_segments,
    format_standalone_controller,
    java_produce,
)
from tests.records.test_legacy import message, wrapped
from tests.soak import NEWEST_FIRST, OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = [
    pytest.mark.kafka,
    OWN_BROKERS,
]

SEED = 20_130_103
TIMEOUT_S = 60.0
COMPACTION_TIMEOUT_S = 180.0
"""A broker's cleaner is the last thread that a busy machine lets run."""
FIRST_MS = 1_600_000_000_000
STEP_MS = 1000
SEGMENTED_COUNT = 1200
SEGMENT_BYTES = 1024 * 1024  # The least that Kafka 4.3 allows.
VALUE_BYTES = 2000

METADATA_FOLDER = "__cluster_metadata-0"
SNAPSHOT_RECORDS = ("SnapshotHeader", "SnapshotFooter")
RECORD_LINE = re.compile(r"\| offset: (\d+) ")

EVERY_KIND = (
    Record(None),
    Record(b""),
    Record(b"v", b"k"),
    Record(None, b""),
    Record("café €".encode(), bytes(range(128, 256))),
    Record(b"v", b"k", (("name", b"x"), ("name", None), ("café", b"\xff"))),
    Record(b"old", timestamp_ms=FIRST_MS),
    Record(b"compressible " * 5000),
)


@pytest.fixture(scope="module", params=NEWEST_FIRST)
def cluster(
    request: pytest.FixtureRequest, kafka_cluster_factory: KafkaClusterFactory
) -> Iterator[KafkaCluster]:
    """Provide a broker of each version that compacts at once and indexes every 4 KiB."""
    config = {
        "log.cleaner.backoff.ms": 100,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.initial.task.delay.ms": 100,
        "metadata.log.max.record.bytes.between.snapshots": 1,
    }
    with kafka_cluster_factory(version=request.param, config=config) as made:
        yield made


def java_dump(version: str, path: Path, *arguments: str) -> list[str]:
    """Return the lines that a Kafka version's tool prints; it may complain of gaps only."""
    output, complaint = (each.decode() for each in dump_segments(version, path, options=arguments))
    # It requires the offsets of every segment to begin at 0.
    gap = re.compile(r"Non-consecutive offsets in .*|  -?\d+ is followed by \d+")
    assert all(gap.fullmatch(line) for line in complaint.splitlines()), complaint
    # Only line feeds end a line: a record may hold any other character.
    return output.split("\n")


def our_dump(path: Path, *arguments: str) -> list[str]:
    """Return the lines that `pykclient log` prints; none of them may be a complaint."""
    output, complaint = io.StringIO(), io.StringIO()
    # In this process: a new one for each of many searches would cost half a minute.
    with redirect_stdout(output), redirect_stderr(complaint):
        status = main(["log", str(path), *arguments])
    assert (status, complaint.getvalue()) == (0, "")
    return output.getvalue().split("\n")


def create_topic(cluster: KafkaCluster, stem: str, config: dict[str, str]) -> str:
    topic = f"{stem}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(TIMEOUT_S)
    return topic


def segments(cluster: KafkaCluster, topic: str) -> list[Path]:
    return sorted((cluster.data_folder(1) / f"{topic}-0").glob("*.log"))


def copy_segments(cluster: KafkaCluster, topic: str, folder: Path) -> list[Path]:
    """Copy one state of the topic's segments; start over if the broker replaced one."""
    while True:
        folder.mkdir()
        before = segments(cluster, topic)
        try:
            files = [path.stat().st_ino for path in before]
            copies = [Path(shutil.copy(path, folder)) for path in before]
            if [path.stat().st_ino for path in segments(cluster, topic)] == files:
                return copies
        except FileNotFoundError:  # Deleted since it was listed.
            pass
        shutil.rmtree(folder)


def check_equal(cluster: KafkaCluster, topic: str, folder: Path) -> list[str]:
    """All that both print of all segments of a topic; what ours prints with records and data.

    The segments are copied first: a broker may compact them once more at any time.
    """
    ours: list[str] = []
    for path in copy_segments(cluster, topic, folder / f"{topic}-0"):
        assert our_dump(path) == java_dump(cluster.version, path)
        assert our_dump(path, "--records") == java_dump(cluster.version, path, "--deep-iteration")
        data = our_dump(path, "--values")
        assert data == java_dump(cluster.version, path, "--print-data-log")
        ours += data
    return ours


@pytest.mark.promise(
    "`pykclient log` prints what DumpLogSegments prints of real segments, in all codecs"
)
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_kind_in_every_codec(
    cluster: KafkaCluster, codec: str, tmp_path: Path
) -> None:
    topic = confluent_create_topic(cluster, f"dump-{codec}")
    confluent_produce(cluster, topic, EVERY_KIND, codec)
    java_produce(cluster, topic, EVERY_KIND, codec)
    lines = check_equal(cluster, topic, tmp_path)
    assert any(f"compresscodec: {codec} " in line for line in lines)
    assert any("headerKeys: [name,name,café]" in line for line in lines)
    assert any("keySize: -1 valueSize: -1" in line for line in lines)
    # Both producers are idempotent.
    assert any("baseSequence: 0 " in line and "producerId: -1" not in line for line in lines)


@pytest.mark.promise(
    "`pykclient log` prints what DumpLogSegments prints of real segments, in all codecs"
)
def test_timestamps_of_the_broker(cluster: KafkaCluster, tmp_path: Path) -> None:
    topic = create_topic(cluster, "dump-append", {"message.timestamp.type": "LogAppendTime"})
    confluent_produce(cluster, topic, EVERY_KIND, "lz4")
    assert any(
        line.startswith("| ") and "LogAppendTime: " in line
        for line in check_equal(cluster, topic, tmp_path)
    )


@pytest.mark.promise(
    "`pykclient log` prints what DumpLogSegments prints of real segments, in all codecs"
)
@pytest.mark.parametrize("client", ["pykclient", "confluent-kafka"])
def test_transactions_that_ended_well_and_badly(
    cluster: KafkaCluster, client: str, tmp_path: Path
) -> None:
    topic = confluent_create_topic(cluster, "dump-txn")
    # Markers are written after the call returned; but none is missing before the last one.
    ends = [True, False, True]
    if client == "pykclient":
        write_transactions(cluster, topic, ends)
    else:
        confluent_write_transactions(cluster, topic, ends)
    lines = check_equal(cluster, topic, tmp_path)
    markers = [line for line in lines if "endTxnMarker" in line][:2]
    assert ["COMMIT" in line for line in markers] == [True, False]
    assert any("isTransactional: true isControl: false" in line for line in lines)


def write_transactions(cluster: KafkaCluster, topic: str, ends: list[bool]) -> None:
    """Write transactions of three records with our producer, and commit those that are true."""
    with OurProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=uuid.uuid4().hex
    ) as producer:
        producer.init_transactions()
        for is_commit in ends:
            producer.begin_transaction()
            for number in range(3):
                producer.send(topic, b"%d" % number)
            producer.flush()
            end = producer.commit_transaction if is_commit else producer.abort_transaction
            end()


def confluent_write_transactions(cluster: KafkaCluster, topic: str, ends: list[bool]) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": uuid.uuid4().hex}
    )
    producer.init_transactions(TIMEOUT_S)
    for is_commit in ends:
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, b"%d" % number)
        producer.flush(TIMEOUT_S)
        end = producer.commit_transaction if is_commit else producer.abort_transaction
        end(TIMEOUT_S)


@pytest.mark.promise(
    "`pykclient log` prints what DumpLogSegments prints of real segments, in all codecs"
)
def test_gaps_of_a_compaction(cluster: KafkaCluster, tmp_path: Path) -> None:
    topic = create_topic(
        cluster,
        "dump-compact",
        {"cleanup.policy": "compact", "segment.ms": "100", "delete.retention.ms": "3600000"},
    )
    for number in range(3):  # Each begins a segment; the last one is not compacted.
        keyed = [
            Record(b"v%d" % n, b"k%d" % (n % 7), timestamp_ms=FIRST_MS + number * STEP_MS)
            for n in range(40)
        ]
        confluent_produce(cluster, topic, [*keyed, Record(None, b"gone")], "zstd")
    seen_before = await_compaction(cluster, topic, below=2 * len(keyed))
    lines = check_equal(cluster, topic, tmp_path)
    printed = Counter(int(found[1]) for line in lines if (found := RECORD_LINE.match(line)))
    seen_after = offsets_of(cluster, topic)
    # The broker may have compacted once more before the files were copied, or after that.
    assert seen_after <= printed <= seen_before, on_disk(cluster, topic)


def await_compaction(cluster: KafkaCluster, topic: str, *, below: int) -> Counter[int]:
    """Wait until a consumer sees fewer records than `below`; how often it sees each offset."""
    deadline_s = time.monotonic() + COMPACTION_TIMEOUT_S
    while (offsets := offsets_of(cluster, topic)).total() >= below:
        # What has one segment was never due for it; that it is there shows the cause.
        assert time.monotonic() < deadline_s, (
            f"{topic} is not compacted in {COMPACTION_TIMEOUT_S} s: "
            f"{offsets.total()} records in {on_disk(cluster, topic)}"
        )
    return offsets


def on_disk(cluster: KafkaCluster, topic: str) -> dict[str, int]:
    """Return the sizes of the topic's segments."""
    return {path.name: path.stat().st_size for path in segments(cluster, topic)}


def offsets_of(cluster: KafkaCluster, topic: str) -> Counter[int]:
    """Count how often a consumer sees each offset, from the start to the current end."""
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as reader:
        reader.assign([partition])
        reader.seek_to_beginning([partition])
        end_offset = reader.end_offsets([partition])[partition]
        offsets: Counter[int] = Counter()
        deadline_s = time.monotonic() + TIMEOUT_S
        while reader.position(partition) < end_offset:
            offsets.update(record.offset for record in reader.poll(1.0))
            assert time.monotonic() < deadline_s, f"{topic} is not read within {TIMEOUT_S} s"
        return offsets


@pytest.fixture(scope="module")
def segmented(cluster: KafkaCluster) -> str:
    """Provide a topic of several segments; the record at offset n has the n-th timestamp."""
    topic = create_topic(cluster, "dump-segments", {"segment.bytes": str(SEGMENT_BYTES)})
    choose = random.Random(SEED)
    records = [
        Record(choose.randbytes(VALUE_BYTES), timestamp_ms=FIRST_MS + n * STEP_MS)
        for n in range(SEGMENTED_COUNT)
    ]
    small = {"batch.num.messages": "10"}
    confluent_produce(cluster, topic, records, settings=small)
    assert len(segments(cluster, topic)) > 2
    return topic


def test_several_segments_and_their_indexes(
    cluster: KafkaCluster, segmented: str, tmp_path: Path
) -> None:
    check_equal(cluster, segmented, tmp_path)
    # The last is the one that the broker writes: its indexes end in zeros that are no entries.
    for log in segments(cluster, segmented)[:-1]:
        for suffix in (".index", ".timeindex"):
            path = log.with_suffix(suffix)
            lines = our_dump(path)
            assert len(lines) > 2
            assert lines == java_dump(cluster.version, path)


def test_an_offset_and_a_time_are_found_with_and_without_the_indexes(
    cluster: KafkaCluster, segmented: str
) -> None:
    choose = random.Random(SEED)
    for log in segments(cluster, segmented):
        records = [json.loads(line) for line in our_dump(log, "--records", "--json") if line]
        offsets = [record["offset"] for record in records if record["type"] == "record"]
        for offset in choose.sample(offsets, 3):
            expected = list(range(offset, offsets[-1] + 1))
            time_ms = FIRST_MS + offset * STEP_MS
            between = time_ms - STEP_MS // 2
            for search in (("--offset", offset), ("--time", time_ms), ("--time", between)):
                arguments = (*map(str, search), "--records", "--json")
                found = our_dump(log, *arguments)
                assert found == our_dump(log, *arguments, "--no-index")
                lines = [json.loads(line) for line in found if line]
                assert [line["offset"] for line in lines if line["type"] == "record"] == expected


def test_a_broker_finds_the_same_offsets_for_times(cluster: KafkaCluster, segmented: str) -> None:
    choose = random.Random(SEED)
    last_ms = FIRST_MS + (SEGMENTED_COUNT - 1) * STEP_MS
    times_ms = [choose.randint(FIRST_MS, last_ms) for _ in range(4)]
    partition = TopicPartition(segmented, 0)
    for time_ms in times_ms:
        with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            response = consumer.offsets_for_times({partition: time_ms})[partition]
        assert response is not None
        log = [path for path in segments(cluster, segmented) if int(path.stem) <= response.offset][
            -1
        ]
        lines = [
            json.loads(line)
            for line in our_dump(log, "--time", str(time_ms), "--records", "--json")
            if line
        ]
        first = next(line for line in lines if line["type"] == "record")
        assert (first["offset"], first["timestamp_ms"]) == (response.offset, response.timestamp_ms)


def equal_lines(version: str, path: Path) -> list[str]:
    """Return what both tools print for a file with its records and their data.

    The tool of 3.9 only names a leader change, where that of 4.3 and ours show it.
    """
    lines = our_dump(path, "--values")
    named = re.compile(" LeaderChange: .*" if version < "4" else r"(?!)")
    assert [named.sub(" controlType: LEADER_CHANGE(2)", line) for line in lines] == java_dump(
        version, path, "--print-data-log"
    )
    return lines


def test_the_metadata_log_and_its_snapshots(cluster: KafkaCluster, tmp_path: Path) -> None:
    confluent_create_topic(cluster, "metadata")
    folder = cluster.data_folder(1) / METADATA_FOLDER
    copies = tmp_path / METADATA_FOLDER
    copies.mkdir()
    # The log before the snapshots, which may go away meanwhile, when newer ones are there.
    log = Path(shutil.copy(folder / f"{0:020}.log", copies))
    (leader,) = [line for line in equal_lines(cluster.version, log) if "LeaderChange" in line]
    assert leader.endswith(
        'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],'
        '"grantingVoters":[{"voterId":1}]}'
    )
    snapshot = Path(shutil.copy(max(folder.glob("*.checkpoint")), copies))
    lines = equal_lines(cluster.version, snapshot)
    assert lines[1].startswith("Snapshot end offset: ")
    shown = [kind for line in lines for kind in SNAPSHOT_RECORDS if f" {kind} {{" in line]
    assert shown == list(SNAPSHOT_RECORDS)
    controls = [json.loads(line) for line in our_dump(snapshot, "--records", "--json") if line]
    assert [line["control_type"] for line in controls if "control" in line] == [
        "snapshot_header",
        "snapshot_footer",
    ]


@pytest.mark.parametrize("version", NEWEST_FIRST)
def test_voters_of_a_quorum_that_can_change(version: str, tmp_path: Path) -> None:
    """They stand in what formatting leaves for the first start, with a bootstrap snapshot."""
    data = format_standalone_controller(version, tmp_path)
    (snapshot,) = (data / METADATA_FOLDER).glob("*.checkpoint")
    lines = equal_lines(version, snapshot)
    assert lines[1] == "Snapshot end offset: 0, epoch: 0"
    assert any(' KRaftVersion {"version":0,"kRaftVersion":1}' in line for line in lines)
    (voters,) = [line for line in lines if " KRaftVoters {" in line]
    assert '"voterId":7,"voterDirectoryId":"' in voters
    assert '"endpoints":[{"name":"CONTROLLER","host":"127.0.0.1","port":9099}]' in voters
    if version < "4.4":  # later ones write its records into the snapshot above
        assert equal_lines(version, data / "bootstrap.checkpoint")[1] == "KRaft bootstrap snapshot"


@pytest.mark.promise(
    "`pykclient log` prints what DumpLogSegments prints of real segments, in all codecs"
)
def test_messages_of_the_old_formats(tmp_path: Path) -> None:
    """No tested broker writes them any more, but they may lie on disks; Java's tool reads them.

    It repeats the checksum of each message within the line of the record, and ours does not.
    """
    inner = message(0, b"a", b"b") + message(2, b"c", None)
    path = tmp_path / f"{7:020}.log"
    path.write_bytes(
        message(7, b"k", b"v", magic=0)
        + message(8, None, b"w")
        + message(9, b"k", None, attributes=8)
        + wrapped(12, inner, Codec.GZIP)
    )
    theirs = java_dump(KAFKA_VERSIONS[0], path, "--print-data-log")
    assert [re.sub(r" isValid: true crc: \d+", "", line) for line in theirs] == our_dump(
        path, "--values"
    )
