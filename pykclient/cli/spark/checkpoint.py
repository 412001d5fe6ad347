"""``pykclient spark checkpoint``: show, check and repair the checkpoint of a Spark query.

Subcommands that change something do so only with ``--execute``, and copy the directory first.

Owner: the main thread.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pykclient
from pykclient.cli.cluster_options import add_cluster_options, client_settings
from pykclient.cli.described import found_topics
from pykclient.cli.moment import moment_ms
from pykclient.cli.parts import add_parts
from pykclient.cli.table import shown, write_rows
from pykclient.errors import UsageError
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pykclient import TopicDescription
    from spark_connector.checkpoint.checkpoint import Checkpoint
    from spark_connector.checkpoint.findings import Held
    from spark_connector.checkpoint.log_file import LoggedBatch, SourceOffset
    from spark_connector.checkpoint.mending import Change

    Run = Callable[[argparse.Namespace], int]
    Offsets = Mapping[TopicPartition, int]

BAD_STATUS: Final = 1
SHOWN_COUNT: Final = 10
RECENT_S: Final = 60.0
"""Age in seconds below which a changed checkpoint may be in use."""

EARLIEST, LATEST, AVAILABLE = "earliest", "latest", "available"
WORDS: Final = (EARLIEST, LATEST, AVAILABLE)
_EDGE_EARLIEST: Final = -2
_EDGE_LATEST: Final = -1
NS_PER_MS: Final = 1_000_000


def add_checkpoint_part(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    aim = "show, check and repair the checkpoint of a stopped query"
    parser = parts.add_parser("checkpoint", help=aim, description=f"{aim[0].upper()}{aim[1:]}.")
    inner = add_parts(parser, "parts", "PART")
    part = _add_part(inner, "show", run_show, "show the batches in Spark's log")
    part.add_argument(
        "--all", action="store_true", help=f"show all batches, not only the last {SHOWN_COUNT}"
    )
    part = _add_part(inner, "check", run_check, "report problems, and what to do")
    part.add_argument(
        "--files-only", action="store_true", help="check only the files, without brokers"
    )
    _add_rewind(inner)
    aim = "remove a topic that was deleted or recreated"
    part = _add_part(inner, "forget-topic", run_forget, aim)
    part.add_argument("topic", metavar="TOPIC")
    _add_execute(part)
    part = _add_part(inner, "set-id", run_set_id, "give the query its id again, which is lost")
    part.add_argument("id", metavar="ID", help="the id, as the query's progress has it")
    _add_execute(part)


def run_show(options: argparse.Namespace) -> int:
    """Print the logged batches; return the exit status."""
    checkpoint = _read(options.folder)
    numbers = sorted(checkpoint.offset_numbers | checkpoint.commit_numbers)
    if not options.all:
        numbers = numbers[-SHOWN_COUNT:]
    if options.json:
        rows = [_batch_object(checkpoint, number) for number in numbers]
        query = {
            "query_id": checkpoint.query_id,
            "state_version": checkpoint.state_version,
            "initial": {name: _source(line) for name, line in checkpoint.initial.items()},
        }
        write_rows("query", [query], is_json=True)
        write_rows("batch", rows, is_json=True)
        return 0
    state = checkpoint.state_version
    query = {
        "query_id": checkpoint.query_id,
        "next_start": _next_start(checkpoint),
        "state_version": state,
    }
    write_rows("query", [query], is_json=False)
    sys.stdout.write("\n")
    write_rows(
        "batch",
        [row for number in numbers for row in _batch_rows(checkpoint, number)],
        is_json=False,
    )
    return 0


def run_check(options: argparse.Namespace) -> int:
    """Print the problems; return the exit status."""
    from spark_connector.checkpoint.findings import findings_of_files, findings_of_positions

    checkpoint = _read(options.folder)
    found = findings_of_files(checkpoint)
    if not options.files_only:
        with _Brokers(options) as brokers:
            found += findings_of_positions(checkpoint, brokers.held(checkpoint))
    rows = [
        {
            "severity": "problem" if each.is_problem else "note",
            "where": each.where,
            "what": each.what,
            "cure": each.cure,
        }
        for each in found
    ]
    write_rows("finding", rows, is_json=options.json)
    _warn_of_use(checkpoint)
    count = sum(each.is_problem for each in found)
    if not count:
        sys.stderr.write("pykclient: no problems\n")
        return 0
    sys.stderr.write(f"pykclient: {count} problem{'s' if count > 1 else ''}\n")
    return BAD_STATUS


def run_rewind(options: argparse.Namespace) -> int:
    """Move the query's position; return the exit status."""
    from spark_connector.checkpoint.mending import rewound_to, rewound_to_batch

    checkpoint = _read(options.folder)
    now_ms = time.time_ns() // NS_PER_MS
    if options.to_batch is not None:
        if options.sources:
            raise UsageError("--to-batch moves all sources; use --source only with --to")
        change = rewound_to_batch(checkpoint, options.to_batch, now_ms)
    else:
        with _Brokers(options) as brokers:
            offsets = {
                name: _target(options.to, checkpoint, name, brokers)
                for name in _chosen_sources(options, checkpoint)
            }
        change = rewound_to(checkpoint, offsets, now_ms)
    return _carry_out(options, checkpoint, change)


