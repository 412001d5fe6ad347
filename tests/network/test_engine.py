"""The engine polls managers in order, mail first, and never waits past a deadline."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from pykclient.network.engine import Engine
from pykclient.network.manager import IDLE, PollResult, Request
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.network.scripted_network import BROKERS, Completion, ScriptedNetwork


class ScriptedManager:
    """A manager that returns what the test has set, and records when it was polled."""

    def __init__(self, name: str, events: list[str]) -> None:
        self.name = name
        self.events = events
        self.result = IDLE

    def poll(self, now_ms: int) -> PollResult:
        self.events.append(f"{self.name} at {now_ms}")
        result, self.result = self.result, IDLE
        return result


class Bench:
    """An engine with two managers over a network whose metadata is fresh."""

    def __init__(self) -> None:
        self.network = ScriptedNetwork()
        self.events: list[str] = []
        self.first = ScriptedManager("first", self.events)
        self.second = ScriptedManager("second", self.events)
        self.metadata = self.network.metadata
        self.engine = Engine(self.network.client, [self.metadata, self.first, self.second])
        [request] = self.metadata.poll(0).requests
        request.on_response(MetadataResponse(), self.network.now_ms)
        self.fresh_until_ms = self.metadata.next_poll_ms()

    @property
    def now_ms(self) -> int:
        return self.network.now_ms

    def step(self) -> int:
        return self.engine.step(self.now_ms)

    def request(self, node_id: int | None = None) -> tuple[Request, Completion]:
        completion = Completion()
        return (
            Request(MetadataRequest(), node_id, completion.on_response, completion.on_failure),
            completion,
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.promise("the core does no I/O; one loop drives it")
def test_managers_are_polled_in_order_with_the_same_time(bench: Bench) -> None:
    bench.step()
    assert bench.events == [f"first at {bench.now_ms}", f"second at {bench.now_ms}"]


def test_the_earliest_deadline_is_returned(bench: Bench) -> None:
    bench.first.result = PollResult(next_poll_ms=bench.now_ms + 700)
    bench.second.result = PollResult(next_poll_ms=bench.now_ms + 300)
    assert bench.step() == bench.now_ms + 300
    assert bench.step() == bench.fresh_until_ms


def test_requests_are_sent_in_the_same_step_and_responses_taken_in_complete_alone(
    bench: Bench,
) -> None:
    bench.network.update_brokers(BROKERS[0])
    peer = bench.network.make_ready(1)
    request, completion = bench.request(node_id=1)
    bench.first.result = PollResult(requests=[request])
    bench.step()
    assert [received.message for received in peer.requests] == [request.message]
    peer.respond(MetadataResponse())
    bench.network.port.wait(0)
    bench.step()
    assert not completion.is_done()
    bench.engine.complete(bench.now_ms)
    assert completion.is_done()


def test_a_request_that_fails_at_once_needs_no_wait(bench: Bench) -> None:
    request, completion = bench.request(node_id=77)
    bench.first.result = PollResult(requests=[request])
    assert bench.step() == bench.now_ms
    assert not completion.is_done()
    bench.engine.complete(bench.now_ms)
    assert "broker 77 is not in the metadata" in str(completion.error)


def test_mail_is_read_before_managers_are_polled(bench: Bench) -> None:
    bench.engine.post(lambda now_ms: bench.events.append(f"mail at {now_ms}"))
    bench.step()
    assert bench.events[0] == f"mail at {bench.now_ms}"


def test_mail_wakes_the_driver(bench: Bench) -> None:
    bench.engine.post(lambda _: None)
    assert bench.network.port.wakeup_count == 1


def test_mail_that_comes_during_a_step_leads_to_another_one_and_holds_up_none(
    bench: Bench,
) -> None:
    read: list[int] = []

    def post_again(now_ms: int) -> None:
        read.append(now_ms)
        bench.engine.post(post_again)

    bench.engine.post(post_again)
    assert bench.step() == bench.now_ms
    assert len(read) == 1
    bench.step()
    assert len(read) == 2


def test_mail_of_many_threads_is_read_whole_and_in_each_ones_order(bench: Bench) -> None:
    read: list[tuple[int, int]] = []

    def write_letters(thread: int) -> None:
        for number in range(500):
            bench.engine.post(partial(write_letter, (thread, number)))

    def write_letter(letter: tuple[int, int], now_ms: int) -> None:
        read.append(letter)

    threads = [threading.Thread(target=write_letters, args=[index]) for index in range(4)]
    for thread in threads:
        thread.start()
    while len(read) < 2_000:
        bench.step()
    for thread in threads:
        thread.join()
    for index in range(4):
        assert [number for thread, number in read if thread == index] == list(range(500))


def test_a_later_managers_wish_for_metadata_is_not_slept_over(bench: Bench) -> None:
    class RequestingManager(ScriptedManager):
        def poll(self, now_ms: int) -> PollResult:
            bench.metadata.request_update()
            return IDLE

    engine = Engine(bench.network.client, [bench.metadata, RequestingManager("asker", [])])
    assert engine.step(bench.now_ms) <= bench.now_ms + 1_000
