"""Retries: repeats requests of the planning process that fail, as Spark's own source does.

``fetchOffset.numRetries`` and ``fetchOffset.retryIntervalMs`` set how often and how soon. An error
that a repetition cannot cure is raised at once. A time-out is repeated only where the user gives
``fetchOffset.numRetries``: the clients have sent the request again for all of that time.

Owner: the planner of one read.
Source: Spark's Structured Streaming + Kafka Integration Guide (both options).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, TypeVar

from pykclient.errors import (
    AuthenticationError,
    ClusterMismatchError,
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    TlsError,
    UnknownTopicOrPartitionError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger(__name__)

_Result = TypeVar("_Result")

NOT_REPEATED: Final = (
    AuthenticationError,
    ClusterMismatchError,
    ConfigError,
    TlsError,
    UnknownTopicOrPartitionError,
    UsageError,
)
"""Errors of settings, and a missing topic, which the planner requests again itself."""


class Retries:
    """The number of repetitions and the pause between them. `sleep` takes seconds."""

    def __init__(
        self,
        count: int,
        pause_ms: int,
        *,
        is_given: bool,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.count = count
        self.is_given = is_given
        self._pause_ms = pause_ms
        self._sleep = sleep

    def pause(self) -> None:
        """Wait before the next repetition."""
        self._sleep(self._pause_ms / 1_000)

    def call(self, request: Callable[[], _Result]) -> _Result:
        """Return the result of `request`, which is repeated while it fails.

        Raises: the error of the last repetition, or the first one that is not repeated.
        """
        for repetition in range(1, self.count + 1):
            try:
                return request()
            except NOT_REPEATED:
                raise
            except KafkaError as error:
                if isinstance(error, KafkaTimeoutError) and not self.is_given:
                    raise
                _LOG.warning(
                    "A request for topics or offsets failed; repetition %d of %d follows "
                    "(option fetchOffset.numRetries): %s",
                    repetition,
                    self.count,
                    error,
                )
            self.pause()
        return request()
