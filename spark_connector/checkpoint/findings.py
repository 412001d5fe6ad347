"""Findings: faults in a checkpoint's files, and in its positions compared to the brokers.

Owner: none, all values are immutable. Source: Spark's classes ``MicroBatchExecution`` and
``HDFSMetadataLog``.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient import TopicPartition
from spark_connector.checkpoint.checkpoint import COMMITS, METADATA, OFFSETS, SOURCES, checksum_file
from spark_connector.offsets import id_as_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from spark_connector.checkpoint.checkpoint import Checkpoint, Positions
    from spark_connector.offsets import LogBounds

PREFIX: Final = "pykclient spark checkpoint"


class Finding(NamedTuple):
    """A finding about a checkpoint: where, what, and what to do.

    A problem makes the next start fail, or loses or repeats rows. Other findings are for
    information and have no cure.
    """

    where: str
    what: str
    cure: str | None

    @property
    def is_problem(self) -> bool:
        return self.cure is not None


class Held(NamedTuple):
    """The topics of a checkpoint as brokers hold them.

    It has the number of partitions, the bounds of each, and the ids of topics, None if brokers have
    none. A topic that is not listed is missing.
    """

    partition_counts: Mapping[str, int]
    bounds: Mapping[TopicPartition, LogBounds]
    topic_ids: Mapping[str, bytes | None]


def findings_of_files(checkpoint: Checkpoint) -> list[Finding]:
    """Check the files of the directory, without brokers."""
    return [
        *_of_metadata(checkpoint),
        *_of_damaged(checkpoint),
        *_of_offsets(checkpoint),
        *_of_commits(checkpoint),
        *_of_sources(checkpoint),
        *(
            Finding(name, "a write that was not finished, or that a running query writes", None)
            for name in checkpoint.temporary
        ),
    ]


def findings_of_positions(checkpoint: Checkpoint, held: Held) -> list[Finding]:
    """Compare the positions with the topics on the brokers."""
    return [
        finding
        for source, positions in checkpoint.positions().items()
        for finding in _of_source(checkpoint, source, positions, held)
    ]


def rewind_command(folder: Path, aim: str) -> str:
    """Return the command that moves a checkpoint."""
    return f"{PREFIX} rewind {shlex.quote(str(folder))} {aim}"


def forget_command(folder: Path, topic: str) -> str:
    """Return the command that removes a topic from a checkpoint."""
    return f"{PREFIX} forget-topic {shlex.quote(str(folder))} {shlex.quote(topic)}"


def _of_metadata(checkpoint: Checkpoint) -> Iterator[Finding]:
    if METADATA not in checkpoint.texts:
        yield Finding(
            METADATA,
            "there is none: Spark refuses such a directory, or gives the query a new id, which an "
            "exactly-once sink refuses",
            _cure_of_metadata(checkpoint.folder),
        )


def _cure_of_metadata(folder: Path) -> str:
    return (
        f"{PREFIX} set-id {shlex.quote(str(folder))} ID, with the id that the query's progress "
        f"has; or copy the file back"
    )


def _of_damaged(checkpoint: Checkpoint) -> Iterator[Finding]:
    last, commit = max(checkpoint.offset_numbers, default=-1), checkpoint.last_commit
    read = {f"{OFFSETS}/{last}", f"{OFFSETS}/{last - 1}", f"{COMMITS}/{commit}", METADATA}
    for file, reason, is_of_checksums in checkpoint.damaged:
        cure = _cure_of_damage(checkpoint, file)
        if is_of_checksums:
            checksums = shlex.quote(str(checksum_file(checkpoint.folder / file)))
            cure = f"if somebody has edited the file, rm {checksums}; else {cure}"
        if file in read or file.startswith(SOURCES):
            yield Finding(file, reason, cure)
        else:
            yield Finding(file, f"{reason}. Spark does not read it at the next start", None)


def _cure_of_damage(checkpoint: Checkpoint, file: str) -> str:
    if file == METADATA:
        return _cure_of_metadata(checkpoint.folder)
    if file.startswith(SOURCES):
        return "copy the file back; a query that has finished a batch does not need it"
    return _rewind_to_readable(checkpoint)


def _rewind_to_readable(checkpoint: Checkpoint) -> str:
    finished = checkpoint.last_finished
    if finished is None:
        return "no finished batch can be read: give the query a new checkpointLocation"
    return rewind_command(checkpoint.folder, f"--to-batch {finished}")


def _of_offsets(checkpoint: Checkpoint) -> Iterator[Finding]:
    numbers = checkpoint.offset_numbers
    if not numbers:
        return
    last, first = max(numbers), min(numbers)
    missing = sorted({*range(first, last)} - numbers)
    if last > 0 and last - 1 not in numbers:
        yield Finding(
            f"{OFFSETS}/{last - 1}",
            f"there is none: Spark reads it beside {OFFSETS}/{last}, and fails",
            _rewind_to_readable(checkpoint),
        )
    if missing and missing != [last - 1]:
        listed = ", ".join(str(one) for one in missing if one != last - 1)
        yield Finding(OFFSETS, f"batches are missing: {listed}. Spark does not read them", None)
    newest = checkpoint.newest
    if newest is not None and newest == last and checkpoint.is_repeated:
        yield Finding(
            f"{OFFSETS}/{newest}",
            f"batch {newest} was planned and is not finished: the next start repeats it",
            None,
        )
        if checkpoint.last_commit < newest - 1 and newest > 0:
            yield Finding(
                COMMITS,
                f"the last one is {checkpoint.last_commit}, and batch {newest} is planned: Spark "
                f"takes the batches in between as finished",
                _rewind_to_readable(checkpoint),
            )
        for name, start in checkpoint.start_lines().items():
            if start is None:
                yield Finding(
                    f"{OFFSETS}/{newest}",
                    f"the log does not say where batch {newest} begins in source {name}",
                    rewind_command(checkpoint.folder, '--to \'{"topic":{"0":23}}\''),
                )


def _of_commits(checkpoint: Checkpoint) -> Iterator[Finding]:
    last_offset = max(checkpoint.offset_numbers, default=-1)
    if checkpoint.last_commit > last_offset:
        cure = _rewind_to_readable(checkpoint)
        yield Finding(
            f"{COMMITS}/{checkpoint.last_commit}",
            f"it is finished, and {OFFSETS} ends at {last_offset}: Spark repeats batch "
            f"{last_offset}, which is finished, too",
            cure,
        )


def _of_sources(checkpoint: Checkpoint) -> Iterator[Finding]:
    newest = checkpoint.newest
    if newest is None:
        if not checkpoint.offset_numbers:
            yield Finding(
                OFFSETS, "the query has planned no batch yet: it begins at the next", None
            )
        return
    sources = checkpoint.offsets[newest].sources
    before = checkpoint.offsets.get(newest - 1)
    if before is not None and len(before.sources) != len(sources):
        yield Finding(
            f"{OFFSETS}/{newest}",
            f"it has {len(sources)} sources, and {OFFSETS}/{newest - 1} has {len(before.sources)}: "
            f"Spark refuses a query that has another number of them",
            _rewind_to_readable(checkpoint),
        )
    if all(source.offset is None for source in sources.values()):
        yield Finding(f"{OFFSETS}/{newest}", "no source is one of Kafka's", None)


def _of_source(
    checkpoint: Checkpoint, source: str, positions: Positions, held: Held
) -> Iterator[Finding]:
    starts, ends = positions
    topics: dict[str, set[int]] = {}
    for offset in (starts, ends):
        for partition in () if offset is None else offset.ends:
            topics.setdefault(partition.topic, set()).add(partition.partition)
    folder = checkpoint.folder
    newest = checkpoint.newest
    assert newest is not None, "a source has positions"
    logged = checkpoint.offsets[newest].sources[source].offset
    ids = {} if logged is None else logged.topic_ids
    for topic, numbers in sorted(topics.items()):
        forget = forget_command(folder, topic)
        count = held.partition_counts.get(topic)
        if count is None:
            yield Finding(
                f"source {source}, {topic}",
                "brokers do not list the topic: it was deleted, or Describe on it is missing",
                f"make it visible, or have the options not name it, and {forget}",
            )
            continue
        held_id = held.topic_ids.get(topic)
        if held_id is not None and ids.get(topic, held_id) != held_id:
            yield Finding(
                f"source {source}, {topic}",
                f"its id is {id_as_text(held_id)}, and the checkpoint has "
                f"{id_as_text(ids[topic])}: it was deleted and recreated, or is one of another "
                f"cluster",
                f"{forget}, to read it from its beginning; or, where it is a copy with the same "
                f"offsets, {_rewind_to_readable(checkpoint)}",
            )
            continue
        gone = sorted(one for one in numbers if one >= count)
        if gone:
            yield Finding(
                f"source {source}, {topic}",
                f"it has {count} partitions, and the checkpoint has {_listed(gone)}, too: it was "
                f"deleted and recreated",
                f"{forget}, to read it from its beginning",
            )
        added = sorted({*range(count)} - numbers)
        if added:
            yield Finding(
                f"source {source}, {topic}",
                f"the checkpoint does not have partitions {_listed(added)}: a query that reads "
                f"them begins at their first records",
                None,
            )
        for number in sorted(numbers - {*gone}):
            partition = TopicPartition(topic, number)
            yield from _of_partition(folder, source, partition, positions, held)


def _of_partition(
    folder: Path, source: str, partition: TopicPartition, positions: Positions, held: Held
) -> Iterator[Finding]:
    bounds = held.bounds.get(partition)
    if bounds is None:
        return
    where = f"source {source}, {partition}"
    start = None if positions.starts is None else positions.starts.ends.get(partition)
    end = None if positions.ends is None else positions.ends.ends.get(partition)
    available = rewind_command(folder, "--to available")
    if start is not None and start < bounds.beginning:
        yield Finding(
            where,
            f"the next record is at offset {start}, and the first that there is at "
            f"{bounds.beginning}: {bounds.beginning - start} offsets are aged out",
            f"{available}, or start once with failOnDataLoss=false; what is aged out is lost",
        )
    last = max(one for one in (start, end, -1) if one is not None)
    if last > bounds.end:
        yield Finding(
            where,
            f"the checkpoint is at offset {last}, and the partition ends at {bounds.end}: the "
            f"topic was recreated, or records were lost",
            f"{forget_command(folder, partition.topic)}, to read the topic from its beginning; or "
            f"{available}, to go on at its end",
        )


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
