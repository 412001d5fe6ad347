"""The brief system calls: the compiled ones do what those of Python's own modules do."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
from typing import TYPE_CHECKING

import pytest

from pykclient.network.io import system_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(params=["python", "compiled"], autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which form of the calls is used."""
    chosen: str = request.param
    if chosen == "python":
        monkeypatch.setattr(system_calls, "IS_COMPILED", False)
    elif not system_calls.IS_COMPILED:
        pytest.skip("not built, or not wanted")
    return chosen


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets that do not block."""
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.setblocking(False)
        yield near, far


def moved_before_blocking(move: Callable[[], int]) -> int:
    """How many bytes go before the socket would block."""
    total = 0
    while True:
        try:
            total += move()
        except BlockingIOError:
            return total


Pair = tuple[socket.socket, socket.socket]


def test_parts_arrive_in_order(pair: Pair) -> None:
    near, far = pair
    parts = [memoryview(bytes([index])) for index in range(system_calls.PART_COUNT_MAX)]
    assert system_calls.send_parts(near, parts) == len(parts)
    buffer = bytearray(1000)
    assert system_calls.receive_into(far, memoryview(buffer)) == len(parts)
    assert buffer[: len(parts)] == bytes(range(len(parts)))


@pytest.mark.promise("short sends and receives keep the GIL, and do what Python's own do")
@pytest.mark.parametrize("size", [1, system_calls.BRIEF_BYTES, system_calls.BRIEF_BYTES + 1])
def test_a_full_socket_takes_a_part_and_then_nothing(pair: Pair, size: int) -> None:
    near, far = pair
    data = memoryview(bytes(range(256)) * (size // 256 + 1))[:size]
    buffer = memoryview(bytearray(70_000))
    sent = moved_before_blocking(lambda: system_calls.send_parts(near, [data]))
    received = moved_before_blocking(lambda: system_calls.receive_into(far, buffer))
    assert received == sent > 0


def test_nothing_but_the_room_given_is_written(pair: Pair) -> None:
    near, far = pair
    near.send(b"abcdef")
    buffer = bytearray(b"......")
    assert system_calls.receive_into(far, memoryview(buffer)[1:4]) == 3
    assert buffer == b".abc.."


def test_the_end_of_a_stream_is_no_bytes(pair: Pair) -> None:
    near, far = pair
    near.close()
    assert system_calls.receive_into(far, memoryview(bytearray(10))) == 0


def test_a_peer_that_is_gone_is_an_error_and_no_signal(pair: Pair) -> None:
    near, far = pair
    far.close()
    with pytest.raises(BrokenPipeError):
        system_calls.send_parts(near, [memoryview(b"x")])


def test_a_buffer_that_is_read_only_takes_nothing(pair: Pair) -> None:
    near, far = pair
    near.send(b"x")
    with pytest.raises((TypeError, BufferError)):
        system_calls.receive_into(far, memoryview(b"...."))


@pytest.mark.promise("short sends and receives keep the GIL, and do what Python's own do")
def test_what_is_ready_is_what_select_tells(pair: Pair, form: str) -> None:
    near, far = pair
    with selectors.DefaultSelector() as selector:
        selector.register(near, selectors.EVENT_READ | selectors.EVENT_WRITE, "near")
        selector.register(far, selectors.EVENT_READ, "far")
        for act in (lambda: None, lambda: near.send(b"x"), near.close):
            act()
            ready = system_calls.ready_now(selector)
            is_told = form == "compiled" and isinstance(selector, selectors.EpollSelector)
            assert ready == (selector.select(0) if is_told else None)


@pytest.mark.promise("short sends and receives keep the GIL, and do what Python's own do")
def test_a_short_send_lets_no_other_thread_run_in_between(pair: Pair, form: str) -> None:
    """Method: a thread that only counts; while the GIL is kept, it cannot."""
    if form == "python":
        pytest.skip("that is what the compiled form is for")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("there is no GIL")
    near, far = pair
    counted, is_over = [0], threading.Event()

    def count() -> None:
        while not is_over.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        part, buffer = memoryview(b"x"), memoryview(bytearray(1))
        kept = 0
        for _ in range(100):
            before = counted[0]
            system_calls.send_parts(near, [part])
            system_calls.receive_into(far, buffer)
            kept += counted[0] == before
    finally:
        is_over.set()
        thread.join()
    # A switch may fall due between two of the lines above, but not each time.
    assert kept > 50


WRITER = """
import signal, socket, struct, sys
from pykclient.network.io.selector import SelectorPort
from pykclient.network.io.system_calls import send_parts

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as command line tools set it
listener = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(listener.getsockname())
far, _ = listener.accept()
far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
far.close()  # which resets the connection
for _ in range(3):
    try:
        send_parts(near, [memoryview(bytes(int(sys.argv[1])))])
    except OSError as error:
        print(type(error).__name__)
port = SelectorPort()
port._wake_receiver.close()
try:
    port.wakeup()
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize("size_bytes", [1_000, 300_000])
def test_a_peer_that_resets_is_an_error_and_no_signal_that_ends_the_program(
    form: str, size_bytes: int
) -> None:
    child = subprocess.run(
        [sys.executable, "-c", WRITER, str(size_bytes)],
        env={**os.environ, "PYKCLIENT_ACCEL": "pure" if form == "python" else "compiled"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert child.returncode != -signal.SIGPIPE
    assert child.stdout.split()[-2:] == ["BrokenPipeError", "BrokenPipeError"]
