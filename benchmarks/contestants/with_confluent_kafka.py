"""The jobs done by confluent-kafka (librdkafka)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from contestants.job import BATCH_BYTES, LINGER_MS, OPEN_DELIVERIES_MAX, SILENCE_S_MAX, measured

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from contestants.job import Job, Taken

LIST_COUNT_MAX = 10_000
POLL_SENDS = 1_000
"""Callbacks are asked for once in so many sends; each time costs as much as a send."""


def produce(job: Job) -> Taken:
    """Send each record by itself with a callback, which is what this client has for a delivery."""
    value = bytes(job.value_bytes)
    acknowledged_count = 0

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged_count
        if error is not None:
            raise RuntimeError(error)
        acknowledged_count += 1

    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap_servers,
            "batch.size": BATCH_BYTES,
            "linger.ms": LINGER_MS,
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.messages": OPEN_DELIVERIES_MAX,
        }
    )
    producer.produce(job.topic, value, on_delivery=on_delivery)
    producer.flush()
    with measured() as taken:
        for number in range(job.record_count - 1):
            if number % POLL_SENDS == 0:
                while len(producer) > OPEN_DELIVERIES_MAX - POLL_SENDS:
                    producer.poll(0.01)
                producer.poll(0)
            producer.produce(job.topic, value, on_delivery=on_delivery)
        producer.flush()
    if acknowledged_count != job.record_count:
        raise RuntimeError(f"{acknowledged_count} of {job.record_count} records acknowledged")
    return taken


def consume(job: Job) -> Taken:
    """Read message objects in lists of up to 10,000 and look at each value."""
    read_count = read_bytes = 0
    consumer = Consumer(
        {
            "bootstrap.servers": job.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    partitions = [
        TopicPartition(job.topic, index, OFFSET_BEGINNING) for index in range(job.partition_count)
    ]
    consumer.get_watermark_offsets(partitions[0])
    with measured() as taken:
        consumer.assign(partitions)
        while read_count < job.record_count:
            wanted_count = min(LIST_COUNT_MAX, job.record_count - read_count)
            messages = consumer.consume(wanted_count, SILENCE_S_MAX)
            job.check_silence(messages, read_count)
            for message in messages:
                if message.error():
                    raise RuntimeError(message.error())
                read_bytes += len(message.value())  # type: ignore[arg-type]  # never null here
            read_count += len(messages)
    consumer.close()
    job.check_bytes(read_bytes)
    return taken
