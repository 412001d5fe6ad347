"""Unsent requests leave their queue once, in order, or when their time is up."""

from __future__ import annotations

from pykclient.network.broker.pending_requests import PendingRequests
from pykclient.network.manager import ANY_NODE, NEVER_MS, Request
from pykclient.protocol.messages.metadata import MetadataRequest
from tests.network.scripted_network import Outcome


def request(node_id: int | None, deadline_ms: int = NEVER_MS) -> Request:
    outcome = Outcome()
    made = Request(MetadataRequest(), node_id, outcome.on_response, outcome.on_failure)
    made.deadline_ms = deadline_ms
    return made


def queued(*requests: Request) -> PendingRequests:
    unsent = PendingRequests()
    for each in requests:
        unsent.add(each)
    return unsent


def test_requests_of_a_node_leave_in_order() -> None:
    first, second, other = request(1), request(1), request(2)
    unsent = queued(first, other, second)
    assert [unsent.take_first(1), unsent.take_first(1)] == [first, second]
    assert not unsent.has(1)
    assert unsent.has(2)


def test_those_for_any_node_are_apart() -> None:
    anywhere = request(ANY_NODE)
    unsent = queued(anywhere, request(1))
    assert unsent.node_ids() == [1]
    assert unsent.has(ANY_NODE)
    assert list(unsent.take_all(ANY_NODE)) == [anywhere]
    assert list(unsent.take_all(ANY_NODE)) == []


def test_they_are_counted() -> None:
    unsent = queued(request(1), request(1), request(ANY_NODE))
    assert (unsent.count(1), unsent.count(2), unsent.count(ANY_NODE), len(unsent)) == (2, 0, 1, 3)


def test_those_whose_time_is_up_leave_and_the_others_keep_their_order() -> None:
    early, late, later = request(1, 10), request(1, 20), request(1, 30)
    anywhere = request(ANY_NODE, 10)
    unsent = queued(late, early, later, anywhere)
    assert unsent.take_overdue(9) == []
    assert unsent.take_overdue(10) == [early, anywhere]
    assert [unsent.take_first(1), unsent.take_first(1)] == [late, later]
    assert len(unsent) == 0


def test_the_first_deadline_is_told() -> None:
    assert queued(request(1, 20), request(2, 10)).next_deadline_ms(99) == 10
    assert PendingRequests().next_deadline_ms(99) == 99
