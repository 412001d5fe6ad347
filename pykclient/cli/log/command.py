"""``pykclient log FILE``: show the contents of a partition's segment file, as a broker stores it.

It also shows segments of the cluster's metadata log, ``__cluster_metadata-0``, and its snapshots.
It prints the valid part of a damaged file, then where and why it ends, with status 1. The file's
size is read once, at the start, so a segment that a broker is writing has an end.

Owner: the main thread; an exit stack closes the files.
Source: Java class ``DumpLogSegments``, whose lines it prints.
"""

from __future__ import annotations

import re
import stat
import sys
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from pykclient.cli.argument import as_path
from pykclient.cli.complaint import write_output
from pykclient.cli.log.dump import JsonDump, TextDump
from pykclient.errors.base import ConfigError, CorruptRecordError, KafkaError
from pykclient.records.compression import DecompressedSizeError
from pykclient.records.index import OffsetIndex, TimeIndex, base_offset_of
from pykclient.records.segment import BATCH_SIZE_BYTES_MAX, LogSegment, Start
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from pykclient.cli.log.dump import Decode
    from pykclient.records.index import ReadAt

BATCHES, RECORDS, DATA = range(3)
"""Levels of detail: batches; also their records; also keys, values and headers."""

OFFSET_SUFFIX: Final = ".index"
TIME_SUFFIX: Final = ".timeindex"
PARTITION_FOLDER: Final = re.compile(r"(.+)-(\d+)(?:\.[0-9a-f]{32}-(?:delete|future|stray))?")
"""``<topic>-<partition>``; a broker marks a folder that it is going to remove or is moving."""

UNKNOWN_PARTITION: Final = -1

Dump = JsonDump | TextDump
AnyIndex = TypeVar("AnyIndex", OffsetIndex, TimeIndex)


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "log",
        help="show the batches and records in a broker's segment file",
        description="Show the batches and records in a broker's segment file, or the entries of "
        "its .index or .timeindex, in the format of Kafka's DumpLogSegments. For a damaged file, "
        "show the valid part, then where and why it ends, with status 1.",
    )
    parser.add_argument("file", type=as_path, help="a .log, .checkpoint, .index or .timeindex file")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        *("-o", "--offset"), type=int, metavar="N", help="start with the batch of offset N"
    )
    where.add_argument(
        "--time", type=int, metavar="MS", help="start with the first record at or after this time"
    )
    depth = parser.add_mutually_exclusive_group()
    for options, shown, aim in (
        (("--batches",), BATCHES, "show batches (the default)"),
        (("--records",), RECORDS, "also show the records of each batch"),
        (("--values",), DATA, "also show the keys and values of records"),
    ):
        depth.add_argument(*options, dest="depth", action="store_const", const=shown, help=aim)
    decoder = parser.add_mutually_exclusive_group()
    for chosen, topic in (
        ("offsets", "__consumer_offsets: offsets and members of groups"),
        ("transactions", "__transaction_state: transactional ids"),
        ("share", "__share_group_state: acknowledgements of share groups"),
    ):
        decoder.add_argument(
            f"--{chosen}",
            dest="decoder",
            action="store_const",
            const=chosen,
            help=f"decode records as those of {topic}; implies --values",
        )
    parser.add_argument(
        *("-J", "--json"),
        action="store_true",
        help="print one JSON object per line instead of text",
    )
    parser.add_argument(
        "--no-index", action="store_true", help="search without the index files next to the file"
    )
    parser.add_argument(
        "--max-batch-bytes",
        type=int,
        metavar="BYTES",
        default=BATCH_SIZE_BYTES_MAX,
        help="maximum size of a batch, compressed or not (default: %(default)s)",
    )
    parser.set_defaults(run=run, depth=BATCHES)


def run(options: argparse.Namespace) -> int:
    decode: Decode | None = None
    if options.decoder is not None:
        # Imported here: it imports all messages that brokers store.
        from pykclient.cli.log.coordinator_records import DECODERS, decoded

        decode = partial(decoded, DECODERS[options.decoder])
        options.depth = DATA
    dump: Dump = TextDump(escapes=sys.stdout.isatty(), decode=decode)
    if options.json:
        dump = JsonDump(decode)
    try:
        with ExitStack() as stack:
            _show(stack, dump, options)
    except KafkaError as error:
        write_output(is_flushed=True)
        sys.stderr.write(f"pykclient: {options.file}: {error}\n")
        return 1
    return 0


