"""The jobs done by pykclient."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from contestants.job import BATCH_BYTES, LINGER_MS, OPEN_DELIVERIES_MAX, SILENCE_S_MAX, measured
from pykclient import Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from contestants.job import Job, Taken


def produce(job: Job) -> Taken:
    """Send each record by itself and look at each delivery."""
    value = bytes(job.value_bytes)
    with Producer(
        bootstrap_servers=job.bootstrap_servers,
        batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
        send_buffer_bytes=-1,
        receive_buffer_bytes=-1,
    ) as producer:
        producer.send(job.topic, value).result()
        with measured() as taken:
            deliveries = deque([producer.send(job.topic, value)])
            for _ in range(job.record_count - 2):
                deliveries.append(producer.send(job.topic, value))
                if len(deliveries) > OPEN_DELIVERIES_MAX:
                    deliveries.popleft().result()
            for delivery in deliveries:
                delivery.result()
    return taken


def consume(job: Job) -> Taken:
    """Read record objects and look at each value."""
    partitions = [TopicPartition(job.topic, index) for index in range(job.partition_count)]
    read_count = read_bytes = 0
    with Consumer(
        bootstrap_servers=job.bootstrap_servers,
        auto_offset_reset="earliest",
        send_buffer_bytes=-1,
        receive_buffer_bytes=-1,
    ) as consumer:
        consumer.assign(partitions)
        consumer.end_offsets(partitions)
        with measured() as taken:
            while read_count < job.record_count:
                records = consumer.poll(timeout=SILENCE_S_MAX)
                job.check_silence(records, read_count)
                for record in records:
                    read_bytes += len(record.value)  # type: ignore[arg-type]  # bytes here
                read_count += len(records)
    job.check_bytes(read_bytes)
    return taken
