"""`send` without waiting: find the open batch, choose the partition, append.

It never waits for metadata or memory, and never starts a batch: the slow path does, about once per
batch.

Owner: see each class.
Source: KIP-480, KIP-794 (sticky partitions); Java class ``BuiltInPartitioner``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from pykclient.accel.key_rule import (
    EACH_RECORD,
    HASHES,
    MURMUR2,
    NULL_IS_PLACED,
    ROUND_ROBIN,
    is_hashed,
)
from pykclient.accel.pure.appender import INT64_MAX
from pykclient.accel.pure.hashes import partition_of_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.accel.abc import HeadersInput, OnDelivery, SendSlowly
    from pykclient.accel.pure.appender import RecordAppender
    from pykclient.accel.pure.delivery import Delivery

T = TypeVar("T")


class TopicAppenders(Generic[T]):
    """The open batches of one topic, as `SendCore.send` finds them.

    `open` holds an appender or None per partition. `sticky` is the one for records without a key,
    None while none is chosen; it is one of `open`. `key_rule` decides which records with keys go
    there, too. If it gives each record its own partition, `choices` are the partitions to choose
    from, and `turn` counts the choices.

    Owner: the slow path, which replaces items as a whole; `send` only reads, and advances `turn`.
    """

    __slots__ = ("choices", "key_rule", "open", "sticky", "turn")

    def __init__(self, partition_count: int, *, key_rule: int = MURMUR2, turn: int = 0) -> None:
        self.open: list[RecordAppender[T] | None] = [None] * partition_count
        self.sticky: RecordAppender[T] | None = None
        self.key_rule = key_rule
        self.choices: list[int] = []
        self.turn = turn

    def next_choice(self) -> int:
        """Return the partition of the next record, or -1 if there is none to choose from.

        `turn` is a counter for `ROUND_ROBIN`, and the state of a xorshift for `RANDOM`: not 0.
        """
        choices, turn = self.choices, self.turn
        if not choices:
            return -1
        if self.key_rule & ROUND_ROBIN:
            self.turn = turn + 1 & 0xFFFFFFFF
            return choices[turn % len(choices)]
        turn ^= turn << 13 & 0xFFFFFFFF
        turn ^= turn >> 17
        turn ^= turn << 5 & 0xFFFFFFFF
        self.turn = turn
        return choices[turn * len(choices) >> 32]


class SendCore(Generic[T]):
    """`send` without waiting: finds the open batch, appends, returns the delivery.

    `topics` holds the known topics. An unknown topic, a full batch, and any argument that is not
    plain bytes go to `send_slowly`; with empty `topics`, every record does.

    Owner: any thread may send; `topics` belongs to the slow path.
    """

    def __init__(
        self,
        send_slowly: SendSlowly[T],
        wall_clock_ns: Callable[[], int],
        topics: dict[object, TopicAppenders[T]] | None = None,
    ) -> None:
        self.topics: dict[object, TopicAppenders[T]] = {} if topics is None else topics
        self._send_slowly = send_slowly
        self._wall_clock_ns = wall_clock_ns

    def send(
        self,
        topic: object,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersInput | None = None,
        on_delivery: OnDelivery[T] | None = None,
    ) -> Delivery[T]:
        """Append a record to a batch, usually without waiting, and return its `Delivery`.

        `topic` is a name, or a `ProducerRecord` with everything but `on_delivery`. `value` and
        `key` are bytes, None for null, or objects for the configured serializers. Without a
        `partition` the partitioner chooses: by the key's hash as in Java, or the sticky partition
        for records without a key. `timestamp_ms` is in milliseconds since 1970, None for now;
        `headers` are pairs of a name and bytes or None (KIP-82), or a dict of them.

        `on_delivery(metadata, error)` is called in the sender thread when the record is delivered
        or has failed, in the order in which a partition's records were sent. `error` is None or a
        `KafkaError`, and then `metadata` has no offset. It must not block: a `send` in it that
        would have to wait raises `BufferExhaustedError`.

        This waits up to `max_block_ms` for metadata of an unknown topic, and for memory when
        `buffer_memory` is used up.

        Raises:
            ClosedError, ForkedClientError: the producer was closed, or belongs to another process.
            SerializationError: a serializer failed, or a value is not bytes and has no serializer.
            RecordTooLargeError: more than `max_request_size` or `buffer_memory` allow.
            KafkaTimeoutError: no metadata in time; the message says why.
            BufferExhaustedError: no memory in time.
            UsageError: a field has an invalid value.
            KafkaError: brokers refuse the topic or the client permanently (`InvalidTopicError`,
                `TopicAuthorizationFailedError`, `UnsupportedVersionError` and others).
        """
        # Anything but a name may be known to the slow path, or may be unhashable.
        found = self.topics.get(topic) if type(topic) is str else None
        if (
            found is not None
            and (value is None or type(value) is bytes)
            and (key is None or type(key) is bytes)
            # Lazy headers can be read only once, and the slow path may have to read them too.
            and (headers is None or type(headers) is list or type(headers) is tuple)
            and (
                timestamp_ms is None
                or (type(timestamp_ms) is int and 0 <= timestamp_ms <= INT64_MAX)
            )
            and (on_delivery is None or callable(on_delivery))
        ):
            if partition is not None:
                is_there = type(partition) is int and 0 <= partition < len(found.open)
                appender = found.open[partition] if is_there else None
            # The usual case first, without a call.
            elif key is None and not found.key_rule & NULL_IS_PLACED:
                appender = found.sticky
            elif key and found.key_rule & HASHES:
                appender = found.open[partition_of_key(key, len(found.open), found.key_rule)]
            elif found.key_rule & EACH_RECORD:
                chosen = found.next_choice()
                is_there = 0 <= chosen < len(found.open)
                partition = chosen if is_there else None
                appender = found.open[chosen] if is_there else None
            elif not is_hashed(found.key_rule, key):
                appender = found.sticky
            else:
                appender = found.open[partition_of_key(b"", len(found.open), found.key_rule)]
            if appender is not None:
                delivery = appender.append(
                    self._wall_clock_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms,
                    key,
                    value,
                    headers,
                    on_delivery,
                )
                if delivery is not None:
                    return delivery
        return self._send_slowly(topic, value, key, partition, timestamp_ms, headers, on_delivery)
