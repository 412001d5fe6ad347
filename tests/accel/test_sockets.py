"""The port's system calls: both cores make the same ones, with the same results and errors."""

from __future__ import annotations

import errno
import selectors
import signal
import socket
from typing import TYPE_CHECKING, Any

import pytest

from pykclient.accel.pure.sockets import PART_COUNT_MAX, WOULD_BLOCK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, ModuleType

    Pair = tuple[socket.socket, socket.socket]

LONG_S = 60.0
KEPT_BYTES = 64 * 1024
"""Size up to which the compiled core keeps the GIL."""


@pytest.fixture
def pair() -> Iterator[Pair]:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        yield near, far


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as made:
        yield made


# Sending.


def test_parts_are_sent_as_one(core: ModuleType, pair: Pair) -> None:
    near, far = pair
    assert core.send_parts(near, [memoryview(b"one"), b"", memoryview(b"two")]) == 6
    assert far.recv(100) == b"onetwo"


def test_no_more_parts_go_than_the_system_takes(core: ModuleType, pair: Pair) -> None:
    near, far = pair
    parts = [bytes([number]) for number in range(PART_COUNT_MAX + 5)]
    assert core.send_parts(near, parts) == PART_COUNT_MAX
    assert far.recv(1_000) == bytes(range(PART_COUNT_MAX))


@pytest.mark.parametrize("size_bytes", [1_000, KEPT_BYTES, KEPT_BYTES + 1, 1_000_000])
def test_a_full_socket_would_block(core: ModuleType, pair: Pair, size_bytes: int) -> None:
    near, far = pair
    sent_bytes = 0
    while (count := core.send_parts(near, [bytes(size_bytes)])) != WOULD_BLOCK:
        assert 0 < count <= size_bytes
        sent_bytes += count
    near.shutdown(socket.SHUT_WR)
    received_bytes = 0
    while piece := far.recv(1_000_000):
        received_bytes += len(piece)
    assert received_bytes == sent_bytes > 0


@pytest.mark.parametrize("size_bytes", [1, 100_000])
def test_sends_to_a_peer_that_has_gone_are_errors(
    core: ModuleType, pair: Pair, size_bytes: int
) -> None:
    near, far = pair
    far.close()
    with pytest.raises(BrokenPipeError):  # and no signal
        core.send_parts(near, [bytes(size_bytes)])


@pytest.mark.parametrize("size_bytes", [10, 100_000])
def test_a_closed_socket_is_an_error(core: ModuleType, pair: Pair, size_bytes: int) -> None:
    near, _ = pair
    near.close()
    with pytest.raises(OSError, match=r"Bad file descriptor") as sent:
        core.send_parts(near, [bytes(size_bytes)])
    with pytest.raises(OSError, match=r"Bad file descriptor") as received:
        core.receive_into(near, memoryview(bytearray(size_bytes)))
    assert sent.value.errno == received.value.errno == errno.EBADF


# Receiving.


@pytest.mark.parametrize("room_bytes", [5, KEPT_BYTES, KEPT_BYTES + 1])
def test_what_has_come_is_received(core: ModuleType, pair: Pair, room_bytes: int) -> None:
    near, far = pair
    room = memoryview(bytearray(room_bytes))
    assert core.receive_into(near, room) == WOULD_BLOCK
    far.sendall(b"hello, world")
    count = core.receive_into(near, room)
    assert count == min(12, room_bytes)
    assert bytes(room[:count]) == b"hello, world"[:count]


@pytest.mark.parametrize("room_bytes", [5, KEPT_BYTES + 1])
def test_the_end_of_a_stream_is_no_bytes(core: ModuleType, pair: Pair, room_bytes: int) -> None:
    near, far = pair
    far.close()
    assert core.receive_into(near, memoryview(bytearray(room_bytes))) == 0


def test_nothing_is_received_into_what_cannot_be_written(core: ModuleType, pair: Pair) -> None:
    with pytest.raises((BufferError, TypeError)):
        core.receive_into(pair[0], memoryview(bytes(10)))


# Sockets that are not Python's own.


class Counted(socket.socket):
    """A socket of a library, which has its own ways."""

    call_count = 0

    def sendmsg(self, *arguments: Any) -> int:
        self.call_count += 1
        return super().sendmsg(*arguments)

    def recv_into(self, *arguments: Any) -> int:
        self.call_count += 1
        return super().recv_into(*arguments)


