"""SpanReader: reads the span of a command's options, with a consumer that has no group.

If retention deletes records before they are read, reading continues after them: a line says so, and
`SpanReader.status` is 1.

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
    """Return the settings of a consumer, which joins `group` if given.

    Without a group nothing is committed, even if a file sets ``group.id`` for an application.

    Raises:
        ConfigError: as in `client_settings`.
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
    """Assigns the partitions at their first offsets."""

    def __init__(self, consumer: Consumer, options: argparse.Namespace) -> None:
        """Look partitions and offsets up.

        Raises:
            UsageError: a topic or a partition does not exist.
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
        """Return the result of `poll`, a call of the consumer. Raises its errors.

        A position outside the log is moved inside first.
        """
        while True:
            try:
                return poll()
            except LogTruncationError:  # records that were read are no longer in the log
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
