"""AdminCall by numbers: each key goes its own way to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.admin.call import NEXT, AdminCall, AdminCalls, AdminHandler, Attempts, KeyState
from pykclient.admin.lookup import Controller, CoordinatorOf, GroupCoordinator, Lookup, Place
from pykclient.admin.topics import CreateTopics, NewTopic
from pykclient.errors import (
    CoordinatorNotAvailableError,
    DecodeError,
    DisconnectedError,
    GroupAuthorizationFailedError,
    KafkaError,
    NotControllerError,
    NotCoordinatorError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnsupportedVersionError,
)
from pykclient.network.cluster.cluster import Cluster
from pykclient.network.cluster.metadata import Metadata
from pykclient.network.retry import Backoff
from pykclient.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from pykclient.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.types import Node

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pykclient.network.manager import Request
    from pykclient.protocol.message import Message
    from pykclient.protocol.message import Request as RequestMessage

START_MS = 1_000_000
RETRY_MS = 100
REQUEST_TIMEOUT_MS = 30_000


class Handler(AdminHandler[str, int]):
    """Takes its answers from the test instead of a message."""

    final_errors = (RequestTimedOutError,)

    def __init__(self) -> None:
        self.lookup: Lookup[str] = Controller()
        self.asked: list[tuple[list[str], int]] = []
        self.answer: dict[str, int | KafkaError] = {}
        self.unreachable: int | None = None
        self.error: DecodeError | None = None

    def request(self, keys: Sequence[str], timeout_ms: int) -> RequestMessage:
        self.asked.append((list(keys), timeout_ms))
        return MetadataRequest()

    def results(
        self, message: Message, keys: Sequence[str]
    ) -> Iterable[tuple[str, int | KafkaError]]:
        if self.error is not None:
            raise self.error
        return self.answer.items()

    def on_unreachable(self, key: str, error: KafkaError) -> int | KafkaError:
        return error if self.unreachable is None else self.unreachable


class OneByOne(Handler):
    """Has room for one key."""

    keys_per_request_max = 1


class ByName(Lookup[str]):
    """Each key has a broker of its own."""

    def find(self, key: str, cluster: Cluster) -> Place | None:
        return Place(ord(key))


class Scene:
    """A call for keys a and b, whose controller is broker 1."""

    def __init__(self, *, retry_max: int = 1_000, time_left_ms: int = 60_000) -> None:
        self.metadata = Metadata(
            bootstrap=[Node(-1, "boot", 9092)],
            refresh_backoff=Backoff(RETRY_MS, 1_000, jitter=0),
            max_age_ms=300_000,
            allow_auto_topic_creation=False,
        )
        (request,) = self.metadata.poll(START_MS).requests
        request.on_response(MetadataResponse(), START_MS)
        self.metadata.cluster = Cluster(version=2, controller_id=1)
        self.handler = Handler()
        attempts = Attempts(
            retry_max,
            Backoff(RETRY_MS, 1_000, jitter=0),
            REQUEST_TIMEOUT_MS,
            START_MS + time_left_ms,
        )
        self.call = AdminCall(self.handler, ["a", "b"], self.metadata, attempts)

    def poll(self, now_ms: int = START_MS) -> list[Request]:
        return list(self.call.poll(now_ms).requests)

    def reply(self, now_ms: int = START_MS, **answers: int | KafkaError) -> None:
        (request,) = self.poll(now_ms)
        self.handler.answer = dict(answers)
        request.on_response(MetadataResponse(), now_ms)

    @property
    def is_metadata_due(self) -> bool:
        return self.metadata.next_poll_ms() < START_MS + 300_000


def test_keys_of_one_broker_share_a_request() -> None:
    scene = Scene()
    (request,) = scene.poll()
    assert request.node_id == 1
    assert scene.handler.asked == [(["a", "b"], REQUEST_TIMEOUT_MS)]
    assert scene.poll() == []


def test_keys_of_several_brokers_have_a_request_each() -> None:
    handler = Handler()
    handler.lookup = ByName()
    scene = Scene()
    call = AdminCall(handler, ["a", "b"], scene.metadata, scene.call._attempts)
    assert [request.node_id for request in call.poll(START_MS).requests] == [ord("a"), ord("b")]


def test_a_handler_may_have_a_request_for_each_key() -> None:
    scene = Scene()
    handler = OneByOne()
    call = AdminCall(handler, ["a", "b"], scene.metadata, scene.call._attempts)
    assert len(call.poll(START_MS).requests) == 2
    assert [keys for keys, _ in handler.asked] == [["a"], ["b"]]


def test_a_broker_gets_no_more_time_than_the_call_has() -> None:
    scene = Scene(time_left_ms=700)
    scene.poll(START_MS + 100)
    assert scene.handler.asked[0][1] == 600


def test_without_a_controller_it_asks_for_metadata_and_waits() -> None:
    scene = Scene()
    scene.metadata.cluster = Cluster(version=3)
    assert scene.poll() == []
    assert scene.is_metadata_due
    scene.metadata.cluster = Cluster(version=4, controller_id=2)
    assert [request.node_id for request in scene.poll()] == [2]


def coordinator(node_id: int = -1, error_code: int = 0) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(node_id=node_id, host="h", port=9092, error_code=error_code)


@pytest.mark.promise("the coordinator is looked up, and again when it has moved")
def test_a_coordinator_is_asked_for_and_then_asked() -> None:
    scene = Scene()
    scene.handler.lookup = GroupCoordinator()
    questions = scene.poll()
    assert [request.node_id for request in questions] == [None, None]
    assert [str(request.message) for request in questions] == [
        str(FindCoordinatorRequest(key=group)) for group in "ab"
    ]
    assert scene.poll() == []
    questions[0].on_response(coordinator(5), START_MS)
    questions[1].on_response(coordinator(6), START_MS)
    assert [request.node_id for request in scene.poll()] == [5, 6]


def test_keys_of_one_group_share_the_question_and_the_request() -> None:
    scene = Scene()
    scene.handler.lookup = CoordinatorOf("g")
    (question,) = scene.poll()
    question.on_response(coordinator(5), START_MS)
    scene.reply(a=1, b=2)
    assert scene.call.values == {"a": 1, "b": 2}


@pytest.mark.promise("the coordinator is looked up, and again when it has moved")
def test_a_coordinator_that_has_moved_is_asked_for_again() -> None:
    scene = Scene()
    scene.handler.lookup = CoordinatorOf("g")
    scene.poll()[0].on_response(coordinator(5), START_MS)
    moved = NotCoordinatorError("moved")
    scene.reply(a=1, b=moved)
    (question,) = scene.poll(START_MS + RETRY_MS)
    question.on_response(coordinator(6), START_MS + RETRY_MS)
    assert [request.node_id for request in scene.poll(START_MS + RETRY_MS)] == [6]


def test_a_coordinator_that_is_not_there_yet_is_waited_for() -> None:
    scene = Scene()
    scene.handler.lookup = CoordinatorOf("g")
    absent = coordinator(error_code=CoordinatorNotAvailableError.code)
    scene.poll()[0].on_response(absent, START_MS)
    assert isinstance(scene.call.last_error, CoordinatorNotAvailableError)
    assert scene.poll() == []
    assert len(scene.poll(START_MS + RETRY_MS)) == 1


def test_a_question_that_is_lost_is_asked_again_and_one_refused_is_not() -> None:
    scene = Scene()
    scene.handler.lookup = CoordinatorOf("g")
    scene.poll()[0].on_failure(DisconnectedError("gone"), START_MS)
    (again,) = scene.poll(START_MS + RETRY_MS)
    refused = coordinator(error_code=GroupAuthorizationFailedError.code)
    again.on_response(refused, START_MS + RETRY_MS)
    assert scene.call.errors.keys() == {"a", "b"}
    for error in scene.call.errors.values():
        assert isinstance(error, GroupAuthorizationFailedError)
        assert "coordinator of group 'g'" in str(error)


def test_each_key_ends_by_its_own_answer() -> None:
    scene = Scene()
    error = TopicAlreadyExistsError("b")
    scene.reply(a=5, b=error)
    assert scene.call.is_done
    assert (scene.call.values, scene.call.errors) == ({"a": 5}, {"b": error})
    assert scene.call.unfinished == ()
    assert scene.poll(START_MS + 10_000) == []


def test_only_what_may_pass_is_tried_again_at_the_new_controller() -> None:
    scene = Scene()
    scene.reply(a=5, b=NotControllerError("moved"))
    assert scene.call.unfinished == ("b",)
    assert isinstance(scene.call.last_error, NotControllerError)
    assert scene.is_metadata_due
    assert scene.call.poll(START_MS).next_poll_ms == START_MS + RETRY_MS
    scene.metadata.cluster = Cluster(version=3, controller_id=2)
    (request,) = scene.poll(START_MS + RETRY_MS)
    assert request.node_id == 2
    assert scene.handler.asked[-1][0] == ["b"]


def test_an_error_that_is_final_here_is_not_tried_again() -> None:
    scene = Scene()
    error = RequestTimedOutError("still at it")
    assert error.retriable
    scene.reply(a=error, b=5)
    assert scene.call.errors == {"a": error}


def test_a_topic_whose_creation_timed_out_is_not_created_again() -> None:
    scene = Scene()
    handler = CreateTopics({"a": NewTopic("a")})
    call = AdminCall(handler, ["a"], scene.metadata, scene.call._attempts)
    (request,) = call.poll(START_MS).requests
    timed_out = CreatableTopicResult("a", error_code=RequestTimedOutError.code)
    request.on_response(CreateTopicsResponse(topics=[timed_out]), START_MS)
    assert isinstance(call.errors["a"], RequestTimedOutError)


def test_attempts_end_with_the_number_that_is_set() -> None:
    scene = Scene(retry_max=2)
    error = NotControllerError("moved")
    for turn in range(3):
        assert not scene.call.is_done
        scene.reply(START_MS + turn * 10_000, a=error, b=error)
    assert scene.call.errors == {"a": error, "b": error}


def test_back_offs_grow() -> None:
    scene = Scene()
    now_ms, waits_ms = START_MS, []
    for _ in range(3):
        scene.reply(now_ms, a=NotControllerError("moved"), b=NotControllerError("moved"))
        waits_ms.append(scene.call.poll(now_ms).next_poll_ms - now_ms)
        now_ms += waits_ms[-1]
    assert waits_ms == [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS]


def test_a_lost_connection_is_tried_again_and_remembered_by_a_later_refusal() -> None:
    scene = Scene()
    (request,) = scene.poll()
    request.on_failure(DisconnectedError("gone"), START_MS)
    assert not scene.call.is_done
    scene.reply(START_MS + RETRY_MS, a=TopicAlreadyExistsError("a"), b=5)
    notes = scene.call.errors["a"].__notes__
    assert any("earlier attempt" in note for note in notes)


def test_a_refusal_at_the_first_attempt_has_no_such_note() -> None:
    scene = Scene()
    scene.reply(a=TopicAlreadyExistsError("a"), b=5)
    assert not hasattr(scene.call.errors["a"], "__notes__")


def test_what_no_attempt_cures_ends_all_keys_of_a_request() -> None:
    scene = Scene()
    error = UnsupportedVersionError("too old")
    scene.poll()[0].on_failure(error, START_MS)
    assert scene.call.errors == {"a": error, "b": error}


def test_a_handler_may_do_without_a_broker_that_is_down() -> None:
    scene = Scene()
    scene.handler.unreachable = 9
    scene.poll()[0].on_failure(DisconnectedError("gone"), START_MS)
    assert scene.call.values == {"a": 9, "b": 9}


def test_a_key_that_the_answer_leaves_out_fails() -> None:
    scene = Scene()
    scene.reply(a=5)
    error = scene.call.errors["b"]
    assert isinstance(error, DecodeError)
    assert "'b'" in str(error)


def test_what_nobody_asked_for_is_ignored() -> None:
    scene = Scene()
    scene.reply(a=5, b=6, c=7)
    assert scene.call.values == {"a": 5, "b": 6}


def test_an_answer_that_makes_no_sense_fails_its_keys() -> None:
    scene = Scene()
    scene.handler.error = DecodeError("garbage")
    scene.reply()
    assert scene.call.errors == {"a": scene.handler.error, "b": scene.handler.error}


def test_a_call_for_nothing_is_done() -> None:
    scene = Scene()
    call = AdminCall(scene.handler, [], scene.metadata, scene.call._attempts)
    assert call.is_done
    assert not call.poll(START_MS).requests


def test_calls_speak_until_they_are_let_go() -> None:
    scene = Scene()
    calls = AdminCalls()
    calls.start(scene.call)
    assert len(calls.poll(START_MS).requests) == 1
    calls.start(Scene().call)
    assert len(calls.poll(START_MS).requests) == 1, "the first was interrupted"
    calls.end()
    assert not calls.poll(START_MS).requests


@pytest.mark.parametrize("state", [KeyState.COMPLETED, KeyState.FAILED])
def test_an_end_is_final(state: KeyState) -> None:
    assert NEXT[state] == frozenset()
    assert set(NEXT) == set(KeyState)
