"""AdminCall: one call for some keys (topics, brokers), each looked up, asked for and done apart.

A key is *looking up* its broker (or *asking* for it), *mapped* to it, *in flight*, and at the end
*completed* or *failed*; after an error that another attempt may cure it is looked up anew, after a
back-off. Keys at the same broker share a request. It ends no key by time: whoever drives it has the
deadline.

Owner: the admin lock; the driver of the engine.
Source: Java classes ``AdminApiDriver``, ``AdminApiHandler``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Generic, NamedTuple, TypeVar

from pykclient.errors import BrokerError, DecodeError, KafkaError
from pykclient.network.manager import ANY_NODE, NEVER_MS, PollResult, Request
from pykclient.network.retry import Attempt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pykclient.admin.lookup import Lookup, Place
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.manager import Manager
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message
    from pykclient.protocol.message import Request as RequestMessage

__all__ = ["NEXT", "AdminCall", "AdminCalls", "AdminHandler", "Attempts", "KeyState"]

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


NAMED_MAX: Final = 5
"""Keys that a call's name has."""


class KeyState(Enum):
    """How far a key is."""

    LOOKING_UP = "looking_up"
    ASKING = "asking"
    MAPPED = "mapped"
    IN_FLIGHT = "in_flight"
    COMPLETED = "completed"
    FAILED = "failed"


NEXT: Final[dict[KeyState, frozenset[KeyState]]] = {
    KeyState.LOOKING_UP: frozenset({KeyState.ASKING, KeyState.MAPPED}),
    KeyState.ASKING: frozenset({KeyState.LOOKING_UP, KeyState.FAILED}),
    KeyState.MAPPED: frozenset({KeyState.IN_FLIGHT}),
    KeyState.IN_FLIGHT: frozenset({KeyState.LOOKING_UP, KeyState.COMPLETED, KeyState.FAILED}),
    KeyState.COMPLETED: frozenset(),
    KeyState.FAILED: frozenset(),
}


class AdminHandler(ABC, Generic[KeyT, ValueT]):
    """What is special to one kind of call."""

    lookup: Lookup[KeyT]
    final_errors: ClassVar[tuple[type[BrokerError], ...]] = ()
    """Errors that end a key here, though elsewhere another attempt may cure them."""
    max_version: ClassVar[int | None] = None
    keys_per_request_max: ClassVar[int | None] = None
    """How many keys a request has room for; None means all of them."""

    @abstractmethod
    def request(self, keys: Sequence[KeyT], timeout_ms: int) -> RequestMessage:
        """Return the message that asks one broker about `keys`, and gives it `timeout_ms`."""

    @abstractmethod
    def results(
        self, message: Message, keys: Sequence[KeyT]
    ) -> Iterable[tuple[KeyT, ValueT | KafkaError]]:
        """Return what a response says about each of the keys that were asked for.

        Raises:
            DecodeError: it makes no sense.
        """

    def on_unreachable(self, key: KeyT, error: KafkaError) -> ValueT | KafkaError:
        """Return what it means for a key that its broker did not respond: to most, the error."""
        return error


class Attempts(NamedTuple):
    """How a call tries: `retry_max` further attempts after a failed one, each of
    `request_timeout_ms`, until `deadline_ms`.
    """

    retry_max: int
    backoff: Backoff
    request_timeout_ms: int
    deadline_ms: int


@dataclass(slots=True)
class _Progress:
    attempt: Attempt
    state: KeyState = KeyState.LOOKING_UP
    has_lost_response: bool = False


