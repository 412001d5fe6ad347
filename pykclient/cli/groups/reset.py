"""Where a group shall go on: from what the user asked for, the new offset of each partition.

Nothing is changed here. Offsets outside of what a partition holds are moved to its nearer end,
which is told on standard error.

Owner: the main thread; it holds no state.
Source: Java class ``ConsumerGroupCommand``, ``--reset-offsets`` (KIP-122).
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from pykclient.consumer.duration import duration_ms
from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient import Consumer, OffsetAndMetadata, TopicPartition

    Committed = Mapping[TopicPartition, OffsetAndMetadata]

__all__ = ["Target", "before_now", "shift_by", "to_earliest", "to_latest", "to_offset", "to_time"]

MS_PER_S = 1_000
NS_PER_MS = 1_000_000


class Target(Protocol):
    """Gives each partition its new offset; the consumer is there to ask about the partitions."""

    def __call__(
        self, partitions: Sequence[TopicPartition], committed: Committed, consumer: Consumer
    ) -> dict[TopicPartition, int]: ...


def to_earliest(
    partitions: Sequence[TopicPartition], committed: Committed, consumer: Consumer
) -> dict[TopicPartition, int]:
    """Go on with the first record that there is."""
    return consumer.beginning_offsets(partitions)


def to_latest(
    partitions: Sequence[TopicPartition], committed: Committed, consumer: Consumer
) -> dict[TopicPartition, int]:
    """Go on with the next record that is written."""
    return consumer.end_offsets(partitions)


def to_offset(text: str) -> Target:
    """Go on at one offset, the same in every partition."""
    offset = _number(text)

    def target(
        partitions: Sequence[TopicPartition], committed: Committed, consumer: Consumer
    ) -> dict[TopicPartition, int]:
        return _within(dict.fromkeys(partitions, offset), consumer)

    return target


def shift_by(text: str) -> Target:
    """Go on so many records after what was committed, or before it."""
    count = _number(text)

    def target(
        partitions: Sequence[TopicPartition], committed: Committed, consumer: Consumer
    ) -> dict[TopicPartition, int]:
        missing = [partition for partition in partitions if partition not in committed]
        if missing:
            raise UsageError(
                f"nothing is committed for {', '.join(map(str, missing))}, so there is nothing to "
                f"shift; name the partitions with --topic TOPIC:0,1 or choose another target"
            )
        wanted = {partition: committed[partition].offset + count for partition in partitions}
        return _within(wanted, consumer)

    return target


def to_time(text: str) -> Target:
    """Go on with the first record at or after a time; UTC where the text names no zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is no time; write 2026-01-31, 2026-01-31T12:00 or 2026-01-31T12:00:00+02:00"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return _at_or_after(int(moment.timestamp() * MS_PER_S))


def before_now(text: str) -> Target:
    """Go on with the first record that is no older than a duration."""
    return _at_or_after(time.time_ns() // NS_PER_MS - duration_ms(text))


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no whole number") from error


def _at_or_after(time_ms: int) -> Target:
    def target(
        partitions: Sequence[TopicPartition], committed: Committed, consumer: Consumer
    ) -> dict[TopicPartition, int]:
        found = consumer.offsets_for_times(dict.fromkeys(partitions, max(time_ms, 0)))
        later = [partition for partition in partitions if found[partition] is None]
        ends = consumer.end_offsets(later) if later else {}
        return {
            partition: ends[partition] if answer is None else answer.offset
            for partition, answer in found.items()
        }

    return target


def _within(wanted: Mapping[TopicPartition, int], consumer: Consumer) -> dict[TopicPartition, int]:
    """Move offsets to the nearer end of what the partitions hold."""
    begins, ends = consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
    offsets = {}
    for partition, offset in wanted.items():
        taken = min(max(offset, begins[partition]), ends[partition])
        if taken != offset:
            sys.stderr.write(
                f"pykclient: {partition} holds offsets {begins[partition]} to {ends[partition]}; "
                f"{taken} is taken instead of {offset}\n"
            )
        offsets[partition] = taken
    return offsets
