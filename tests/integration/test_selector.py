"""The port over real sockets of the loopback interface: connect, move bytes, end, wake."""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from types import FunctionType

import pytest

from pykclient.accel.pure.sockets import PART_COUNT_MAX
from pykclient.errors import ConnectionFailedError, DisconnectedError
from pykclient.network.io import selector as module
from pykclient.network.io.selector import SelectorPort
from pykclient.network.manager import NEVER_MS
from pykclient.producer.config import ProducerConfig
from tests.integration.recording_stream import (
    HOST,
    PATIENCE_S,
    RecordingStream,
    connect,
    free_port,
    port_of,
    wait_until,
)

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def open_file_count() -> int:
    return len(os.listdir("/proc/self/fd"))


# Connecting.


def test_a_connection_opens_once_and_carries_bytes_both_ways(
    port: SelectorPort, listener: socket.socket
) -> None:
    stream, peer = connect(port, listener)
    with peer:
        port.write(stream, [b"ab", bytearray(b"cd"), memoryview(b"ef"), b""])
        assert peer.recv(100) == b"abcdef"
        peer.sendall(b"ghi")
        wait_until(port, lambda: stream.received == b"ghi")
    assert stream.opened_count == 1


def test_open_calls_no_callback_itself(port: SelectorPort) -> None:
    stream = RecordingStream()
    port.open(stream, HOST, free_port(), attempt=0)
    assert not stream.errors
    assert not stream.opened_count


def test_a_refused_connection_is_reported_with_address_and_reason(port: SelectorPort) -> None:
    stream, number = RecordingStream(), free_port()
    port.open(stream, HOST, number, attempt=0)
    wait_until(port, lambda: bool(stream.errors))
    assert isinstance(stream.errors[0], ConnectionFailedError)
    assert stream.error == f"cannot connect to {HOST}:{number}: connection refused"
    assert isinstance(stream.errors[0].__cause__, OSError)


