"""`send` as far as it goes without waiting: look up, choose the partition, append.

Never waits for metadata or memory and never starts a batch: that is the slow path, which is called
about once per batch.

Owner: see each class.
Source: KIP-480, KIP-794 (sticky partitions); Java class ``BuiltInPartitioner``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

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

    `open` holds an appender or None per partition. `sticky` is the one that records without a key
    go to, None while none is chosen; it is one of `open`. With `hash_keys` False, records with keys
    go there too.

    Owner: the slow path, which replaces items whole; `send` only reads.
    """

    __slots__ = ("hash_keys", "open", "sticky")

    def __init__(self, partition_count: int, *, hash_keys: bool = True) -> None:
        self.open: list[RecordAppender[T] | None] = [None] * partition_count
        self.sticky: RecordAppender[T] | None = None
        self.hash_keys = hash_keys


class SendCore(Generic[T]):
    """`send` without waiting: finds the open batch, appends, returns the delivery.

    `topics` holds what may be sent without a thought; a topic that is not there, a batch that is
    full, and every argument that is not plain bytes go to `send_slowly`. An empty `topics` sends
    everything there.

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
        """Append the record to the open batch of its partition and return its delivery.

        Raises:
            UsageError: a field has a value that no record can have.
            SerializationError: the key, the value or a header is not bytes, or a serializer failed.
            KafkaError: whatever else `send_slowly` raises: for a producer no metadata or no memory
                in time, a record that is too large, or a producer that is closed.
        """
        # Anything else than a name may be one that the slow way knows, or have no hash.
        found = self.topics.get(topic) if type(topic) is str else None
        if (
            found is not None
            and (value is None or type(value) is bytes)
            and (key is None or type(key) is bytes)
            # Lazy headers can be read once, and the slow way may have to read them too.
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
            elif key is None or not found.hash_keys:
                appender = found.sticky
            else:
                appender = found.open[partition_of_key(key, len(found.open))]
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
