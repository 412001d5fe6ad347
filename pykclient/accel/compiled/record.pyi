"""The types of record.pyx, which are those of the pure twin."""

from collections.abc import Iterator, Sequence
from typing import final

from pykclient.accel.abc import RecordColumns
from pykclient.types import Headers, TimestampType, TopicPartition

__all__ = ["ConsumerRecord", "iterate_records"]

@final
class ConsumerRecord:
    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        timestamp_type: TimestampType,
        key: object,
        value: object,
        headers: Headers,
        leader_epoch: int | None,
        serialized_key_size: int,
        serialized_value_size: int,
    ) -> None: ...
    def __hash__(self) -> int: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def timestamp_type(self) -> TimestampType: ...
    @property
    def key(self) -> object: ...
    @property
    def value(self) -> object: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def leader_epoch(self) -> int | None: ...
    @property
    def serialized_key_size(self) -> int: ...
    @property
    def serialized_value_size(self) -> int: ...

def iterate_records(
    columns: RecordColumns,
    *,
    topic: str,
    partition: int,
    timestamp_type: TimestampType,
    leader_epoch: int | None,
    keys: Sequence[object] | None = None,
    values: Sequence[object] | None = None,
) -> Iterator[ConsumerRecord]: ...