def _show(stack: ExitStack, dump: Dump, options: argparse.Namespace) -> None:
    path: Path = options.file
    if path.suffix == OFFSET_SUFFIX:
        _show_entries(dump, path, _open_index(stack, path, OffsetIndex))
    elif path.suffix == TIME_SUFFIX:
        _show_entries(dump, path, _open_index(stack, path, TimeIndex))
    else:
        segment = _open_segment(stack, options)
        write_output(dump.head(path))
        start = _start(segment, options)
        if start is not None:
            _show_batches(dump, segment, start, options)


def _show_entries(dump: Dump, path: Path, index: OffsetIndex | TimeIndex) -> None:
    write_output(dump.head(path))
    for number in range(len(index)):
        write_output(dump.index_entry(index.entry(number)))


def _open_segment(stack: ExitStack, options: argparse.Namespace) -> LogSegment:
    path: Path = options.file
    is_search = options.offset is not None or options.time is not None
    offset_index = time_index = None
    if is_search and not options.no_index:
        offset_index = _index_beside(stack, path.with_suffix(OFFSET_SUFFIX), OffsetIndex)
        time_index = _index_beside(stack, path.with_suffix(TIME_SUFFIX), TimeIndex)
    read_at, size_bytes = _open(stack, path)
    return LogSegment(
        read_at,
        size_bytes,
        partition=_partition_of(path),
        offset_index=offset_index,
        time_index=time_index,
        batch_size_bytes_max=options.max_batch_bytes,
    )


def _index_beside(stack: ExitStack, path: Path, kind: type[AnyIndex]) -> AnyIndex | None:
    """Open an index file. If it is missing, print that the search takes longer."""
    try:
        return _open_index(stack, path, kind)
    except FileNotFoundError:
        sys.stderr.write(f"pykclient: there is no {path}; the search takes longer without it\n")
        return None


def _open_index(stack: ExitStack, path: Path, kind: type[AnyIndex]) -> AnyIndex:
    read_at, size_bytes = _open(stack, path)
    base_offset = base_offset_of(path)
    if base_offset is None:
        raise ConfigError(
            f"offsets in {path.name} are relative to the segment's base offset, which the file "
            f"name must contain in 20 digits, as in {0:020}{path.suffix}"
        )
    return kind(read_at, size_bytes, base_offset=base_offset)


def _open(stack: ExitStack, path: Path) -> tuple[ReadAt, int]:
    """Open a regular file; return a function that reads it, and its size."""
    status = path.stat()  # before it is opened, which would block for a pipe
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(
            f"{path.name} is not a regular file; give the file of a segment, DIR/{0:020}.log"
        )
    file = stack.enter_context(path.open("rb"))

    def read_at(position: int, size_bytes: int) -> bytes:
        file.seek(position)
        return file.read(size_bytes)

    return read_at, status.st_size


def _partition_of(path: Path) -> TopicPartition:
    found = PARTITION_FOLDER.fullmatch(path.absolute().parent.name)
    if found is None:
        return TopicPartition(path.name, UNKNOWN_PARTITION)
    return TopicPartition(found[1], int(found[2]))


def _start(segment: LogSegment, options: argparse.Namespace) -> Start | None:
    """Return where to start; None if that is after the end, which a line reports."""
    if options.offset is not None:
        start = segment.find_offset(options.offset)
        sought = f"offset {options.offset}"
    elif options.time is not None:
        start = segment.find_time(options.time)
        sought = f"time {options.time}"
    else:
        return Start(0, 0)
    if start is None:
        sys.stderr.write(f"pykclient: {options.file} ends before {sought}\n")
    return start


def _show_batches(
    dump: Dump, segment: LogSegment, start: Start, options: argparse.Namespace
) -> None:
    for placed in segment.batches(start.position):
        write_output(dump.batch(placed))
        if options.depth == BATCHES:
            continue
        batch = placed.batch
        try:
            for columns in batch.chunks(
                start.offset, decompressed_size_bytes_max=options.max_batch_bytes
            ):
                write_output(dump.records(batch, columns, with_data=options.depth == DATA))
        except CorruptRecordError as error:
            is_too_large = isinstance(error.__cause__, DecompressedSizeError)
            cure = "; to read it raise --max-batch-bytes" if is_too_large else ""
            reason = f"{error}{cure}"
            raise segment.corrupt(placed.position, batch.base_offset, reason) from error
