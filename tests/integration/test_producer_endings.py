"""The end of a producer: by a handler, at exit, dropped, in a child process, twice."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from pykclient import Producer
from pykclient.errors import (
    ClosedError,
    KafkaError,
    KafkaTimeoutError,
    MessageTooLargeError,
    PurgedError,
    TransactionAbortableError,
    UsageError,
)
from pykclient.testing import FakeKafka
from pykclient.types import TopicPartition
from tests.integration.loopback_server import unused_address

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from pykclient import Delivery, ProducerRecord
    from pykclient.producer.record import RecordMetadata

TIMEOUT_S = 30.0
PROGRAM_S = 120.0


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    with FakeKafka() as fake:
        yield fake


def end_offset(fake: FakeKafka, topic: str = "t") -> int:
    with fake.control() as cluster:
        return cluster.partition(TopicPartition(topic, 0)).log.log_end_offset


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )


@contextmanager
def started(program: str, fake: FakeKafka) -> Iterator[subprocess.Popen[str]]:
    """Provide a program in a process of its own, which has printed that it is ready."""
    with subprocess.Popen(
        [sys.executable, "-c", program, fake.bootstrap_servers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def sender_threads() -> list[str]:
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("pykclient-sender")
    ]


UNCLOSED = """
import sys
from pykclient import Producer
producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
for number in range(100):
    producer.send("t", b"%d" % number)
"""


CLOSED_IN_DESTRUCTOR = """
import sys
from pykclient import Producer

class Wrapper:
    def __init__(self, servers):
        self.producer = Producer(bootstrap_servers=servers, linger_ms=60_000)
        self.producer.send("t", b"first")
    def __del__(self):
        self.producer.close()

wrapper = Wrapper(sys.argv[1])
wrapper.cycle = wrapper
wrapper.producer.send("t", b"second")
"""


@pytest.mark.parametrize(("program", "count"), [(UNCLOSED, 100), (CLOSED_IN_DESTRUCTOR, 2)])
def test_what_a_program_leaves_is_sent_when_it_ends(
    program: str, count: int, fake: FakeKafka
) -> None:
    done = run(program, fake.bootstrap_servers)
    assert (done.returncode, done.stderr) == (0, "")
    assert end_offset(fake) == count


LOST = """
import sys
from pykclient import Producer
from pykclient.producer.sender import thread as sender_thread

sender_thread.EXIT_TIMEOUT_MS = 200
producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
producer.partitions_for("t")
print("ready", flush=True)
sys.stdin.read()  # meanwhile the cluster goes away
for number in range(7):
    producer.send("t", b"v", partition=0)
"""


def test_what_a_program_leaves_is_reported_with_its_number(fake: FakeKafka) -> None:
    with fake.control() as cluster:
        cluster.create_topic("t", 1)
    with started(LOST, fake) as process:
        fake.close()
        _, errors = process.communicate("", PROGRAM_S)
    assert process.returncode == 0
    assert "the program ended without close() or flush(): 7 records for 1 partitions" in errors
    assert "not delivered: t-0; call close()" in errors
    assert "more time" not in errors


@pytest.fixture
def stalled(fake: FakeKafka) -> Iterator[Producer]:
    """Provide a producer with its topic's metadata, whose cluster is gone."""
    with fake.control() as cluster:
        cluster.create_topic("t", 2)
    producer = Producer(bootstrap_servers=fake.bootstrap_servers)
    producer.partitions_for("t")
    fake.close()
    yield producer
    producer.close(0)


