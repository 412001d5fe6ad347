"""SentFetches: every fetch request of a consumer, as it was handed to the network.

Owner: the test that made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.protocol.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from pykclient import Consumer
    from pykclient.network.manager import Request

__all__ = ["SentFetches"]


class SentFetches:
    """Looks on while a consumer sends."""

    def __init__(self, consumer: Consumer) -> None:
        self.all: list[tuple[int | None, FetchRequest]] = []
        """Node and request."""
        client = consumer._wiring.client
        send = client.send

        def note_and_send(request: Request, now_ms: int) -> None:
            if isinstance(request.message, FetchRequest):
                self.all.append((request.node_id, request.message))
            send(request, now_ms)

        client.send = note_and_send  # type: ignore[method-assign]

    def named_counts(self) -> list[int]:
        """How many partitions each request named, those to be forgotten too."""
        return [
            sum(len(topic.partitions) for topic in message.topics)
            + sum(len(topic.partitions) for topic in message.forgotten_topics_data)
            for _, message in self.all
        ]
