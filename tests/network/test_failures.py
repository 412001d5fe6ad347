"""Failures name the place and the cure, and requests hear only of what concerns them."""

from __future__ import annotations

import pytest

from pykclient.errors import (
    AuthenticationError,
    DecodeError,
    DisconnectedError,
    FrameTooLargeError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from pykclient.network.broker import errors as failures
from pykclient.network.manager import Request
from pykclient.protocol.messages.metadata import MetadataRequest
from pykclient.types import Node
from tests.network.scripted_network import Outcome

NODE = Node(3, "broker", 9092)
REQUEST = Request(MetadataRequest(), 3, Outcome().on_response, Outcome().on_failure)
ANYWHERE = Request(MetadataRequest(), None, Outcome().on_response, Outcome().on_failure)
HUNG_UP = DisconnectedError("hung up")


@pytest.mark.parametrize(
    ("told", "cure"),
    [
        (failures.not_accepted(NODE, 700), "socket_connection_setup_timeout_ms"),
        (failures.handshake_wait(NODE), "is it a Kafka listener"),
        (failures.handshake_timed_out(NODE, 700), "advertised.listeners"),
        (failures.handshake_hung_up(NODE, HUNG_UP), "Check bootstrap_servers"),
        (failures.unanswered(REQUEST, NODE, 700), "raise request_timeout_ms"),
        (
            failures.unreadable(NODE, DecodeError("cut"), is_known_broker=False),
            "is it a Kafka listener",
        ),
    ],
)
def test_each_names_the_broker_and_the_cure(told: KafkaError | str, cure: str) -> None:
    assert str(told).startswith("broker:9092 (id 3) ")
    assert cure in str(told)


def test_a_known_broker_is_not_asked_whether_it_is_one() -> None:
    told = failures.unreadable(NODE, DecodeError("cut"), is_known_broker=True)
    assert str(told) == "broker:9092 (id 3) sent what cannot be read: cut"


def test_what_may_pass_is_told_to_requests_as_it_is() -> None:
    assert failures.given_up(NODE, HUNG_UP) is HUNG_UP


@pytest.mark.parametrize(
    "cause",
    [
        DecodeError("cut"),
        FrameTooLargeError("huge"),
        UnsupportedVersionError("old"),
        AuthenticationError("no"),
    ],
)
def test_what_is_wrong_with_the_stream_or_one_address_leaves_requests_retriable(
    cause: KafkaError,
) -> None:
    told = failures.given_up(NODE, cause)
    assert told.retriable
    assert told.__cause__ is cause
    assert str(cause) in str(told)


def test_a_request_that_was_not_taken_tells_why() -> None:
    assert str(failures.untaken(ANYWHERE, 50, "all are down")) == (
        "no broker took the METADATA request within 50 ms: all are down"
    )
    told = failures.untaken(REQUEST, 50, "")
    assert isinstance(told, KafkaTimeoutError)
    assert str(told) == (
        "broker 3 did not take the METADATA request within 50 ms: the connection is busy or "
        "throttled"
    )


def test_a_broker_of_no_address_is_named() -> None:
    assert "broker 77 is not in the metadata" in str(failures.unknown_node(77))