def test_a_socket_of_a_library_is_used_by_its_own_methods(core: ModuleType) -> None:
    near, far = socket.socketpair()
    with far, Counted(fileno=near.detach()) as counted:
        counted.setblocking(False)
        assert core.send_parts(counted, [b"x"]) == 1
        far.sendall(b"y")
        assert core.receive_into(counted, memoryview(bytearray(1))) == 1
        assert counted.call_count == 2


@pytest.mark.parametrize("name", ["sendmsg", "recv_into"])
def test_a_method_that_a_library_has_replaced_is_used(
    core: ModuleType, pair: Pair, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    near, far = pair
    method = getattr(socket.socket, name)
    called: list[str] = []

    def note(*arguments: Any) -> Any:
        called.append(name)
        return method(*arguments)

    monkeypatch.setattr(socket.socket, name, note, raising=False)
    assert core.send_parts(near, [b"x"]) == 1
    far.send(b"y")
    assert core.receive_into(near, memoryview(bytearray(1))) == 1
    assert called == [name]


class Refusing(socket.socket):
    def recv_into(self, *_arguments: Any) -> int:
        raise BlockingIOError("of the library")


def test_what_a_socket_of_a_library_raises_is_left_to_the_port(core: ModuleType) -> None:
    with Refusing() as sock, pytest.raises(BlockingIOError, match="of the library"):
        core.receive_into(sock, memoryview(bytearray(1)))


# Waiting.


def test_sockets_that_are_ready_are_returned_with_their_events(
    core: ModuleType, pair: Pair, selector: selectors.BaseSelector
) -> None:
    near, far = pair
    key = selector.register(near, selectors.EVENT_READ, "near")
    assert core.select_ready(selector, 0.0) == []
    assert core.select_ready(selector, 0.001) == []
    far.sendall(b"x")
    assert core.select_ready(selector, LONG_S) == [(key, selectors.EVENT_READ)]
    both = selectors.EVENT_READ | selectors.EVENT_WRITE
    key = selector.modify(near, both, "near")
    assert core.select_ready(selector, LONG_S) == [(key, both)]
    key = selector.modify(near, selectors.EVENT_WRITE, "near")
    assert core.select_ready(selector, LONG_S) == [(key, selectors.EVENT_WRITE)]
    far.close()
    key = selector.modify(near, selectors.EVENT_READ, "near")
    assert core.select_ready(selector, LONG_S) == [(key, selectors.EVENT_READ)]
    selector.unregister(near)
    assert core.select_ready(selector, 0.0) == []


def test_many_sockets_are_ready_at_once(core: ModuleType, selector: selectors.BaseSelector) -> None:
    pairs = [socket.socketpair() for _ in range(100)]
    try:
        for near, far in pairs:
            selector.register(near, selectors.EVENT_READ)
            far.sendall(b"x")
        seen: set[int] = set()
        while len(seen) < len(pairs):
            ready = core.select_ready(selector, LONG_S)
            assert ready
            for key, _ in ready:
                seen.add(key.fd)
                key.fileobj.recv(1)
        assert seen == {near.fileno() for near, _ in pairs}
    finally:
        for near, far in pairs:
            near.close()
            far.close()


@pytest.mark.parametrize("kind", [selectors.SelectSelector, selectors.PollSelector])
def test_other_selectors_wait_in_their_own_ways(
    core: ModuleType, pair: Pair, kind: type[selectors.BaseSelector]
) -> None:
    with kind() as other:
        key = other.register(pair[0], selectors.EVENT_WRITE)
        assert core.select_ready(other, LONG_S) == [(key, selectors.EVENT_WRITE)]


def test_a_signal_handler_runs_in_a_wait_that_goes_on(
    core: ModuleType, pair: Pair, selector: selectors.BaseSelector
) -> None:
    near, far = pair
    selector.register(near, selectors.EVENT_READ)
    before = signal.signal(signal.SIGALRM, lambda *_: far.sendall(b"x"))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        ((key, _),) = core.select_ready(selector, LONG_S)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert key.fileobj is near


def test_what_a_signal_handler_raises_ends_the_wait(
    core: ModuleType, selector: selectors.BaseSelector
) -> None:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise TimeoutError("from the handler")

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        with pytest.raises(TimeoutError, match="from the handler"):
            core.select_ready(selector, LONG_S)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_closed_selector_is_an_error(core: ModuleType) -> None:
    selector = selectors.DefaultSelector()
    selector.close()
    with pytest.raises(ValueError, match="closed"):
        core.select_ready(selector, 0.0)
