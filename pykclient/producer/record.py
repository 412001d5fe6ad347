"""What goes into `send`, what it is made into, and what comes back: immutable values.

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
    """One record to be sent.

    `value` and `key` are bytes, or whatever the configured serializers take; None is null.
    `partition` None leaves the choice to the partitioner, `timestamp_ms` (milliseconds since 1970)
    None stands for the time of `send`. `headers` are pairs of a name and bytes or None (KIP-82), or
    a dict of them, kept as a tuple. `dataclasses.replace` makes a changed copy, as an interceptor
    may want.
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
        # Of the fields that are always hashable: a value that awaits its serializer need not be.
        return hash((self.topic, self.partition, self.timestamp_ms))


class RecordMetadata(NamedTuple):
    """Where a record stands.

    `offset` is None when it is not known: with ``acks=0`` it is not reported, a record that failed
    has none, and a broker that recognises a record that it had before may not remember where.
    `timestamp_ms` is the record's own, or the broker's where the topic wants that
    (``message.timestamp.type=LogAppendTime``); None for a record that failed before it got one.
    `partition` is -1 for a record that failed before one was chosen.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int | None

    @property
    def timestamp(self) -> datetime | None:
        """The timestamp in UTC; None if there is none, or it is beyond the year 9999."""
        return None if self.timestamp_ms is None else utc_datetime(self.timestamp_ms)


class SerializedRecord(NamedTuple):
    """A record that is checked and ready to be appended."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    timestamp_ms: int
    headers: Headers
    on_delivery: OnDelivery[RecordMetadata] | None
    size_bytes_max: int
    """The most that a batch with only this record can take."""


class Rows(NamedTuple):
    """Rows that go to one partition, or (None) wherever it is the topic's turn. There are some.

    A batch takes as many as fit; those are taken out of `run`.
    """

    topic: str
    partition: int | None
    run: RowRun
    key: None = None
