"""The jobs done by pykclient."""

from __future__ import annotations

import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from contestants.busy_loop import BusyLoop
from contestants.job import (
    BULK_COUNT,
    CHUNK_COUNT,
    HEARTBEAT_INTERVAL_MS,
    OPEN_DELIVERIES_MAX,
    POLL_RECORDS_MAX,
    SESSION_TIMEOUT_MS,
    SILENCE_S_MAX,
    TRANSACTION_COUNT,
    measured,
    percentiles,
)
from contestants.resident import ResidentGrowth
from pykclient import Consumer, Producer, TopicPartition
from pykclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contestants.job import Figures, Job
    from pykclient.accel import Delivery
    from pykclient.producer.record import RecordMetadata

FETCH_BYTES_MAX = 50 * 2**20
"""The default of `fetch_max_bytes`."""
ASSIGNMENT_POLL_S = 0.1
SLOW_POLLS = 20
SLOW_POLL_S = 0.05
BULK_OPEN_MAX = 4

T = TypeVar("T")


def produce(job: Job) -> Figures:
    """Send each record by itself and look at each delivery."""
    value = bytes(job.value_bytes)
    with _producer(job) as producer:
        producer.send(job.topic, value).result()
        send, topic, keys = producer.send, job.topic, job.keys()
        chunks: deque[list[Delivery[RecordMetadata]]] = deque()
        with measured(job) as figures:
            for count in job.chunks():
                chunks.append([send(topic, value, key) for key in islice(keys, count)])
                if len(chunks) > OPEN_DELIVERIES_MAX // CHUNK_COUNT:
                    _check(chunks.popleft())
            for chunk in chunks:
                _check(chunk)
    return figures


def one_by_one(job: Job) -> Figures:
    """Send each record by itself and wait for its acknowledgement before the next."""
    value = bytes(job.value_bytes)
    with _producer(job, linger_ms=0) as producer:
        producer.send(job.topic, value).result()
        with measured(job) as figures:
            for _ in range(job.record_count - 1):
                producer.send(job.topic, value).result()
    return figures


def transactions(job: Job) -> Figures:
    """Send each record by itself and look at each delivery, a transaction after the other."""
    value = bytes(job.value_bytes)
    with _producer(job, transactional_id=job.topic) as producer:
        producer.init_transactions()

        def send(record_count: int) -> None:
            for start in range(0, record_count, TRANSACTION_COUNT):
                count = min(TRANSACTION_COUNT, record_count - start)
                with producer.transaction():
                    deliveries = [producer.send(job.topic, value) for _ in range(count)]
                _check(deliveries)

        send(max(job.warm_up_count, 1))
        with measured(job) as figures:
            send(job.record_count)
    return figures


def send_batch(job: Job) -> Figures:
    """Send lists of 100,000 values."""
    values = [bytes(job.value_bytes)] * BULK_COUNT
    with _producer(job) as producer:
        producer.send(job.topic, values[0]).result()
        with measured(job) as figures:
            _wait_for(
                producer.send_batch(job.topic, values[:count]) for count in job.chunks(BULK_COUNT)
            )
    return figures


def send_arrow(job: Job) -> Figures:
    """Send Arrow tables of 100,000 rows with the one column `value`."""
    table = pa.table({"value": pa.array([bytes(job.value_bytes)] * BULK_COUNT, pa.binary())})
    with _producer(job) as producer:
        producer.send(job.topic, bytes(job.value_bytes)).result()
        with measured(job) as figures:
            _wait_for(
                producer.send_arrow(job.topic, table[:count]) for count in job.chunks(BULK_COUNT)
            )
    return figures


def consume(job: Job) -> Figures:
    """Read record objects and look at each value."""
    read_count = read_bytes = 0
    with _consumer(job) as consumer, measured(job) as figures:
        while read_count < job.record_count:
            records = consumer.poll(timeout=SILENCE_S_MAX, max_records=POLL_RECORDS_MAX)
            job.check_silence(records, read_count)
            for record in records:
                read_bytes += len(record.value)  # type: ignore[arg-type]  # bytes here
            read_count += len(records)
    job.check_bytes(read_bytes)
    return figures


def iterate(job: Job) -> Figures:
    """Read record objects in a loop over the consumer and look at each value."""
    read_count = read_bytes = 0
    with (
        _consumer(job, consumer_timeout_ms=int(SILENCE_S_MAX * 1000)) as consumer,
        measured(job) as figures,
    ):
        for record in islice(consumer, job.record_count):
            read_bytes += len(record.value)  # type: ignore[arg-type]  # bytes here
            read_count += 1
    job.check_silence(read_count == job.record_count, read_count)
    job.check_bytes(read_bytes)
    return figures


def consume_arrow(job: Job) -> Figures:
    """Read Arrow record batches and look at the size of each value."""
    read_count = read_bytes = 0
    pc.sum(pc.binary_length(pa.array([b""])))  # pyarrow sets itself up
    with _consumer(job) as consumer, measured(job) as figures:
        while read_count < job.record_count:
            batch = consumer.poll_arrow(timeout=SILENCE_S_MAX, max_records=BULK_COUNT)
            job.check_silence(batch.num_rows, read_count)
            read_bytes += pc.sum(pc.binary_length(batch.column("value"))).as_py()
            read_count += batch.num_rows
    job.check_bytes(read_bytes)
    return figures


