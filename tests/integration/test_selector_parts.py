"""SelectorPort waits on while only parts of an answer come, over the loopback."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.recording_stream import PATIENCE_S, connect

if TYPE_CHECKING:
    import socket

    from pykclient.network.io.selector import SelectorPort


@pytest.mark.promise("a part of a response does not end a wait, nor prolong it")
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


@pytest.mark.promise("a part of a response does not end a wait, nor prolong it")
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


@pytest.mark.promise("a part of a response does not end a wait, nor prolong it")
def test_a_wake_up_ends_a_wait_among_parts(port: SelectorPort, listener: socket.socket) -> None:
    stream, peer = connect(port, listener)
    stream.wanted_bytes = 10**9
    with peer:
        peer.sendall(b"x")
        port.wakeup()
        started_s = time.monotonic()
        port.wait(int(PATIENCE_S * 1_000))
        assert time.monotonic() - started_s < PATIENCE_S
