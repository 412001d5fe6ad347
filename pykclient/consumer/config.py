"""ConsumerConfig: every setting of a consumer.

Built by `from_settings`, immutable, picklable.

Owner: none, it is immutable.
Source: Java class ``ConsumerConfig`` of 4.3.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.config import ClientConfig
from pykclient.errors.base import ConfigError
from pykclient.setting import (
    INT_MAX,
    LONG_MAX,
    Setting,
    boolean,
    choice,
    integer,
    object_list,
    object_or_name,
    optional,
    string,
)
from pykclient.types import IsolationLevel

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["ConsumerConfig"]

ANSWER_OVERHEAD_BYTES: Final = 512
"""Room for what surrounds the records of a fetch answer."""

_EARLIEST_HINT: Final = "It is now called earliest."
_LATEST_HINT: Final = "It is now called latest."


class ConsumerConfig(ClientConfig):
    """Settings of a consumer. Times are milliseconds, sizes bytes."""

    client = "consumer"

    auto_offset_reset = Setting(
        choice(
            {name: name for name in ("latest", "earliest", "none")},
            hints={
                "smallest": _EARLIEST_HINT,
                "beginning": _EARLIEST_HINT,
                "largest": _LATEST_HINT,
                "end": _LATEST_HINT,
                "error": "It is now called none.",
            },
        ),
        "latest",
        "Where to read a partition that has no position, or whose position is gone: its end, its "
        "beginning, or nowhere (none raises an error).",
    )
    key_deserializer = Setting(
        object_or_name(), None, "Turns bytes into keys; none leaves bytes as they are."
    )
    value_deserializer = Setting(
        object_or_name(), None, "Turns bytes into values; none leaves bytes as they are."
    )
    interceptors: Setting[tuple[object, ...]] = Setting(
        object_list(), (), "Called for records before the application.", key="interceptor.classes"
    )
    isolation_level = Setting(
        choice({level.name.lower(): level for level in IsolationLevel}),
        IsolationLevel.READ_UNCOMMITTED,
        "Whether records of open and aborted transactions are seen (KIP-98).",
    )
    max_poll_records = Setting(integer(1), 500, "Most records that one poll returns.")
    fetch_min_bytes = Setting(
        integer(0), 1, "A broker waits for so much data before it answers a fetch."
    )
    fetch_max_wait_ms = Setting(
        integer(0),
        500,
        "How long a broker waits for fetch_min_bytes. Less than request_timeout_ms: lowered to "
        "half of that when it was not given.",
    )
    fetch_max_bytes = Setting(
        integer(0),
        52_428_800,
        "Most data in one fetch answer; a first batch that is larger comes whole.",
    )
    max_partition_fetch_bytes = Setting(
        integer(0),
        1_048_576,
        "Most data of one partition in a fetch answer; a first batch that is larger comes whole.",
    )
    check_crcs = Setting(boolean(), True, "Check the checksum of every batch.")
    allow_auto_create_topics = Setting(
        boolean(), True, "Let brokers create a topic that is asked for, if they are set up so."
    )
    client_rack = Setting(
        string(), "", "Where this client is, to read from a replica close by (KIP-392)."
    )
    default_api_timeout_ms = Setting(
        integer(0), 60_000, "How long a call without a timeout of its own may take."
    )
    consumer_timeout_ms = Setting(
        optional(integer(0, LONG_MAX)),
        None,
        "Iteration ends when no record came for so long; None for never.",
        is_ours=True,
    )
    decompressed_max_bytes = Setting(
        integer(1_024, INT_MAX),
        64 * 1_048_576,
        "Largest size that a compressed batch may unfold to; a larger one is corrupt.",
        is_ours=True,
    )

    def _reconcile(self, given: Collection[str]) -> None:
        super()._reconcile(given)
        self._reconcile_fetch_wait("fetch_max_wait_ms" in given)
        self._reconcile_receive_limit("receive_max_bytes" in given)

    def _reconcile_fetch_wait(self, is_given: bool) -> None:
        if self.fetch_max_wait_ms < self.request_timeout_ms:
            return
        if is_given:
            raise ConfigError(
                f"fetch.max.wait.ms={self.fetch_max_wait_ms} must be below request.timeout.ms="
                f"{self.request_timeout_ms}: every fetch without data would lose its connection."
            )
        self._settle("fetch_max_wait_ms", self.request_timeout_ms // 2)

    def _reconcile_receive_limit(self, is_given: bool) -> None:
        smallest_bytes = min(self.fetch_max_bytes + ANSWER_OVERHEAD_BYTES, INT_MAX)
        if self.receive_max_bytes >= smallest_bytes:
            return
        if is_given:
            raise ConfigError(
                f"receive_max_bytes={self.receive_max_bytes} must be at least fetch.max.bytes + "
                f"{ANSWER_OVERHEAD_BYTES} = {smallest_bytes}: a full answer would be refused."
            )
        self._settle("receive_max_bytes", smallest_bytes)
