"""`ServingThread` after Ctrl-C in `wait`: it runs on, and `close` still waits for it."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pykclient.testing import FakeKafka
from pykclient.testing.serving import ServingThread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

ROUNDS = 50
CONNECT_TIMEOUT_S = 30.0


def is_below_wait(frame: FrameType | None) -> bool:
    """Return whether `ServingThread.wait` called this frame, directly or not."""
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is ServingThread.wait.__code__:
            return True
    return False


@contextmanager
def interrupted_in_wait() -> Iterator[threading.Event]:
    """Make SIGINT raise once, only below `wait`, and do nothing elsewhere."""
    has_raised = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if is_below_wait(frame) and not has_raised.is_set():
            has_raised.set()
            raise KeyboardInterrupt

    former = signal.signal(signal.SIGINT, handle)
    try:
        yield has_raised
    finally:
        signal.signal(signal.SIGINT, former)


def test_a_thread_is_alive_after_ctrl_c_in_wait_and_close_waits_for_it() -> None:
    ended = threading.Event()

    def turn() -> None:
        if not has_raised.is_set():
            os.kill(os.getpid(), signal.SIGINT)
        serving.select(0.001)

    serving = ServingThread("the thread", turn, ended.set, hint="")
    with interrupted_in_wait() as has_raised:
        serving.start("interrupted")
        with pytest.raises(KeyboardInterrupt):
            serving.wait()
    assert serving.is_alive
    serving.close()
    assert ended.is_set()
    assert not serving.is_alive


def test_a_broker_ends_well_by_ctrl_c_when_a_client_goes() -> None:
    for _ in range(ROUNDS):
        with FakeKafka() as fake, interrupted_in_wait() as has_raised:
            host, port = fake.bootstrap_servers.split(":")

            def go(fake: FakeKafka, address: tuple[str, int], has_raised: threading.Event) -> None:
                try:
                    while not has_raised.is_set():
                        socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
                        os.kill(os.getpid(), signal.SIGINT)
                finally:
                    if not has_raised.is_set():
                        fake.close()  # nothing else would end its wait

            client = threading.Thread(target=go, args=(fake, (host, int(port)), has_raised))
            client.start()
            try:
                with pytest.raises(KeyboardInterrupt):
                    fake.wait()
            finally:
                client.join()
