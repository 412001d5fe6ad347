"""ProducerRecord, RecordMetadata and their internal forms: immutable values.

Source: Java classes ``ProducerRecord`` and ``RecordMetadata``.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple

from pykclient.accel.pure.appender import header_pairs
from pykclient.errors import UsageError
from pykclient.type_parameters import K_co, V_co
from pykclient.types import utc_datetime

if TYPE_CHECKING:
    from datetime import datetime

    from pykclient.accel import RowRun
    from pykclient.accel.abc import HeadersInput, OnDelivery
    from pykclient.types import Headers


@dataclass(frozen=True, slots=True)
class ProducerRecord(Generic[K_co, V_co]):
    """A record to send.

    `value` and `key` are bytes, or what the configured serializers take; None is null. With
    `partition` None the partitioner chooses. `timestamp_ms` is in milliseconds since 1970; None is
    the time of `send`. `headers` are pairs of a name and bytes or None (KIP-82), or a dict of them;
    they are kept as a tuple. `dataclasses.replace` returns a changed copy, for an interceptor for
    example.
    """

    topic: str
    value: V_co | None = None
    key: K_co | None = None
    _: KW_ONLY
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: HeadersInput = ()

    def __post_init__(self) -> None:
        try:
            headers = tuple(header_pairs(self.headers))
        except TypeError as error:
            raise UsageError(
                f"ProducerRecord: headers is of type {type(self.headers).__name__}; pass pairs of "
                f"a str and bytes or None, or a dict of them"
            ) from error
        object.__setattr__(self, "headers", headers)

    def __hash__(self) -> int:
        # Only fields that are always hashable: a value before serialization need not be.
        return hash((self.topic, self.partition, self.timestamp_ms))


class RecordMetadata(NamedTuple):
    """Position of a record in the log.

    `offset` is None when it is unknown: ``acks=0`` does not report it, a failed record has none,
    and a broker that recognises a duplicate may have forgotten its offset. `timestamp_ms` is the
    record's own, or the broker's if the topic has ``message.timestamp.type=LogAppendTime``; None
    for a record that failed before it got one. `partition` is -1 for a record that failed before
    one was chosen.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int | None

    @property
    def timestamp(self) -> datetime | None:
        """Timestamp in UTC; None if there is none, or if it is after the year 9999."""
        return None if self.timestamp_ms is None else utc_datetime(self.timestamp_ms)


class SerializedRecord(NamedTuple):
    """A checked record, ready to append."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    timestamp_ms: int
    headers: Headers
    on_delivery: OnDelivery[RecordMetadata] | None
    size_bytes_max: int
    """Maximum size of a batch with only this record."""


class Rows(NamedTuple):
    """Rows for one partition, or (None) for the topic's sticky partition; at least one.

    A batch takes as many as fit and removes them from `run`.
    """

    topic: str
    partition: int | None
    run: RowRun
    key: None = None
