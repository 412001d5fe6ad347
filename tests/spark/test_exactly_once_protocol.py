"""Steps of the exactly-once sink's protocol whose order counts, one by one."""

from __future__ import annotations

import pytest

from spark_connector.exactly_once.names import ATOMIC_TASK, SlotName, slot_id
from spark_connector.exactly_once.protocol import (
    AbortOpen,
    Fence,
    ListOpen,
    SinkProtocol,
    SinkTakenOverError,
    Write,
)
from spark_connector.exactly_once.record import SinkRecord

SINK = "orders"
PROTOCOL = SinkProtocol(SINK, ATOMIC_TASK)
LEFT = slot_id(SINK, SlotName(5, "w", 1))


@pytest.mark.parametrize("call", ["claim", "settle"])
def test_what_is_open_of_a_sink_whose_record_has_expired_is_aborted(call: str) -> None:
    steps = getattr(PROTOCOL, call)()
    assert next(steps) == Fence()
    assert steps.send(None) == ListOpen()
    assert steps.send(frozenset({LEFT, "of another sink"})) == Write(SinkRecord(turn=1))
    assert steps.send(None) == AbortOpen((LEFT,))


@pytest.mark.parametrize("call", ["claim", "settle"])
def test_nothing_is_aborted_of_a_driver_that_has_begun_since_the_fence(call: str) -> None:
    steps = getattr(PROTOCOL, call)()
    next(steps)
    steps.send(None)
    steps.send(frozenset({LEFT}))
    with pytest.raises(SinkTakenOverError):
        steps.throw(SinkTakenOverError("fenced"))