class AdminCall(Generic[KeyT, ValueT]):
    """One call. `values` and `errors` hold what came of the keys that are done."""

    def __init__(
        self,
        handler: AdminHandler[KeyT, ValueT],
        keys: Iterable[KeyT],
        metadata: Metadata,
        attempts: Attempts,
    ) -> None:
        self.values: dict[KeyT, ValueT] = {}
        self.errors: dict[KeyT, KafkaError] = {}
        self.last_error: KafkaError | None = None
        """The newest error that was met on the way."""
        self._handler = handler
        self._metadata = metadata
        self._attempts = attempts
        self._progress = {key: _Progress(Attempt(attempts.backoff)) for key in keys}
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
        by_place: defaultdict[Place, list[KeyT]] = defaultdict(list)
        by_group: defaultdict[str, list[KeyT]] = defaultdict(list)
        lookup = self._handler.lookup
        next_poll_ms = NEVER_MS
        for key in self._unfinished:
            progress = self._progress[key]
            if progress.state is not KeyState.LOOKING_UP:
                continue
            if progress.attempt.due_ms > now_ms:
                next_poll_ms = min(next_poll_ms, progress.attempt.due_ms)
                continue
            place = lookup.find(key, self._metadata.cluster)
            if place is not None:
                _to(progress, KeyState.MAPPED)
                by_place[place].append(key)
            elif (group_to_find := lookup.group_to_find(key)) is not None:
                _to(progress, KeyState.ASKING)
                by_group[group_to_find].append(key)
            else:
                self._metadata.request_update()
        requests = [
            self._request(place, share, now_ms)
            for place, keys in by_place.items()
            for share in self._shares(keys)
        ]
        requests += [
            self._find_coordinator(group_to_find, keys) for group_to_find, keys in by_group.items()
        ]
        return PollResult(requests, next_poll_ms)

    def _shares(self, keys: Sequence[KeyT]) -> Iterator[Sequence[KeyT]]:
        most = self._handler.keys_per_request_max or len(keys)
        for start in range(0, len(keys), most):
            yield keys[start : start + most]

    def _find_coordinator(self, group_to_find: str, keys: Sequence[KeyT]) -> Request:
        lookup = self._handler.lookup
        return Request(
            lookup.request(group_to_find),
            ANY_NODE,
            on_response=partial(self._on_place, group_to_find, keys),
            on_failure=partial(self._on_no_place, keys),
            max_version=lookup.max_version,
        )

    def _on_place(
        self, group_to_find: str, keys: Sequence[KeyT], message: Message | None, now_ms: int
    ) -> None:
        assert message is not None
        error = self._handler.lookup.learn(group_to_find, message)
        if error is not None:
            self._on_no_place(keys, error, now_ms)
            return
        for key in keys:
            _to(self._progress[key], KeyState.LOOKING_UP)

    def _on_no_place(self, keys: Sequence[KeyT], error: KafkaError, now_ms: int) -> None:
        for key in keys:
            self._on_error(key, error, now_ms)

    def _request(self, place: Place, keys: Sequence[KeyT], now_ms: int) -> Request:
        for key in keys:
            _to(self._progress[key], KeyState.IN_FLIGHT)
        # The broker must have responded before either of us gives up.
        left_ms = max(0, self._attempts.deadline_ms - now_ms)
        timeout_ms = min(left_ms, self._attempts.request_timeout_ms)
        return Request(
            self._handler.request(keys, timeout_ms),
            place.node_id,
            on_response=partial(self._on_response, keys),
            on_failure=partial(self._on_failure, keys),
            max_version=self._handler.max_version,
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
                result = DecodeError(f"{type(message).__name__} says nothing about {key!r}")
            if isinstance(result, KafkaError):
                self._on_error(key, result, now_ms)
            else:
                self._complete(key, result)

    def _on_failure(self, keys: Sequence[KeyT], error: KafkaError, now_ms: int) -> None:
        cause = error.__cause__
        if isinstance(cause, KafkaError) and cause.fatal:
            error = cause  # of its broker, whose place no other can take
        for key in keys:
            self._progress[key].has_lost_response = True
            outcome = self._handler.on_unreachable(key, error)
            if isinstance(outcome, KafkaError):
                self._on_error(key, outcome, now_ms)
            else:
                self._complete(key, outcome)

    def _on_error(self, key: KeyT, error: KafkaError, now_ms: int) -> None:
        progress = self._progress[key]
        self.last_error = error
        is_final = not error.retriable or isinstance(error, self._handler.final_errors)
        if is_final or progress.attempt.failure_count >= self._attempts.retry_max:
            if progress.has_lost_response and isinstance(error, BrokerError):
                error.add_note(
                    "An earlier attempt of this call may have succeeded: its response was lost."
                )
            _to(progress, KeyState.FAILED)
            del self._unfinished[key]
            self.errors[key] = error
            return
        # The controller, or the coordinator, may be another by now.
        self._metadata.request_update()
        self._handler.lookup.forget(key)
        _to(progress, KeyState.LOOKING_UP)
        progress.attempt.back_off(error, now_ms)

    def _complete(self, key: KeyT, value: ValueT) -> None:
        _to(self._progress[key], KeyState.COMPLETED)
        del self._unfinished[key]
        self.values[key] = value


class AdminCalls:
    """The manager that lets the call under way speak."""

    def __init__(self) -> None:
        self._polls: list[Manager] = []

    def start(self, call: Manager) -> None:
        """Take up a call. There is one at a time; another one was interrupted."""
        self._polls = [call]

    def end(self) -> None:
        self._polls = []

    def poll(self, now_ms: int) -> PollResult:
        results = [call.poll(now_ms) for call in self._polls]
        return PollResult(
            [request for result in results for request in result.requests],
            min((result.next_poll_ms for result in results), default=NEVER_MS),
        )


def _to(progress: _Progress, state: KeyState) -> None:
    assert state in NEXT[progress.state], f"{progress.state} -> {state}"
    progress.state = state
