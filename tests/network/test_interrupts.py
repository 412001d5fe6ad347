"""Interrupts: code that no signal handler may interrupt."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest

from pykclient.network.interrupts import call_masked

if TYPE_CHECKING:
    from types import FrameType

TIMEOUT_S = 10.0


class HandlerError(Exception):
    """The exception that the signal handler raises."""


def raise_error(number: int, frame: FrameType | None) -> None:
    raise HandlerError


class Hit(threading.Thread):
    """A thread that is interrupted by a signal while it starts."""

    def start(self) -> None:
        signal.raise_signal(signal.SIGUSR1)  # to this thread, and no other one
        super().start()


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Windows holds no signal back")
def test_a_signal_waits_for_the_start_of_a_thread() -> None:
    thread = Hit(target=lambda: None)
    before = signal.signal(signal.SIGUSR1, raise_error)
    try:
        with pytest.raises(HandlerError):
            call_masked(thread.start)
        assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.signal(signal.SIGUSR1, before)
    thread.join(TIMEOUT_S)
    assert thread.ident is not None
    assert not thread.is_alive()
