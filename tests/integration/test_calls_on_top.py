"""Calls by signal handlers, log handlers and destructors during other calls, and their ends.

Method: real consumers and an admin client over the loopback; signals come from a timer.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Admin, Consumer, Producer
from pykclient.errors import ClosedError, UsageError, WakeupError
from pykclient.types import TopicPartition
from tests.signal_at_line import Alarm, SignalAtLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from pykclient.testing import FakeKafka

A = TopicPartition("t", 0)
COUNT = 10
SOON_S = 0.1
LONG_S = 20.0
QUICK_S = 5.0
BLOCKED_CLOSE_S = 0.3


@pytest.fixture
def servers(fake_kafka: FakeKafka) -> str:
    """Brokers with ten records in topic ``t``."""
    with fake_kafka.control() as cluster:
        cluster.create_topic("t", 1)
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        for number in range(COUNT):
            producer.send("t", b"%d" % number)
    return fake_kafka.bootstrap_servers


def member(servers: str, **settings: object) -> Consumer:
    consumer = Consumer(
        settings, bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
    )
    consumer.subscribe(["t"])
    return consumer


def read(consumer: Consumer, count: int = COUNT) -> list[int]:
    offsets: list[int] = []
    while len(offsets) < count:
        offsets += [record.offset for record in consumer.poll(LONG_S)]
    return offsets


def committed(servers: str) -> int | None:
    with Consumer(bootstrap_servers=servers, group_id="g") as other:
        found = other.committed([A])[A]
    return None if found is None else found.offset


@contextlib.contextmanager
def soon(action: Callable[[], object]) -> Iterator[list[BaseException | object]]:
    """Run an action in a signal handler while the block waits."""
    done: list[BaseException | object] = []

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        try:
            done.append(action())
        except UsageError as error:
            done.append(error)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, SOON_S)
    try:
        yield done
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_close_on_top_of_a_poll_ends_and_closes_it(servers: str) -> None:
    consumer = member(servers)
    read(consumer)
    started_s = time.monotonic()
    with soon(consumer.close), pytest.raises(ClosedError, match="handler"):
        consumer.poll(LONG_S)
    assert time.monotonic() - started_s < QUICK_S
    with pytest.raises(ClosedError):
        consumer.poll(LONG_S)
    assert committed(servers) == COUNT, "by the next poll it had finished with them"


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.poll(LONG_S),
        lambda consumer: consumer.commit(),
        lambda consumer: consumer.commit_async(),
        lambda consumer: consumer.seek(A, 0),
        lambda consumer: consumer.assignment(),
        lambda consumer: consumer.unsubscribe(),
    ],
)
def test_other_calls_on_top_are_refused_by_name_and_harm_nothing(
    call: Callable[[Consumer], object], servers: str
) -> None:
    with member(servers) as consumer:
        assert read(consumer) == list(range(COUNT))
        with soon(lambda: call(consumer)) as done:
            assert not consumer.poll(5 * SOON_S)
        [refused] = done
        assert isinstance(refused, UsageError)
        assert "wakeup()" in str(refused)
        consumer.seek(A, 0)
        assert read(consumer) == list(range(COUNT))


def wake_between_polls(consumer: Consumer) -> None:
    read(consumer)
    consumer.wakeup()  # while the application is at work
    consumer.poll(LONG_S)


def wake_in_an_iteration(consumer: Consumer) -> None:
    for record in consumer:
        if record.offset == COUNT - 1:
            consumer.wakeup()


@pytest.mark.parametrize("work", [wake_between_polls, wake_in_an_iteration])
def test_leaving_by_a_wakeup_commits_what_was_finished(
    work: Callable[[Consumer], None], servers: str
) -> None:
    with contextlib.suppress(WakeupError), member(servers) as consumer:
        work(consumer)
    assert committed(servers) == COUNT


def fail_in_finally(consumer: Consumer) -> None:
    try:
        read(consumer)
        raise ValueError("the application's own")
    finally:
        consumer.close()


def fail_in_closing(consumer: Consumer) -> None:
    with contextlib.closing(consumer):
        read(consumer)
        raise ValueError("the application's own")


@pytest.mark.parametrize("fail", [fail_in_finally, fail_in_closing])
def test_close_commits_nothing_unfinished_while_an_exception_is_on_its_way(
    fail: Callable[[Consumer], None], servers: str
) -> None:
    with pytest.raises(ValueError, match="own"):
        fail(member(servers))
    assert not committed(servers)


def test_close_in_a_finally_commits_what_was_finished(servers: str) -> None:
    consumer = member(servers)
    try:
        read(consumer)
    finally:
        consumer.close()
    assert committed(servers) == COUNT


class Meddling(logging.Handler):
    """Calls a client with each log record."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(logging.DEBUG)
        self.refused_count = 0
        self._call = call

    def emit(self, record: logging.LogRecord) -> None:
        del record
        try:
            self._call()
        except UsageError:
            self.refused_count += 1


