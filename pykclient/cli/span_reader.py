"""A consumer without a group that reads the span which a command's options name.

Where retention deletes records before they were read, reading goes on behind them: a line says so,
and `SpanReader.status` is 1.

Owner: the main thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pykclient.cli.cluster_options import client_settings
from pykclient.cli.span import offset_inside, partitions_of, span_of
from pykclient.errors import LogTruncationError, OffsetOutOfRangeError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pykclient import Consumer

T = TypeVar("T")


def reader_settings(options: argparse.Namespace, group: str | None = None) -> dict[str, object]:
    """Return the settings of a consumer, of a member of `group` where there is one.

    Without, nothing is committed: a ``group.id`` among the settings, which a file may have for an
    application, keeps its offsets.

    Raises:
        ConfigError: as `client_settings` does.
    """
    settings = {
        "allow.auto.create.topics": False,
        "auto.offset.reset": "none" if group is None else "earliest",
        **client_settings(options, "consumer", is_bounded=False),
    }
    if group is None:
        return {**settings, "enable.auto.commit": False}
    return {**settings, "group.id": group}


class SpanReader:
    """Has the partitions assigned, at their first offsets."""

    def __init__(self, consumer: Consumer, options: argparse.Namespace) -> None:
        """Look partitions and offsets up.

        Raises:
            UsageError: a topic or a partition is not there.
            KafkaTimeoutError: no broker responded in time.
        """
        self.partitions = partitions_of(consumer, options)
        self.span = span_of(consumer, self.partitions, options.places)
        self.status = 0
        self._consumer = consumer
        consumer.assign(self.partitions)
        for partition, offset in self.span.starts.items():
            consumer.seek(partition, offset)

    def read(self, poll: Callable[[], T]) -> T:
        """Return what `poll` does, a call of the consumer. Raises what it raises.

        A position outside of the log is moved inside first.
        """
        while True:
            try:
                return poll()
            except LogTruncationError:  # what was read is no longer in the log
                raise
            except OffsetOutOfRangeError:
                self._move_inside()

    def _move_inside(self) -> None:
        positions = self._consumer.position()
        first = self._consumer.beginning_offsets(positions)
        last = self._consumer.end_offsets(positions)
        for partition, offset in positions.items():
            taken = offset_inside(partition, offset, first[partition], last[partition])
            if taken != offset:
                self._consumer.seek(partition, taken)
                self.status = 1