def run_forget(options: argparse.Namespace) -> int:
    """Remove a topic; return the exit status."""
    from spark_connector.checkpoint.mending import without_topic

    checkpoint = _read(options.folder)
    return _carry_out(options, checkpoint, without_topic(checkpoint, options.topic))


def run_set_id(options: argparse.Namespace) -> int:
    """Write the id of the query; the exit status."""
    from spark_connector.checkpoint.mending import with_query_id

    checkpoint = _read(options.folder)
    return _carry_out(options, checkpoint, with_query_id(checkpoint, options.id))


# Arguments.


def _add_part(
    parts: argparse._SubParsersAction[argparse.ArgumentParser], name: str, run: Run, aim: str
) -> argparse.ArgumentParser:
    part = parts.add_parser(name, help=aim, description=f"{aim[0].upper()}{aim[1:]}.")
    part.add_argument(
        "folder", metavar="DIR", help="the query's checkpointLocation, a local directory"
    )
    add_cluster_options(part)
    part.set_defaults(run=run)
    return part


def _add_rewind(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    part = _add_part(parts, "rewind", run_rewind, "move the position of the query")
    where = part.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--to-batch",
        type=int,
        metavar="N",
        help="continue after batch N, as if it was the last finished batch",
    )
    where.add_argument(
        "--to",
        type=_place,
        metavar="WHERE",
        help=f"continue at {EARLIEST}, at {LATEST}, at the first record at or after a time (ISO "
        f"8601 or ms since 1970), at offsets as JSON, like startingOffsets, or at the query's "
        f"position, moved into the range of each partition ({AVAILABLE})",
    )
    part.add_argument(
        "--source",
        action="append",
        dest="sources",
        metavar="NAME",
        help="move only this source, as `show` names it; may be repeated (default: all sources "
        "of Kafka's)",
    )
    _add_execute(part)


def _add_execute(part: argparse.ArgumentParser) -> None:
    part.add_argument(
        "--execute",
        action="store_true",
        help="make the change, after copying DIR to a directory next to it; without this option "
        "nothing changes",
    )


def _place(text: str) -> str | int | Offsets:
    """Parse ``--to``. Raises `argparse.ArgumentTypeError`."""
    from spark_connector.checkpoint.mending import offsets_of_json

    if text in WORDS:
        return text
    try:
        return offsets_of_json(text) if text.startswith("{") else moment_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{error}; or give one of {', '.join(WORDS)}, or offsets as JSON"
        ) from error


# Output.


def _next_start(checkpoint: Checkpoint) -> str:
    if checkpoint.newest is None:
        return "begins"
    if checkpoint.is_repeated:
        return f"repeats batch {checkpoint.newest}"
    return f"continues after batch {checkpoint.newest}"


def _state(checkpoint: Checkpoint, number: int) -> str:
    if number not in checkpoint.offset_numbers:
        return "no offsets"
    if number not in checkpoint.offsets:
        return "damaged"
    if number in checkpoint.commit_numbers:
        return "finished" if number in checkpoint.commits else "commit damaged"
    return "planned"


def _batch_object(checkpoint: Checkpoint, number: int) -> dict[str, object]:
    batch = checkpoint.offsets.get(number)
    return {
        "batch": number,
        "state": _state(checkpoint, number),
        "planned_at_ms": None if batch is None else batch.planned_at_ms,
        "watermark_ms": None if batch is None else batch.watermark_ms,
        "sources": {} if batch is None else _sources(batch),
    }


def _sources(batch: LoggedBatch) -> dict[str, object]:
    return {name: _source(line) for name, line in batch.sources.items()}


def _source(line: SourceOffset) -> dict[str, object]:
    from spark_connector.offsets import offsets_as_json

    if line.offset is None:
        return {"connector": line.connector.value, "text": line.text}
    return {
        "connector": line.connector.value,
        "offsets": offsets_as_json(line.offset.ends),
        "starts": offsets_as_json(line.offset.starts),
    }


