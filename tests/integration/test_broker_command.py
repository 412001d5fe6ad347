"""`pykclient broker --data` with the clients of others: what they write is there after a kill.

Here is a process that keeps its topics in files; that clients of all makes read and write each
other's records, also in groups, `test_fake_kafka` and `test_fake_groups` show of brokers in memory.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewTopic, TopicPartition
from pykclient.cli import main
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from tests.cli.test_broker import broker
from tests.integration.java_tools import (
    Record,
    dump_segments,
    java_consume,
    java_groups,
    java_produce,
    java_write_lines,
    run_tool,
)
from tests.integration.test_fake_kafka import PARTITION_COUNT, READERS, VALUES, WRITERS, cluster_at

if TYPE_CHECKING:
    from pathlib import Path

VERSION = KAFKA_VERSIONS[0]
TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
CONFIG_COMMAND = "org.apache.kafka.tools.ConfigCommand"


def test_what_any_client_writes_any_client_reads_after_a_kill(tmp_path: Path) -> None:
    partitions = [TopicPartition("t", number) for number in range(PARTITION_COUNT)]
    with broker("--data", str(tmp_path)) as (_, servers):
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic("t", PARTITION_COUNT, 1)])
        for write in WRITERS:
            write(servers)
    with broker("--data", str(tmp_path)) as (_, servers):
        for read in READERS:
            found = read(servers)
            assert len(found) >= len(VALUES)
            assert set(found) <= set(VALUES)
        with Consumer(bootstrap_servers=servers) as consumer:
            ends = consumer.end_offsets(partitions)
    assert sum(ends.values()) == len(WRITERS) * len(VALUES)
    for path in tmp_path.glob("t-*/*.log"):
        assert main(["log", "--records", str(path)]) == 0


@pytest.mark.soak
@pytest.mark.kafka
def test_javas_tools_make_write_read_describe_and_dump(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with broker("--data", str(tmp_path)) as (_, servers):
        at = ("--bootstrap-server", servers)
        options = ("--partitions", "1", "--config", "retention.ms=-1")
        run_tool(VERSION, TOPIC_COMMAND, *at, "--create", "--topic", "java", *options)
        run_tool(VERSION, TOPIC_COMMAND, *at, "--alter", "--topic", "java", "--partitions", "2")
        altered = ("--add-config", "flush.ms=77", "--delete-config", "retention.ms")
        run_tool(VERSION, CONFIG_COMMAND, *at, "--topic", "java", "--alter", *altered)
        java_write_lines(VERSION, servers, "java", [b"one", b"two"])
        kafka = cluster_at(servers, VERSION)
        java_produce(kafka, "java", [Record(b"three", b"key", (("h", b"x"),), partition=0)], "zstd")
        settings = {"group.id": "g", "enable.auto.commit": "true"}
        read = java_consume(kafka, "java", 3, settings=settings)
        assert sorted(each.value or b"" for each in read) == [b"one", b"three", b"two"]
    with broker("--data", str(tmp_path)) as (_, servers):
        at = ("--bootstrap-server", servers)
        described = run_tool(VERSION, TOPIC_COMMAND, *at, "--describe", "--topic", "java").decode()
        assert re.search(
            r"PartitionCount: 2\s+ReplicationFactor: 1\s+Configs: flush\.ms=77\n", described
        )
        shown = run_tool(VERSION, CONFIG_COMMAND, *at, "--topic", "java", "--describe").decode()
        assert "flush.ms=77 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:flush.ms=77}" in shown
        assert run_tool(VERSION, TOPIC_COMMAND, *at, "--list").split() == [
            *(b"__consumer_offsets", b"java"),
        ]
        rows = [words for words in java_groups(VERSION, servers, "--describe", "--group", "g")
                if words[:2] == ["g", "java"]]  # fmt: skip
        assert sorted(int(row[2]) for row in rows) == [0, 1]
        assert sum(int(row[3]) for row in rows) == 3, "what was committed before the restart"
        assert [row[5] for row in rows] == ["0", "0"], "the lag"
    segments = sorted(tmp_path.glob("java-*/*.log"))
    for path in segments:
        output, complaint = dump_segments(VERSION, path, options=("--print-data-log",))
        capfd.readouterr()
        assert main(["log", "--values", str(path)]) == 0
        assert capfd.readouterr().out == output.decode()
        assert complaint == b""
    assert sum(path.stat().st_size for path in segments) > 0
