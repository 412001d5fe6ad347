"""The jobs done by kafka-python."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from contestants.job import (
    LINGER_MS,
    OPEN_DELIVERIES_MAX,
    POLL_RECORDS_MAX,
    SILENCE_S_MAX,
    measured,
)

if TYPE_CHECKING:
    from contestants.job import Figures, Job


def produce(job: Job) -> Figures:
    """Send each record by itself and look at each future."""
    value = bytes(job.value_bytes)
    producer = KafkaProducer(
        bootstrap_servers=job.bootstrap_servers,
        batch_size=job.batch_bytes,
        linger_ms=LINGER_MS,
        acks="all",
        enable_idempotence=True,
    )
    producer.send(job.topic, value).get()
    with measured(job) as figures:
        deliveries = deque([producer.send(job.topic, value)])
        for _ in range(job.record_count - 2):
            deliveries.append(producer.send(job.topic, value))
            if len(deliveries) > OPEN_DELIVERIES_MAX:
                deliveries.popleft().get()
        for delivery in deliveries:
            delivery.get()
    producer.close()
    return figures


def consume(job: Job) -> Figures:
    """Read record objects and look at each value."""
    partitions = [TopicPartition(job.topic, index) for index in range(job.partition_count)]
    read_count = read_bytes = 0
    consumer = KafkaConsumer(
        bootstrap_servers=job.bootstrap_servers,
        auto_offset_reset="earliest",
        max_poll_records=POLL_RECORDS_MAX,
    )
    consumer.assign(partitions)
    consumer.end_offsets(partitions)
    with measured(job) as figures:
        while read_count < job.record_count:
            polled = consumer.poll(timeout_ms=SILENCE_S_MAX * 1000)
            job.check_silence(polled, read_count)
            for records in polled.values():
                for record in records:
                    read_bytes += len(record.value)
                read_count += len(records)
    consumer.close()
    job.check_bytes(read_bytes)
    return figures