@contextlib.contextmanager
def logged_by(handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger("pykclient")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_a_log_handler_that_calls_the_consumer_that_logs_ends_at_once(servers: str) -> None:
    with member(servers) as consumer:

        def meddle() -> None:
            consumer.wakeup()
            consumer.commit()

        handler = Meddling(meddle)
        offsets: list[int] = []
        with logged_by(handler):
            while len(offsets) < COUNT:
                with contextlib.suppress(WakeupError):
                    offsets += [record.offset for record in consumer.poll(LONG_S)]
        assert offsets == list(range(COUNT))
        assert handler.refused_count > 0
        with contextlib.suppress(WakeupError):
            consumer.poll(0.0)


class Blocking(logging.Handler):
    """Blocks the heartbeat thread, and no other."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.blocks = threading.Event()
        self.is_over = threading.Event()

    def handle(self, record: logging.LogRecord) -> bool:
        del record
        if threading.current_thread().name.startswith("pykclient-heartbeat"):
            self.blocks.set()
            self.is_over.wait()
        return True


def test_a_log_handler_that_blocks_the_heartbeat_thread_blocks_no_other(
    servers: str, fake_kafka: FakeKafka
) -> None:
    consumer = member(servers, heartbeat_interval_ms=20, session_timeout_ms=6_000)
    read(consumer)
    handler = Blocking()
    try:
        with logged_by(handler):
            with fake_kafka.control() as cluster:
                cluster.stop_broker(0)  # which is worth a message
            assert handler.blocks.wait(LONG_S)
            started_s = time.monotonic()
            with contextlib.suppress(Exception):
                consumer.poll(0.0)
            assert time.monotonic() - started_s < QUICK_S
            started_s = time.monotonic()
            consumer.close(timeout=BLOCKED_CLOSE_S)
            assert time.monotonic() - started_s < QUICK_S
    finally:
        handler.is_over.set()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def await_descriptors(count: int) -> None:
    """Wait until at most `count` descriptors are open.

    The brokers are in this process. They close their ends of connections once the client's are
    closed.
    """
    deadline = time.monotonic() + LONG_S
    while open_descriptors() > count:
        assert time.monotonic() < deadline, f"{open_descriptors()} are open, before it were {count}"
        time.sleep(0.01)


def lose(servers: str) -> threading.Thread:
    """Read, and close nothing; return the thread that sends heartbeats."""
    consumer = member(servers, client_id="lost", heartbeat_interval_ms=100)
    read(consumer)
    assert consumer._wiring.heartbeats.thread is not None
    return consumer._wiring.heartbeats.thread._thread


def test_a_consumer_that_was_not_closed_warns_and_closes_everything(servers: str) -> None:
    gc.collect()
    descriptor_count = open_descriptors()
    thread_count = threading.active_count()
    with pytest.warns(ResourceWarning, match=r"lost.*group 'g'.*close") as warned:
        heartbeat_thread = lose(servers)
    assert len(warned) == 1
    gc.collect()  # the parts, which refer to each other
    heartbeat_thread.join(LONG_S)
    assert threading.active_count() <= thread_count
    gc.collect()
    await_descriptors(descriptor_count)


def test_a_consumer_that_was_not_closed_ends_its_heartbeats_before_its_connections(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its parts refer to each other, and live until the collector comes, which may be long."""
    gc.disable()
    try:
        with pytest.warns(ResourceWarning, match=r"lost.*group 'g'.*close"):
            heartbeat_thread = lose(servers)
        heartbeat_thread.join(LONG_S)
        assert not heartbeat_thread.is_alive()
    finally:
        gc.enable()
        gc.collect()
    assert "heartbeats have stopped" not in caplog.text


def lose_admin(servers: str) -> None:
    Admin(bootstrap_servers=servers, client_id="lost").list_topics()
    gc.collect()


def test_an_admin_that_was_not_closed_warns_and_closes_everything(servers: str) -> None:
    gc.collect()
    descriptor_count = open_descriptors()
    with pytest.warns(ResourceWarning, match=r"Admin lost.*close") as warned:
        lose_admin(servers)
    assert len(warned) == 1
    gc.collect()
    await_descriptors(descriptor_count)


def run(program: str, servers: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program, servers],
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )


FORKS = """
import os, sys
from pykclient import Admin, Consumer, Producer
servers = sys.argv[1]
producer = Producer(bootstrap_servers=servers)
consumer = Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest")
admin = Admin(bootstrap_servers=servers)
consumer.subscribe(["t"])
with producer, consumer, admin:
    admin.list_topics()
    consumer.poll(30)
    producer.send("t", b"v").result(30)
    before = len(os.listdir("/proc/self/fd"))
    child = os.fork()
    if not child:
        print(before - len(os.listdir("/proc/self/fd")), flush=True)
        sys.exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    producer.send("t", b"v").result(30)
    while not consumer.poll(30):
        pass
    admin.list_topics()
sys.exit(status)
"""


