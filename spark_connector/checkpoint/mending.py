"""Changes of a checkpoint: the writes and removals, planned before anything is changed.

**Without state** a query that is to read from elsewhere gets a finished batch that ends there. Its
number is greater than all numbers in the logs, and no readable file is changed. Sinks that know
batches by number (this connector's exactly-once sink, Delta, files) skip the numbers that they have
seen; the next batch has a new one.

**With state** no batch can be added: operators keep their state by the number of the batch, and
have none for an added one. The end of the last finished batch is moved instead, and a batch planned
after it is dropped. It can only move forward, since the state contains the rows already read.

Owner: none, all values are immutable.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from pykclient import TopicPartition
from pykclient.errors import UsageError
from spark_connector.checkpoint.checkpoint import COMMITS, METADATA, OFFSETS, SOURCES
from spark_connector.checkpoint.log_file import (
    SourceOffset,
    first_commit_text,
    initial_to_text,
    json_line,
)
from spark_connector.offsets import StreamOffset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spark_connector.checkpoint.checkpoint import Checkpoint
    from spark_connector.checkpoint.log_file import LoggedBatch

    Lines = Mapping[str, SourceOffset]


@dataclass(frozen=True)
class Change:
    """A change of files, by their names in the directory: `removals` first, then `writes`.

    Both are in order. `sources` are the positions where the next start begins. `next_batch` is the
    number of the next batch.
    """

    writes: Mapping[str, str]
    removals: tuple[str, ...]
    sources: Lines
    next_batch: int


def rewound_to_batch(checkpoint: Checkpoint, number: int, now_ms: int) -> Change:
    """Plan that the next start reads from the end of a batch. `now_ms` is since 1970.

    Raises:
        UsageError: the log does not have the batch, or the state belongs to another one.
    """
    batch = checkpoint.offsets.get(number)
    if batch is None:
        listed = sorted(checkpoint.offsets)
        known = f"{listed[0]} to {listed[-1]}" if listed else "none"
        raise UsageError(
            f"the offsets of batch {number} are not there, or damaged; those that can be read: "
            f"{known}"
        )
    if checkpoint.state_version is None:
        return _added(checkpoint, batch.sources, now_ms)
    finished = _finished_of_state(checkpoint)
    if number != finished:
        raise UsageError(
            f"the query keeps state, which has the rows of all batches up to {finished}: read "
            f"again, they would be counted twice. Only --to-batch {finished} is possible, which "
            f"drops what is planned behind it; to read again, give the query a new "
            f"checkpointLocation"
        )
    return _replaced(checkpoint, batch.sources, finished)


def rewound_to(
    checkpoint: Checkpoint, offsets: Mapping[str, Mapping[TopicPartition, int]], now_ms: int
) -> Change:
    """Plan that the next start reads from these offsets, by the names of sources.

    Raises:
        UsageError: the log does not have the start of another source, or the state has rows that
            would be read again.
    """
    if checkpoint.newest is None:
        raise UsageError("no offsets can be read: give the query a new checkpointLocation")
    lines = dict(checkpoint.offsets[checkpoint.newest].sources)
    for name, start in checkpoint.start_lines().items():
        if name in offsets:
            lines[name] = lines[name].moved(StreamOffset(offsets[name]))
        elif start is None:
            raise UsageError(
                f"the log does not say where batch {checkpoint.newest} begins in source {name}: "
                f"name the position of each partition as JSON"
            )
        else:
            lines[name] = start
    if checkpoint.state_version is None:
        return _added(checkpoint, lines, now_ms)
    finished = _finished_of_state(checkpoint)
    back = _moved_back(checkpoint.offsets[finished].sources, lines)
    if back:
        raise UsageError(
            f"the query keeps state, which has the rows of all batches up to {finished}: read "
            f"again, those of {', '.join(map(str, back[:5]))} would be counted twice. Forward is "
            f"possible; to read again, give the query a new checkpointLocation"
        )
    return _replaced(checkpoint, lines, finished)


def without_topic(checkpoint: Checkpoint, topic: str) -> Change:
    """Plan to remove a topic from everything that the next start reads.

    Raises:
        UsageError: the checkpoint does not have the topic.
    """
    writes: dict[str, str] = {}
    newest = checkpoint.newest
    read = [] if newest is None else [newest - 1, newest]
    known: set[str] = set()
    for number in read:
        batch = checkpoint.offsets.get(number)
        if batch is None:
            continue
        known.update(topics_of(batch.sources))
        lines = {name: _without(line, topic) for name, line in batch.sources.items()}
        if lines != batch.sources:
            writes[f"{OFFSETS}/{number}"] = batch.with_sources(lines).to_text()
    for name, line in checkpoint.initial.items():
        known.update(topics_of({name: line}))
        left = _without(line, topic)
        if left != line:
            writes[f"{SOURCES}/{name}/0"] = initial_to_text(left)
    if not writes:
        listed = ", ".join(sorted(known)) or "none"
        raise UsageError(f"the checkpoint does not have topic {topic!r}; it has {listed}")
    sources = {
        name: _without(line, topic)
        for name, line in checkpoint.start_lines().items()
        if line is not None
    }
    number = -1 if newest is None else newest
    return Change(writes, (), sources, number + (not checkpoint.is_repeated))


def with_query_id(checkpoint: Checkpoint, query_id: str) -> Change:
    """Plan to restore the query's id in a file that is missing or damaged.

    Raises:
        UsageError: the id is invalid, or the checkpoint already has one, or has no batch.
    """
    try:
        written = str(UUID(query_id))
    except ValueError as error:
        raise UsageError(
            f"{query_id!r} is no id of a query; its progress has it, and its log: five groups of "
            f"hexadecimal digits"
        ) from error
    if checkpoint.query_id is not None:
        raise UsageError(f"the checkpoint has an id, {checkpoint.query_id}: the query keeps it")
    if checkpoint.newest is None:
        raise UsageError("no offsets can be read: give the query a new checkpointLocation")
    number = checkpoint.newest + (not checkpoint.is_repeated)
    return Change({METADATA: json_line({"id": written})}, (), {}, number)


def topics_of(sources: Lines) -> set[str]:
    """Return the topics of all Kafka sources."""
    return {
        partition.topic
        for line in sources.values()
        if line.offset is not None
        for partition in (*line.offset.ends, *line.offset.starts)
    }


def _added(checkpoint: Checkpoint, sources: Lines, now_ms: int) -> Change:
    """Plan a finished batch that ends at `sources`."""
    number = checkpoint.last_number + 1
    batch = _template(checkpoint).at(now_ms).with_sources(_ended(sources))
    writes = {}
    if number - 1 not in checkpoint.offsets:
        # Spark reads the one before, too.
        writes[f"{OFFSETS}/{number - 1}"] = batch.to_text()
    writes[f"{OFFSETS}/{number}"] = batch.to_text()
    writes[f"{COMMITS}/{number}"] = _commit_text(checkpoint, batch)
    return Change(writes, (), batch.sources, number + 1)


def _replaced(checkpoint: Checkpoint, sources: Lines, finished: int) -> Change:
    """Plan that the last finished batch ends at `sources`, and drop later ones."""
    batch = checkpoint.offsets[finished]
    removals = [
        f"{folder}/{number}"
        for folder, numbers in (
            (OFFSETS, checkpoint.offset_numbers),
            (COMMITS, checkpoint.commit_numbers),
        )
        for number in sorted(numbers, reverse=True)
        if number > finished
    ]
    writes = {}
    moved = batch.with_sources(_ended(sources))
    if finished > 0 and finished - 1 not in checkpoint.offsets:
        writes[f"{OFFSETS}/{finished - 1}"] = batch.to_text()
    has_ids = any(line.offset and line.offset.topic_ids for line in batch.sources.values())
    if has_ids or moved != batch.with_sources(_ended(batch.sources)):
        writes[f"{OFFSETS}/{finished}"] = moved.to_text()
    if not (writes or removals):
        raise UsageError(f"the query goes on behind batch {finished} already: nothing is to change")
    return Change(writes, tuple(removals), moved.sources, finished + 1)


def _finished_of_state(checkpoint: Checkpoint) -> int:
    """Return the last finished batch if the state belongs to it.

    Raises:
        UsageError: the state belongs to another one.
    """
    finished, version = checkpoint.last_finished, checkpoint.state_version
    assert version is not None
    if finished is None or finished != checkpoint.last_commit or finished not in checkpoint.commits:
        raise UsageError(
            "the query keeps state, and the offsets or the commit of its last finished batch "
            "cannot be read: copy the files back, or give the query a new checkpointLocation"
        )
    # Operators write version N + 1 in batch N.
    if version > finished + 1:
        raise UsageError(
            f"the query keeps state, whose newest files are of batch {version - 1}, and the last "
            f"finished batch is {finished}: the batch that was planned has changed the state, and "
            f"has to finish. Start the query as it was, or give it a new checkpointLocation"
        )
    return finished


def _template(checkpoint: Checkpoint) -> LoggedBatch:
    assert checkpoint.newest is not None, "some offsets can be read"
    return checkpoint.offsets[checkpoint.newest]


def _commit_text(checkpoint: Checkpoint, batch: LoggedBatch) -> str:
    newest = max(checkpoint.commits, default=None)
    if newest is None:
        return first_commit_text(batch.watermark_ms or 0)
    return checkpoint.commits[newest]


def _ended(sources: Lines) -> dict[str, SourceOffset]:
    """Drop the starts and the ids of topics from the lines.

    The starts belong to the batch that ended there. Whoever moves a query accepts the topics as
    they are.
    """
    return {
        name: line
        if line.offset is None or not (line.offset.starts or line.offset.topic_ids)
        else line.moved(StreamOffset(line.offset.ends))
        for name, line in sources.items()
    }


def _without(line: SourceOffset, topic: str) -> SourceOffset:
    if line.offset is None or topic not in topics_of({"": line}):
        return line
    ends, starts = (
        {partition: at for partition, at in offsets.items() if partition.topic != topic}
        for offsets in (line.offset.ends, line.offset.starts)
    )
    ids = {name: one for name, one in line.offset.topic_ids.items() if name != topic}
    return line.moved(StreamOffset(ends, starts, ids))


def _moved_back(former: Lines, lines: Lines) -> list[TopicPartition]:
    """Return the partitions in which `lines` are before `former`."""
    found = []
    for name, line in former.items():
        offset = lines[name].offset
        if line.offset is None or offset is None:
            if line.text != lines[name].text:
                raise UsageError(f"source {name} would move, and the query keeps state")
            continue
        found += [
            partition
            for partition, end in line.offset.ends.items()
            if offset.ends.get(partition, -1) < end
        ]
    return sorted(found)


def offsets_of_json(text: str) -> Mapping[TopicPartition, int]:
    """Parse offsets in JSON, in the form of the option ``startingOffsets``.

    Raises:
        ValueError: the text is in another form.
    """
    problem = f'{text!r} is no offsets; write {{"topic":{{"0":23,"1":-2}}}}'
    try:
        found = json.loads(text)
        offsets = {
            TopicPartition(topic, int(number)): offset
            for topic, numbers in found.items()
            for number, offset in numbers.items()
        }
    except (ValueError, AttributeError) as error:
        raise ValueError(problem) from error
    if not offsets or any(type(one) is not int or one < -2 for one in offsets.values()):
        raise ValueError(problem)
    return offsets


def changed_offsets(
    before: Mapping[str, SourceOffset | None], after: Iterable[tuple[str, SourceOffset]]
) -> list[tuple[str, TopicPartition, int | None, int | None]]:
    """Return source, partition, old and new offset of each partition of Kafka sources."""
    rows: list[tuple[str, TopicPartition, int | None, int | None]] = []
    for name, line in after:
        former = before.get(name)
        old = {} if former is None or former.offset is None else former.offset.ends
        new = {} if line.offset is None else line.offset.ends
        rows += [
            (name, partition, old.get(partition), new.get(partition))
            for partition in sorted({*old, *new})
        ]
    return rows
