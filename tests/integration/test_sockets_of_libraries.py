"""Clients over sockets of other libraries: what these raise are errors of the network.

Goal: a socket's methods may be Python code of any package, as gevent's are, so that the traceback
of a reset ends there. A signal handler that raises inside such a method still ends the call.
"""

from __future__ import annotations

import importlib.util
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Consumer, Producer, TopicPartition
from pykclient.testing import FakeKafka, FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)
TIMEOUT_S = 30.0


class LibrarySocket(socket.socket):
    """A socket whose methods are Python code, and which takes part in what a test plans."""

    on_receive = staticmethod(lambda: None)

    def recv_into(self, *arguments: Any, **keywords: Any) -> int:
        self.on_receive()
        return super().recv_into(*arguments, **keywords)

    def sendmsg(self, *arguments: Any, **keywords: Any) -> int:
        return super().sendmsg(*arguments, **keywords)


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    """Provide a proxy before a fake broker, which resets connections."""
    with FakeKafka(brokers=1) as fake:
        host, _, port = fake.bootstrap_servers.partition(":")
        with FaultProxy((host, int(port))) as proxy:
            with fake.control() as cluster:
                (broker,) = cluster.brokers.values()
                broker.host, broker.port = proxy.address
                broker.listeners[""] = proxy.address
            yield proxy


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> type[LibrarySocket]:
    """Provide the class of all sockets that are made from now on."""
    monkeypatch.setattr(socket, "socket", LibrarySocket)
    return LibrarySocket


def read(consumer: Consumer, count: int) -> list[object]:
    values: list[object] = []
    while len(values) < count:
        values += [record.value for record in consumer.poll(TIMEOUT_S)]
    return values


@pytest.mark.promise(
    "clients survive connection resets with the sockets of other libraries, such as gevent"
)
@pytest.mark.usefixtures("library")
def test_a_producer_and_a_consumer_live_through_resets(proxy: FaultProxy) -> None:
    servers = str(proxy.address)
    with (
        Producer(bootstrap_servers=servers) as producer,
        Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([PARTITION])
        for number in range(3):
            producer.send(TOPIC, b"%d" % number, partition=0).result(TIMEOUT_S)
            assert read(consumer, 1) == [b"%d" % number]
            proxy.disconnect_all()


def test_an_error_without_a_number_of_the_system_is_one_of_the_network(
    library: type[LibrarySocket], proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [ConnectionResetError("reset"), OSError("the tunnel is closed")]

    def fail() -> None:
        if threading.current_thread() is threading.main_thread() and failures:
            raise failures.pop()

    with Consumer(bootstrap_servers=str(proxy.address), auto_offset_reset="earliest") as consumer:
        consumer.assign([PARTITION])
        with Producer(bootstrap_servers=str(proxy.address)) as producer:
            producer.send(TOPIC, b"v", partition=0).result(TIMEOUT_S)
        monkeypatch.setattr(library, "on_receive", staticmethod(fail))
        assert read(consumer, 1) == [b"v"]
    assert not failures


def raise_timeout(number: int, frame: FrameType | None) -> None:
    raise TimeoutError("too slow")


def raise_timeout_once(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise TimeoutError("too slow")


class Alarm:
    """A handler that is no function."""

    def __call__(self, *arguments: object) -> None:
        raise BlockingIOError("a full pipe")


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="Windows has no such signal")
@pytest.mark.parametrize("handler", [raise_timeout, raise_timeout_once, Alarm()])
def test_what_a_signal_handler_raises_in_a_sockets_method_ends_the_call(
    library: type[LibrarySocket],
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
    handler: Any,
) -> None:
    signals = [signal.SIGUSR1]

    def interrupt() -> None:
        if threading.current_thread() is threading.main_thread() and signals:
            signal.raise_signal(signals.pop())

    with Consumer(bootstrap_servers=str(proxy.address), auto_offset_reset="earliest") as consumer:
        consumer.assign([PARTITION])
        with Producer(bootstrap_servers=str(proxy.address)) as producer:
            producer.send(TOPIC, b"v", partition=0).result(TIMEOUT_S)
        before = signal.signal(signal.SIGUSR1, handler)
        try:
            monkeypatch.setattr(library, "on_receive", staticmethod(interrupt))
            with pytest.raises(OSError, match=r"too slow|a full pipe"):
                consumer.poll(TIMEOUT_S)
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert read(consumer, 1) == [b"v"]


GEVENT_PROGRAM = """
from gevent import monkey
monkey.patch_all()
import sys
from pykclient import Consumer, Producer, TopicPartition

servers = sys.argv[1]
with Producer(bootstrap_servers=servers) as producer, Consumer(
    bootstrap_servers=servers, auto_offset_reset="earliest"
) as consumer:
    consumer.assign([TopicPartition("t", 0)])
    for number in range(3):
        producer.send("t", b"%d" % number, partition=0).result(30)
        values = []
        while not values:
            values += [record.value for record in consumer.poll(30)]
        assert values == [b"%d" % number], values
        print("read", flush=True)
        sys.stdin.readline()
print("done", flush=True)
"""


@pytest.mark.skipif(importlib.util.find_spec("gevent") is None, reason="gevent is not installed")
def test_clients_under_gevent_live_through_resets(proxy: FaultProxy) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", GEVENT_PROGRAM, str(proxy.address)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        watchdog = threading.Timer(2 * TIMEOUT_S, program.kill)
        watchdog.start()
        try:
            assert program.stdin is not None
            assert program.stdout is not None
            for _ in range(3):
                assert program.stdout.readline() == "read\n"
                proxy.disconnect_all()
                program.stdin.write("\n")
                program.stdin.flush()
            assert program.stdout.readline() == "done\n"
        finally:
            watchdog.cancel()
            program.kill()