def latency(job: Job) -> Figures:
    """Send one record, wait for its acknowledgement, then until it is read; and the next."""
    value = bytes(job.value_bytes)
    acknowledged_s: list[float] = []
    received_s: list[float] = []
    with _producer(job, linger_ms=0) as producer, _consumer(job) as consumer:
        for _ in range(job.warm_up_count + job.record_count):
            start_s = time.perf_counter()
            producer.send(job.topic, value).result()
            acknowledged_s.append(time.perf_counter() - start_s)
            job.check_silence(consumer.poll(timeout=SILENCE_S_MAX), len(received_s))
            received_s.append(time.perf_counter() - start_s)
    return {
        **percentiles("ack", acknowledged_s[job.warm_up_count :]),
        **percentiles("received", received_s[job.warm_up_count :]),
    }


def busy_neighbour(job: Job) -> Figures:
    """Send from a thread that computes without a pause, and time the acknowledgements."""
    value = bytes(job.value_bytes)
    with _producer(job, linger_ms=0) as producer:
        producer.send(job.topic, value).result()
        loop = BusyLoop(job.record_count - 1)
        for on_delivery in loop.turns():
            producer.send(job.topic, value, on_delivery=on_delivery)
        producer.flush()
    return percentiles("ack", loop.latencies_s())


def member(job: Job) -> Figures:
    """Be a group's only member, compute without a poll, and then see whether it still is one."""
    partition = TopicPartition(job.topic, 0)
    with Consumer(
        bootstrap_servers=job.bootstrap_servers,
        group_id=job.topic,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        enable_auto_commit=False,
    ) as consumer:
        consumer.subscribe([job.topic])
        until_s = time.monotonic() + SILENCE_S_MAX
        while not consumer.assignment():
            consumer.poll(timeout=ASSIGNMENT_POLL_S)
            job.check_silence(time.monotonic() < until_s, 0)
        figures = BusyLoop(job.record_count).compute()
        try:
            consumer.commit({partition: 0})
        except KafkaError:
            return {**figures, "is_member": False}
    return {**figures, "is_member": True}


def produce_memory(job: Job) -> Figures:
    """Send as fast as it goes, keep no delivery, and see how far the memory grows."""
    value = bytes(job.value_bytes)
    with _producer(job) as producer:
        producer.send(job.topic, value).result()
        growth = ResidentGrowth()
        for _ in range(job.record_count - 1):
            producer.send(job.topic, value)
        producer.flush()
        return {"growth_mib": growth.peak_mib()}


def consume_memory(job: Job) -> Figures:
    """Read a backlog, at first slowly, with partitions that may fill a whole fetch each."""
    read_count = 0
    with _consumer(job, max_partition_fetch_bytes=FETCH_BYTES_MAX) as consumer:
        growth = ResidentGrowth()
        for turn in range(job.record_count):
            if turn < SLOW_POLLS:
                time.sleep(SLOW_POLL_S)
            records = consumer.poll(timeout=SILENCE_S_MAX)
            job.check_silence(records, read_count)
            read_count += len(records)
            if read_count == job.record_count:
                break
        return {"growth_mib": growth.peak_mib()}


def _producer(
    job: Job, linger_ms: int | None = None, transactional_id: str | None = None
) -> Producer:
    settings = _security(job)
    if transactional_id is not None:  # a checkout of before may not know the setting
        settings["transactional_id"] = transactional_id
    return Producer(
        settings,
        bootstrap_servers=job.bootstrap_servers,
        batch_size=job.batch_bytes,
        linger_ms=job.linger_ms if linger_ms is None else linger_ms,
        send_buffer_bytes=-1,
        receive_buffer_bytes=-1,
    )


def _consumer(job: Job, **settings: int) -> Consumer:
    """One that has all partitions from their beginning, and has spoken to the broker."""
    consumer = Consumer(
        {**settings, **_security(job)},
        bootstrap_servers=job.bootstrap_servers,
        auto_offset_reset="earliest",
        send_buffer_bytes=-1,
        receive_buffer_bytes=-1,
    )
    partitions = [TopicPartition(job.topic, index) for index in range(job.partition_count)]
    consumer.assign(partitions)
    consumer.end_offsets(partitions)
    return consumer


def _security(job: Job) -> dict[str, str]:
    if job.ca_location is None:
        return {}
    return {"security_protocol": "SSL", "ssl_truststore_location": job.ca_location}


def _check(deliveries: Iterable[Delivery[RecordMetadata]]) -> None:
    for delivery in deliveries:
        if (error := delivery.exception()) is not None:
            raise error


def _wait_for(deliveries: Iterable[Delivery[T]]) -> None:
    """Wait for each delivery, when some later ones were sent."""
    waiting: deque[Delivery[T]] = deque()
    for delivery in deliveries:
        waiting.append(delivery)
        if len(waiting) > BULK_OPEN_MAX:
            waiting.popleft().result()
    for delivery in waiting:
        delivery.result()
