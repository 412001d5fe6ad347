"""SenderMailbox: who wakes the sender, and who need not."""

from __future__ import annotations

from tests.producer.sender_bench import SenderBench


def test_the_sender_is_woken_once_and_only_for_what_it_would_not_see_in_time() -> None:
    bench = SenderBench(leaders=(1, 1), batch_size_bytes=500, linger_ms=10)
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
