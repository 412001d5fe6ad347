"""Changes of checkpoints made by hand: writes, removals, untouched files and refusals."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pykclient import TopicPartition
from pykclient.errors import UsageError
from spark_connector.checkpoint.checkpoint import Checkpoint, checksum_file, local_folder
from spark_connector.checkpoint.mending import (
    Change,
    offsets_of_json,
    rewound_to,
    rewound_to_batch,
    with_query_id,
    without_topic,
)
from spark_connector.checkpoint.writing import apply
from tests.spark.hand_made import COMMIT, METADATA, QUERY_ID, HandMade, contents, official, ours

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Line = Callable[[Mapping[str, Mapping[str, int]]], str]

NOW_MS: Final = 1_800_000_000_000
ID: Final = "-18tCkscTw6abRwrOklYZw"
STAMP: Final = "20261128T074323Z"
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def at(first: int, second: int) -> Mapping[str, Mapping[str, int]]:
    return {"orders": {"0": first, "1": second}}


@pytest.fixture
def made(tmp_path: Path) -> HandMade:
    return HandMade(tmp_path / "query")


def filled(made: HandMade, line: Line = ours) -> HandMade:
    """Three batches that are finished."""
    for number in range(3):
        made.add(number, line(at(number + 1, 10 * number)))
    return made


def execute(made: HandMade, change: Change) -> Path:
    return apply(change, Checkpoint.read(made.folder), STAMP)


def rewind(made: HandMade, number: int) -> Change:
    change = rewound_to_batch(Checkpoint.read(made.folder), number, NOW_MS)
    execute(made, change)
    return change


# Without state.


@pytest.mark.parametrize("line", [ours, official])
def test_a_batch_that_ends_elsewhere_is_added_and_no_file_is_changed(
    made: HandMade, line: Line
) -> None:
    before = filled(made, line).contents()
    change = rewind(made, 0)
    after = made.contents()
    assert change.next_batch == 4
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"offsets/3", "commits/3"}
    assert made.lines(3) == [line(at(1, 0))]
    assert str(NOW_MS).encode() in after["offsets/3"]
    assert after["commits/3"].decode() == COMMIT
    read = Checkpoint.read(made.folder)
    assert (read.damaged, read.newest, read.is_repeated) == ((), 3, False)


def test_the_first_batch_comes_without_its_starts(made: HandMade) -> None:
    made.add(0, ours(at(1, 0), at(0, 0)))
    made.add(1, ours(at(2, 5)))
    rewind(made, 0)
    assert made.lines(2) == [ours(at(1, 0))]


def test_a_batch_that_was_planned_keeps_its_number(made: HandMade) -> None:
    filled(made).plan(3, ours(at(9, 99)))
    change = rewind(made, 2)
    assert change.next_batch == 5
    assert made.lines(3) == [ours(at(9, 99))]
    assert made.lines(4) == [ours(at(3, 20))]


def test_a_torn_newest_batch_is_replaced(made: HandMade) -> None:
    filled(made).plan(3, ours(at(9, 99)))
    made.cut("offsets/3", 0)
    assert rewind(made, 2).next_batch == 5
    assert made.lines(3) == made.lines(4) == [ours(at(3, 20))]
    assert Checkpoint.read(made.folder).damaged == ()


def test_checksums_of_other_contents_are_removed_with_what_they_are_of(made: HandMade) -> None:
    filled(made)
    (made.folder / "offsets" / "2").write_text(f"v1\n{METADATA}\n{ours(at(7, 7))}")
    (damage,) = Checkpoint.read(made.folder).damaged
    assert damage.is_of_checksums
    rewind(made, 1)
    assert not checksum_file(made.folder / "offsets" / "2").exists()
    assert made.lines(2) == made.lines(3) == [ours(at(2, 10))]
    assert Checkpoint.read(made.folder).damaged == ()


@pytest.mark.parametrize("size", [0, 4])
def test_a_torn_commit_is_passed_over(made: HandMade, size: int) -> None:
    filled(made).cut("commits/2", size)
    rewind(made, 2)
    assert made.contents()["commits/3"].decode() == COMMIT
    assert made.lines(3) == [ours(at(3, 20))]


def test_without_any_commit_the_watermark_comes_from_the_batch(made: HandMade) -> None:
    made.plan(0, ours(at(2, 2), at(0, 0)))
    rewind(made, 0)
    assert made.contents()["commits/1"].decode() == COMMIT


def test_commits_beyond_the_offsets_do_not_lend_their_numbers(made: HandMade) -> None:
    filled(made).finish(3)
    made.finish(4)
    assert rewind(made, 2).next_batch == 6
    assert made.lines(4) == made.lines(5) == [ours(at(3, 20))]


def test_other_sources_come_along(made: HandMade) -> None:
    made.add(0, '{"logOffset":0}', official(at(1, 1)), "-")
    made.add(1, '{"logOffset":1}', official(at(2, 2)), "17")
    made.plan(2, '{"logOffset":2}', official(at(3, 3)), "18")
    checkpoint = Checkpoint.read(made.folder)
    execute(made, rewound_to(checkpoint, {"1": {P0: 0, P1: 9}}, NOW_MS))
    assert made.lines(3) == ['{"logOffset":1}', official(at(0, 9)), "17"]


def test_sources_with_names_keep_them(made: HandMade) -> None:
    for number in (0, 1):
        text = f"v2\n{METADATA}\nfiles:-\norders:{official(at(number, 0))}"
        made.write(f"offsets/{number}", text)
        made.finish(number)
    rewind(made, 0)
    assert made.lines(2) == ["files:-", f"orders:{official(at(0, 0))}"]


@pytest.mark.parametrize("number", [-1, 3, 1])
def test_a_batch_that_cannot_be_read_is_refused(made: HandMade, number: int) -> None:
    filled(made).cut("offsets/1", 9)
    with pytest.raises(UsageError, match=r"can be read: 0 to 2"):
        rewind(made, number)


# Where a batch begins that is repeated.


def test_a_repeated_batch_begins_where_the_one_before_ended_and_the_log_says(
    made: HandMade,
) -> None:
    made.add(0, ours({"orders": {"0": 4}}))
    made.plan(1, ours(at(6, 5), {"orders": {"1": 3}}))
    positions = Checkpoint.read(made.folder).positions()["0"]
    assert positions.starts is not None
    assert positions.ends is not None
    assert positions.starts.ends == {P0: 4, P1: 3}
    assert positions.ends.ends == {P0: 6, P1: 5}


def test_the_first_batch_begins_where_its_connector_keeps_it(made: HandMade) -> None:
    made.plan(0, ours(at(6, 5), at(1, 2)), official(at(6, 5)), official(at(6, 5)))
    made.write("sources/1/0", f"\0v1\n{official(at(3, 4))}")
    found = Checkpoint.read(made.folder).positions()
    assert found["0"].starts is not None
    assert found["0"].starts.ends == {P0: 1, P1: 2}
    assert found["1"].starts is not None
    assert found["1"].starts.ends == {P0: 3, P1: 4}
    assert found["2"].starts is None


def test_a_batch_whose_start_is_not_known_needs_one_for_each_source(made: HandMade) -> None:
    made.add(0, ours(at(1, 1)), ours(at(1, 1)))
    made.plan(2, ours(at(5, 5), {"orders": {"1": 3}}), ours(at(5, 5)))
    checkpoint = Checkpoint.read(made.folder)
    with pytest.raises(UsageError, match="does not say where batch 2 begins in source 1"):
        rewound_to(checkpoint, {"0": {P0: 0, P1: 0}}, NOW_MS)
    execute(made, rewound_to(checkpoint, {"0": {P0: 0, P1: 0}, "1": {P0: 1, P1: 1}}, NOW_MS))
    assert made.lines(3) == [ours(at(0, 0)), ours(at(1, 1))]


def test_a_query_that_is_moved_takes_the_topics_as_they_are(made: HandMade) -> None:
    """The ids of topics in the log would refuse a copy of the cluster with the same offsets."""
    made.add(0, ours(at(1, 1), at(0, 0), {"orders": ID}))
    made.add(1, ours(at(2, 2), None, {"orders": ID}))
    rewind(made, 1)
    assert made.lines(2) == [ours(at(2, 2))]


# With state.


def test_with_state_the_ids_of_topics_alone_may_change(made: HandMade) -> None:
    made.add(0, ours(at(1, 1), at(0, 0), {"orders": ID}))
    made.keep_state(1)
    rewind(made, 0)
    assert made.lines(0) == [ours(at(1, 1))]
    with pytest.raises(UsageError, match="nothing is to change"):
        rewind(made, 0)


def test_with_state_a_query_does_not_go_back(made: HandMade) -> None:
    filled(made).keep_state(3)
    checkpoint = Checkpoint.read(made.folder)
    with pytest.raises(UsageError, match=r"counted twice\. Only --to-batch 2"):
        rewound_to_batch(checkpoint, 1, NOW_MS)
    with pytest.raises(UsageError, match="those of orders-1 would be counted twice"):
        rewound_to(checkpoint, {"0": {P0: 5, P1: 19}}, NOW_MS)


def test_with_state_the_last_finished_batch_ends_elsewhere(made: HandMade) -> None:
    filled(made).keep_state(3)
    made.plan(3, ours(at(4, 21)))
    change = rewound_to(Checkpoint.read(made.folder), {"0": {P0: 3, P1: 50}}, NOW_MS)
    execute(made, change)
    assert change.next_batch == 3
    assert made.lines(2) == [ours(at(3, 50))]
    names = made.contents().keys()
    assert not {"offsets/3", "offsets/.3.crc", "offsets/.2.crc"} & names
    assert {"commits/2", "state/0/0/3.delta"} <= names
    assert Checkpoint.read(made.folder).damaged == ()


def test_with_state_what_is_planned_is_dropped(made: HandMade) -> None:
    filled(made).keep_state(3)
    made.plan(3, ours(at(4, 21)))
    before = made.contents()
    rewind(made, 2)
    assert before.keys() - made.contents().keys() == {"offsets/3", "offsets/.3.crc"}
    with pytest.raises(UsageError, match="nothing is to change"):
        rewind(made, 2)


def test_state_of_a_batch_that_is_not_finished_is_refused(made: HandMade) -> None:
    filled(made).keep_state(4)
    made.plan(3, ours(at(4, 21)))
    with pytest.raises(UsageError, match="files are of batch 3, and the last finished batch is 2"):
        rewind(made, 2)


@pytest.mark.parametrize("name", ["commits/2", "offsets/2"])
def test_with_state_the_last_finished_batch_has_to_be_whole(made: HandMade, name: str) -> None:
    filled(made).keep_state(3)
    made.cut(name, 3)
    with pytest.raises(UsageError, match="cannot be read"):
        rewind(made, 1)


@pytest.mark.parametrize("file", ["7.zip", "7_0b-1.zip", "7.snapshot", "7.changelog", "7.delta"])
def test_all_stores_say_their_version(made: HandMade, file: str) -> None:
    filled(made).write(f"state/1/0/left-keyToNumValues/{file}", "state")
    assert Checkpoint.read(made.folder).state_version == 7


# A topic that is forgotten.


def test_a_topic_is_removed_from_all_that_is_read_again(made: HandMade) -> None:
    both = {**at(1, 1), "gone": {"0": 7}}
    made.add(0, ours(both, both), '{"logOffset":3}')
    made.add(1, ours(both), '{"logOffset":3}')
    made.plan(2, ours(both, {"gone": {"1": 2}, "orders": {"1": 0}}), '{"logOffset":4}')
    made.write("sources/0/0", f"\0v1\n{official(both)}")
    before = made.contents()
    change = without_topic(Checkpoint.read(made.folder), "gone")
    execute(made, change)
    assert change.next_batch == 2
    assert made.lines(1) == [ours(at(1, 1)), '{"logOffset":3}']
    assert made.lines(2) == [ours(at(1, 1), {"orders": {"1": 0}}), '{"logOffset":4}']
    assert made.contents()["sources/0/0"].decode() == f"\0v1\n{official(at(1, 1))}"
    assert made.contents()["offsets/0"] == before["offsets/0"]
    assert Checkpoint.read(made.folder).damaged == ()


def test_the_ids_of_other_topics_are_kept(made: HandMade) -> None:
    made.add(0, ours({**at(1, 1), "gone": {"0": 7}}, None, {"gone": ID, "orders": ID}))
    execute(made, without_topic(Checkpoint.read(made.folder), "gone"))
    assert made.lines(0) == [ours(at(1, 1), None, {"orders": ID})]


def test_an_only_topic_leaves_a_source_without_offsets(made: HandMade) -> None:
    filled(made, official)
    execute(made, without_topic(Checkpoint.read(made.folder), "orders"))
    assert made.lines(1) == made.lines(2) == ["{}"]


def test_a_topic_that_is_not_there_is_refused(made: HandMade) -> None:
    with pytest.raises(UsageError, match=r"does not have topic 'order'; it has orders"):
        without_topic(Checkpoint.read(filled(made).folder), "order")


# The id of the query.


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_lost_id_is_written_as_spark_writes_it(made: HandMade, *, is_torn: bool) -> None:
    before = filled(made).contents()
    if is_torn:
        made.cut("metadata", 5)
    else:
        made.remove("metadata")
    change = with_query_id(Checkpoint.read(made.folder), QUERY_ID.upper())
    execute(made, change)
    assert Checkpoint.read(made.folder).query_id == QUERY_ID
    assert change.next_batch == 3
    after = made.contents()
    assert after.pop("metadata") == f'{{"id":"{QUERY_ID}"}}'.encode()
    assert after.items() <= before.items()


@pytest.mark.parametrize(
    ("query_id", "lost", "message"),
    [
        ("orders", True, "is no id of a query"),
        (QUERY_ID, False, f"the checkpoint has an id, {QUERY_ID}"),
    ],
)
def test_an_id_that_is_none_or_not_lost_is_refused(
    made: HandMade, query_id: str, message: str, *, lost: bool
) -> None:
    filled(made)
    if lost:
        made.remove("metadata")
    with pytest.raises(UsageError, match=message):
        with_query_id(Checkpoint.read(made.folder), query_id)


def test_a_query_without_a_batch_gets_no_id(made: HandMade) -> None:
    made.remove("metadata")
    (made.folder / "offsets").mkdir()
    with pytest.raises(UsageError, match="new checkpointLocation"):
        with_query_id(Checkpoint.read(made.folder), QUERY_ID)


# The directory itself.


def test_a_copy_is_made_first_with_everything(made: HandMade) -> None:
    filled(made)
    made.write("unknown/file", "kept")
    before = made.contents()
    backup = execute(made, rewound_to_batch(Checkpoint.read(made.folder), 0, NOW_MS))
    assert backup == made.folder.with_name(f"query.backup-{STAMP}")
    assert contents(backup) == before
    with pytest.raises(UsageError, match="is there already"):
        rewind(made, 0)


def test_without_a_whole_copy_nothing_is_changed(
    made: HandMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = filled(made).contents()

    def fill_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", fill_disk)
    with pytest.raises(OSError, match="No space"):
        rewind(made, 0)
    assert made.contents() == before
    assert [one.name for one in made.folder.parent.iterdir()] == ["query"]


def test_a_checkpoint_that_changes_meanwhile_is_left_alone(made: HandMade) -> None:
    checkpoint = Checkpoint.read(filled(made).folder)
    change = rewound_to_batch(checkpoint, 0, NOW_MS)
    made.plan(3, ours(at(8, 8)))
    before = made.contents()
    with pytest.raises(UsageError, match="stop the query"):
        apply(change, checkpoint, STAMP)
    assert made.contents() == before


def test_a_file_that_a_query_makes_meanwhile_is_not_replaced(made: HandMade) -> None:
    change = rewound_to_batch(Checkpoint.read(filled(made).folder), 0, NOW_MS)
    made.plan(3, ours(at(8, 8)))
    # As if the file had come behind the last look.
    checkpoint = Checkpoint.read(made.folder)
    texts = {name: data for name, data in checkpoint.texts.items() if name != "offsets/3"}
    unseen = replace(checkpoint, texts=texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "read", lambda _: unseen)
        with pytest.raises(UsageError, match="was made meanwhile"):
            apply(change, unseen, STAMP)
    assert made.lines(3) == [ours(at(8, 8))]
    assert not list(made.folder.rglob("*.tmp"))


def test_a_file_system_without_hard_links_does(
    made: HandMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    rewind(filled(made), 0)
    assert made.lines(3) == [ours(at(1, 0))]
    assert not list(made.folder.rglob("*.tmp"))


@pytest.mark.skipif(os.name == "nt", reason="rights of POSIX")
def test_new_files_have_the_rights_of_sparks_own(made: HandMade) -> None:
    filled(made)
    for file in (made.folder / "offsets").iterdir():
        file.chmod(0o640)
    rewind(made, 0)
    assert (made.folder / "offsets" / "3").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("place", ["s3a://bucket/x", "hdfs://host:1/x", "abfss:/x", "dbfs:/x"])
def test_a_remote_directory_is_refused_by_its_name(place: str) -> None:
    with pytest.raises(UsageError, match=f"^{place} is in a remote store.*copy"):
        Checkpoint.read(place)


def test_an_address_of_a_file_is_a_directory() -> None:
    for place in ("/a b/c", "file:/a%20b/c", "file:///a%20b/c"):
        assert local_folder(place) == Path("/a b/c")


def test_what_is_no_checkpoint_is_refused(made: HandMade) -> None:
    with pytest.raises(UsageError, match="has no offsets/"):
        Checkpoint.read(made.folder)
    filled(made)
    with pytest.raises(UsageError, match="name query in it"):
        Checkpoint.read(made.folder.parent)
    with pytest.raises(UsageError, match="no directory"):
        Checkpoint.read(made.folder / "metadata")


def test_offsets_are_given_as_json() -> None:
    assert offsets_of_json('{"orders":{"0":3,"1":-2}}') == {P0: 3, P1: -2}
    for text in (
        "{}",
        '{"orders":3}',
        '{"orders":{"0":-3}}',
        '{"orders":{"0":"3"}}',
        '{"o":{"x":1}}',
    ):
        with pytest.raises(ValueError, match="is no offsets"):
            offsets_of_json(text)
    with pytest.raises(ValueError, match="is no offsets"):
        offsets_of_json('{"orders":{"0":true}}')
