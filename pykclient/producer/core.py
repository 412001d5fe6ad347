"""ProducerCore: the producer without the waiting.

Builds the engine with its managers in the right order, and has every step of `send`, `flush` and
`close` that does not wait. `Producer` adds those that do. `send` itself is the per-record core's:
it appends to open batches, and calls `_send_slowly` for everything else.

Owner: methods run in any thread; what they set in motion, in the sender thread.
Source: Java class ``KafkaProducer``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

from pykclient.accel import SendCore
from pykclient.errors import ClosedError, KafkaError, KafkaTimeoutError
from pykclient.network.broker.client import NetworkClient
from pykclient.network.cluster.metadata import Metadata
from pykclient.network.engine import Engine
from pykclient.network.live_client import LiveClient, describe_client
from pykclient.network.log import ClientLog
from pykclient.network.retry import Backoff
from pykclient.producer.accumulator.accumulator import AccumulatorSettings, RecordAccumulator
from pykclient.producer.accumulator.batch import Compression
from pykclient.producer.accumulator.buffer_pool import BufferPool
from pykclient.producer.failure_reports import FailureReports
from pykclient.producer.interceptors import ProducerInterceptors
from pykclient.producer.lifecycle import Lifecycle
from pykclient.producer.partitioner import checked_partition, partition_function
from pykclient.producer.record import RecordMetadata
from pykclient.producer.sender.idempotence import Idempotence
from pykclient.producer.sender.sender import Sender, SenderSettings
from pykclient.producer.serializers import RecordSerializer
from pykclient.records.compression import Codec, require_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.accel import Delivery
    from pykclient.accel.abc import HeadersInput, OnDelivery
    from pykclient.network.io.port import Port
    from pykclient.network.manager import Manager, UserCall
    from pykclient.producer.config import ProducerConfig
    from pykclient.producer.delivery import Waiting
    from pykclient.producer.record import SerializedRecord

__all__ = ["ProducerCore"]

log = ClientLog("pykclient.producer", "")


class ProducerCore(SendCore[RecordMetadata], LiveClient, ABC):
    """A producer's parts, and what can be done with them at once.

    `clock_ms` tells monotonic milliseconds, `wall_clock_ns` nanoseconds since 1970.
    """

    def __init__(
        self,
        config: ProducerConfig,
        port: Port,
        *,
        waiting: Waiting,
        clock_ms: Callable[[], int],
        wall_clock_ns: Callable[[], int],
    ) -> None:
        super().__init__(self._send_slowly, wall_clock_ns)
        # What may be refused comes first: nothing is open yet.
        compression = _compression(config)
        self._waiting = waiting
        self._wall_clock_ms = lambda: wall_clock_ns() // 1_000_000
        self._serializer = RecordSerializer.from_config(config, self._wall_clock_ms)
        self._interceptors = ProducerInterceptors.from_setting(config.interceptors)
        self._partitioner = partition_function(config.partitioner)
        self._config = config
        self._port = port
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._metadata = Metadata.from_config(
            config, allow_auto_topic_creation=True, topic_idle_ms=config.metadata_max_idle_ms
        )
        self._client = NetworkClient.from_config(
            config,
            port,
            self._metadata,
            max_in_flight_requests_per_connection=config.max_in_flight_requests_per_connection,
        )
        self._pool = BufferPool(config.buffer_memory)
        self._reports = FailureReports(config.client_id, clock_ms)
        is_plain = (
            self._serializer.takes_bytes_only
            and not self._interceptors
            and self._partitioner is None
        )
        self._accumulator = RecordAccumulator(
            _accumulator_settings(config, compression),
            self._pool,
            reports=self._reports,
            waiting=waiting,
            clock_ms=clock_ms,
            wakeup=port.wakeup,
            random=backoff.random,
            fast_topics=self.topics if is_plain else None,
        )
        self._lifecycle = Lifecycle(
            self.topics, self._pool, self._accumulator, self._interceptors, self._reports
        )
        self._metadata.add_listener(self._lifecycle.on_cluster)
        idempotence = self._new_idempotence(backoff)
        if idempotence is not None:
            self._metadata.add_listener(idempotence.on_cluster)
        user_calls: deque[UserCall] = deque()
        self._sender = Sender(
            _sender_settings(config),
            self._accumulator,
            nodes=self._client,
            metadata=self._metadata,
            idempotence=idempotence,
            backoff=backoff,
            reports=self._reports,
            user_calls=user_calls,
            on_failed=self._lifecycle.on_failed,
        )
        self._lifecycle.sender = self._sender
        found: tuple[Manager | None, ...] = (self._metadata, idempotence, self._sender)
        managers = [manager for manager in found if manager is not None]
        self._engine = self._lifecycle.engine = Engine(self._client, managers, user_calls)

    def _new_idempotence(self, backoff: Backoff) -> Idempotence | None:
        if not self._config.enable_idempotence:
            return None
        lifecycle = self._lifecycle  # not the producer, which can be dropped
        return Idempotence(
            in_flight_max=self._config.max_in_flight_requests_per_connection,
            backoff=backoff,
            on_assigned=self._accumulator.look_at_all,
            on_failed=lambda error, now_ms: lifecycle.sender.fail(error, now_ms),
            client_id=self._config.client_id,
        )

    def __repr__(self) -> str:
        error = self._lifecycle.failure
        state = "open"
        if error is not None:
            state = "closed" if isinstance(error, ClosedError) else f"ended by {error!r}"
        return describe_client(self, self._config, state)

    # What a front-end adds.

    @abstractmethod
    def _send_slowly(
        self,
        topic: object,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersInput | None,
        on_delivery: OnDelivery[RecordMetadata] | None,
    ) -> Delivery[RecordMetadata]:
        """Send a record that could not just be appended."""

    @abstractmethod
    def _await_topic(self, topic: str, partition: int | None, deadline_ms: int) -> None:
        """Wait until a topic, and the partition if one is named, is known."""

    @abstractmethod
    def _block_deadline_ms(self) -> int:
        """Until when what begins now may wait."""

    # Steps of sending: any thread.

    def _check_usable(self) -> None:
        """Raise if nothing can be sent any more."""
        error = self._lifecycle.failure
        if error is not None:
            raise error.with_traceback(None)

    def _choose_partition(self, record: SerializedRecord) -> SerializedRecord:
        """Ask the application's own partitioner. Requires that the topic is known."""
        partition = self._ask_partitioner(record.topic, record.key, record.value)
        return record._replace(partition=partition)

    def _ask_partitioner(self, topic: str, key: bytes | None, value: bytes | None) -> int:
        assert self._partitioner is not None
        partitions = self._metadata.cluster.partitions_for(topic)
        deadline_ms: int | None = None
        while not partitions:  # a response of a broker that lags behind has dropped the topic
            if deadline_ms is None:
                deadline_ms = self._block_deadline_ms()
            self._await_topic(topic, None, deadline_ms)
            partitions = self._metadata.cluster.partitions_for(topic)
        chosen = self._partitioner(topic, key, value, partitions)
        return checked_partition(chosen, topic, len(partitions))

    def _want_topic(self, topic: str) -> None:
        """Have the metadata of a topic asked for, anew if need be."""

        def ask(now_ms: int) -> None:
            self._metadata.add_topic(topic, now_ms)
            self._metadata.request_update()

        self._engine.post(ask)

    def _has_partition(self, topic: str, partition: int | None) -> bool:
        """Whether a topic is known, and has this partition, if one is named."""
        count = self._accumulator.partition_count(topic)
        if self._partitioner is not None and not self._metadata.cluster.partitions_for(topic):
            return False  # a partitioner wants more than their number
        return count is not None and (partition is None or partition < count)

    def _final_topic_error(self, topic: str, version: int, fatal_count: int) -> KafkaError | None:
        """Return why waiting for a topic is in vain, by what is newer than cluster `version`, or
        what was found to be fatal since `fatal_count`.
        """
        fatal_error = self._metadata.fatal_since(fatal_count)
        if fatal_error is not None:
            return fatal_error
        cluster = self._metadata.cluster
        error = cluster.topic_errors.get(topic) if cluster.version > version else None
        return error if error is not None and not error.retriable else None

    def _no_metadata(self, topic: str, partition: int | None, waited_ms: int) -> KafkaTimeoutError:
        """Make the error of having waited in vain for a topic or a partition of it."""
        count = self._accumulator.partition_count(topic)
        if count is not None:
            return KafkaTimeoutError(
                f"topic {topic!r} has no partition {partition}, only 0 to {count - 1}, also after "
                f"waiting {waited_ms} ms (max_block_ms) for one to be added"
            )
        reason, cause = self._why_no_metadata(topic)
        error = KafkaTimeoutError(
            f"no metadata of topic {topic!r} within {waited_ms} ms (max_block_ms): {reason}"
        )
        error.__cause__ = cause
        return error

    def _why_no_metadata(self, topic: str) -> tuple[str, KafkaError | None]:
        """Return what keeps a topic from being known, in words and, if one tells it, as error."""
        cause: KafkaError | None = self._metadata.cluster.topic_errors.get(topic)
        if cause is not None:
            how = "create the topic, or have brokers do so (auto.create.topics.enable)"
            return f"{cause}; {how}", cause
        failures = self._client.describe_failures()
        if failures:
            return f"no broker could be reached: {failures}", None
        cause = self._metadata.last_error
        return str(cause or "the brokers have not answered yet"), cause


def _compression(config: ProducerConfig) -> Compression:
    codec = Codec[config.compression_type.upper()]
    require_library(codec)
    level = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(codec)
    return Compression(codec, level)


def _accumulator_settings(config: ProducerConfig, compression: Compression) -> AccumulatorSettings:
    return AccumulatorSettings(
        batch_size_bytes=max(1, min(config.batch_size, config.max_request_size)),
        linger_ms=config.linger_ms,
        delivery_timeout_ms=config.delivery_timeout_ms,
        compression=compression,
        hash_keys=not config.partitioner_ignore_keys,
        is_adaptive=config.partitioner_adaptive_partitioning_enable,
    )


def _sender_settings(config: ProducerConfig) -> SenderSettings:
    return SenderSettings(
        acks=config.acks,
        retries=config.retries,
        request_timeout_ms=config.request_timeout_ms,
        delivery_timeout_ms=config.delivery_timeout_ms,
        max_request_size=config.max_request_size,
        max_in_flight_requests_per_connection=config.max_in_flight_requests_per_connection,
        partitioner_availability_timeout_ms=config.partitioner_availability_timeout_ms,
        client_id=config.client_id,
    )
