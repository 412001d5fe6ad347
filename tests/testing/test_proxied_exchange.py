"""Answers are told apart by the requests they answer, byte by byte, with and without answers."""

from __future__ import annotations

import pytest

from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import encode_request, encode_response
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.testing.proxy.faults import Cut, Direction, Fault, Lose
from pykclient.testing.proxy.frames import Ending
from pykclient.testing.proxy.link import IN_FLIGHT_COUNT_MAX, ProxiedExchange
from pykclient.testing.proxy.plan import FaultPlan


def exchange_with(*faults: Fault) -> ProxiedExchange:
    plan = FaultPlan(seed=1)
    plan.replace(faults)
    return ProxiedExchange(plan)


def api_versions(correlation_id: int) -> bytes:
    return bytes(encode_request(ApiVersionsRequest(), 0, correlation_id, "client"))


def metadata(correlation_id: int) -> bytes:
    return bytes(encode_request(MetadataRequest(), 1, correlation_id, "client"))


def api_versions_answer(correlation_id: int) -> bytes:
    return bytes(encode_response(ApiVersionsResponse(), 0, correlation_id))


def metadata_answer(correlation_id: int) -> bytes:
    return bytes(encode_response(MetadataResponse(), 1, correlation_id))


@pytest.mark.parametrize("piece_bytes", [1, 5, 1000])
def test_only_answers_of_the_api_are_lost(piece_bytes: int) -> None:
    exchange = exchange_with(Lose(api=ApiKey.METADATA))
    requests = api_versions(1) + metadata(2)
    passed = [
        event
        for start in range(0, len(requests), piece_bytes)
        for event in exchange.requests.feed(requests[start : start + piece_bytes])
    ]
    assert b"".join(event for event in passed if isinstance(event, bytes)) == requests
    answers = api_versions_answer(1) + metadata_answer(2)
    events = [
        event
        for start in range(0, len(answers), piece_bytes)
        for event in exchange.responses.feed(answers[start : start + piece_bytes])
    ]
    assert events[-1] is Ending.CLOSE
    assert b"".join(event for event in events if isinstance(event, bytes)) == api_versions_answer(1)


def test_a_request_can_be_struck_before_the_broker_sees_it() -> None:
    exchange = exchange_with(Cut(api=ApiKey.METADATA, direction=Direction.REQUEST))
    *passed, end = exchange.requests.feed(api_versions(1) + metadata(2))
    data = b"".join(event for event in passed if isinstance(event, bytes))
    assert end is Ending.CLOSE
    assert data.startswith(api_versions(1))
    assert len(api_versions(1)) < len(data) < len(api_versions(1) + metadata(2))


def test_a_request_without_an_answer_is_passed_over() -> None:
    exchange = exchange_with(Lose(api=ApiKey.METADATA))
    exchange.requests.feed(api_versions(1) + metadata(2) + api_versions(3))
    assert exchange.responses.feed(api_versions_answer(3)) == [api_versions_answer(3)]
    # The second one can no longer be answered, so this answers nothing that is known.
    assert exchange.responses.feed(metadata_answer(2)) == [metadata_answer(2)]


def test_an_answer_to_nothing_leaves_the_others_alone() -> None:
    exchange = exchange_with(Lose(api=ApiKey.METADATA))
    exchange.requests.feed(metadata(2))
    assert exchange.responses.feed(metadata_answer(7)) == [metadata_answer(7)]
    assert exchange.responses.feed(metadata_answer(2)) == [Ending.CLOSE]


def test_requests_that_are_never_answered_are_forgotten_in_the_end() -> None:
    exchange = exchange_with(Lose(api=ApiKey.METADATA))
    exchange.requests.feed(metadata(0))
    for correlation_id in range(1, IN_FLIGHT_COUNT_MAX + 1):
        exchange.requests.feed(api_versions(correlation_id))
    assert exchange.responses.feed(metadata_answer(0)) == [metadata_answer(0)]
