"""The types that managers exchange with the engine: Manager, Request, Operation, UserCall.

Owner: the driver of the engine that a manager belongs to.
Source: Kafka's ``RequestManager`` of the newer consumer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from pykclient.errors import DecodeError
from pykclient.errors.text import printable
from pykclient.protocol.primitives import STRING_BYTES_MAX
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pykclient.errors import KafkaError
    from pykclient.protocol.message import Message
    from pykclient.protocol.message import Request as RequestMessage

NEVER_MS = 2**62
"""A deadline that never comes."""

SILENT_MS: Final = 5_000
"""Time without a due response after which users should know: most requests take milliseconds."""

UTF8_BYTES_MAX: Final = 4
"""Bytes of one character."""

ANY_NODE: Final = None
"""Node id that selects the least loaded node."""

ValueT = TypeVar("ValueT")


@dataclass(slots=True)
class Request:
    """One message to one node, and the callbacks for its outcome.

    Exactly one of `on_response` and `on_failure` is called, once, in `Engine.complete` or
    `Engine.step`, never inside `NetworkClient.send`.

    `node_id`: None means the least loaded node. `avoided_id`: a broker that gets a request for any
    node only if no other node can take it. `is_movable`: when the first node becomes suspect, the
    request is sent to another one, so both may process it.

    `expects_response`: False only for a Produce with acks=0; `on_response` is then called with None
    once the socket has the bytes. `held_ms`: time for which the request tells the node to delay its
    response.

    `silent_ms`: time without a response after which it is logged and named in errors; longer for a
    request that waits for other members of a group.

    `max_version`: highest version to use, if the message lacks a field of newer versions (a topic
    id, for example). `build`: makes the message for the chosen version if versions differ in their
    fields; `message` then only names the API. An error that it raises (`UnsupportedVersionError`)
    goes to `on_failure`. `check`: called with a response before its callback; it raises
    `DecodeError` if the response contradicts the request, which ends the connection as malformed
    bytes do.
    """

    message: RequestMessage
    node_id: int | None
    on_response: Callable[[Message | None, int], None]
    on_failure: Callable[[KafkaError, int], None]
    timeout_ms: int | None = None
    max_version: int | None = None
    expects_response: bool = True
    check: Callable[[Message], None] | None = None
    build: Callable[[int], RequestMessage] | None = None
    is_movable: bool = False
    held_ms: int = 0
    silent_ms: int = SILENT_MS
    avoided_id: int | None = None
    deadline_ms: int = field(default=NEVER_MS, init=False)


@dataclass(slots=True, frozen=True)
class PollResult:
    """The requests that a manager sends now, and the time of its next poll."""

    requests: Sequence[Request] = ()
    next_poll_ms: int = NEVER_MS


IDLE = PollResult()


class Manager(Protocol):
    """One duty of a client. It has no clock, socket or thread, and never waits."""

    def poll(self, now_ms: int) -> PollResult: ...


class RecoveringManager(Manager, Protocol):
    """A manager that recovers from interrupts of its thread at any moment."""

    def restart(self, now_ms: int) -> None:
        """Forget what is in flight: no response comes, and any change may be half made.

        Called by a recovery, which may itself be interrupted and then starts over. It makes no
        callbacks.
        """


class Operation(Generic[ValueT]):
    """A task that ends once, with a value or an error.

    Owner: the driver of the engine. It has no lock: other threads wait by other means.
    """

    __slots__ = ("_callback", "_error", "_is_done", "_value")

    def __init__(self) -> None:
        self._is_done = False
        self._value: ValueT | None = None
        self._error: KafkaError | None = None
        self._callback: Callable[[Operation[ValueT]], None] | None = None

    @property
    def is_done(self) -> bool:
        return self._is_done

    @property
    def error(self) -> KafkaError | None:
        """The error it failed with; None while under way and after success."""
        return self._error

    def result(self) -> ValueT:
        """Return the value or raise the error. Requires that the operation has ended."""
        assert self._is_done, "the operation is under way"
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set by succeed()

    def succeed(self, value: ValueT) -> None:
        """End with a value. No effect if the operation has already ended."""
        self._end(value, None)

    def fail(self, error: KafkaError) -> None:
        """End with an error. No effect if the operation has already ended."""
        self._end(None, error)

    def on_done(self, callback: Callable[[Operation[ValueT]], None]) -> None:
        """Call `callback` when the operation ends, or at once if it has. Only one is allowed."""
        assert self._callback is None, "an operation has one callback"
        if self._is_done:
            callback(self)
        else:
            self._callback = callback

    def _end(self, value: ValueT | None, error: KafkaError | None) -> None:
        # The first outcome counts: an operation that timed out may still get its response.
        if self._is_done:
            return
        self._is_done, self._value, self._error = True, value, error
        if self._callback is not None:
            self._callback(self)


@dataclass(slots=True, eq=False)
class UserCall:
    """A call of user code, which the driver makes without holding a lock.

    `on_done` is called with None, or with the exception that the user's function raised. `is_begun`
    is set when the function is called: until then an interrupt must not lose the call.
    """

    function: Callable[..., object]
    args: tuple[object, ...]
    on_done: Callable[[BaseException | None], None]
    is_begun: bool = field(default=False, init=False)

    def make(self) -> None:
        self.is_begun = True
        self.function(*self.args)


def check_partitions(
    api: str,
    requested: Collection[tuple[str, int]],
    received: Iterable[tuple[str, int]],
    *,
    needs_all: bool = True,
) -> None:
    """Check that a response has exactly the partitions of its request, each once.

    `api` is the request's name, for the error. Without `needs_all`, the response may lack some.

    Raises:
        DecodeError: the response has other partitions.
    """
    missing = set(requested)
    for partition in received:
        if partition not in missing:
            raise DecodeError(
                f"the response to {api} names {_name(partition)} twice, or it was not requested"
            )
        missing.discard(partition)
    if needs_all and missing:
        raise DecodeError(f"the response to {api} lacks {_name(min(missing))}")


def check_sent_back(api: str, what: str, text: str | None) -> None:
    """Make sure that a text of a response fits into a request, since it is sent back.

    Raises:
        DecodeError: it does not.
    """
    if text is None or len(text) <= STRING_BYTES_MAX // UTF8_BYTES_MAX:
        return
    size_bytes = len(text.encode())
    if size_bytes > STRING_BYTES_MAX:
        raise DecodeError(
            f"the response to {api} has {what} of {size_bytes} bytes, and {STRING_BYTES_MAX} are "
            f"the most that can be sent back"
        )


def _name(partition: tuple[str, int]) -> str:
    return printable(str(TopicPartition(*partition)))
