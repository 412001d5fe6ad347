"""AdminCall by numbers: each key goes its own way to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.admin.call import AdminCall, AdminCalls, AdminHandler, Receiver
from pykclient.admin.config import AdminConfig
from pykclient.admin.topics import CreateTopics
from pykclient.errors import (
    CoordinatorNotAvailableError,
    DecodeError,
    DisconnectedError,
    GroupAuthorizationFailedError,
    KafkaError,
    NotControllerError,
    NotCoordinatorError,
    ProducerFencedError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnsupportedVersionError,
)
from pykclient.network.cluster.cluster import Cluster
from pykclient.network.cluster.metadata import Metadata
from pykclient.network.retry import Backoff
from pykclient.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.network.scripted_network import Steady

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.admin.call import Results
    from pykclient.network.manager import Request
    from pykclient.protocol.message import Message
    from pykclient.protocol.message import Request as RequestMessage

START_MS = 1_000_000
RETRY_MS = 100
REQUEST_TIMEOUT_MS = 30_000


class Handler(AdminHandler["str | int", int]):
    """Takes its results from the test instead of a message."""

    receiver = Receiver.CONTROLLER
    final_errors = (RequestTimedOutError,)

    def __init__(self) -> None:
        self.requests: list[tuple[list[str | int], int]] = []
        self.result: Results[str | int, int] = ()
        self.unreachable: int | None = None
        self.error: DecodeError | None = None

    def request(self, keys: Sequence[str | int], timeout_ms: int) -> RequestMessage:
        self.requests.append((list(keys), timeout_ms))
        return MetadataRequest()

    def results(self, message: Message, keys: Sequence[str | int]) -> Results[str | int, int]:
        if self.error is not None:
            raise self.error
        return self.result

    def on_unreachable(self, key: str | int, error: KafkaError) -> int | KafkaError:
        return error if self.unreachable is None else self.unreachable


class OneByOne(Handler):
    """Has room for one key."""

    keys_per_request_max = 1


class ToBrokers(Handler):
    receiver = Receiver.BROKER


class ToCoordinators(Handler):
    """Sends to the coordinator of `group`, or to those of the keys."""

    receiver = Receiver.COORDINATOR

    def __init__(self, group: str | None = None) -> None:
        super().__init__()
        self.group = group


class Ending(ToCoordinators):
    """Gets an error that a coordinator may have from what it knew before it was replaced."""

    stale_errors = (ProducerFencedError,)


class Scene:
    """A call, by default for keys a and b; the controller is broker 1."""

    def __init__(
        self,
        handler: Handler | None = None,
        keys: Sequence[str | int] = ("a", "b"),
        *,
        retries: int = 1_000,
        time_left_ms: int = 60_000,
    ) -> None:
        config = AdminConfig.from_settings(
            bootstrap_servers="boot:9092",
            retries=retries,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        self.metadata = Metadata(config, allow_auto_topic_creation=False, random=Steady())
        (request,) = self.metadata.poll(START_MS).requests
        request.on_response(MetadataResponse(), START_MS)
        self.metadata.cluster = Cluster(version=2, controller_id=1)
        self.handler = handler or Handler()
        self.call = AdminCall(
            self.handler,
            keys,
            self.metadata,
            config=config,
            backoff=Backoff(RETRY_MS, 1_000, jitter=0),
            deadline_ms=START_MS + time_left_ms,
        )

    def poll(self, now_ms: int = START_MS) -> list[Request]:
        return list(self.call.poll(now_ms).requests)

    def reply(self, now_ms: int = START_MS, **results: int | KafkaError) -> None:
        (request,) = self.poll(now_ms)
        self.handler.result = tuple(results.items())
        request.on_response(MetadataResponse(), now_ms)

    @property
    def is_metadata_due(self) -> bool:
        return self.metadata.next_poll_ms() < START_MS + 300_000


def test_keys_of_one_broker_share_a_request() -> None:
    scene = Scene()
    (request,) = scene.poll()
    assert request.node_id == 1
    assert scene.handler.requests == [(["a", "b"], REQUEST_TIMEOUT_MS)]
    assert scene.poll() == []


def test_keys_of_several_brokers_have_a_request_each() -> None:
    scene = Scene(ToBrokers(), [7, 8])
    assert [request.node_id for request in scene.poll()] == [7, 8]


def test_a_handler_may_have_a_request_for_each_key() -> None:
    scene = Scene(OneByOne())
    assert len(scene.poll()) == 2
    assert [keys for keys, _ in scene.handler.requests] == [["a"], ["b"]]


def test_a_broker_gets_no_more_time_than_the_call_has() -> None:
    scene = Scene(time_left_ms=700)
    scene.poll(START_MS + 100)
    assert scene.handler.requests[0][1] == 600


def test_without_a_controller_it_requests_metadata_and_waits() -> None:
    scene = Scene()
    scene.metadata.cluster = Cluster(version=3)
    assert scene.poll() == []
    assert scene.is_metadata_due
    scene.metadata.cluster = Cluster(version=4, controller_id=2)
    assert [request.node_id for request in scene.poll()] == [2]


def coordinator(node_id: int = -1, error_code: int = 0) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(node_id=node_id, host="h", port=9092, error_code=error_code)


def test_a_coordinator_is_found_and_gets_the_request_then() -> None:
    scene = Scene(ToCoordinators())
    lookups = scene.poll()
    assert [request.node_id for request in lookups] == [None, None]
    assert [request.message for request in lookups] == [
        FindCoordinatorRequest(key=group) for group in "ab"
    ]
    assert scene.poll() == []
    lookups[0].on_response(coordinator(5), START_MS)
    lookups[1].on_response(coordinator(6), START_MS)
    assert [request.node_id for request in scene.poll()] == [5, 6]


def test_keys_of_one_group_share_both_requests() -> None:
    scene = Scene(ToCoordinators("g"))
    (lookup,) = scene.poll()
    lookup.on_response(coordinator(5), START_MS)
    scene.reply(a=1, b=2)
    assert scene.call.values == {"a": 1, "b": 2}


def test_a_coordinator_that_has_moved_is_looked_up_again() -> None:
    scene = Scene(ToCoordinators("g"))
    scene.poll()[0].on_response(coordinator(5), START_MS)
    moved = NotCoordinatorError("moved")
    scene.reply(a=1, b=moved)
    (lookup,) = scene.poll(START_MS + RETRY_MS)
    lookup.on_response(coordinator(6), START_MS + RETRY_MS)
    assert [request.node_id for request in scene.poll(START_MS + RETRY_MS)] == [6]


def test_what_a_coordinator_may_have_from_before_it_was_replaced_is_confirmed() -> None:
    """The one that another broker names may respond otherwise; if it does not, that is the end."""
    scene = Scene(Ending("g"))
    scene.poll()[0].on_response(coordinator(5), START_MS)
    stale = ProducerFencedError("an older epoch")
    scene.reply(a=stale, b=stale)
    assert not scene.call.is_done
    (lookup,) = scene.poll(START_MS + RETRY_MS)
    assert lookup.avoided_id == 5
    lookup.on_response(coordinator(6), START_MS + RETRY_MS)
    fenced = ProducerFencedError("another producer has it")
    scene.reply(START_MS + RETRY_MS, a=1, b=fenced)
    assert scene.call.values == {"a": 1}
    assert scene.call.errors == {"b": fenced}


def test_a_coordinator_that_is_not_there_yet_is_waited_for() -> None:
    scene = Scene(ToCoordinators("g"))
    absent = coordinator(error_code=CoordinatorNotAvailableError.code)
    scene.poll()[0].on_response(absent, START_MS)
    assert isinstance(scene.call.last_error, CoordinatorNotAvailableError)
    assert scene.poll() == []
    assert len(scene.poll(START_MS + RETRY_MS)) == 1


def test_a_lookup_that_is_lost_is_sent_again_and_one_refused_is_not() -> None:
    scene = Scene(ToCoordinators("g"))
    scene.poll()[0].on_failure(DisconnectedError("gone"), START_MS)
    (again,) = scene.poll(START_MS + RETRY_MS)
    refused = coordinator(error_code=GroupAuthorizationFailedError.code)
    again.on_response(refused, START_MS + RETRY_MS)
    assert scene.call.errors.keys() == {"a", "b"}
    for error in scene.call.errors.values():
        assert isinstance(error, GroupAuthorizationFailedError)
        assert "coordinator of group 'g'" in str(error)


def test_each_key_ends_by_its_own_result() -> None:
    scene = Scene()
    error = TopicAlreadyExistsError("b")
    scene.reply(a=5, b=error)
    assert scene.call.is_done
    assert (scene.call.values, scene.call.errors) == ({"a": 5}, {"b": error})
    assert not hasattr(error, "__notes__"), "no response was lost"
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
    assert scene.handler.requests[-1][0] == ["b"]


def test_an_error_that_is_final_here_is_not_tried_again() -> None:
    scene = Scene()
    error = RequestTimedOutError("still at it")
    assert error.retriable
    scene.reply(a=error, b=5)
    assert scene.call.errors == {"a": error}


def test_a_topic_whose_creation_timed_out_is_not_created_again() -> None:
    assert RequestTimedOutError in CreateTopics.final_errors, "its attempts end with that"


def test_attempts_end_with_the_number_that_is_set() -> None:
    scene = Scene(retries=2)
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


def test_a_key_that_the_response_leaves_out_fails() -> None:
    scene = Scene()
    scene.reply(a=5)
    error = scene.call.errors["b"]
    assert isinstance(error, DecodeError)
    assert "'b'" in str(error)


def test_keys_that_were_not_requested_are_ignored() -> None:
    scene = Scene()
    scene.reply(a=5, b=6, c=7)
    assert scene.call.values == {"a": 5, "b": 6}


def test_a_response_that_makes_no_sense_fails_its_keys() -> None:
    scene = Scene()
    scene.handler.error = DecodeError("garbage")
    scene.reply()
    assert scene.call.errors == {"a": scene.handler.error, "b": scene.handler.error}


def test_one_call_at_a_time_is_polled() -> None:
    calls = AdminCalls()
    assert not calls.poll(START_MS).requests
    calls.call = Scene().call
    assert len(calls.poll(START_MS).requests) == 1
