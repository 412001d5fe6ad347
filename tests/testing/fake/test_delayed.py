"""Operations that wait: each is completed once, or runs out of time."""

from __future__ import annotations

from pykclient.testing.fake.timers import DelayedOperation, Purgatory, TimingWheel

DEADLINE_MS = 10


def test_an_operation_whose_answer_moves_the_clock_does_not_run_out_of_time_as_well() -> None:
    """The answer has a connection serve its next request, which advances the cluster."""
    timers = TimingWheel()
    purgatory = Purgatory(timers)
    expired: list[int] = []
    is_ready = False

    def try_complete(_: int) -> bool:
        if is_ready:
            timers.advance(DEADLINE_MS)
        return is_ready

    operation = DelayedOperation(try_complete, expired.append)
    purgatory.complete_or_watch(operation, ["key"], deadline_ms=DEADLINE_MS, now_ms=0)
    is_ready = True
    purgatory.check("key", DEADLINE_MS)
    assert expired == []
    assert purgatory.waiting_count() == 0
