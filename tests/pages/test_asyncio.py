"""The asyncio program of docs/operation.md: the event loop and its executor stay free."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pykclient import Consumer, Producer
from pykclient.errors import PurgedError
from pykclient.testing.port import PortReservation
from tests.pages.programs import programs

if TYPE_CHECKING:
    from pykclient import ConsumerRecords
    from pykclient.testing import FakeKafka


ORDER_COUNT = 50
TICK_COUNT = 100
ATTEMPT_COUNT = 4


def bill_count(fake: FakeKafka) -> int:
    with fake.control() as cluster:
        return sum(each.log.log_end_offset for each in cluster.topics["bills"].partitions)


def test_each_order_is_billed_once(fake_kafka: FakeKafka) -> None:
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        producer.send_batch("orders", [b"%d" % number for number in range(ORDER_COUNT)]).result()
        producer.partitions_for("bills")  # which makes it
    program = programs()["bill_async.py"].at(fake_kafka.bootstrap_servers)
    commit = "await call(consumer, thread, lambda: consumer.commit(records))"
    program = program.with_words({commit: f'{commit}; log.info("committed")'})

    def is_enough(text: str) -> bool:
        return text == "committed" and bill_count(fake_kafka) >= ORDER_COUNT

    ended = program.run(stop_when=is_enough)
    assert (ended.status, ended.said) == (0, "")
    assert (
        program.run(stop_when=lambda text: "continuing at the committed offset" in text).status == 0
    )
    assert bill_count(fake_kafka) == ORDER_COUNT


class WatchedConsumer(Consumer):
    """Notes the number of the poll that is under way, in whatever thread."""

    made: list[WatchedConsumer]
    number: int | None = None
    ended_count = 0

    def __init__(self, **settings: Any) -> None:
        self.count = 0
        self.has_polled = threading.Event()
        super().__init__(**settings)
        self.made.append(self)

    def poll(self, timeout: float | None = None, max_records: int | None = None) -> ConsumerRecords:
        self.count += 1
        self.number = self.count
        self.has_polled.set()
        try:
            return super().poll(timeout, max_records)
        finally:
            self.number = None
            WatchedConsumer.ended_count += 1


class WatchedProducer(Producer):
    """A producer that counts the consumer's polls that end while a `send` blocks the loop."""

    def __init__(self, **settings: Any) -> None:
        self.polls_ended: list[int] = []
        super().__init__(**settings)

    def send(self, *args: Any, **keywords: Any) -> Any:
        before = WatchedConsumer.ended_count
        try:
            return super().send(*args, **keywords)
        finally:
            self.polls_ended.append(WatchedConsumer.ended_count - before)


async def try_without_brokers(names: dict[str, Any]) -> None:
    producers: list[WatchedProducer] = []

    def make_producer(**settings: Any) -> Producer:
        producers.append(WatchedProducer(**settings))
        return producers[0]

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    names |= {"Consumer": WatchedConsumer, "Producer": make_producer}
    service = asyncio.create_task(names["main"]())
    while not producers:
        await asyncio.sleep(0)
    # A request that is handled meanwhile.
    sending = asyncio.create_task(names["send"](producers[0], "orders", b"lamp"))
    [consumer] = WatchedConsumer.made
    # The loop's own executor has one thread, and this is in it.
    await asyncio.to_thread(consumer.has_polled.wait)
    while not await has_ticked_during_one_poll(consumer):
        pass
    while len(producers[0].polls_ended) < ATTEMPT_COUNT:
        await asyncio.sleep(0.01)
    assert 0 in producers[0].polls_ended, "a send has not waited"
    assert not sending.done()
    while consumer.number is None:
        await asyncio.sleep(0)
    sending.cancel()
    os.kill(os.getpid(), signal.SIGTERM)
    await service
    assert "closed" in repr(consumer)


async def has_ticked_during_one_poll(consumer: WatchedConsumer) -> bool:
    """Tell whether the loop ran many times while one poll blocked its thread."""
    number = consumer.number
    for _ in range(TICK_COUNT):
        await asyncio.sleep(0)
    return number is not None and consumer.number == number


def test_the_loop_and_its_executor_are_free_while_brokers_are_away() -> None:
    reservation = PortReservation()
    names: dict[str, Any] = {"__name__": "bill_async"}
    program = programs()["bill_async.py"].at(f"127.0.0.1:{reservation.port}")
    exec(program.text, names)  # the page is ours
    WatchedConsumer.made = []
    try:
        asyncio.run(try_without_brokers(names))
    finally:
        reservation.close()


def test_a_delivery_can_be_awaited_and_raises_its_error(fake_kafka: FakeKafka) -> None:
    names: dict[str, Any] = {"__name__": "bill_async"}
    exec(programs()["bill_async.py"].text, names)  # the page is ours

    async def send_two() -> tuple[int | None, list[object]]:
        with Producer(
            bootstrap_servers=fake_kafka.bootstrap_servers, max_block_ms=0, linger_ms=60_000
        ) as producer:
            first = await names["send"](producer, "orders", b"lamp")
            producer.flush()
            delivered = await first
            second = await names["send"](producer, "orders", b"table")
            assert producer.purge() == 1
            return delivered.offset, await asyncio.gather(second, return_exceptions=True)

    offset, [error] = asyncio.run(send_two())
    assert offset == 0
    assert isinstance(error, PurgedError)
