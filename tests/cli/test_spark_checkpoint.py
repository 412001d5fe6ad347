"""``pykclient spark checkpoint`` on directories that are made by hand, beside a fake broker.

`tests/spark/test_checkpoint_command.py` has it with real queries.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from pykclient import Producer
from tests.spark.hand_made import QUERY_ID, HandMade, contents, official, ours

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pykclient.testing import FakeKafka
    from tests.cli.commands import Commands, Result

OLD_S: Final = 1_700_000_000
OTHER_ID: Final = "-18tCkscTw6abRwrOklYZw"


@pytest.fixture
def made(tmp_path: Path) -> HandMade:
    return HandMade(tmp_path / "query")


class Found(NamedTuple):
    """The rows that `check` prints."""

    problems: list[dict[str, Any]]
    notes: list[dict[str, Any]]


class Checked:
    """A checkpoint of a topic of two partitions, with ten records each, of which three are gone."""

    def __init__(self, run: Commands, made: HandMade, topic: str) -> None:
        self._run = run
        self.made = made
        self.topic = topic

    def at(self, first: int, second: int) -> str:
        return ours({self.topic: {"0": first, "1": second}})

    def batches(self, *ends: tuple[int, int]) -> None:
        for number, end in enumerate(ends):
            self.made.add(number, self.at(*end))

    def __call__(self, part: str, *arguments: str) -> Result:
        self.rest()
        return self._run("spark", "checkpoint", part, str(self.made.folder), *arguments)

    def rest(self) -> None:
        """Make the logs look unchanged for a long time."""
        for folder in ("offsets", "commits"):
            if (self.made.folder / folder).is_dir():
                os.utime(self.made.folder / folder, (OLD_S, OLD_S))

    def findings(self) -> Found:
        result = self("check", "-J")
        found = Found([], [])
        for line in result.lines:
            row = json.loads(line)
            (found.problems if row["severity"] == "problem" else found.notes).append(row)
        assert result.status == (1 if found.problems else 0)
        assert ("no problems" in result.complaint) == (not found.problems)
        return found


@pytest.fixture
def checked(run: Commands, broker: FakeKafka, made: HandMade, topic: str) -> Checked:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(20):
            producer.send(topic, b"v", partition=number % 2, timestamp_ms=1_000 * number)
    with broker.control() as cluster:
        for partition in range(2):
            cluster.topics[topic].partitions[partition].log.delete_records(3)
    return Checked(run, made, topic)


# What is shown.


def test_the_last_batches_are_shown(checked: Checked) -> None:
    checked.batches(*((number, 0) for number in range(12)))
    checked.made.plan(12, checked.at(12, 7))
    lines = checked("show").lines
    assert lines[0].split() == ["QUERY-ID", "NEXT-START", "STATE-VERSION"]
    assert lines[1].split() == [QUERY_ID, "repeats", "batch", "12", "-"]
    assert lines[3].split()[:3] == ["BATCH", "STATE", "PLANNED-AT"]
    assert [line.split()[0] for line in lines[4:]] == [str(number) for number in range(3, 13)]
    planned_at = "2023-11-14T22:13:20.000Z"
    assert lines[-1].split() == [
        *("12", "planned", planned_at, "-", "0", "pykafka", checked.topic, "0:12,1:7")
    ]
    assert len(checked("show", "--all").lines) == 4 + 13


def test_batches_are_shown_as_json(checked: Checked) -> None:
    starts = {checked.topic: {"0": 0, "1": 0}}
    checked.made.add(0, ours(starts, starts), '{"logOffset":3}')
    checked.made.add(1, official(starts), '{"logOffset":4}')
    checked.made.cut("commits/1", 0)
    checked.made.plan(2, official(starts), '{"logOffset":5}')
    checked.made.cut("offsets/2", 9)
    checked.made.finish(3)
    checked.made.write("sources/0/0", f"\0v1\n{official(starts)}")
    query, *batches = map(json.loads, checked("show", "-J").lines)
    assert query == {
        "type": "query",
        "query_id": QUERY_ID,
        "state_version": None,
        "initial": {"0": {"connector": "kafka", "offsets": starts, "starts": {}}},
    }
    states = [(batch["batch"], batch["state"]) for batch in batches]
    assert states == [(0, "finished"), (1, "commit damaged"), (2, "damaged"), (3, "no offsets")]
    assert batches[0]["sources"] == {
        "0": {"connector": "pykafka", "offsets": starts, "starts": starts},
        "1": {"connector": "other", "text": '{"logOffset":3}'},
    }


# What is wrong.


def nothing(checked: Checked) -> None:
    checked.batches((5, 5), (6, 6))


def no_metadata(checked: Checked) -> None:
    nothing(checked)
    checked.made.remove("metadata")


def torn_metadata(checked: Checked) -> None:
    nothing(checked)
    checked.made.cut("metadata", 5)


def empty_newest(checked: Checked) -> None:
    nothing(checked)
    checked.made.plan(2, checked.at(7, 7))
    checked.made.cut("offsets/2", 0)


def half_written_newest(checked: Checked) -> None:
    nothing(checked)
    checked.made.plan(2, checked.at(7, 7))
    size = (checked.made.folder / "offsets" / "2").stat().st_size
    checked.made.cut("offsets/2", size - 3)


def edited_newest(checked: Checked) -> None:
    nothing(checked)
    file = checked.made.folder / "offsets" / "1"
    file.write_text(file.read_text().replace("6", "5"))


def torn_older(checked: Checked) -> None:
    checked.batches((4, 4), (5, 5), (6, 6))
    checked.made.cut("offsets/0", 0)


def missing_before_the_newest(checked: Checked) -> None:
    checked.batches((4, 4), (5, 5), (6, 6))
    checked.made.remove("offsets/1")


def missing_older(checked: Checked) -> None:
    checked.batches((4, 4), (5, 5), (5, 5), (6, 6))
    checked.made.remove("offsets/1")


def commits_ahead(checked: Checked) -> None:
    nothing(checked)
    checked.made.finish(2)


def commits_behind(checked: Checked) -> None:
    checked.batches((4, 4), (5, 5), (6, 6))
    checked.made.remove("commits/1")
    checked.made.remove("commits/2")


def empty_commit(checked: Checked) -> None:
    nothing(checked)
    checked.made.cut("commits/1", 0)


def torn_start(checked: Checked) -> None:
    nothing(checked)
    checked.made.write("sources/0/0", "\0v1\n{")


def fewer_sources(checked: Checked) -> None:
    checked.made.add(0, checked.at(5, 5), '{"logOffset":3}')
    checked.made.add(1, checked.at(5, 5))


def planned(checked: Checked) -> None:
    nothing(checked)
    checked.made.plan(2, checked.at(7, 7))


def start_unknown(checked: Checked) -> None:
    checked.made.plan(0, official({checked.topic: {"0": 5, "1": 5}}))


def unfinished_write(checked: Checked) -> None:
    nothing(checked)
    checked.made.write("offsets/.2.5c8ad2f8.tmp", "")


def no_batch(checked: Checked) -> None:
    (checked.made.folder / "offsets").mkdir()


def another_format(checked: Checked) -> None:
    checked.made.add(0, '{"logOffset":3}')


def missing_topic(checked: Checked) -> None:
    line = ours({checked.topic: {"0": 5, "1": 5}, "gone": {"0": 1}})
    checked.made.add(0, line)


def fewer_partitions(checked: Checked) -> None:
    checked.made.add(0, ours({checked.topic: {"0": 5, "1": 5, "2": 5, "3": 1}}))


def more_partitions(checked: Checked) -> None:
    checked.made.add(0, ours({checked.topic: {"0": 5}}))


def recreated_with_more(checked: Checked) -> None:
    checked.made.add(0, ours({checked.topic: {"0": 5, "1": 5}}, None, {checked.topic: OTHER_ID}))


def aged_out(checked: Checked) -> None:
    checked.batches((5, 1))


def beyond_the_end(checked: Checked) -> None:
    checked.batches((5, 11))


def planned_beyond_the_end(checked: Checked) -> None:
    checked.batches((5, 5))
    checked.made.plan(1, checked.at(11, 6))


REWIND: Final = "pykclient spark checkpoint rewind {folder} "
FORGET: Final = "pykclient spark checkpoint forget-topic {folder} "
SET_ID: Final = "pykclient spark checkpoint set-id {folder} "

PROBLEMS: Final[list[tuple[Callable[[Checked], None], str, str, str]]] = [
    (no_metadata, "metadata", "there is none", SET_ID + "ID"),
    (torn_metadata, "metadata", "is not", SET_ID + "ID"),
    (empty_newest, "offsets/2", "is empty", REWIND + "--to-batch 1"),
    (half_written_newest, "offsets/2", "cut or damaged", REWIND + "--to-batch 1"),
    (edited_newest, "offsets/1", "checksums in .1.crc", "rm {folder}/offsets/.1.crc"),
    (missing_before_the_newest, "offsets/1", "there is none", REWIND + "--to-batch 2"),
    (commits_ahead, "commits/2", "offsets ends at 1", REWIND + "--to-batch 1"),
    (commits_behind, "commits", "the last one is 0", REWIND + "--to-batch 0"),
    (empty_commit, "commits/1", "is empty", REWIND + "--to-batch 1"),
    (torn_start, "sources/0/0", "cut or damaged", "copy the file back"),
    (fewer_sources, "offsets/1", "it has 1 sources, and offsets/0 has 2", REWIND + "--to-batch 1"),
    (start_unknown, "offsets/0", "does not say where batch 0 begins", REWIND + "--to '{{\"topic"),
    (missing_topic, "source 0, gone", "do not list", FORGET + "gone"),
    (fewer_partitions, "source 0, {topic}", "2 partitions, and the checkpoint has 2, 3", FORGET),
    (recreated_with_more, "source 0, {topic}", f"checkpoint has {OTHER_ID}", FORGET + "{topic}"),
    (aged_out, "source 0, {topic}-1", "2 offsets are aged out", REWIND + "--to available"),
    (beyond_the_end, "source 0, {topic}-1", "ends at 10", FORGET + "{topic}"),
    (planned_beyond_the_end, "source 0, {topic}-0", "at offset 11", REWIND + "--to available"),
]


@pytest.mark.promise("A Spark checkpoint can be checked and repaired at the command line")
@pytest.mark.parametrize(
    ("break_it", "where", "what", "cure"),
    PROBLEMS,
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_wrong_is_found_with_its_cure(
    checked: Checked, break_it: Callable[[Checked], None], where: str, what: str, cure: str
) -> None:
    break_it(checked)
    words = {"folder": checked.made.folder, "topic": checked.topic}
    (problem,) = checked.findings().problems
    assert problem["where"] == where.format(**words)
    assert what in problem["what"]
    assert cure.format(**words) in problem["cure"]


@pytest.mark.parametrize(
    ("break_it", "what"),
    [
        (torn_older, "does not read it at the next start"),
        (missing_older, "batches are missing: 1"),
        (planned, "was planned and is not finished"),
        (unfinished_write, "a write that was not finished"),
        (no_batch, "planned no batch yet"),
        (another_format, "no source is one of Kafka's"),
        (more_partitions, "does not have partitions 1"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_good_to_know_is_no_problem(
    checked: Checked, break_it: Callable[[Checked], None], what: str
) -> None:
    break_it(checked)
    found = checked.findings()
    assert found.problems == []
    (note,) = found.notes
    assert what in note["what"]
    assert note["cure"] is None


def test_a_whole_checkpoint_has_no_findings(checked: Checked) -> None:
    nothing(checked)
    assert checked.findings() == Found([], [])


CURED_BY_COMMAND: Final = [
    each[0] for each in PROBLEMS if "{folder} -" in each[3] and "topic" not in each[3]
] + [missing_topic, fewer_partitions, recreated_with_more, beyond_the_end]


@pytest.mark.parametrize("break_it", CURED_BY_COMMAND, ids=lambda value: value.__name__)
def test_the_cure_cures(checked: Checked, break_it: Callable[[Checked], None]) -> None:
    """The command that `check` names, as it stands there."""
    break_it(checked)
    (problem,) = checked.findings().problems
    command = problem["cure"].split("pykclient spark checkpoint ")[1].split(", or ")[0]
    part, _, *words = command.replace(",", "").split(" to ")[0].split(";")[0].split()
    result = checked(part, *words, "--execute")
    assert result.status == 0, result.complaint
    assert "is a copy of the former state" in result.complaint
    assert checked.findings().problems == []


@pytest.mark.parametrize("break_it", [no_metadata, torn_metadata], ids=["missing", "torn"])
def test_a_lost_id_is_set(checked: Checked, break_it: Callable[[Checked], None]) -> None:
    break_it(checked)
    before = contents(checked.made.folder)
    assert "nothing was changed" in checked("set-id", QUERY_ID).complaint
    assert contents(checked.made.folder) == before
    result = checked("set-id", QUERY_ID, "--execute")
    assert (result.status, result.lines) == (0, [])
    assert "The next batch is 2" in result.complaint
    assert checked.findings().problems == []
    assert "has an id" in checked("set-id", QUERY_ID, "--execute").complaint


def test_a_copy_of_a_topic_is_taken_as_it_is(checked: Checked) -> None:
    recreated_with_more(checked)
    (problem,) = checked.findings().problems
    assert "where it is a copy" in problem["cure"]
    assert "--to-batch 0" in problem["cure"]
    assert checked("rewind", "--to-batch", "0", "--execute").status == 0
    assert checked.findings() == Found([], [])


def test_the_files_alone_are_checked_without_brokers(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    beyond_the_end(checked)
    monkeypatch.delenv("PYKCLIENT_BOOTSTRAP_SERVERS")
    assert checked("check", "--files-only").status == 0
    assert checked("check").status == 1


def test_a_checkpoint_that_has_just_changed_may_be_in_use(checked: Checked, run: Commands) -> None:
    nothing(checked)
    os.utime(checked.made.folder / "offsets", (time.time(), time.time()))
    result = run("spark", "checkpoint", "check", checked.made.folder, "--files-only")
    assert "if the query is running, stop it first" in result.complaint
    assert "if the query is running" not in checked("check", "--files-only").complaint


# Where the query goes on.


@pytest.mark.parametrize(
    ("place", "ends"),
    [
        ("earliest", (3, 3)),
        ("latest", (10, 10)),
        ("available", (5, 3)),
        ("1970-01-01T00:00:11Z", (6, 5)),
        ("3000-01-01", (10, 10)),
        ('{"$":{"0":7}}', (7, 1)),
        ('{"$":{"0":-2,"1":-1}}', (3, 10)),
    ],
)
def test_a_query_goes_on_from_there(checked: Checked, place: str, ends: tuple[int, int]) -> None:
    checked.batches((4, 0), (5, 1))
    before = contents(checked.made.folder)
    place = place.replace("$", checked.topic)
    result = checked("rewind", "--to", place, "-J")
    assert (result.status, contents(checked.made.folder)) == (0, before)
    assert "nothing was changed" in result.complaint
    rows = [json.loads(line) for line in result.lines]
    assert [(row["current_offset"], row["new_offset"]) for row in rows] == [
        *zip((5, 1), ends, strict=True)
    ]
    assert checked("rewind", "--to", place, "--execute").status == 0
    assert checked.made.lines(2) == [checked.at(*ends)]


def test_a_source_is_chosen(checked: Checked) -> None:
    line = official({checked.topic: {"0": 5, "1": 5}})
    checked.made.add(0, line, '{"logOffset":3}', line)
    assert checked("rewind", "--to", "latest", "--source", "2", "--execute").status == 0
    moved = official({checked.topic: {"0": 10, "1": 10}})
    assert checked.made.lines(1) == [line, '{"logOffset":3}', moved]
    assert "are: 0, 2" in checked("rewind", "--to", "latest", "--source", "1").complaint


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        ((), 2, "--to-batch --to"),
        (("--to", "latest", "--to-batch", "0"), 2, "not allowed with"),
        (("--to", "soon"), 2, "earliest, latest, available"),
        (("--to", "{"), 2, "is no offsets"),
        (("--to-batch", "0", "--source", "0"), 1, "moves all sources"),
        (("--to", '{"other":{"0":5}}'), 1, "does not have topic 'other'"),
        (("--to", '{"$":{"7":5}}'), 1, "there is no partition $-7"),
        (("--to", '{"$":{"0":2}}'), 1, "holds offsets 3 to 10, not 2"),
        (("--to", '{"$":{"0":11}}'), 1, "holds offsets 3 to 10, not 11"),
        (("--to-batch", "9"), 1, "can be read: 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused(
    checked: Checked, arguments: tuple[str, ...], status: int, complaint: str
) -> None:
    nothing(checked)
    before = contents(checked.made.folder)
    words = [word.replace("$", checked.topic) for word in arguments]
    result = checked("rewind", *words, "--execute")
    assert result.status == status
    assert complaint.replace("$", checked.topic) in result.complaint
    assert contents(checked.made.folder) == before


def test_a_batch_that_is_not_finished_is_named(checked: Checked) -> None:
    planned(checked)
    assert "batch 2 was planned but not finished: its sink may have" in (
        checked("rewind", "--to-batch", "1").complaint
    )
    checked.made.keep_state(2)
    assert "give it another sinkId" in checked("rewind", "--to-batch", "1").complaint
    assert "offsets/2" in checked("rewind", "--to-batch", "1").complaint


def test_rows_that_are_written_again_are_announced(checked: Checked) -> None:
    nothing(checked)
    assert "has number 3, which no sink has seen" in checked("rewind", "--to-batch", "0").complaint
    assert "written again" not in checked("rewind", "--to", "latest").complaint


def test_a_remote_directory_is_refused(run: Commands) -> None:
    for part in (("show",), ("check",), ("rewind", "--to-batch", "0"), ("forget-topic", "orders")):
        result = run("spark", "checkpoint", part[0], "s3://bucket/query", *part[1:])
        assert result.status == 1
        assert "s3://bucket/query is in a remote store" in result.complaint
