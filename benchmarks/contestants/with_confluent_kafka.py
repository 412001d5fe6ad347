"""The jobs done by confluent-kafka (librdkafka)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from contestants.busy_loop import BusyLoop
from contestants.job import (
    HEARTBEAT_INTERVAL_MS,
    LINGER_MS,
    OPEN_DELIVERIES_MAX,
    POLL_RECORDS_MAX,
    SESSION_TIMEOUT_MS,
    SILENCE_S_MAX,
    TRANSACTION_COUNT,
    measured,
    percentiles,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from contestants.job import Figures, Job

FETCH_PAUSE_MS = 10
"""Pause when the queue is full. The default, a second, would be most of a run."""
ASSIGNMENT_POLL_S = 0.1
POLL_SENDS = 1_000
"""Number of sends between polls for callbacks; each poll costs as much as a send."""


def produce(job: Job) -> Figures:
    """Send each record by itself with a callback, which is what this client has for a delivery."""
    value = bytes(job.value_bytes)
    acknowledged_count = 0

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged_count
        if error is not None:
            raise KafkaException(error)
        acknowledged_count += 1

    producer = _producer(job)
    producer.produce(job.topic, value, on_delivery=on_delivery)
    producer.flush()
    with measured(job) as figures:
        for number in range(job.record_count - 1):
            if number % POLL_SENDS == 0:
                while len(producer) > OPEN_DELIVERIES_MAX - POLL_SENDS:
                    producer.poll(0.01)
                producer.poll(0)
            producer.produce(job.topic, value, on_delivery=on_delivery)
        producer.flush()
    if acknowledged_count != job.record_count:
        raise RuntimeError(f"{acknowledged_count} of {job.record_count} records acknowledged")
    return figures


def transactions(job: Job) -> Figures:
    """Send each record by itself with a callback, a transaction after the other."""
    value = bytes(job.value_bytes)
    acknowledged_count = 0

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged_count
        if error is not None:
            raise KafkaException(error)
        acknowledged_count += 1

    producer = _producer(job, transactional_id=job.topic)
    producer.init_transactions()

    def send(record_count: int) -> None:
        for start in range(0, record_count, TRANSACTION_COUNT):
            producer.begin_transaction()
            for _ in range(min(TRANSACTION_COUNT, record_count - start)):
                producer.produce(job.topic, value, on_delivery=on_delivery)
            producer.commit_transaction()

    warm_up_count = max(job.warm_up_count, 1)
    send(warm_up_count)
    with measured(job) as figures:
        send(job.record_count)
    if acknowledged_count != warm_up_count + job.record_count:
        raise RuntimeError(f"{acknowledged_count} of {job.record_count} records acknowledged")
    return figures


def consume(job: Job) -> Figures:
    """Read message objects in lists of up to 10,000 and look at each value."""
    read_count = read_bytes = 0
    consumer = _consumer(job)
    partitions = _partitions(job)
    with measured(job) as figures:
        consumer.assign(partitions)
        while read_count < job.record_count:
            wanted_count = min(POLL_RECORDS_MAX, job.record_count - read_count)
            messages = consumer.consume(wanted_count, SILENCE_S_MAX)
            job.check_silence(messages, read_count)
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
                read_bytes += len(message.value())  # type: ignore[arg-type]  # never null here
            read_count += len(messages)
    consumer.close()
    job.check_bytes(read_bytes)
    return figures


def latency(job: Job) -> Figures:
    """Send one record, wait for its callback, then until it is read; and the next."""
    value = bytes(job.value_bytes)
    acknowledged_s: list[float] = []
    received_s: list[float] = []
    start_s = 0.0

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        acknowledged_s.append(time.perf_counter() - start_s)

    producer, consumer = _producer(job, linger_ms=0), _consumer(job)
    consumer.assign(_partitions(job))
    for turn in range(job.warm_up_count + job.record_count):
        start_s = time.perf_counter()
        producer.produce(job.topic, value, on_delivery=on_delivery)
        while len(acknowledged_s) == turn:
            producer.poll(SILENCE_S_MAX)
        message = consumer.poll(SILENCE_S_MAX)
        job.check_silence(message is not None, turn)
        if message is not None and message.error():
            raise KafkaException(message.error())
        received_s.append(time.perf_counter() - start_s)
    consumer.close()
    return {
        **percentiles("ack", acknowledged_s[job.warm_up_count :]),
        **percentiles("received", received_s[job.warm_up_count :]),
    }


def busy_neighbour(job: Job) -> Figures:
    """Send from a thread that computes and asks for callbacks in between; time these."""
    value = bytes(job.value_bytes)
    producer = _producer(job, linger_ms=0)
    producer.produce(job.topic, value)
    producer.flush()
    loop = BusyLoop(job.record_count - 1)
    for on_delivery in loop.turns(between=lambda: producer.poll(0)):
        producer.produce(job.topic, value, on_delivery=on_delivery)
    producer.flush()
    return percentiles("ack", loop.latencies_s())


def member(job: Job) -> Figures:
    """Be a group's only member, compute without a poll, and then see whether it still is one."""
    consumer = Consumer(
        {
            "bootstrap.servers": job.bootstrap_servers,
            "group.id": job.topic,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([job.topic])
    until_s = time.monotonic() + SILENCE_S_MAX
    while not consumer.assignment():
        consumer.poll(ASSIGNMENT_POLL_S)
        job.check_silence(time.monotonic() < until_s, 0)
    figures = BusyLoop(job.record_count).compute()
    try:
        consumer.commit(offsets=[TopicPartition(job.topic, 0, 0)], asynchronous=False)
        is_member = True
    except KafkaException:
        is_member = False
    consumer.close()
    return {**figures, "is_member": is_member}


def _producer(
    job: Job, linger_ms: int = LINGER_MS, transactional_id: str | None = None
) -> Producer:
    return Producer(
        {
            **_security(job),
            **({"transactional.id": transactional_id} if transactional_id else {}),
            "bootstrap.servers": job.bootstrap_servers,
            "batch.size": job.batch_bytes,
            "linger.ms": linger_ms,
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.messages": OPEN_DELIVERIES_MAX,
        }
    )


def _consumer(job: Job) -> Consumer:
    """One that has spoken to the broker."""
    consumer = Consumer(
        {
            **_security(job),
            "bootstrap.servers": job.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.queue.backoff.ms": FETCH_PAUSE_MS,
        }
    )
    consumer.get_watermark_offsets(_partitions(job)[0])
    return consumer


def _security(job: Job) -> dict[str, str]:
    if job.ca_location is None:
        return {}
    return {"security.protocol": "SSL", "ssl.ca.location": job.ca_location}


def _partitions(job: Job) -> list[TopicPartition]:
    return [
        TopicPartition(job.topic, index, OFFSET_BEGINNING) for index in range(job.partition_count)
    ]
