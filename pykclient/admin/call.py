"""AdminCall: one call for several keys (topics, groups, brokers), each with its own outcome.

An `AdminHandler` describes a kind of call: the broker for each key, the request, and the meaning of
its response; `AdminCall` does the rest. Keys of the same broker share a request. It does not time
out keys: the driver has the deadline.

Owner: the admin lock; the driver of the engine.
Source: Java classes ``AdminApiDriver``, ``AdminApiHandler``, ``AdminApiLookupStrategy``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from pykclient.errors import BrokerError, DecodeError, KafkaError, error_for_code
from pykclient.network.cluster.node import checked_node
from pykclient.network.coordinators import CoordinatorType
from pykclient.network.manager import ANY_NODE, IDLE, NEVER_MS, PollResult, Request
from pykclient.network.retry import Attempt
from pykclient.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pykclient.admin.config import AdminConfig
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.manager import Manager
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message
    from pykclient.protocol.message import Request as RequestMessage
    from pykclient.types import Node

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")

Results = Iterable[tuple[KeyT, ValueT | KafkaError]]

NAMED_MAX: Final = 5
"""Maximum number of keys in a call's name."""

ONE_KEY_MAX_VERSION: Final = 3
"""Last version of FindCoordinator with one key. Later ones (KIP-699) need brokers 3.0 or newer."""


class KeyState(Enum):
    LOOKING_UP = "looking_up"
    FINDING = "finding"
    MAPPED = "mapped"
    IN_FLIGHT = "in_flight"
    COMPLETED = "completed"
    FAILED = "failed"


NEXT: Final[dict[KeyState, frozenset[KeyState]]] = {
    KeyState.LOOKING_UP: frozenset({KeyState.FINDING, KeyState.MAPPED}),
    KeyState.FINDING: frozenset({KeyState.LOOKING_UP, KeyState.FAILED}),
    KeyState.MAPPED: frozenset({KeyState.IN_FLIGHT}),
    KeyState.IN_FLIGHT: frozenset({KeyState.LOOKING_UP, KeyState.COMPLETED, KeyState.FAILED}),
    KeyState.COMPLETED: frozenset(),
    KeyState.FAILED: frozenset(),
}


class Receiver(Enum):
    """The broker that handles a key."""

    ANY_BROKER = "any broker"
    CONTROLLER = "controller"
    """The controller; in a KRaft cluster, a broker that forwards to it."""
    BROKER = "broker"
    """The broker that the handler names for the key (`AdminHandler.broker_id`)."""
    COORDINATOR = "coordinator"
    """The coordinator of the handler's group. Without one, the key is the group or transactional id
    (`AdminHandler.coordinator_type`)."""


class AdminHandler(ABC, Generic[KeyT, ValueT]):
    receiver: ClassVar[Receiver]
    coordinator_type: ClassVar[CoordinatorType] = CoordinatorType.GROUP
    group: str | None = None
    final_errors: ClassVar[tuple[type[BrokerError], ...]] = ()
    """Errors that are final here, although retriable elsewhere."""
    stale_errors: ClassVar[tuple[type[BrokerError], ...]] = ()
    """Errors that may come from outdated state of a coordinator that hung and was replaced. They
    are final if the coordinator named by another broker responds with them, too."""
    max_version: ClassVar[int | None] = None
    keys_per_request_max: ClassVar[int | None] = None
    """Maximum number of keys in a request; None means no limit."""

    def version_max(self, keys: Sequence[KeyT]) -> int | None:
        """Return the newest version that a request of these keys may have, or None for any."""
        del keys
        return self.max_version

    def broker_id(self, key: KeyT) -> int | None:
        """Return the broker of a key, for `Receiver.BROKER`; None means any."""
        return key if isinstance(key, int) else None

    @abstractmethod
    def request(self, keys: Sequence[KeyT], timeout_ms: int) -> RequestMessage:
        """Return the request for one broker, which has `timeout_ms` to process it."""

    @abstractmethod
    def results(self, message: Message, keys: Sequence[KeyT]) -> Results[KeyT, ValueT]:
        """Return the value or error of each key of a request; other keys are ignored.

        Raises:
            DecodeError: the response is inconsistent.
        """

    def on_unreachable(self, key: KeyT, error: KafkaError) -> ValueT | KafkaError:
        """Return the value or error of a key whose broker did not respond."""
        return error


