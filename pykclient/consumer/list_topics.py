"""TopicListing: asks any broker for all topics, apart from the metadata that the consumer follows.

Each listing is in flight or waits out a back-off, until a broker has answered or the failure is
one that trying again does not cure.

Owner: the driver of the engine.
Source: Java class ``TopicMetadataFetcher``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pykclient.errors import DecodeError
from pykclient.network.cluster.cluster import topic_info
from pykclient.network.manager import NEVER_MS, Operation, PollResult, Request
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import TopicInfo
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message

__all__ = ["Listing", "TopicListing"]


class Listing:
    """One question. `last_error` tells why there is no answer yet."""

    __slots__ = ("failure_count", "is_in_flight", "last_error", "operation", "retry_at_ms")

    def __init__(self) -> None:
        self.operation: Operation[tuple[TopicInfo, ...]] = Operation()
        self.is_in_flight = False
        self.retry_at_ms = 0
        self.failure_count = 0
        self.last_error: KafkaError | None = None


class TopicListing:
    """The manager of all listings under way."""

    def __init__(self, retry_backoff: Backoff) -> None:
        self._retry_backoff = retry_backoff
        self._waiting: dict[Listing, None] = {}

    def start(self) -> Listing:
        """Ask for every topic that this client may see, internal ones among them."""
        listing = Listing()
        self._waiting[listing] = None
        return listing

    def cancel(self, listing: Listing) -> None:
        """Forget a listing. Its operation does not end."""
        self._waiting.pop(listing, None)

    def poll(self, now_ms: int) -> PollResult:
        """Ask what is due."""
        requests = []
        next_poll_ms = NEVER_MS
        for listing in self._waiting:
            if listing.is_in_flight:
                continue
            if listing.retry_at_ms > now_ms:
                next_poll_ms = min(next_poll_ms, listing.retry_at_ms)
                continue
            listing.is_in_flight = True
            requests.append(
                Request(
                    MetadataRequest(topics=None, allow_auto_topic_creation=False),
                    node_id=None,
                    on_response=partial(self._on_response, listing),
                    on_failure=partial(self._on_failure, listing),
                )
            )
        return PollResult(requests, next_poll_ms)

    def restart(self, now_ms: int) -> None:
        """Ask anew."""
        del now_ms
        for listing in self._waiting:
            listing.is_in_flight = False

    def _on_response(self, listing: Listing, message: Message | None, now_ms: int) -> None:
        assert isinstance(message, MetadataResponse)
        listing.is_in_flight = False
        try:
            # A topic with an error is one that is being made or deleted just now.
            topics = tuple(topic_info(a) for a in message.topics if a.error_code == 0)
        except DecodeError as error:
            self._on_failure(listing, error, now_ms)
            return
        self._waiting.pop(listing, None)
        listing.operation.succeed(topics)

    def _on_failure(self, listing: Listing, error: KafkaError, now_ms: int) -> None:
        listing.is_in_flight = False
        listing.last_error = error
        if error.retriable:
            listing.retry_at_ms = now_ms + self._retry_backoff.delay_ms(listing.failure_count)
            listing.failure_count += 1
            return
        self._waiting.pop(listing, None)
        listing.operation.fail(error)
