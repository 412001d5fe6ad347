"""ConsumerRecord: the record that a consumer returns.

Owner: none, it never changes.
Source: Java class ``org.apache.kafka.clients.consumer.ConsumerRecord``.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Generic, NamedTuple

from pykclient.type_parameters import K_co, V_co
from pykclient.types import TopicPartition, utc_datetime

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime
    from typing import Any

    from pykclient.accel.abc import RecordColumns
    from pykclient.types import Headers, TimestampType


class ConsumerRecord(NamedTuple, Generic[K_co, V_co]):
    """One record, as a consumer returns it.

    `topic`, `partition` and `offset` are its location; `timestamp_ms` is in milliseconds since
    1970, and `timestamp_type` its origin. `key` and `value` are bytes, or a deserializer's result;
    None is null. `headers` are pairs of a name and bytes or None, in order. `leader_epoch` is None
    if the broker did not report it; the sizes are those of the bytes before deserialization, -1 for
    null. Attributes, `==` and `repr` are stable; that it is a tuple is not.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: K_co | None
    value: V_co | None
    headers: Headers
    leader_epoch: int | None
    serialized_key_size: int
    serialized_value_size: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the record was read from."""
        return TopicPartition(self.topic, self.partition)

    @property
    def timestamp(self) -> datetime | None:
        """The timestamp in UTC; None if there is none, or it is after the year 9999."""
        return utc_datetime(self.timestamp_ms)

    def header(self, name: str, default: bytes | None = None) -> bytes | None:
        """Return the value of the last header with a name; None if it is null.

        `default` is returned if no header has the name.
        """
        for each, value in reversed(self.headers):
            if each == name:
                return value
        return default


def iterate_records(
    columns: RecordColumns,
    *,
    topic: str,
    partition: int,
    timestamp_type: TimestampType,
    leader_epoch: int | None,
    keys: Sequence[object] | None = None,
    values: Sequence[object] | None = None,
) -> tuple[Iterator[ConsumerRecord[Any, Any]], Iterable[object]]:
    """Return an iterator over the records of `columns`, and a counter of the remaining ones.

    Each record is made when it is taken. The counter's `operator.length_hint` is exact whenever no
    record is being taken. `keys` and `values` replace the raw ones if they were deserialized; the
    sizes are those of the raw ones.
    """
    # One chain of C-level iterators: half the cost of calling the constructor in a loop.
    offsets = iter(columns.offsets)
    fields = zip(
        repeat(topic),
        repeat(partition),
        offsets,
        columns.timestamps_ms,
        repeat(timestamp_type),
        columns.keys if keys is None else keys,
        columns.values if values is None else values,
        columns.headers,
        repeat(leader_epoch),
        [-1 if key is None else len(key) for key in columns.keys],
        [-1 if value is None else len(value) for value in columns.values],
        strict=False,
    )
    return map(tuple.__new__, repeat(ConsumerRecord), fields), offsets