@dataclass(slots=True)
class _Progress:
    attempt: Attempt
    state: KeyState = KeyState.LOOKING_UP
    has_lost_response: bool = False
    node_id: int | None = None
    """The broker of the last request."""
    is_doubted: bool = False
    """True if a coordinator responded with one of the handler's `stale_errors`."""


class AdminCall(Generic[KeyT, ValueT]):
    """A call; `values` and `errors` contain the completed keys.

    `coordinators` are those found so far, by group or transactional id; calls may share them.
    """

    def __init__(
        self,
        handler: AdminHandler[KeyT, ValueT],
        keys: Iterable[KeyT],
        metadata: Metadata,
        *,
        config: AdminConfig,
        backoff: Backoff,
        deadline_ms: int,
        coordinators: dict[str, Node] | None = None,
    ) -> None:
        self.values: dict[KeyT, ValueT] = {}
        self.errors: dict[KeyT, KafkaError] = {}
        self.last_error: KafkaError | None = None
        self._handler = handler
        self._metadata = metadata
        self._config = config
        self._deadline_ms = deadline_ms
        self._coordinators = {} if coordinators is None else coordinators
        self._progress = {key: _Progress(Attempt(backoff)) for key in keys}
        self._unfinished = dict.fromkeys(self._progress)

    @property
    def is_done(self) -> bool:
        return not self._unfinished

    @property
    def name(self) -> str:
        keys = ", ".join(map(str, list(self._progress)[:NAMED_MAX]))
        return f"{type(self._handler).__name__} of {keys}"

    @property
    def unfinished(self) -> tuple[KeyT, ...]:
        return tuple(self._unfinished)

    def poll(self, now_ms: int) -> PollResult:
        by_node: defaultdict[int | None, list[KeyT]] = defaultdict(list)
        by_group: defaultdict[str, list[KeyT]] = defaultdict(list)
        next_poll_ms = NEVER_MS
        for key in self._unfinished:
            progress = self._progress[key]
            if progress.state is not KeyState.LOOKING_UP:
                continue
            if progress.attempt.due_ms > now_ms:
                next_poll_ms = min(next_poll_ms, progress.attempt.due_ms)
                continue
            receiver = self._handler.receiver
            if receiver is Receiver.COORDINATOR and self._group(key) not in self._coordinators:
                _to(progress, KeyState.FINDING)
                by_group[self._group(key)].append(key)
            elif receiver is Receiver.CONTROLLER and self._metadata.cluster.controller_id is None:
                self._metadata.request_update()
            else:
                _to(progress, KeyState.MAPPED)
                by_node[self._node_id(key)].append(key)
        requests = [
            self._request(node_id, some_keys, now_ms)
            for node_id, keys in by_node.items()
            for some_keys in self._split(keys)
        ]
        requests += [self._find_coordinator(group, keys) for group, keys in by_group.items()]
        return PollResult(requests, next_poll_ms)

    def _group(self, key: KeyT) -> str:
        return str(key) if self._handler.group is None else self._handler.group

    def _node_id(self, key: KeyT) -> int | None:
        receiver = self._handler.receiver
        if receiver is Receiver.COORDINATOR:
            return self._coordinators[self._group(key)].id
        if receiver is Receiver.CONTROLLER:
            return self._metadata.cluster.controller_id
        return self._handler.broker_id(key) if receiver is Receiver.BROKER else ANY_NODE

    def _split(self, keys: Sequence[KeyT]) -> Iterator[Sequence[KeyT]]:
        most = self._handler.keys_per_request_max or len(keys)
        for start in range(0, len(keys), most):
            yield keys[start : start + most]

    def _find_coordinator(self, group: str, keys: Sequence[KeyT]) -> Request:
        of_keys = (self._progress[key] for key in keys)
        return Request(
            coordinator_request(group, self._handler.coordinator_type),
            ANY_NODE,
            on_response=partial(self._on_coordinator, group, keys),
            on_failure=partial(self._on_error, keys),
            max_version=ONE_KEY_MAX_VERSION,
            avoided_id=next((each.node_id for each in of_keys if each.is_doubted), None),
        )

    def _on_coordinator(
        self, group: str, keys: Sequence[KeyT], message: Message | None, now_ms: int
    ) -> None:
        found = found_coordinator(group, message, self._handler.coordinator_type)
        if isinstance(found, KafkaError):
            self._on_error(keys, found, now_ms)
            return
        self._coordinators[group] = found
        for key in keys:
            _to(self._progress[key], KeyState.LOOKING_UP)

    def _request(self, node_id: int | None, keys: Sequence[KeyT], now_ms: int) -> Request:
        for key in keys:
            _to(self._progress[key], KeyState.IN_FLIGHT)
            self._progress[key].node_id = node_id
        # The broker must respond before the call times out.
        left_ms = max(0, self._deadline_ms - now_ms)
        timeout_ms = min(left_ms, self._config.request_timeout_ms)
        return Request(
            self._handler.request(keys, timeout_ms),
            node_id,
            on_response=partial(self._on_response, keys),
            on_failure=partial(self._on_failure, keys),
            max_version=self._handler.version_max(keys),
        )

    def _on_response(self, keys: Sequence[KeyT], message: Message | None, now_ms: int) -> None:
        assert message is not None
        try:
            results = dict(self._handler.results(message, keys))
        except DecodeError as error:
            results = dict.fromkeys(keys, error)
        for key in keys:
            result = results.get(key)
            if result is None:
                result = DecodeError(f"{type(message).__name__} lacks {key!r}")
            self._end_attempt(key, result, now_ms)

    def _on_failure(self, keys: Sequence[KeyT], error: KafkaError, now_ms: int) -> None:
        cause = error.__cause__
        if isinstance(cause, KafkaError) and cause.is_refusal:
            error = cause  # from a broker that no other can replace
        for key in keys:
            self._progress[key].has_lost_response = True
            self._end_attempt(key, self._handler.on_unreachable(key, error), now_ms)

    def _on_error(self, keys: Sequence[KeyT], error: KafkaError, now_ms: int) -> None:
        for key in keys:
            self._end_attempt(key, error, now_ms)

    def _end_attempt(self, key: KeyT, result: ValueT | KafkaError, now_ms: int) -> None:
        progress = self._progress[key]
        if isinstance(result, BrokerError):
            result.fatal = False  # it is not fatal to this client
        if not isinstance(result, KafkaError):
            _to(progress, KeyState.COMPLETED)
            del self._unfinished[key]
            self.values[key] = result
            return
        error = self.last_error = result
        is_final = not error.retriable or isinstance(error, self._handler.final_errors)
        if isinstance(error, self._handler.stale_errors) and not progress.is_doubted:
            is_final = False
            progress.is_doubted = True
        if is_final or progress.attempt.failure_count >= self._config.retries:
            if progress.has_lost_response and isinstance(error, BrokerError):
                error.add_note(
                    "An earlier attempt of this call may have succeeded: its response was lost."
                )
            _to(progress, KeyState.FAILED)
            del self._unfinished[key]
            self.errors[key] = error
            return
        # The controller or coordinator may have changed.
        self._metadata.request_update()
        if self._handler.receiver is Receiver.COORDINATOR:
            self._coordinators.pop(self._group(key), None)
        _to(progress, KeyState.LOOKING_UP)
        progress.attempt.back_off(error, now_ms)