def _batch_rows(checkpoint: Checkpoint, number: int) -> list[dict[str, object]]:
    """Return a row for each topic of each source."""
    batch = checkpoint.offsets.get(number)
    row: dict[str, object] = {
        "batch": number,
        "state": _state(checkpoint, number),
        "planned_at": None if batch is None else _iso(batch.planned_at_ms),
        "watermark": None if batch is None else _iso(batch.watermark_ms or None),
        "source": None,
        "connector": None,
        "topic": None,
        "offsets": None,
    }
    if batch is None:
        return [row]
    rows = []
    for name, line in batch.sources.items():
        named = {**row, "source": name, "connector": line.connector.value}
        if line.offset is None or not line.offset.ends:
            rows.append({**named, "offsets": line.text})
            continue
        topics: dict[str, list[str]] = {}
        for partition, end in sorted(line.offset.ends.items()):
            topics.setdefault(partition.topic, []).append(f"{partition.partition}:{end}")
        rows += [{**named, "topic": topic, "offsets": ends} for topic, ends in topics.items()]
    return rows


def _iso(time_ms: int | None) -> str | None:
    if time_ms is None:
        return None
    try:
        moment = datetime.fromtimestamp(time_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Brokers.


class _Brokers:
    """Clients for the duration of one command."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._stack = ExitStack()

    def __enter__(self) -> _Brokers:
        open_client = self._stack.enter_context
        self._admin = open_client(pykclient.Admin(client_settings(self._options, "admin")))
        self.consumer = open_client(pykclient.Consumer(client_settings(self._options, "consumer")))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def held(self, checkpoint: Checkpoint) -> Held:
        """Return the ranges of all topics that the next start reads."""
        from spark_connector.checkpoint.findings import Held
        from spark_connector.offsets import LogBounds

        named = {
            partition.topic
            for positions in checkpoint.positions().values()
            for offset in positions
            for partition in (() if offset is None else offset.ends)
        }
        topics = self._listed(named)
        counts = _partition_counts(topics)
        every = [TopicPartition(topic, one) for topic, n in counts.items() for one in range(n)]
        begins, ends = self.consumer.beginning_offsets(every), self.consumer.end_offsets(every)
        bounds = {each: LogBounds(begins[each], ends[each]) for each in every}
        return Held(counts, bounds, {name: topic.topic_id for name, topic in topics.items()})

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the partition counts of the topics that exist."""
        return _partition_counts(self._listed(topics))

    def _listed(self, topics: Iterable[str]) -> Mapping[str, TopicDescription]:
        listed = self._admin.list_topics(include_internal=True)
        return found_topics(self._admin, sorted({*topics} & listed.keys()))


def _partition_counts(topics: Mapping[str, TopicDescription]) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in topics.items()}


def _chosen_sources(options: argparse.Namespace, checkpoint: Checkpoint) -> list[str]:
    """Return the sources to move.

    Raises:
        UsageError: an option names an unknown source, or no source reads a named topic.
    """
    positions = checkpoint.positions()
    wanted = options.sources or sorted(positions)
    for name in wanted:
        if name not in positions:
            listed = ", ".join(sorted(positions)) or "none"
            raise UsageError(f"there is no Kafka source {name!r}; there are: {listed}")
    if not wanted:
        raise UsageError("the checkpoint has no Kafka source with readable offsets")
    if isinstance(options.to, str | int):
        return list(wanted)
    named = {partition.topic for partition in options.to}
    known = {name: _topics(checkpoint, name) for name in wanted}
    unknown = named.difference(*known.values())
    if unknown:
        raise UsageError(f"the checkpoint does not have topic {min(unknown)!r}")
    return [name for name in wanted if known[name] & named]


def _topics(checkpoint: Checkpoint, source: str) -> set[str]:
    return {partition.topic for partition in _last_offsets(checkpoint, source)}


def _last_offsets(checkpoint: Checkpoint, source: str) -> Offsets:
    """Return the position of a source; if the log lacks it, the end of the batch."""
    positions = checkpoint.positions()[source]
    found = positions.starts or positions.ends
    return {} if found is None else found.ends


