"""SenderMailbox: who wakes the sender, and who need not."""

from __future__ import annotations

import pytest

from pykclient.producer.accumulator.mailbox import SenderMailbox
from tests.producer.sender_bench import SenderBench


def test_the_sender_is_woken_once_and_only_for_what_it_would_not_see_in_time() -> None:
    bench = SenderBench(leaders=(1, 1), batch_size=500, linger_ms=10)
    bench.accumulator.look(bench.now_ms)
    bench.send(partition=0)
    assert bench.wakeup_count == 1  # a first batch: nobody knows of its deadline
    bench.send(partition=1)
    assert bench.wakeup_count == 1  # it has been woken already
    bench.accumulator.look(bench.now_ms)
    bench.drain()
    bench.now_ms += 3
    bench.send(bytes(400), partition=0)
    assert bench.wakeup_count == 1  # it will look at the first deadline, which is earlier
    bench.send(bytes(400), partition=0)
    assert bench.wakeup_count == 2  # a full batch does not wait


@pytest.mark.promise("an interrupted wake-up, start or end of a thread leaves nothing undone")
def test_what_interrupts_a_wake_up_wakes_the_sender_itself() -> None:
    """A signal handler that flushes in there waits for the sender, which nobody else wakes."""
    wakeups: list[str] = []

    def wakeup() -> None:
        if not wakeups:
            wakeups.append("handler")
            mailbox.wake(0)
        wakeups.append("woken")

    mailbox = SenderMailbox(wakeup)
    mailbox.wake(0)
    assert wakeups == ["handler", "woken", "woken"]
    mailbox.wake(0)
    assert wakeups.count("woken") == 2  # nothing was interrupted: once is enough
