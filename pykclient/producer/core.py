"""ProducerCore: the producer without the waiting.

Builds the engine with its managers in the right order, and has every step of `send`, `flush` and
`close` that does not wait. `Producer` adds those that do. `send` itself is the per-record core's:
it appends to open batches, and calls `_send_slowly` for everything else.

Owner: methods run in any thread; what they set in motion, in the sender thread.
Source: Java class ``KafkaProducer``.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

from pykclient.accel import SendCore
from pykclient.errors import ClosedError, KafkaError, KafkaTimeoutError
from pykclient.network.backoff import Backoff
from pykclient.network.client import NetworkClient
from pykclient.network.engine import Engine
from pykclient.network.live_client import LiveClient
from pykclient.network.metadata import Metadata
from pykclient.producer.accumulator import AccumulatorSettings, RecordAccumulator
from pykclient.producer.batch import Compression
from pykclient.producer.buffer_pool import BufferPool
from pykclient.producer.idempotence import Idempotence
from pykclient.producer.interceptors import ProducerInterceptors
from pykclient.producer.partitioner import checked_partition, partition_function
from pykclient.producer.record import RecordMetadata
from pykclient.producer.record_serializer import RecordSerializer
from pykclient.producer.sender import Sender, SenderSettings
from pykclient.records.compression import Codec, require_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.accel import Delivery
    from pykclient.accel.abc import HeadersInput, OnDelivery
    from pykclient.network.cluster import Cluster
    from pykclient.network.manager import Manager, UserCall
    from pykclient.network.port import Port
    from pykclient.producer.config import ProducerConfig
    from pykclient.producer.delivery import Waiting
    from pykclient.producer.record import SerializedRecord

__all__ = ["ProducerCore"]

log = logging.getLogger("pykclient.producer")


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
        self._refusal: KafkaError | None = None
        self._is_closing = False
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._metadata = Metadata.from_config(
            config, allow_auto_topic_creation=True, topic_idle_ms=config.metadata_max_idle_ms
        )
        self._metadata.add_listener(self._on_cluster)
        self._client = NetworkClient.from_config(
            config,
            port,
            self._metadata,
            max_in_flight_requests_per_connection=config.max_in_flight_requests_per_connection,
        )
        self._pool = BufferPool(config.buffer_memory)
        is_plain = (
            self._serializer.takes_bytes_only
            and not self._interceptors
            and self._partitioner is None
        )
        self._accumulator = RecordAccumulator(
            _accumulator_settings(config, compression),
            self._pool,
            waiting=waiting,
            clock_ms=clock_ms,
            wakeup=port.wakeup,
            random=backoff.random,
            fast_topics=self.topics if is_plain else None,
        )
        idempotence = self._new_idempotence(backoff)
        user_calls: deque[UserCall] = deque()
        self._sender = Sender(
            _sender_settings(config),
            self._accumulator,
            nodes=self._client,
            metadata=self._metadata,
            idempotence=idempotence,
            backoff=backoff,
            user_calls=user_calls,
            on_failed=self._on_failed,
        )
        managers: list[Manager] = [self._metadata]
        if idempotence is not None:
            managers.append(idempotence)
        managers.append(self._sender)
        self._engine = Engine(self._client, managers, user_calls)

    def _new_idempotence(self, backoff: Backoff) -> Idempotence | None:
        if not self._config.enable_idempotence:
            return None
        return Idempotence(
            in_flight_max=self._config.max_in_flight_requests_per_connection,
            backoff=backoff,
            on_assigned=self._accumulator.look_at_all,
            on_failed=lambda error, now_ms: self._sender.fail(error, now_ms),
            client_id=self._config.client_id,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._config.client_id or 'without client_id'}>"

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
    def _on_news(self) -> None:
        """Let those look again who wait for metadata, or for the end. Sender thread."""

    # Steps of sending: any thread.

    def _check_usable(self) -> None:
        """Raise if nothing can be sent any more."""
        error = self._refusal or self._sender.failure
        if error is not None:
            raise error.with_traceback(None)

    def _choose_partition(self, record: SerializedRecord) -> SerializedRecord:
        """Ask the application's own partitioner. Requires that the topic is known."""
        partition = self._ask_partitioner(record.topic, record.key, record.value)
        return record._replace(partition=partition)

    def _ask_partitioner(self, topic: str, key: bytes | None, value: bytes | None) -> int:
        assert self._partitioner is not None
        partitions = self._metadata.cluster.partitions_for(topic) or ()
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
        return count is not None and (partition is None or partition < count)

    def _final_topic_error(self, topic: str, version: int) -> KafkaError | None:
        """Return why waiting for a topic is in vain, by an answer newer than cluster `version`."""
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
        cause: KafkaError | None = self._metadata.cluster.topic_errors.get(topic)
        reason = f"no broker could be reached: {self._client.describe_failures()}"
        if cause is not None:
            reason = f"{cause}; create the topic, or have brokers do so (auto.create.topics.enable)"
        elif not self._client.describe_failures():
            cause = self._metadata.last_error
            reason = str(cause or "the brokers have not answered yet")
        error = KafkaTimeoutError(
            f"no metadata of topic {topic!r} within {waited_ms} ms (max_block_ms): {reason}"
        )
        error.__cause__ = cause
        return error

    # Ending.

    def _refuse(self, error: KafkaError) -> None:
        """Take no more records. The first reason counts."""
        if self._refusal is None:
            self._refusal = error
        self.topics.clear()

    def _begin_close(self, deadline_ms: int) -> None:
        """Have what there is sent until the deadline, and then let the sender thread end."""
        error = _closed()
        self._refuse(error)
        self._pool.close()

        def close(now_ms: int) -> None:
            self._sender.close(error, now_ms, deadline_ms)
            self._is_closing = True

        self._engine.post(close)

    def _is_finished(self) -> bool:
        """Whether the producer was closed and has nothing left to do. Sender thread."""
        return self._is_closing and self._accumulator.is_empty and not self._engine.user_calls

    def _on_death(self, cause: BaseException) -> None:
        """Fail everything, since the sender thread has failed. Sender thread."""
        error = KafkaError(
            f"the producer has stopped: its sender thread failed with {cause!r}. This should not "
            f"happen; please report it, and make a new producer"
        )
        error.__cause__ = cause
        self._refuse(error)
        self._pool.close()
        calls = self._accumulator.abandon(error)
        for call in [*(user_call.function for user_call in self._engine.user_calls), *calls]:
            try:
                call()
            except BaseException:  # the next ones must be made all the same
                log.exception("a delivery callback failed: %r", call)
        self._engine.user_calls.clear()
        self._on_news()

    def _on_end(self) -> None:
        """Send those away who came too late for the sender thread to hear of them. Its last act."""
        self._accumulator.fail_flushes(self._refusal or _closed())
        self._on_news()

    def _on_failed(self) -> None:
        self._pool.close()
        self._on_news()

    def _on_cluster(self, cluster: Cluster) -> None:
        self._accumulator.on_cluster(cluster)
        fatal_error = self._metadata.fatal_error
        if fatal_error is not None:
            self._engine.post(lambda now_ms: self._sender.fail(fatal_error, now_ms))
        self._on_news()


def _closed() -> ClosedError:
    return ClosedError("the producer is closed; make a new one")


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
