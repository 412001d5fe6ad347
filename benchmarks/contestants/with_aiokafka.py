"""The jobs done by aiokafka, on asyncio's own loop."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

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
    return asyncio.run(_produce(job))


def consume(job: Job) -> Figures:
    """Read record objects and look at each value."""
    return asyncio.run(_consume(job))


async def _produce(job: Job) -> Figures:
    value = bytes(job.value_bytes)
    producer = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap_servers,
        max_batch_size=job.batch_bytes,
        linger_ms=LINGER_MS,
        acks="all",
        enable_idempotence=True,
    )
    await producer.start()
    await producer.send_and_wait(job.topic, value)
    with measured(job) as figures:
        deliveries = deque([await producer.send(job.topic, value)])
        for _ in range(job.record_count - 2):
            deliveries.append(await producer.send(job.topic, value))
            if len(deliveries) > OPEN_DELIVERIES_MAX:
                await deliveries.popleft()
        for delivery in deliveries:
            await delivery
    await producer.stop()
    return figures


async def _consume(job: Job) -> Figures:
    partitions = [TopicPartition(job.topic, index) for index in range(job.partition_count)]
    read_count = read_bytes = 0
    consumer = AIOKafkaConsumer(
        bootstrap_servers=job.bootstrap_servers, auto_offset_reset="earliest"
    )
    await consumer.start()
    await consumer.end_offsets(partitions)
    with measured(job) as figures:
        consumer.assign(partitions)
        while read_count < job.record_count:
            polled = await consumer.getmany(
                timeout_ms=int(SILENCE_S_MAX * 1000), max_records=POLL_RECORDS_MAX
            )
            job.check_silence(polled, read_count)
            for records in polled.values():
                for record in records:
                    read_bytes += len(record.value)
                read_count += len(records)
    await consumer.stop()
    job.check_bytes(read_bytes)
    return figures
