"""An exception that a signal handler raises in user code leaves the call.

A failure of user code is contained: it becomes a record's error or a warning in the log. The time
limit of a task queue is not such a failure, and must not cause a good record to be skipped.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, NoReturn

import pytest

from pykclient.consumer.deserializers import RecordDeserializer
from pykclient.consumer.group.assignors import RebalanceProtocol
from pykclient.consumer.group.classic.leader import assign_partitions
from pykclient.consumer.group.rebalance import RebalanceListener, RevokeAll
from pykclient.consumer.interceptors import ConsumerInterceptors
from pykclient.consumer.record import ConsumerRecords
from pykclient.producer.interceptors import ProducerInterceptors
from pykclient.producer.record import ProducerRecord
from tests.consumer.fetched_records import A, span
from tests.consumer.group.test_rebalance import Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class TimeLimitError(Exception):
    """The exception that a task queue raises."""


def over_time(*_: object) -> NoReturn:
    raise TimeLimitError


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, over_time)
    yield
    signal.signal(signal.SIGALRM, before)


class Slow:
    """User code that runs into the time limit in every call."""

    name = "slow"

    def run(self, *_: object) -> NoReturn:
        signal.raise_signal(signal.SIGALRM)
        raise AssertionError("the handler has not run")

    on_consume = on_commit = on_send = assign = run

    def on_acknowledgement(self, *_: object) -> None:
        raise AssertionError("nothing was sent")


def consume() -> None:
    ConsumerInterceptors([Slow()], clock_ms=int).on_consume(ConsumerRecords([span(A, [1])]))


def note_commit() -> None:
    ConsumerInterceptors([Slow()], clock_ms=int).on_commit({})


def send() -> None:
    ProducerInterceptors([Slow()], clock_ms=int).on_send(ProducerRecord("t", b"v"))


def deserialize() -> None:
    RecordDeserializer(None, Slow().run).apply(span(A, [1, 2]))


def assign() -> None:
    assign_partitions(Slow(), RebalanceProtocol.EAGER, {}, {})  # type: ignore[arg-type]


def revoke() -> None:
    scene = Scene()
    scene.reconciliation.listener = RebalanceListener(on_revoked=Slow().run)
    intent = scene.give_up(RevokeAll())
    try:
        scene.call()
    finally:
        assert intent.is_done
        assert not scene.reconciliation.has_error, "a later call would raise it again"


@pytest.mark.parametrize("call", [consume, note_commit, send, deserialize, assign, revoke])
def test_an_alarm_is_not_contained_with_what_fails(call: Callable[[], None]) -> None:
    with pytest.raises(TimeLimitError):
        call()
