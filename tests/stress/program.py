"""The program under stress: six threads send and flush at once, while a group of one reads.

    python -m tests.stress.program SERVERS COUNT

Each thread sends COUNT times, flushes, and looks whether what it sent is delivered. One more calls
`metrics`, and `wakeup`, of a consumer that reads meanwhile, with heartbeats every few milliseconds.
It fails with what is wrong; it ends by itself, with the stacks of all threads, when it hangs.

Owner: the main thread reads; each other thread has a number, and sends records of that number.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from pykclient import Consumer, Producer
from pykclient.errors import WakeupError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

TOPIC: Final = "stress"
THREAD_COUNT: Final = 6
BULK_COUNT: Final = 5
HANG_S: Final = 120.0
FLUSH_S: Final = 30.0
SWITCH_INTERVAL_S: Final = 1e-5
"""Interval at which threads must switch."""


def send(producer: Producer, thread: int, count: int) -> None:
    """Send so many times; each record and each row is a number more than the one before."""
    number = 0
    for turn in range(count):
        if turn % 10 == 9:
            values = [b"%d %d" % (thread, number + row) for row in range(BULK_COUNT)]
            is_done = producer.send_batch(TOPIC, values, partition=thread % 3).done
            number += BULK_COUNT
        else:
            is_done = producer.send(TOPIC, b"%d %d" % (thread, number), partition=thread % 3).done
            number += 1
        producer.flush(FLUSH_S)
        assert is_done(), f"thread {thread}: flush has returned before {number} was delivered"


def watch(consumer: Consumer, is_over: threading.Event) -> None:
    """Use the clients as other threads may, until the program ends."""
    while not is_over.wait(0.01):
        assert consumer.metrics()
        consumer.wakeup()


def read(consumer: Consumer, count: int, senders: Sequence[Future[None]]) -> dict[int, list[int]]:
    """Read this many records, or until a sender fails; return each thread's numbers in order."""
    numbers: dict[int, list[int]] = defaultdict(list)
    found_count = 0
    while found_count < count and not any(s.done() and s.exception() for s in senders):
        try:
            records = consumer.poll(0.5)
        except WakeupError:
            continue
        found_count += len(records)
        for record in records:
            assert isinstance(record.value, bytes)
            thread, number = map(int, record.value.split())
            numbers[thread].append(number)
    return numbers


def run(servers: str, count: int) -> None:
    """Send and read; raise if anything is lost, doubled or out of order."""
    expected = list(range(count - count // 10 + count // 10 * BULK_COUNT))
    is_over = threading.Event()
    with (
        Producer(bootstrap_servers=servers, batch_size=2_000) as producer,
        Consumer(
            bootstrap_servers=servers,
            group_id="stress",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=5,
            session_timeout_ms=6_000,
        ) as consumer,
        ThreadPoolExecutor(THREAD_COUNT + 1) as threads,
    ):
        consumer.subscribe([TOPIC])
        senders = [threads.submit(send, producer, n, count) for n in range(THREAD_COUNT)]
        watcher = threads.submit(watch, consumer, is_over)
        try:
            numbers = read(consumer, THREAD_COUNT * len(expected), senders)
        finally:
            is_over.set()
            for future in (*senders, watcher):
                future.result()
        pool = producer._core.pool
        assert pool.free_bytes == pool.size_bytes, "memory is missing"
    assert numbers == dict.fromkeys(range(THREAD_COUNT), expected)


if __name__ == "__main__":
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    run(sys.argv[1], int(sys.argv[2]))
    sys.stdout.write("GIL\n" if getattr(sys, "_is_gil_enabled", lambda: True)() else "no GIL\n")
