"""Micro-batches: how long one takes, what its tasks request of brokers, and what idling costs.

Records come at an even pace, one to each partition at a time. How long a batch takes says Spark
(``triggerExecution`` of its progress). Requests and connections are counted by the fault proxies
that all connections pass; times are taken without them.

Owner: the thread that measures.
"""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from measuring.contest import in_turns
from measuring.measurement import Measurement
from pykclient import Producer
from spark.contender import OFFICIAL, OURS, OURS_ONCE, OURS_SHARED
from spark.requests import RequestCounts
from spark.targets import EXACTLY_ONCE, IDLE, STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.query import StreamingQuery

    from spark.arena import Settings, SparkArena
    from spark.contender import Contender

FEEDS_S = {"dense": 0.15, "sparse": 1.2}
SPARSE_SHARE = 4
FIRST_BATCHES = 2
BATCH_TIMEOUT_S = 180
COUNTED_BATCHES = 25
WARM_BATCHES = 5
RECORDS_PER_BATCH = 12
WRITTEN_PER_BATCH = 10_000
LIMITED = replace(
    OURS,
    options={"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(WRITTEN_PER_BATCH)},
)
WARM_UP_S = 5.0
IDLE_S = 12.0
"""A turn's part of the minute that the target names, which five turns are together."""


def micro_batch(arena: SparkArena, settings: Settings) -> Iterator[Measurement]:
    """Measure a dense and a sparse feed, into one partition and into six, which may share tasks.

    Each turn is a query of its own, whose first batches do not count.
    """
    for partition_count in (1, 6):
        for feed, interval_s in FEEDS_S.items():
            contenders = [OFFICIAL, OURS]
            if partition_count > 1 and feed == "dense":
                contenders.append(OURS_SHARED)
            case = f"{feed} feed, {partition_count} partition{'s'[: partition_count > 1]}"
            batch_count = settings.batch_count // (SPARSE_SHARE if feed == "sparse" else 1)
            for contender in in_turns(contenders, settings.turn_count):
                with (
                    arena.topic(partition_count) as topic,
                    _query(arena, contender, topic) as query,
                    _fed(arena.servers, topic, partition_count, interval_s),
                ):
                    for batch_ms in _batches_ms(query, batch_count):
                        yield Measurement(
                            "micro-batch", case, contender.name, {"batch_ms": batch_ms}
                        )


def exactly_once(arena: SparkArena, settings: Settings) -> Iterator[Measurement]:
    """Batches of 10,000 rows from six partitions to six, written exactly once and at least once.

    Each turn is a query of its own, whose first batches do not count.
    """
    batch_count = settings.batch_count + FIRST_BATCHES
    with arena.filled_topic(WRITTEN_PER_BATCH * batch_count) as source:
        for contender in in_turns((OURS, OURS_ONCE), settings.turn_count):
            with arena.topic() as target, tempfile.TemporaryDirectory(prefix="bench-") as folder:
                query = (
                    LIMITED.stream(arena.spark, arena.servers, source)
                    .load()
                    .select("key", "value")
                    .writeStream.format(contender.format)
                    .options(**contender.options)
                    .option("kafka.bootstrap.servers", arena.servers)
                    .option("topic", target)
                    .option("checkpointLocation", f"{folder}/checkpoint")
                    .trigger(availableNow=True)
                    .start()
                )
                if not query.awaitTermination(BATCH_TIMEOUT_S):
                    raise RuntimeError(f"{contender.name}: the stream did not end")
                for batch_ms in _batches_ms(query, settings.batch_count):
                    yield Measurement(*EXACTLY_ONCE, contender.name, {"batch_ms": batch_ms})
                # Markers of transactions have offsets, too.
                written, wanted = arena.record_count(target), WRITTEN_PER_BATCH * batch_count
                if written < wanted:
                    raise RuntimeError(f"{contender.name}: {written} of {wanted} rows")


def stream_requests(arena: SparkArena, settings: Settings) -> Iterator[Measurement]:
    """Batches of twelve records from six partitions: what tasks request once workers are warm."""
    counts = RequestCounts(arena.kafka.proxy(1))
    record_count = RECORDS_PER_BATCH * COUNTED_BATCHES
    # The driver's own requests for ends would hide those of tasks: they are sent once.
    ours = replace(OURS, options={"offsetPollIntervalMs": "3600000"})
    for contender in in_turns((OFFICIAL, ours), settings.turn_count):
        limited = replace(
            contender,
            options={
                **contender.options,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(RECORDS_PER_BATCH),
            },
        )
        with (
            arena.filled_topic(record_count) as topic,
            _query(arena, limited, topic, available_now=True) as query,
        ):
            _await_batch(query, WARM_BATCHES)
            before = counts.now()
            if not query.awaitTermination(BATCH_TIMEOUT_S):
                raise RuntimeError(f"{contender.name}: the stream did not end")
            after = counts.now()
            assert query.lastProgress is not None
            batches = query.lastProgress["batchId"] - WARM_BATCHES
            yield Measurement(
                *STREAM,
                contender.name,
                {
                    "list_offsets": (after["LIST_OFFSETS"] - before["LIST_OFFSETS"]) / batches,
                    "requests": (after["all"] - before["all"]) / batches,
                    "connections": after["connections"] - before["connections"],
                },
            )


def idle(arena: SparkArena, settings: Settings) -> Iterator[Measurement]:
    """Measure for a minute what a query does on six partitions that receive nothing."""
    counts = RequestCounts(arena.kafka.proxy(1))
    for contender in in_turns((OFFICIAL, OURS), settings.turn_count):
        with arena.filled_topic(60) as topic, _query(arena, contender, topic) as query:
            time.sleep(WARM_UP_S)
            before, meter = counts.now(), arena.spark_meter()
            time.sleep(IDLE_S)
            after, spark_cpu_s = counts.now(), meter.seconds()
            if not query.isActive:
                raise RuntimeError(f"{contender.name}: the stream has ended")
            yield Measurement(
                *IDLE,
                contender.name,
                {
                    "requests": (after["all"] - before["all"]) * 60 / IDLE_S,
                    "spark_cpu_s": spark_cpu_s * 60 / IDLE_S,
                },
            )


@contextmanager
def _query(
    arena: SparkArena, contender: Contender, topic: str, *, available_now: bool = False
) -> Iterator[StreamingQuery]:
    with tempfile.TemporaryDirectory(prefix="bench-checkpoint-") as checkpoint:
        writer = (
            contender.stream(arena.spark, arena.servers, topic)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
        )
        if available_now:
            query = writer.trigger(availableNow=True).start()
        else:
            query = writer.trigger(processingTime="0 seconds").start()
        try:
            yield query
        finally:
            query.stop()


@contextmanager
def _fed(servers: str, topic: str, partition_count: int, interval_s: float) -> Iterator[None]:
    """Send a record to each partition, again and again."""
    is_over = threading.Event()

    def feed() -> None:
        with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
            while not is_over.wait(interval_s):
                for partition in range(partition_count):
                    producer.send(topic, b"x" * 100, b"%08d" % partition, partition=partition)

    thread = threading.Thread(target=feed, name="feed")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _batches_ms(query: StreamingQuery, wanted_count: int) -> list[float]:
    """Return the durations of batches with rows, without the first ones."""
    deadline = time.monotonic() + BATCH_TIMEOUT_S
    while True:
        if (error := query.exception()) is not None:
            raise error
        found = [one for one in query.recentProgress if one["numInputRows"]][FIRST_BATCHES:]
        if len(found) >= wanted_count:
            return [one["durationMs"]["triggerExecution"] for one in found[:wanted_count]]
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(found)} of {wanted_count} batches came")
        time.sleep(0.3)


def _await_batch(query: StreamingQuery, number: int) -> None:
    deadline = time.monotonic() + BATCH_TIMEOUT_S
    while (last := query.lastProgress) is None or last["batchId"] < number:
        if time.monotonic() > deadline or query.exception() is not None:
            raise RuntimeError(f"batch {number} did not come: {query.exception()}")
        time.sleep(0.01)
