"""``pykclient groups`` against fake brokers, and beside Kafka's own tool against real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pykclient.cli import main
from pykclient.cli.groups.command import OFFSETS_TOPIC
from pykclient.consumer.config import ConsumerConfig
from tests.integration.fake_group import poll_until
from tests.integration.group_members import (
    GROUP,
    TOPIC,
    ConfluentMember,
    import_libraries,
    wait_until,
)
from tests.integration.java_tools import java_group_rows
from tests.integration.test_fake_groups import wait_for_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pykclient.testing import FakeKafka, KafkaCluster

PARTITION_COUNT = 4
COUNT = 10
START_MS = 1_700_000_000_000
"""2023-11-14T22:13:20Z"""
STEP_MS = 1_000
FIRST = TopicPartition(TOPIC, 0)

Rows = list[dict[str, Any]]


class Command:
    """Runs the command in this process, and captures its output."""

    def __init__(self, servers: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._servers = servers
        self._capsys = capsys
        self.stderr = ""

    def __call__(self, part: str, *arguments: str, status: int = 0) -> str:
        """Return standard output; `stderr` has the standard error."""
        self._capsys.readouterr()
        assert main(["groups", part, "--bootstrap-servers", self._servers, *arguments]) == status
        output, self.stderr = self._capsys.readouterr()
        return output

    def rows(self, part: str, *arguments: str) -> Rows:
        """Return its output as JSON."""
        return [json.loads(line) for line in self(part, "--json", *arguments).splitlines()]


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    import_libraries()


@pytest.fixture
def admin(fake_kafka: FakeKafka) -> Iterator[Admin]:
    """Provide a topic whose every partition has ten records, a second apart."""
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, PARTITION_COUNT)
    write(fake_kafka.bootstrap_servers, TOPIC)
    with Admin(bootstrap_servers=fake_kafka.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def command(fake_kafka: FakeKafka, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(fake_kafka.bootstrap_servers, capsys)


def write(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(COUNT * PARTITION_COUNT):
            step, partition = divmod(number, PARTITION_COUNT)
            producer.send(topic, b"v", partition=partition, timestamp_ms=START_MS + step * STEP_MS)


def test_groups_are_listed_and_described(admin: Admin, command: Command) -> None:
    assert command.rows("list") == []
    admin.alter_group_offsets(GROUP, {FIRST: 3})
    listed = {"group": GROUP, "group_type": "classic", "state": "Empty", "protocol": ""}
    assert command.rows("list") == [{"type": "group", **listed}]
    (group,) = command.rows("describe", GROUP)
    assert (group["state"], group["members"]) == ("Empty", 0)
    assert command("list").splitlines()[1].split() == [GROUP, "classic", "Empty", "-"]


@pytest.mark.parametrize("part", ["describe", "offsets"])
def test_a_group_that_is_not_there_does_not_hide_the_others(
    admin: Admin, command: Command, part: str
) -> None:
    admin.alter_group_offsets(GROUP, {FIRST: 3})
    lines = command(part, "absent", GROUP, "--json", status=1).splitlines()
    assert [json.loads(line)["group"] for line in lines] == [GROUP]
    assert "GROUP_ID_NOT_FOUND" in command.stderr
    assert "'absent'" in command.stderr


def test_members_are_described_with_what_they_have(
    admin: Admin, command: Command, fake_kafka: FakeKafka
) -> None:
    with ConfluentMember(fake_kafka.bootstrap_servers) as member:
        wait_for_members(fake_kafka, member)
        group, described = command.rows("describe", GROUP)
        assert (group["state"], group["members"]) == ("Stable", 1)
        assert described["assignment"] == {TOPIC: list(range(PARTITION_COUNT))}
        assert f"{TOPIC}(0,1,2,3)" in command("describe", GROUP)
        owners = {row["consumer_id"] for row in command.rows("offsets", GROUP)}
        assert owners == {described["consumer_id"]}


def test_offsets_come_with_ends_and_lag(admin: Admin, command: Command) -> None:
    gone = TopicPartition("gone", 0)
    admin.create_topics([NewTopic("gone", num_partitions=1)])
    admin.alter_group_offsets(GROUP, {FIRST: 3, gone: 0})
    admin.delete_topics(["gone"])
    rows = command.rows("offsets", GROUP)
    found = [
        (row["topic"], row["current_offset"], row["log_end_offset"], row["lag"]) for row in rows
    ]
    assert (TOPIC, 3, COUNT, COUNT - 3) in found
    # A broker forgets the offsets of a topic that is deleted, some time later.
    assert set(found) <= {(TOPIC, 3, COUNT, COUNT - 3), ("gone", 0, None, None)}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), COUNT),
        (("--to-offset", "7"), 7),
        (("--to-offset", "99"), COUNT),
        (("--shift-by", "-2"), 3),
        (("--shift-by", "2"), 7),
        (("--shift-by", "-99"), 0),
        (("--to-datetime", "2023-11-14T22:13:24Z"), 4),
        (("--to-datetime", "2023-11-14T22:13:24"), 4),
        (("--to-datetime", "2023-11-15T00:13:23.001+02:00"), 4),
        (("--to-datetime", "2033-01-01"), COUNT),
        (("--by-duration", "PT1H"), COUNT),
        (("--by-duration", "P36500D"), 0),
    ],
)
def test_a_reset_prints_the_new_offsets_and_moves_nothing_without_execute(
    admin: Admin, command: Command, target: tuple[str, ...], expected: int
) -> None:
    admin.alter_group_offsets(GROUP, {FIRST: 5})
    planned = [
        {
            "type": "reset",
            "group": GROUP,
            "topic": TOPIC,
            "partition": 0,
            "current_offset": 5,
            "new_offset": expected,
        }
    ]
    for scope in (("--all-topics",), ("--topic", f"{TOPIC}:0")):
        assert command.rows("reset", GROUP, *scope, *target) == planned
        assert "nothing was changed; give --execute" in command.stderr
        assert admin.list_group_offsets(GROUP)[FIRST].offset == 5
    assert command.rows("reset", GROUP, "--all-topics", *target, "--execute") == planned
    assert admin.list_group_offsets(GROUP)[FIRST].offset == expected


def test_an_offset_beyond_the_partition_is_reported(admin: Admin, command: Command) -> None:
    command("reset", GROUP, "--create", "--topic", f"{TOPIC}:0", "--to-offset", "99")
    assert f"{FIRST} holds offsets 0 to {COUNT}; {COUNT} is used instead of 99" in command.stderr


@pytest.mark.parametrize("execute", [(), ("--execute",)])
def test_a_misspelt_group_is_not_created(
    admin: Admin, command: Command, execute: tuple[str, ...]
) -> None:
    arguments = ("reset", f"{GROUP}x", "--topic", TOPIC, "--to-latest", *execute)
    assert command(*arguments, status=1) == ""
    assert f"there is no group '{GROUP}x'" in command.stderr
    assert "--create" in command.stderr
    assert admin.list_group_offsets(f"{GROUP}x") == {}


def test_a_group_that_does_not_exist_is_created_where_that_is_wanted(
    admin: Admin, command: Command
) -> None:
    arguments = ("reset", "newcomer", "--topic", TOPIC, "--to-latest", "--create")
    command(*arguments)
    assert "give --execute to create group 'newcomer'" in command.stderr
    command(*arguments, "--execute")
    offsets = admin.list_group_offsets("newcomer")
    assert {place.offset for place in offsets.values()} == {COUNT}
    assert len(offsets) == PARTITION_COUNT


@pytest.mark.parametrize("execute", [(), ("--execute",)])
def test_a_group_in_use_is_not_moved(
    admin: Admin, command: Command, fake_kafka: FakeKafka, execute: tuple[str, ...]
) -> None:
    with ConfluentMember(fake_kafka.bootstrap_servers) as member:
        wait_for_members(fake_kafka, member)
        before = admin.list_group_offsets(GROUP)
        assert command("reset", GROUP, "--topic", TOPIC, "--to-latest", *execute, status=1) == ""
        assert f"group {GROUP!r} is in use (Stable, 1 members: " in command.stderr
        assert "stop them first" in command.stderr
        assert admin.list_group_offsets(GROUP) == before


def test_members_without_a_client_id_are_shown_by_their_member_id(
    admin: Admin, command: Command, fake_kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As other clients may be; ours always have one.
    monkeypatch.setattr(ConsumerConfig, "named", lambda config: config)
    with Consumer(bootstrap_servers=fake_kafka.bootstrap_servers, group_id=GROUP) as consumer:
        consumer.subscribe([TOPIC])
        poll_until(lambda: bool(consumer.assignment()), consumer)
        command("reset", GROUP, "--topic", TOPIC, "--to-latest", status=1)
        assert consumer.group_metadata().member_id in command.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("describe", "absent"), "GROUP_ID_NOT_FOUND"),
        (("describe", "\udcff"), "half of a surrogate pair"),
        (("reset", "absent", "--all-topics", "--to-latest"), "there is no group 'absent'"),
        (
            ("reset", "absent", "--create", "--all-topics", "--to-latest"),
            "has no committed offsets",
        ),
        (("reset", "g", "--create", "--topic", "t:0,9", "--to-latest"), "'t' has no partition 9"),
        (
            ("reset", "g", "--create", "--topic", "absent", "--to-latest"),
            "UNKNOWN_TOPIC_OR_PARTITION",
        ),
        (
            ("reset", "g", "--create", "--topic", "t", "--shift-by", "1"),
            "no offset is committed for t-0, t-1",
        ),
        (("list", "-F", "no-such-file"), "no-such-file"),
    ],
)
def test_what_cannot_be_done_is_reported_with_status_1(
    admin: Admin, command: Command, arguments: tuple[str, ...], expected: str
) -> None:
    assert command(*arguments, status=1) == ""
    assert expected in command.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("reset", "g", "--to-latest"), "--topic --all-topics is required"),
        (("reset", "g", "--all-topics"), "is required"),
        (("reset", "g", "--all-topics", "--to-latest", "--to-earliest"), "not allowed with"),
        (("reset", "g", "--topic", "t:x", "--to-latest"), "write partitions as 0,1,2"),
        (("reset", "g", "--all-topics", "--to-offset", "x"), "'x' is not a whole number"),
        (("reset", "g", "--all-topics", "--shift-by", "1.5"), "'1.5' is not a whole number"),
        (("reset", "g", "--all-topics", "--to-datetime", "yesterday"), "write 2026-01-31"),
        (("reset", "g", "--all-topics", "--by-duration", "1h"), "write P1D"),
        (("describe",), "GROUP"),
        (("list", "-X", "no-value"), "a setting must be KEY=VALUE"),
    ],
)
def test_what_makes_no_sense_is_refused_with_status_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["groups", *arguments, "-b", "localhost:1"])
    assert raised.value.code == 2
    output = capsys.readouterr().err
    assert "usage: pykclient groups" in output
    assert expected in output


def test_a_terminal_that_lacks_letters_is_shown_escapes(
    admin: Admin, fake_kafka: FakeKafka
) -> None:
    admin.alter_group_offsets("\U0001f600", {FIRST: 3})
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pykclient"),
            "groups",
            "list",
            "-b",
            fake_kafka.bootstrap_servers,
        ],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert rb"\U0001f600" in run.stdout


def test_settings_come_from_a_file_and_the_command_line(
    admin: Admin, fake_kafka: FakeKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={fake_kafka.bootstrap_servers}\nclient.id=from-file\n")
    assert main(["groups", "list", "-F", str(file), "-X", "client.id=keeper"]) == 0
    assert main(["groups", "list", "-F", str(file), "-X", "client.ib=keeper"]) == 1
    assert "client.ib" in capsys.readouterr().err


def test_a_coordinator_is_the_leader_of_the_groups_partition(
    admin: Admin, command: Command, fake_kafka: FakeKafka
) -> None:
    assert command("coordinator", GROUP, status=1) == ""
    assert f"no {OFFSETS_TOPIC} yet" in command.stderr
    admin.alter_group_offsets(GROUP, {FIRST: 1})
    names = [GROUP, "polygenelubricants", "na\u00efve", "\U0001f600"]
    rows = command.rows("coordinator", *names)
    assert [row["group"] for row in rows] == names
    assert rows[1]["partition"] == 0
    nodes = admin.find_coordinators(names)
    assert [(row["leader"], row["host"]) for row in rows] == [
        (nodes[name].id, f"{nodes[name].host}:{nodes[name].port}") for name in names
    ]


@pytest.mark.soak
@pytest.mark.kafka
def test_real_brokers_coordinate_the_groups_of_the_hash(
    kafka_cluster_factory: Callable[..., KafkaCluster], capsys: pytest.CaptureFixture[str]
) -> None:
    with kafka_cluster_factory(brokers=3) as cluster:
        command = Command(cluster.bootstrap_servers, capsys)
        names = [f"group-{uuid.uuid4().hex}" for _ in range(30)]
        names += ["polygenelubricants", "na\u00efve", "\U0001f600\U0001f680"]
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            nodes = admin.find_coordinators(names)
            rows = command.rows("coordinator", *names)
            assert command.stderr == ""
            assert {row["group"]: row["leader"] for row in rows} == {
                name: node.id for name, node in nodes.items()
            }
            assert {node.id for node in nodes.values()} == {1, 2, 3}


@pytest.mark.kafka
def test_kafkas_own_tool_prints_the_same(
    kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(kafka_cluster.bootstrap_servers, capsys)
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
        for name in {GROUP} & admin.list_groups().keys():
            admin.delete_groups([name])
        if TOPIC not in admin.list_topics():
            admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITION_COUNT)])
        write(kafka_cluster.bootstrap_servers, TOPIC)
        admin.alter_group_offsets(GROUP, {FIRST: 3, TopicPartition(TOPIC, 1): 0})
        _compare(kafka_cluster, command)
        with ConfluentMember(kafka_cluster.bootstrap_servers) as member:
            wait_until(
                lambda: admin.describe_groups([GROUP])[GROUP].state == "Stable",
                lambda: "the member has joined",
                member,
            )
            _compare(kafka_cluster, command)


def _compare(cluster: KafkaCluster, command: Command) -> None:
    """Compare our tables with the tool's, column by column."""
    of_group = ("--describe", "--group", GROUP)
    theirs = java_group_rows(cluster, *of_group)
    assert _table(command("offsets", GROUP)) == sorted(
        theirs, key=lambda row: (row["TOPIC"], int(row["PARTITION"]))
    )
    (state,) = java_group_rows(cluster, *of_group, "--state")
    (group, *members) = command.rows("describe", GROUP)
    assert (group["state"], str(group["members"])) == (state["STATE"], state["#MEMBERS"])
    assert group["assignment_strategy"] == state.get("ASSIGNMENT-STRATEGY", "").strip("-")
    for member in members:
        (row,) = java_group_rows(cluster, *of_group, "--members")
        assert (member["consumer_id"], member["host"], member["client_id"]) == (
            row["CONSUMER-ID"],
            row["HOST"],
            row["CLIENT-ID"],
        )
        assert str(member["partitions"]) == row["#PARTITIONS"]


def _table(text: str) -> list[dict[str, str]]:
    heading, *rows = [line.split() for line in text.splitlines()]
    return [dict(zip(heading, row, strict=True)) for row in rows]
