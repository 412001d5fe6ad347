"""``pykclient log FILE``: what is in a segment of a partition, as a broker keeps it on disk.

So too in a segment of the cluster's metadata log, ``__cluster_metadata-0``, and its snapshots.

It prints what is good; then, when the file goes on, where and why it ends, with status 1.

Owner: the main thread.
Source: Java class ``DumpLogSegments``, whose lines it prints too.
"""

from __future__ import annotations

import io
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from pykclient.cli.log.files import AnyIndex, open_index, open_log
from pykclient.cli.log.index import OffsetIndex, TimeIndex
from pykclient.cli.log.json_dump import JsonDump
from pykclient.cli.log.segment import BATCH_SIZE_BYTES_MAX, Start
from pykclient.cli.log.text_dump import TextDump
from pykclient.errors.base import CorruptRecordError, KafkaError

if TYPE_CHECKING:
    import argparse

    from pykclient.accel.abc import RecordColumns
    from pykclient.cli.log.index import OffsetPosition, TimestampOffset
    from pykclient.cli.log.segment import LogSegment, PlacedBatch
    from pykclient.records.batch import RecordBatch

__all__ = ["add_command"]

BATCHES, RECORDS, DATA = range(3)
"""How much is shown: batches; also their records; also keys, values and headers."""

OFFSET_SUFFIX: Final = ".index"
TIME_SUFFIX: Final = ".timeindex"


class Dump(Protocol):
    """A form in which a segment is printed; each call returns lines, ended by line ends."""

    def head(self, path: Path) -> str:
        """What comes before everything else."""
        ...

    def batch(self, placed: PlacedBatch) -> str: ...

    def records(self, batch: RecordBatch, columns: RecordColumns, *, with_data: bool) -> str:
        """Some records of a batch; `with_data` adds keys, values and headers."""
        ...

    def index_entry(self, entry: OffsetPosition | TimestampOffset) -> str: ...


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "log",
        help="show the batches and records in a segment file of a broker",
        description="Show the batches and records in a segment file of a broker, or the entries of "
        "its .index or .timeindex, in the lines of Kafka's DumpLogSegments. The good part of a "
        "damaged file is shown, then where and why it ends, with status 1.",
    )
    parser.add_argument("file", type=Path, help="a .log, .checkpoint, .index or .timeindex file")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--offset", type=int, metavar="N", help="begin with the batch of offset N")
    where.add_argument(
        "--time", type=int, metavar="MS", help="begin with the first record at or after this time"
    )
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument(
        *("--batches", "-b"),
        dest="depth",
        action="store_const",
        const=BATCHES,
        default=BATCHES,
        help="show batches (the default)",
    )
    depth.add_argument(
        *("--records", "-r"),
        dest="depth",
        action="store_const",
        const=RECORDS,
        help="show also the records of each batch",
    )
    depth.add_argument(
        *("--data", "-d"),
        dest="depth",
        action="store_const",
        const=DATA,
        help="show also the keys and values of the records",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument(
        "--no-index", action="store_true", help="search without the indexes beside the file"
    )
    parser.add_argument(
        "--max-batch-bytes",
        type=int,
        metavar="BYTES",
        default=BATCH_SIZE_BYTES_MAX,
        help="refuse larger batches, as they are and decompressed (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Any text may be in a record, and not every terminal can show it.
        sys.stdout.reconfigure(errors="backslashreplace")
    dump: Dump = JsonDump() if options.json else TextDump(escapes=sys.stdout.isatty())
    try:
        with ExitStack() as stack:
            _show(stack, dump, options)
    except KafkaError as error:
        sys.stdout.flush()
        sys.stderr.write(f"pykclient: {options.file}: {error}\n")
        return 1
    return 0


def _show(stack: ExitStack, dump: Dump, options: argparse.Namespace) -> None:
    path: Path = options.file
    if path.suffix == OFFSET_SUFFIX:
        _show_entries(dump, path, open_index(stack, path, OffsetIndex))
    elif path.suffix == TIME_SUFFIX:
        _show_entries(dump, path, open_index(stack, path, TimeIndex))
    else:
        segment = _open_segment(stack, options)
        sys.stdout.write(dump.head(path))
        start = _start(segment, options)
        if start is not None:
            _show_batches(dump, segment, start, options)


def _show_entries(dump: Dump, path: Path, index: OffsetIndex | TimeIndex) -> None:
    sys.stdout.write(dump.head(path))
    for number in range(len(index)):
        sys.stdout.write(dump.index_entry(index.entry(number)))


def _open_segment(stack: ExitStack, options: argparse.Namespace) -> LogSegment:
    path: Path = options.file
    is_search = options.offset is not None or options.time is not None
    offset_index = time_index = None
    if is_search and not options.no_index:
        offset_index = _index_beside(stack, path.with_suffix(OFFSET_SUFFIX), OffsetIndex)
        time_index = _index_beside(stack, path.with_suffix(TIME_SUFFIX), TimeIndex)
    return open_log(
        stack,
        path,
        offset_index=offset_index,
        time_index=time_index,
        batch_size_bytes_max=options.max_batch_bytes,
    )


def _index_beside(stack: ExitStack, path: Path, kind: type[AnyIndex]) -> AnyIndex | None:
    """Open an index; a missing one makes the search longer, as a line says."""
    try:
        return open_index(stack, path, kind)
    except FileNotFoundError:
        sys.stderr.write(f"pykclient: there is no {path}; the search is longer without it\n")
        return None


def _start(segment: LogSegment, options: argparse.Namespace) -> Start | None:
    """Where to begin; None when that is after the end, as a line says."""
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
        sys.stdout.write(dump.batch(placed))
        if options.depth == BATCHES:
            continue
        batch = placed.batch
        try:
            for columns in batch.chunks(
                start.offset, decompressed_size_bytes_max=options.max_batch_bytes
            ):
                sys.stdout.write(dump.records(batch, columns, with_data=options.depth == DATA))
        except CorruptRecordError as error:
            raise segment.corrupt(placed.position, batch.base_offset, str(error)) from error
