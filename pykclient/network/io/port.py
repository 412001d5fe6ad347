"""Port: the Protocol through which the network client does I/O.

A port calls the methods of a `Stream` and reports the end of a blocking call only inside
`Port.wait`, never inside `open`, `write`, `close` or `call`. The stream records each event, and the
client acts on it in its next step.

Source: httpcore's network backend; reading is modelled on ``asyncio.BufferedProtocol``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.errors import KafkaError

T = TypeVar("T")


class Stream(Protocol):
    """The receiving end of one byte stream."""

    @property
    def has_events(self) -> bool:
        """True if there is an event to act on. A partial response is not one."""

    def on_opened(self) -> None:
        """Record that the connection is open; bytes may be written from now on."""

    def get_buffer(self) -> memoryview:
        """Return a non-empty buffer for the next received bytes."""

    def buffer_updated(self, count: int) -> None:
        """Record that `count` bytes were written to the buffer of the last `get_buffer`."""

    def on_closed(self, error: KafkaError) -> None:
        """Record that the stream could not be opened, or has ended. No call follows."""


class Port(Protocol):
    """The I/O that the network client needs: `SelectorPort`, and the port of the simulation."""

    def open(self, stream: Stream, host: str, port: int, *, attempt: int) -> None:
        """Start to resolve `host` and connect to it.

        `attempt` counts the attempts for this node. A host with several addresses is tried from the
        address with that number on, so that an address that never responds does not stay first.
        """

    def write(self, stream: Stream, data: Sequence[bytes | bytearray | memoryview]) -> None:
        """Queue bytes, which the caller must not change afterwards. Requires an open stream."""

    def unsent_bytes(self, stream: Stream) -> int:
        """Return the number of queued bytes that the operating system has not accepted yet."""

    def close(self, stream: Stream) -> None:
        """Close at once and drop queued bytes. Closing twice is allowed."""

    def call(
        self, function: Callable[[], T], on_done: Callable[[T | BaseException], None], *, name: str
    ) -> None:
        """Run `function`, which may block, on its own daemon thread named pykclient-`name`.

        `on_done` is called once inside `wait` with the result or exception, or with a
        `ConnectionFailedError` if no thread can be started.
        """

    def forget(self, on_done: Callable[[Any], None]) -> None:
        """Cancel the call of `on_done` and drop it. The function itself runs to its end."""

    def wait(self, timeout_ms: int) -> None:
        """Do I/O until a stream has events, a call has ended, the port is woken, or time is up."""

    def wakeup(self) -> None:
        """Make the current or next `wait` return at once. Safe from any thread, unlike the rest."""

    def restart(self) -> None:
        """Close every stream and forget every call, to start over after an interrupt."""

    def shutdown(self) -> None:
        """Close every stream and the port itself."""
