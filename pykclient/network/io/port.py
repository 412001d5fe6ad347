"""The Protocol through which the network client sees I/O.

A port calls the methods of a `Stream`, and reports the end of a blocking call, from inside
`Port.wait` only, never from `open`, `write`, `close` or `call`: an event is recorded, and acted on
in the client's next step.

Source: httpcore's network backend; reading is shaped like ``asyncio.BufferedProtocol``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.errors import KafkaError

T = TypeVar("T")


class Stream(Protocol):
    """One byte stream's receiving end."""

    @property
    def has_events(self) -> bool:
        """Whether there is anything to act on: a part of a response is not."""

    def on_opened(self) -> None:
        """Record that the connection stands; bytes may be written from now on."""

    def get_buffer(self) -> memoryview:
        """Return where the next received bytes go; not empty."""

    def buffer_updated(self, count: int) -> None:
        """Record that `count` bytes were put into the buffer of the last `get_buffer`."""

    def on_closed(self, error: KafkaError) -> None:
        """Record that the stream could not be opened, or ended. Nothing follows.

        Not called after the client's own `Port.close`.
        """


class Port(Protocol):
    """The I/O that the network client needs: `SelectorPort`, and the port of the simulation."""

    def open(self, stream: Stream, host: str, port: int, *, attempt: int) -> None:
        """Begin to resolve `host` and to connect to it.

        `attempt` counts the tries at this node: a host with several addresses is tried from the
        address of that number on, so that one that never responds does not stay first.
        """

    def write(self, stream: Stream, data: Sequence[bytes | bytearray | memoryview]) -> None:
        """Queue bytes, which the caller must not change afterwards. Requires an open stream."""

    def unsent_bytes(self, stream: Stream) -> int:
        """Return how many queued bytes the operating system has not taken yet."""

    def close(self, stream: Stream) -> None:
        """Close at once, dropping what is queued. Closing twice is allowed."""

    def call(
        self, function: Callable[[], T], on_done: Callable[[T | BaseException], None], *, name: str
    ) -> None:
        """Run `function`, which may block, on a daemon thread of its own: pykclient-`name`.

        `on_done` is called once with what it returned or raised, from inside `wait`; with a
        `ConnectionFailedError` where no thread can be started.
        """

    def forget(self, on_done: Callable[[Any], None]) -> None:
        """Never call `on_done`, and keep nothing of it. The function runs on to its end."""

    def wait(self, timeout_ms: int) -> None:
        """Do I/O; return when a stream has events, a call has ended, when woken, or in time."""

    def wakeup(self) -> None:
        """Make the present or next `wait` return at once. The only method for other threads."""

    def restart(self) -> None:
        """Close every stream and forget every call, and be as new: for an interrupted owner."""

    def shutdown(self) -> None:
        """Close every stream and the port itself."""