class AdminCalls:
    """The manager of the call under way; there is one at a time."""

    def __init__(self) -> None:
        self.call: Manager | None = None

    def poll(self, now_ms: int) -> PollResult:
        return IDLE if self.call is None else self.call.poll(now_ms)


def failure(code: int, what: str, reason: str | None = None) -> BrokerError | None:
    """Return the error for an error code of `what`; None for code 0."""
    return None if code == 0 else error_for_code(code, f"{what}: {reason}" if reason else what)


def coordinator_request(
    name: str, kind: CoordinatorType = CoordinatorType.GROUP
) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=name, key_type=kind.value)


def found_coordinator(
    name: str, message: Message | None, kind: CoordinatorType = CoordinatorType.GROUP
) -> Node | KafkaError:
    assert isinstance(message, FindCoordinatorResponse)
    of = "group" if kind is CoordinatorType.GROUP else "transactional id"
    what = f"coordinator of {of} {name!r}"
    error: KafkaError | None = failure(message.error_code, what, message.error_message)
    if error is not None:
        return error
    try:
        return checked_node(message.node_id, message.host, message.port)
    except DecodeError as wrong:
        return wrong


def _to(progress: _Progress, state: KeyState) -> None:
    assert state in NEXT[progress.state], f"{progress.state} -> {state}"
    progress.state = state