def test_a_child_process_closes_the_parents_connections_and_warns_of_nothing(
    servers: str,
) -> None:
    done = run(FORKS, servers)
    assert (done.returncode, done.stderr) == (7, "")
    assert int(done.stdout) >= 3 * 4  # each has a selector, a wake-up pair, and a connection


FORKS_IN_POLL = """
import os, sys
from pykclient import Consumer, RebalanceListener
from pykclient.errors import ForkedClientError

def fork(partitions):
    children.append(os.fork())

children = []
listener = RebalanceListener(on_assigned=fork)
settings = {"group_id": "g", "auto_offset_reset": "earliest"}
with Consumer(settings, bootstrap_servers=sys.argv[1]) as consumer:
    consumer.subscribe(["t"], listener=listener)
    try:
        while not consumer.poll(30):
            pass
    except ForkedClientError:
        sys.exit(7 if children == [0] else 8)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))
"""


@pytest.mark.promise(
    "a child process gets `ForkedClientError` from every call; clients refuse to be pickled"
)
def test_a_child_process_that_begins_inside_a_poll_cannot_go_on_with_it(servers: str) -> None:
    done = run(FORKS_IN_POLL, servers)
    assert (done.returncode, done.stderr) == (7, "")


def test_an_interrupt_of_a_wait_costs_no_connection(servers: str) -> None:
    def interrupt() -> None:
        raise Alarm

    with member(servers) as consumer:
        read(consumer)
        before = dict(consumer._wiring.client._connections)
        with soon(interrupt), pytest.raises(Alarm):
            consumer.poll(LONG_S)
        assert not consumer._wiring.guard.is_torn
        assert not consumer.poll(SOON_S)
        assert dict(consumer._wiring.client._connections) == before


ADMIN_CALLS: list[Callable[[Admin], Any]] = [
    lambda admin: admin.list_topics(),
    lambda admin: admin.describe_topics(["t"]),
    lambda admin: admin.list_groups(),
]


@pytest.mark.parametrize("call", ADMIN_CALLS)
def test_an_admin_call_that_is_interrupted_at_any_line_leaves_a_client_that_works(
    call: Callable[[Admin], Any], servers: str
) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        wanted = call(admin)
        number = interrupted_count = unreached_count = 0
        while unreached_count < 3 and number < 1_500:
            number += 11
            at = SignalAtLine(number, Alarm())
            try:
                with at:
                    call(admin)
                    sys.settrace(None)
            except Alarm:
                interrupted_count += 1
            unreached_count += at.place is None
            started_s = time.monotonic()
            assert call(admin) == wanted, at.place
            assert time.monotonic() - started_s < QUICK_S, at.place
        assert interrupted_count > 10


def test_an_admin_call_on_top_of_one_is_refused_and_close_ends_it(servers: str) -> None:
    with Admin(bootstrap_servers="127.0.0.1:9") as admin:
        with soon(admin.list_topics) as done, pytest.raises(TimeoutError):
            admin.list_topics(timeout=5 * SOON_S)
        assert isinstance(done[0], UsageError)
        with soon(admin.close), pytest.raises(ClosedError):
            admin.list_topics(timeout=LONG_S)
    with pytest.raises(ClosedError):
        admin.list_topics()
    assert servers


# In a handler of log records, whose lock the sender thread may want.

BLOCKING_CALLS: dict[str, Callable[[Producer], object]] = {
    "flush": lambda producer: producer.flush(),
    "result": lambda producer: producer.send("t", b"").result(),
    "send": lambda producer: producer.send("new", b""),
    "close": lambda producer: producer.close(),
}


class Calling(logging.Handler):
    """Makes a call of a producer once, while its sender thread logs through this handler."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.error: UsageError | None = None
        self._call = call
        self._thread = threading.current_thread()

    def emit(self, record: logging.LogRecord) -> None:
        del record
        if self.entered.is_set() or threading.current_thread() is not self._thread:
            return
        self.entered.set()
        try:
            self._call()
        except UsageError as error:
            self.error = error


@pytest.mark.parametrize("name", BLOCKING_CALLS)
def test_a_log_handler_that_waits_for_the_thread_that_logs_through_it_is_refused(
    name: str, servers: str
) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        handler = Calling(lambda: BLOCKING_CALLS[name](producer))

        def fail(metadata: object, error: object) -> None:
            del metadata, error
            handler.entered.wait(LONG_S)
            raise ValueError  # which the sender thread logs

        producer.send("t", b"", on_delivery=fail)
        logging.getLogger().addHandler(handler)
        started_s = time.monotonic()
        try:
            logging.getLogger("application").error("help")
        finally:
            logging.getLogger().removeHandler(handler)
        assert time.monotonic() - started_s < QUICK_S
        assert (handler.error is None) == (name == "close")  # which does as request_close does