def test_a_socket_that_cannot_be_made_is_reported(
    port: SelectorPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    # As a function of that module: what is raised elsewhere is a signal handler's.
    in_module = FunctionType(fail.__code__, {**globals(), "__name__": socket.__name__})
    monkeypatch.setattr(socket, "socket", in_module)
    stream = RecordingStream()
    port.open(stream, HOST, 9092, attempt=0)
    wait_until(port, lambda: bool(stream.errors))
    assert stream.error == f"cannot connect to {HOST}:9092: too many open files"


def test_a_connection_that_met_itself_is_none(
    port: SelectorPort, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Linux connects a socket to itself when the port it tries is the one it was given.
    monkeypatch.setattr(module, "_is_own_peer", lambda _: True)
    stream = RecordingStream()
    port.open(stream, HOST, port_of(listener), attempt=0)
    wait_until(port, lambda: bool(stream.errors))
    assert stream.error.startswith(f"cannot connect to {HOST}:{port_of(listener)}: ")
    assert not stream.opened_count


def test_a_socket_that_is_its_own_peer_is_seen() -> None:
    with socket.socket() as itself:
        itself.bind((HOST, 0))
        itself.connect(itself.getsockname())
        assert module._is_own_peer(itself)


# Socket options.


def test_sockets_get_the_options_of_the_configuration(listener: socket.socket) -> None:
    config = ProducerConfig.from_settings(
        bootstrap_servers="a:1", send_buffer_bytes=50_000, receive_buffer_bytes=60_000
    )
    port = SelectorPort.from_config(config)
    stream, peer = connect(port, listener)
    sock = port._channels[stream].sock
    assert sock is not None
    # Linux doubles what is set, for its own book-keeping.
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 100_000
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 120_000
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert not sock.getblocking()
    peer.close()
    port.shutdown()


def test_buffer_sizes_may_be_left_to_the_system(listener: socket.socket) -> None:
    port = SelectorPort(send_buffer_bytes=-1, receive_buffer_bytes=-1)
    stream, peer = connect(port, listener)
    with socket.create_connection(listener.getsockname()) as plain:
        sock = port._channels[stream].sock
        assert sock is not None
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            assert sock.getsockopt(socket.SOL_SOCKET, option) == plain.getsockopt(
                socket.SOL_SOCKET, option
            )
    peer.close()
    port.shutdown()


# Moving bytes.


def test_a_slow_reader_gets_everything_in_order(
    port: SelectorPort, listener: socket.socket
) -> None:
    stream, peer = connect(port, listener)
    # More parts than one system call takes, of sizes that no buffer is a multiple of.
    parts = [index.to_bytes(4) * (7_001 + index) for index in range(5 * PART_COUNT_MAX)]
    expected = b"".join(parts)
    port.write(stream, parts[:100])
    port.write(stream, parts[100:])
    assert 0 < port.unsent_bytes(stream) < len(expected)
    received = bytearray()
    while len(received) < len(expected):
        received += peer.recv(30_011)
        port.wait(0)
    assert received == expected
    assert port.unsent_bytes(stream) == 0
    peer.close()


def test_a_reader_that_never_reads_holds_up_neither_write_nor_wait(
    port: SelectorPort, listener: socket.socket
) -> None:
    stream, peer = connect(port, listener)
    start_s = time.monotonic()
    for _ in range(20):
        port.write(stream, [bytes(1_000_000)])
    port.wait(10)
    assert time.monotonic() - start_s < 5
    assert port.unsent_bytes(stream) > 10_000_000
    peer.close()


def test_a_large_response_arrives_whole_through_a_small_buffer(
    port: SelectorPort, listener: socket.socket
) -> None:
    stream = RecordingStream(buffer_bytes=1_000)
    port.open(stream, HOST, port_of(listener), attempt=0)
    wait_until(port, lambda: stream.opened_count == 1)
    peer, _ = listener.accept()
    sent = bytes(range(256)) * 20_000
    sender = threading.Thread(target=peer.sendall, args=[sent])
    sender.start()
    wait_until(port, lambda: len(stream.received) == len(sent))
    sender.join()
    assert stream.received == sent
    peer.close()


def test_a_stream_that_floods_lets_the_others_have_their_turn(
    port: SelectorPort, listener: socket.socket
) -> None:
    flooded, flooder = connect(port, listener)
    quiet, peer = connect(port, listener)
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            flooder.sendall(bytes(65_536))

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        wait_until(port, lambda: bool(flooded.received))
        peer.sendall(b"x")
        wait_until(port, lambda: quiet.received == b"x")
    finally:
        stop.set()
        wait_until(port, lambda: not thread.is_alive())
    flooder.close()
    peer.close()


# Ending.


def test_what_came_before_the_end_is_delivered_before_it(
    port: SelectorPort, listener: socket.socket
) -> None:
    stream, peer = connect(port, listener)
    peer.sendall(b"last words")
    peer.close()
    wait_until(port, lambda: bool(stream.errors))
    assert stream.received == b"last words"
    assert isinstance(stream.errors[0], DisconnectedError)
    assert stream.error == f"{HOST}:{port_of(listener)} closed the connection"


def test_a_reset_is_logged_with_its_reason(port: SelectorPort, listener: socket.socket) -> None:
    stream, peer = connect(port, listener)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    peer.close()
    wait_until(port, lambda: bool(stream.errors))
    assert stream.error == (
        f"the connection to {HOST}:{port_of(listener)} broke: connection reset by peer"
    )
    assert isinstance(stream.errors[0].__cause__, ConnectionResetError)


def test_writing_to_a_stream_that_broke_reports_its_end_in_the_next_wait_only(
    port: SelectorPort, listener: socket.socket
) -> None:
    stream, peer = connect(port, listener)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    peer.close()
    for _ in range(3):
        port.write(stream, [b"into the void"])
    assert not stream.errors
    port.wait(1_000)
    assert isinstance(stream.errors[0], DisconnectedError)
    port.write(stream, [b"after the end"])
    assert port.unsent_bytes(stream) == 0


WRITER = """
import signal, socket
from pykclient.network.io.selector import SelectorPort
from tests.integration.recording_stream import connect

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as command line tools set it
port = SelectorPort()
stream, peer = connect(port, socket.create_server(("127.0.0.1", 0)))
port._channels[stream].sock.shutdown(socket.SHUT_WR)
port.write(stream, [b"x"])
port.wait(1_000)
print(type(stream.errors[0].__cause__).__name__)
port._wake_receiver.close()
port.wakeup()
print("woken")
"""


def test_a_peer_that_is_gone_is_an_error_and_no_signal_that_ends_the_program() -> None:
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WRITER],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert child.returncode != -signal.SIGPIPE
    assert child.stdout.split() == ["BrokenPipeError", "woken"]


def test_closing_calls_no_callback_and_drops_what_was_queued(
    port: SelectorPort, listener: socket.socket
) -> None:
    stream, peer = connect(port, listener)
    port.write(stream, [bytes(20_000_000)])
    port.close(stream)
    port.close(stream)
    while peer.recv(1_000_000):
        pass
    port.wait(0)
    assert not stream.errors
    peer.close()


# Waiting and waking.


def test_a_wake_up_from_another_thread_ends_a_wait(port: SelectorPort) -> None:
    start_s = time.monotonic()
    timer = threading.Timer(0.05, port.wakeup)
    timer.start()
    port.wait(60_000)
    assert time.monotonic() - start_s < PATIENCE_S
    timer.join()


def test_a_wake_up_before_a_wait_ends_it_at_once_and_counts_once(port: SelectorPort) -> None:
    port.wakeup()
    port.wakeup()
    start_s = time.monotonic()
    port.wait(60_000)
    assert time.monotonic() - start_s < PATIENCE_S
    start_s = time.monotonic()
    port.wait(30)
    assert time.monotonic() - start_s >= 0.029


def test_wake_ups_that_no_wait_takes_never_block(port: SelectorPort) -> None:
    def wake_often() -> None:
        for _ in range(5_000):
            port.wakeup()

    threads = [threading.Thread(target=wake_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    port.wait(60_000)
    start_s = time.monotonic()
    port.wait(10)
    assert time.monotonic() - start_s < PATIENCE_S


def test_a_wait_without_end_can_be_woken(port: SelectorPort) -> None:
    port.wakeup()
    port.wait(NEVER_MS)


# Waiting among parts of a response.


def test_a_wait_goes_on_while_only_parts_come(port: SelectorPort, listener: socket.socket) -> None:
    stream, peer = connect(port, listener)
    stream.wanted_bytes = 30

    def send_in_parts() -> None:
        for _ in range(3):
            peer.sendall(b"0123456789")
            assert was_read.acquire(timeout=PATIENCE_S)

    was_read = threading.Semaphore(0)
    note = stream.buffer_updated

    def buffer_updated(count: int) -> None:
        note(count)
        was_read.release()

    stream.buffer_updated = buffer_updated  # type: ignore[method-assign]
    sender = threading.Thread(target=send_in_parts)
    with peer:
        sender.start()
        port.wait(int(PATIENCE_S * 1_000))
        sender.join()
        assert len(stream.received) == 30


def test_parts_do_not_make_a_wait_longer(port: SelectorPort, listener: socket.socket) -> None:
    stream, peer = connect(port, listener)
    stream.wanted_bytes = 10**9
    is_over = threading.Event()

    def trickle() -> None:
        while not is_over.wait(0.001):
            peer.sendall(b"x")

    sender = threading.Thread(target=trickle)
    with peer:
        sender.start()
        started_s = time.monotonic()
        port.wait(100)
        waited_s = time.monotonic() - started_s
        is_over.set()
        sender.join()
    assert stream.received
    assert 0.1 <= waited_s < PATIENCE_S


def test_a_wake_up_amid_a_shutdown_does_no_harm() -> None:
    port = SelectorPort()
    port._wake_receiver.close()
    port.wakeup()
    port.shutdown()
    port.wakeup()


def test_a_wake_up_ends_a_wait_among_parts(port: SelectorPort, listener: socket.socket) -> None:
    stream, peer = connect(port, listener)
    stream.wanted_bytes = 10**9
    with peer:
        peer.sendall(b"x")
        port.wakeup()
        started_s = time.monotonic()
        port.wait(int(PATIENCE_S * 1_000))
        assert time.monotonic() - started_s < PATIENCE_S


# Shutting down.


@pytest.mark.promise("closing leaves no connection, thread or descriptor open")
def test_a_shutdown_closes_everything_and_may_be_repeated(listener: socket.socket) -> None:
    before = open_file_count()
    port = SelectorPort()
    streams = [connect(port, listener) for _ in range(3)]
    connecting = RecordingStream()
    port.open(connecting, HOST, port_of(listener), attempt=0)
    port.wait(0)
    port.shutdown()
    port.shutdown()
    port.wakeup()
    for stream, peer in streams:
        assert peer.recv(10) == b""
        assert not stream.errors
        peer.close()
    assert open_file_count() == before


def test_connections_that_come_and_go_leave_nothing_behind(
    port: SelectorPort, listener: socket.socket
) -> None:
    connect(port, listener)[1].close()
    port.wait(100)
    before = open_file_count()
    for attempt in range(60):
        stream = RecordingStream()
        refused = attempt % 3 == 0
        port.open(stream, HOST, free_port() if refused else port_of(listener), attempt=0)
        if refused:
            wait_until(port, lambda stream=stream: bool(stream.errors))  # type: ignore[misc]
            continue
        wait_until(port, lambda stream=stream: stream.opened_count == 1)  # type: ignore[misc]
        peer, _ = listener.accept()
        if attempt % 3 == 1:
            port.close(stream)
        peer.close()
        if attempt % 3 == 2:
            wait_until(port, lambda stream=stream: bool(stream.errors))  # type: ignore[misc]
    assert open_file_count() == before
    assert port._channels == {}