def test_close_reports_how_many_records_it_leaves(
    stalled: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    deliveries = [stalled.send("t", b"v", partition=number % 2) for number in range(5)]
    assert [stalled.close(0), stalled.close()] == [5, 5]
    assert "5 records for 2 partitions were not delivered: t-0, t-1" in caplog.text
    assert all(isinstance(delivery.exception(0), ClosedError) for delivery in deliveries)


def test_close_returns_none_of_what_was_delivered_or_had_failed_before(fake: FakeKafka) -> None:
    producer = Producer(bootstrap_servers=fake.bootstrap_servers, max_request_size=2_000_000)
    refused = producer.send("t", bytes(1_500_000))
    assert isinstance(refused.exception(TIMEOUT_S), MessageTooLargeError)
    for _ in range(3):
        producer.send("t", b"v")
    assert producer.close() == 0
    assert end_offset(fake) == 3


def test_a_producer_goes_on_after_purging(stalled: Producer) -> None:
    reported: list[KafkaError | None] = []
    for _ in range(5):
        stalled.send("t", b"v", partition=0, on_delivery=lambda _, error: reported.append(error))
    assert stalled.purge() == 5
    stalled.flush(TIMEOUT_S)
    assert [type(error) for error in reported] == [PurgedError] * 5
    assert stalled.purge() == 0
    kept = stalled.send("t", b"v", partition=0)
    assert not kept.done()
    assert stalled.close(0) == 1
    with pytest.raises(ClosedError):
        stalled.purge()


def test_after_purging_a_transaction_can_only_be_aborted(fake: FakeKafka) -> None:
    with Producer(
        bootstrap_servers=fake.bootstrap_servers, transactional_id="x", linger_ms=60_000
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"purged")
        assert producer.purge() == 1
        with pytest.raises(TransactionAbortableError, match="1 records were purged; never sent"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            kept = producer.send("t", b"kept")
    assert kept.exception() is None


def test_purging_in_a_callback_is_refused(fake: FakeKafka) -> None:
    raised: list[Exception] = []

    def purge(*_: object) -> None:
        try:
            producer.purge()
        except UsageError as error:
            raised.append(error)

    with Producer(bootstrap_servers=fake.bootstrap_servers) as producer:
        producer.send("t", b"v", on_delivery=purge)
        producer.flush(TIMEOUT_S)
    assert "purge() in a delivery callback would wait for itself" in str(raised)


def test_purging_while_another_thread_closes_ends(stalled: Producer) -> None:
    """Goal: a call that comes after the sender thread's last step does not wait forever."""
    for _ in range(20):
        stalled.send("t", b"v", partition=0)
    counts: list[int] = []

    def purge() -> None:
        with suppress(ClosedError):
            while True:
                counts.append(stalled.purge(in_flight=False))

    threads = [threading.Thread(target=purge) for _ in range(4)]
    for thread in threads:
        thread.start()
    stalled.close(0)
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert not any(thread.is_alive() for thread in threads)


def descriptor_count() -> int:
    return len(os.listdir("/dev/fd"))


def test_a_producer_that_is_dropped_warns_and_gives_everything_back(fake: FakeKafka) -> None:
    before = descriptor_count()
    producer = Producer(bootstrap_servers=fake.bootstrap_servers, client_id="dropped")
    delivery = producer.send("t", b"v")
    with pytest.warns(ResourceWarning, match="dropped at .* was dropped without close"):
        del producer
    assert delivery.result(TIMEOUT_S).offset == 0
    deadline_s = time.monotonic() + TIMEOUT_S
    # The brokers' ends of its connections are this process's, too, and close a moment later.
    while (sender_threads() or descriptor_count() > before) and time.monotonic() < deadline_s:
        gc.collect()
        time.sleep(0.01)
    assert sender_threads() == []
    assert descriptor_count() <= before


def test_a_closed_producer_is_dropped_without_a_warning(fake: FakeKafka) -> None:
    Producer(bootstrap_servers=fake.bootstrap_servers).close()
    gc.collect()


TERMINATED = """
import signal, sys, time
from pykclient import Producer
from pykclient.errors import ClosedError

producer = Producer(bootstrap_servers=sys.argv[1], batch_size=300)
signal.signal(signal.SIGTERM, lambda *_: producer.request_close())
sent = 0
with producer:
    try:
        while True:
            producer.send("t", b"%d" % sent)
            sent += 1
            if sent == 1:
                print("ready", flush=True)
    except ClosedError:
        pass
print(sent)
"""


@pytest.mark.parametrize("method", ["request_close", "close"])
def test_a_handler_ends_a_producer_and_nothing_accepted_is_lost(
    fake: FakeKafka, method: str
) -> None:
    program = TERMINATED.replace("producer.request_close()", f"producer.{method}()")
    for _ in range(5):
        before = end_offset(fake) if fake_has_topic(fake) else 0
        with started(program, fake) as process:
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=PROGRAM_S)
        assert (process.returncode, errors) == (0, "")
        assert end_offset(fake) - before == int(output)


def fake_has_topic(fake: FakeKafka) -> bool:
    with fake.control() as cluster:
        return "t" in cluster.topics


def test_what_interrupts_a_send_ends_at_once_with_a_result_or_a_refusal(fake: FakeKafka) -> None:
    """Signals in a tight loop; each handler flushes, sends or waits, with no time-out.

    Handlers interrupt each other, ten deep: on a busy machine there is no end to that otherwise.
    """
    outcomes = {"done": 0, "refused": 0, "wrong": 0}
    accepted, depth = [0], [0]
    with Producer(bootstrap_servers=fake.bootstrap_servers, batch_size=300) as producer:

        def handler(number: int, frame: FrameType | None) -> None:
            if depth[0] == 10:
                return
            depth[0] += 1
            try:
                if sum(outcomes.values()) % 2:
                    producer.flush()
                else:
                    delivery = producer.send("t", b"inner")
                    accepted[0] += 1
                    delivery.result()
                outcomes["done"] += 1
            except UsageError as error:
                outcomes["refused" if "interrupted send()" in str(error) else "wrong"] += 1
            finally:
                depth[0] -= 1

        previous = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
            deadline_s = time.monotonic() + TIMEOUT_S
            while sum(outcomes.values()) < 300 and time.monotonic() < deadline_s:
                producer.send("t", bytes(100))
                accepted[0] += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
    assert sum(outcomes.values()) >= 300
    assert outcomes["done"]
    assert not outcomes["wrong"]
    assert end_offset(fake) == accepted[0]


class Counting:
    """An interceptor that counts how often it is closed."""

    close_count = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        pass

    def close(self) -> None:
        type(self).close_count += 1


@pytest.fixture
def counting(fake: FakeKafka, monkeypatch: pytest.MonkeyPatch) -> Producer:
    monkeypatch.setattr(Counting, "close_count", 0)
    return Producer(bootstrap_servers=fake.bootstrap_servers, interceptors=[Counting()])


def test_closing_in_a_callback_closes_interceptors_once(counting: Producer) -> None:
    counting.send("t", b"v", on_delivery=lambda *_: counting.close())
    deadline_s = time.monotonic() + TIMEOUT_S
    while not Counting.close_count and time.monotonic() < deadline_s:
        time.sleep(0.01)
    counting.close()
    assert Counting.close_count == 1


def test_threads_that_close_at_once_close_interceptors_once(counting: Producer) -> None:
    threads = [threading.Thread(target=counting.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert Counting.close_count == 1


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_callback_that_leaves_the_program_ends_no_producer(
    fake: FakeKafka, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    offsets: list[int] = []

    def callback(metadata: RecordMetadata, _: Exception | None) -> None:
        offsets.append(metadata.offset or 0)
        raise error

    with Producer(bootstrap_servers=fake.bootstrap_servers) as producer:
        for _ in range(3):
            producer.send("t", b"v", partition=0, on_delivery=callback)
        producer.flush(TIMEOUT_S)
        assert producer.send("t", b"v", partition=0).result(TIMEOUT_S).offset == 3
    assert offsets == [0, 1, 2]
    assert error.__name__ in caplog.text


def lost(count: int) -> tuple[Producer, list[Delivery[RecordMetadata]]]:
    """Return a producer with this number of failed records, which is not closed."""
    with FakeKafka() as fake:
        with fake.control() as cluster:
            cluster.create_topic("t", 1)
        producer = Producer(
            bootstrap_servers=fake.bootstrap_servers,
            delivery_timeout_ms=200,
            request_timeout_ms=100,
            linger_ms=0,
        )
        producer.partitions_for("t")
    deliveries = [producer.send("t", b"v") for _ in range(count)]
    with pytest.raises(KafkaTimeoutError):
        producer.flush(0)
    producer.flush(TIMEOUT_S)
    return producer, deliveries


def unseen(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "has seen" in record.message]


def test_unseen_failures_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    producer, deliveries = lost(50)
    deliveries.clear()
    producer.close()
    (warning,) = unseen(caplog)
    assert "50 records for t-0" in warning
    assert "DeliveryTimeoutError" in warning


@pytest.mark.parametrize("is_seen", [False, True])
def test_failures_whose_deliveries_outlive_the_producer_are_one_warning_when_those_are_dropped(
    caplog: pytest.LogCaptureFixture, is_seen: bool
) -> None:
    producer, deliveries = lost(50)
    producer.close()
    assert unseen(caplog) == []
    if is_seen:
        assert all(delivery.exception(0) for delivery in deliveries)
    deliveries.clear()
    gc.collect()
    assert ["50 records for t-0" in warning for warning in unseen(caplog)] == [True] * (not is_seen)


HELD = """
import os, sys
from tests.integration.test_producer_endings import lost

producer, deliveries = lost(30)
if "close" in sys.argv:
    producer.close()
if not os.fork():
    deliveries.clear()  # they are the parent's to report
    sys.exit()
os.wait()
"""


@pytest.mark.parametrize("end", ["close", "leave"])
def test_failures_whose_deliveries_are_held_to_the_end_of_the_program_are_one_warning(
    end: str,
) -> None:
    done = run(HELD, end)
    assert done.returncode == 0
    assert done.stderr.count("has seen") == 1
    assert "30 records for t-0 were not delivered" in done.stderr


# Where no broker responds.


@pytest.fixture
def unconnected() -> Iterator[Producer]:
    with Producer(bootstrap_servers=unused_address(), max_block_ms=300) as producer:
        yield producer


def test_flushing_and_closing_with_nothing_sent_do_not_wait(unconnected: Producer) -> None:
    unconnected.flush(timeout=TIMEOUT_S)
    unconnected.close(timeout=TIMEOUT_S)
    unconnected.close()
    unconnected.flush()  # every record is delivered or has failed
    with pytest.raises(ClosedError):
        unconnected.send("t", b"v")


def test_flushing_a_producer_that_is_being_closed_waits_for_its_records(fake: FakeKafka) -> None:
    with Producer(bootstrap_servers=fake.bootstrap_servers, linger_ms=60_000) as producer:
        deliveries = [producer.send("t", b"v") for _ in range(10)]
        producer.request_close()
        producer.flush()
        assert all(each.done() for each in deliveries)


def test_flushing_a_producer_that_is_being_closed_waits_no_longer_than_asked(
    stalled: Producer,
) -> None:
    left = stalled.send("t", b"v", partition=0)
    stalled.request_close()
    with pytest.raises(KafkaTimeoutError, match="not everything was delivered within 0 ms"):
        stalled.flush(0)
    assert not left.done()


LOGGING_TO_KAFKA = """
import logging, logging.handlers, sys
from pykclient import Producer

class KafkaHandler(logging.Handler):
    def __init__(self, servers):
        super().__init__()
        self.producer = Producer(bootstrap_servers=servers)
    def emit(self, record):
        self.producer.send("t", self.format(record).encode())
    def flush(self):
        self.producer.flush()

file = logging.FileHandler(sys.argv[2])
lines = logging.handlers.MemoryHandler(100, target=file)
logging.getLogger("app").addHandler(lines)
logging.getLogger("app").addHandler(KafkaHandler(sys.argv[1]))
logging.getLogger("app").warning("the last line")
"""


def test_a_logging_handler_that_flushes_at_the_end_loses_no_lines(
    fake: FakeKafka, tmp_path: Path
) -> None:
    """`logging` flushes its handlers after the hook of the producers has run, the last one first.

    A handler that raises keeps those before it from being flushed.
    """
    done = run(LOGGING_TO_KAFKA, fake.bootstrap_servers, str(tmp_path / "lines"))
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "lines").read_text(encoding="utf-8") == "the last line\n"
    assert end_offset(fake) == 1


def test_a_send_that_waits_is_ended_by_closing() -> None:
    producer = Producer(bootstrap_servers=unused_address(), max_block_ms=60_000)
    outcomes: list[BaseException] = []

    def send() -> None:
        try:
            producer.send("t", b"v")
        except ClosedError as error:
            outcomes.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    while not producer._core.metadata._named_ms:  # until it has requested the topic, and waits
        time.sleep(0.001)
    producer.close()
    thread.join(TIMEOUT_S)
    assert len(outcomes) == 1


def test_an_interrupt_ends_the_wait_and_the_producer_still_closes() -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        with Producer(bootstrap_servers=unused_address(), max_block_ms=60_000) as producer:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                producer.send("t", b"v")
    finally:
        signal.signal(signal.SIGALRM, previous)


def test_waiting_costs_few_turns(unconnected: Producer) -> None:
    step = unconnected._core.engine.step
    turns: list[int] = []

    def counted(now_ms: int) -> int:
        turns.append(now_ms)
        return step(now_ms)

    unconnected._core.engine.step = counted  # type: ignore[method-assign]
    with pytest.raises(KafkaTimeoutError):
        unconnected.send("t", b"v")
    assert 0 < len(turns) < 100