def _target(
    place: str | int | Offsets, checkpoint: Checkpoint, source: str, brokers: _Brokers
) -> Offsets:
    """Return the new position of a source.

    Raises:
        UsageError: a topic does not exist, or an offset is outside its partition's range.
    """
    former = _last_offsets(checkpoint, source)
    topics = {partition.topic for partition in former}
    counts = brokers.partition_counts(topics)
    missing = sorted(topics - counts.keys())
    if missing:
        raise UsageError(
            f"brokers do not list {', '.join(map(shown, missing))}: make it visible first, or "
            f"remove it with `pykclient spark checkpoint forget-topic`"
        )
    every = [TopicPartition(topic, one) for topic in counts for one in range(counts[topic])]
    begins, ends = brokers.consumer.beginning_offsets(every), brokers.consumer.end_offsets(every)
    if isinstance(place, int):
        found = brokers.consumer.offsets_for_times(dict.fromkeys(every, max(place, 0)))
        return {each: ends[each] if (at := found[each]) is None else at.offset for each in every}
    if place == EARLIEST:
        return begins
    if place == LATEST:
        return ends
    if isinstance(place, str):
        kept = [each for each in former if each in begins]
        return {each: min(max(former[each], begins[each]), ends[each]) for each in kept}
    is_known = checkpoint.positions()[source].starts is not None
    return _given(place, former if is_known else {}, begins, ends, topics)


def _given(
    place: Offsets, former: Offsets, begins: Offsets, ends: Offsets, topics: set[str]
) -> Offsets:
    edges = {_EDGE_EARLIEST: begins, _EDGE_LATEST: ends}
    found = dict(former)
    for partition, offset in place.items():
        if partition.topic not in topics:
            continue  # another source reads it
        if partition not in begins:
            raise UsageError(f"there is no partition {partition}")
        at = edges[offset][partition] if offset in edges else offset
        if not begins[partition] <= at <= ends[partition]:
            raise UsageError(
                f"{partition} holds offsets {begins[partition]} to {ends[partition]}, not {at}"
            )
        found[partition] = at
    unnamed = sorted(begins.keys() - found.keys())
    if not former and unnamed:
        raise UsageError(
            f"the log lacks the query's position: name {', '.join(map(str, unnamed[:5]))}, too"
        )
    return found


# Changes.


def _read(folder: str) -> Checkpoint:
    from spark_connector.checkpoint.checkpoint import Checkpoint

    return Checkpoint.read(folder)


def _carry_out(options: argparse.Namespace, checkpoint: Checkpoint, change: Change) -> int:
    """Print a change, and with ``--execute`` make it; return the exit status."""
    from spark_connector.checkpoint.mending import changed_offsets
    from spark_connector.checkpoint.writing import apply

    rows: list[dict[str, object]] = [
        {
            "source": source,
            "topic": partition.topic,
            "partition": partition.partition,
            "current_offset": former,
            "new_offset": new,
        }
        for source, partition, former, new in changed_offsets(
            checkpoint.start_lines(), change.sources.items()
        )
    ]
    write_rows("position", rows, is_json=options.json)
    _warn_of_use(checkpoint)
    for line in _consequences(checkpoint, change, rows):
        sys.stderr.write(f"pykclient: {line}\n")
    if not options.execute:
        sys.stderr.write(
            "pykclient: nothing was changed; stop the query, and give --execute to change "
            f"{', '.join([*change.removals, *change.writes])}\n"
        )
        return 0
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    backup = apply(change, checkpoint, stamp)
    sys.stderr.write(
        f"pykclient: done; {backup} is a copy of the former state. The next batch is "
        f"{change.next_batch}\n"
    )
    return 0


def _consequences(
    checkpoint: Checkpoint, change: Change, rows: Iterable[Mapping[str, object]]
) -> Iterable[str]:
    """Yield the consequences for sinks."""
    newest = checkpoint.newest
    if checkpoint.is_repeated and change.next_batch == newest:
        if change.removals:
            yield (
                f"batch {newest} is planned again. An exactly-once sink that has already written "
                f"it skips the rows of the new one, with a warning: give it another sinkId "
                f"then"
            )
    elif checkpoint.is_repeated:
        yield (
            f"batch {newest} was planned but not finished: its sink may have none, some or all "
            f"of its rows"
        )
    is_back = any(
        isinstance(old := row["current_offset"], int)
        and isinstance(new := row["new_offset"], int)
        and new < old
        for row in rows
    )
    if is_back:
        yield (
            f"rows are read and written again, also by exactly-once sinks: the next batch has "
            f"number {change.next_batch}, which no sink has seen"
        )


def _warn_of_use(checkpoint: Checkpoint) -> None:
    age_s = time.time() - checkpoint.changed_at_s
    if age_s < RECENT_S:
        sys.stderr.write(
            f"pykclient: {os.fspath(checkpoint.folder)} changed {max(age_s, 0):.0f} s ago: if the "
            f"query is running, stop it first\n"
        )
