"""ConsumerConfig: every setting of a consumer, immutable and picklable.

Owner: none, it is immutable.
Source: Java class ``ConsumerConfig`` of 4.4.0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pykclient.config.client import ClientConfig
from pykclient.config.serializer_setting import serializer_or_name
from pykclient.config.setting import (
    INT_MAX,
    LONG_MAX,
    Kind,
    Setting,
    boolean,
    choice,
    integer,
    listed,
    object_list,
    object_or_name,
    optional,
    sendable_text,
    string,
)
from pykclient.consumer.subscription import OffsetReset
from pykclient.errors.base import ConfigError
from pykclient.records.compression import DECOMPRESSED_SIZE_BYTES_MAX
from pykclient.types import IsolationLevel

if TYPE_CHECKING:
    from collections.abc import Collection

RESPONSE_OVERHEAD_BYTES: Final = 512
"""Size of a Fetch response besides the records."""

DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<part>\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
DIGITS_MAX: Final = 12
"""Maximum number of digits; longer durations make no sense for a log."""

CLASSIC_ONLY: Final = {
    "partition_assignment_strategy": "the coordinator assigns; choose its assignor with "
    "group.remote.assignor",
    "session_timeout_ms": "brokers set it for the group, group.consumer.session.timeout.ms",
    "heartbeat_interval_ms": "brokers set it for the group, group.consumer.heartbeat.interval.ms",
}
"""Settings without a meaning if the coordinator decides, and what decides there."""

KIP848_ONLY: Final = {
    "group_remote_assignor": "members assign; choose with partition.assignment.strategy",
}

_EARLIEST_HINT: Final = "It is now called earliest."
_LATEST_HINT: Final = "It is now called latest."


GROUP_NAME_LENGTH_MAX: Final = 249


def _group_name() -> Kind[str | None]:
    """Return the kind of a group name; None for no group."""

    def parse(value: object) -> str | None:
        if value is None:
            return None
        if isinstance(value, str) and value.strip():
            return sendable_text(value)
        raise ValueError("For no group, leave it out.")

    return Kind(parse, "a name that is not empty", annotation="str")


def _instance_name() -> Kind[str | None]:
    """Return the kind of a static member's name; None for a dynamic member."""

    def parse(value: object) -> str | None:
        if value is None:
            return None
        if (
            isinstance(value, str)
            and 0 < len(value) <= GROUP_NAME_LENGTH_MAX
            and value not in (".", "..")
            and all(sign.isascii() and (sign.isalnum() or sign in "._-") for sign in value)
        ):
            return value
        raise ValueError

    allowed = f"1 to {GROUP_NAME_LENGTH_MAX} letters, digits, dots, underscores and hyphens"
    return Kind(parse, allowed, annotation="str")


FAIR: Final = "fair"
LAG: Final = "lag"

RAISE: Final = "raise"
SKIP: Final = "skip"
LOG: Final = "log"

_BY_DURATION: Final = "by_duration:"


def _offset_reset() -> Kind[str]:
    words = choice(
        {name: name for name in ("latest", "earliest", "none")},
        hints={
            "smallest": _EARLIEST_HINT,
            "beginning": _EARLIEST_HINT,
            "largest": _LATEST_HINT,
            "end": _LATEST_HINT,
            "error": "It is now called none.",
        },
    )

    def parse(value: object) -> str:
        text = value.strip() if isinstance(value, str) else ""
        if not text.startswith(_BY_DURATION):
            return words.parse(value)
        duration_ms(text.removeprefix(_BY_DURATION))
        return text

    allowed = f"{words.allowed}, or by_duration: with a duration such as PT12H"
    return Kind(parse, allowed, annotation="str")


def _on_record_error() -> Kind[object]:
    functions = object_or_name()

    def parse(value: object) -> object:
        word = value.strip() if isinstance(value, str) else None
        if word in (RAISE, SKIP):
            return word
        if value is None:
            raise ValueError
        return functions.parse(value)

    return Kind(
        parse,
        f"{RAISE}, {SKIP}, a function or 'package.module:name'",
        annotation="OnRecordError",
        named=functions.named,
    )


_JAVA_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_ASSIGNORS: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
"""Names of Kafka's assignors by their Java class names."""
_ASSIGNOR_NAMES: Final = (*_ASSIGNORS.values(), "fewest-brokers")


def _assignor_list() -> Kind[tuple[object, ...]]:
    """Return the kind of a list of assignors: names, Java class names, or objects; at least one."""
    others = object_list()

    def parse(value: object) -> tuple[object, ...]:
        items = listed(value) if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)) or not items:
            raise ValueError("Give at least one.")
        return tuple(_assignor_name(item) or others.parse([item])[0] for item in items)

    return Kind(
        parse,
        f"a list of {', '.join(_ASSIGNOR_NAMES)}, or custom assignors ({others.allowed})",
        lambda value: ",".join(map(_java_name, value)),
        "str | Sequence[object]",
        named=others.named,
    )


def _java_name(item: object) -> str:
    by_name = {name: java_name for java_name, name in _ASSIGNORS.items()}
    return f"{_JAVA_PACKAGE}{by_name[item]}" if item in by_name else str(item)


def _assignor_name(item: object) -> str | None:
    if not isinstance(item, str):
        return None
    name = item.strip()
    name = _ASSIGNORS.get(name.removeprefix(_JAVA_PACKAGE), name)
    return name if name in _ASSIGNOR_NAMES else None


class ConsumerConfig(ClientConfig):
    """Settings of a consumer. Times are milliseconds, sizes bytes."""

    client = "consumer"

    group_id = Setting(
        _group_name(),
        None,
        "The consumer group, which shares partitions between its members and commits offsets.",
    )
    group_instance_id = Setting(
        _instance_name(),
        None,
        "Makes this a static member (KIP-345), which keeps its partitions over a restart shorter "
        "than session_timeout_ms.",
    )
    group_protocol = Setting(
        choice({name: name for name in ("classic", "consumer", "auto")}, is_case_kept=False),
        "classic",
        "Group protocol: classic (a member assigns partitions), consumer (the coordinator assigns "
        "them; KIP-848, Kafka 4.0 and newer), or auto (consumer if the coordinator supports it, "
        "otherwise classic).",
    )
    group_remote_assignor = Setting(
        string(),
        "",
        "The coordinator's assignor, uniform or range, with group_protocol consumer or auto; empty "
        "lets the group choose.",
    )
    partition_assignment_strategy: Setting[tuple[object, ...]] = Setting(
        _assignor_list(),
        ("range", "cooperative-sticky"),
        "Assignors that the group's leader may use, in order of preference: range, roundrobin, "
        "sticky, cooperative-sticky, fewest-brokers, or a custom one.",
    )
    session_timeout_ms = Setting(
        integer(0), 45_000, "A member that sends no heartbeat for this long is removed."
    )
    heartbeat_interval_ms = Setting(
        integer(0),
        3_000,
        "Interval of heartbeats; less than session_timeout_ms, usually a third of it.",
    )
    max_poll_interval_ms = Setting(
        integer(1),
        300_000,
        "A member that does not poll for this long leaves the group, which rebalances.",
    )
    exclude_internal_topics = Setting(
        boolean(),
        True,
        "Exclude Kafka's internal topics from a pattern that the client matches; brokers may match "
        "them.",
    )
    enable_auto_commit = Setting(
        boolean(),
        True,
        "Commit the offsets of processed records every auto_commit_interval_ms, and before "
        "partitions are revoked. Without group_id nothing is committed.",
    )
    auto_commit_interval_ms = Setting(integer(0), 5_000, "Interval of automatic commits.")
    enable_auto_offset_store = Setting(
        boolean(),
        True,
        "Records count as processed when the next poll begins. If false, commits go up to the "
        "first record that was not passed to Consumer.store_offset. From that record on, the "
        "offsets of returned records and a byte per record are kept in memory.",
        key="enable.auto.offset.store",
        is_ours=True,
    )
    auto_offset_reset = Setting(
        _offset_reset(),
        "latest",
        "Start of a partition that has no position, or whose position is out of range: the end, "
        "the beginning, the first record not older than a duration (KIP-1106), or nowhere (none "
        "raises an error).",
    )
    key_deserializer = Setting(
        serializer_or_name("Deserializer", "K"),
        None,
        "Turns bytes into keys; without one, keys are bytes.",
    )
    value_deserializer = Setting(
        serializer_or_name("Deserializer", "V"),
        None,
        "Turns bytes into values; without one, values are bytes.",
    )
    interceptors: Setting[tuple[object, ...]] = Setting(
        object_list(),
        (),
        "Objects called for records before the application gets them.",
        key="interceptor.classes",
    )
    on_record_error: Setting[object] = Setting(
        _on_record_error(),
        RAISE,
        "Handling of a record that cannot be read: raise stops there, skip continues after it, and "
        "a function is called with the error (which has the raw bytes); if it returns, the record "
        "is skipped.",
        is_ours=True,
    )
    on_stall = Setting(
        choice({word: word for word in (RAISE, LOG)}),
        RAISE,
        "Handling of an empty poll while a retriable problem lasts (brokers or a coordinator are "
        "unreachable, no leader, an unknown topic): raise the error, suitable for scripts, or log "
        "it and continue, suitable for services and the same as Java.",
        is_ours=True,
    )
    isolation_level = Setting(
        choice({level.name.lower(): level for level in IsolationLevel}),
        IsolationLevel.READ_UNCOMMITTED,
        "Visibility of open and aborted transactions: read_uncommitted returns their records too, "
        "read_committed only those of committed ones (KIP-98).",
    )
    max_poll_records = Setting(integer(1), 500, "Maximum number of records that one poll returns.")
    fetch_min_bytes = Setting(
        integer(0), 1, "Amount of data for which a broker waits before it answers a fetch."
    )
    fetch_max_wait_ms = Setting(
        integer(0),
        500,
        "Maximum time that a broker waits for fetch_min_bytes. Less than request_timeout_ms: the "
        "default is lowered to half of that.",
    )
    fetch_max_bytes = Setting(
        integer(0),
        52_428_800,
        "Maximum amount of data requested from all brokers together; each gets a share. A first "
        "batch that is larger is returned whole.",
    )
    max_partition_fetch_bytes = Setting(
        integer(0),
        1_048_576,
        "Maximum amount of data per partition in a Fetch response. A first batch that is larger is "
        "returned whole.",
    )
    fetch_order = Setting(
        choice({FAIR: FAIR, LAG: LAG}),
        FAIR,
        "Order of partitions if a fetch has no room for all: fair takes turns; lag prefers the "
        "partitions with the largest lag, without fetch sessions, in which brokers choose the "
        "order.",
        is_ours=True,
    )
    check_crcs = Setting(boolean(), True, "Check the checksum of every batch.")
    allow_auto_create_topics = Setting(
        boolean(),
        True,
        "Allow brokers to create a requested topic, if auto.create.topics.enable is set there.",
    )
    client_rack = Setting(
        string(), "", "Rack of this client, for reading from the closest replica (KIP-392)."
    )
    default_api_timeout_ms = Setting(
        integer(0), 60_000, "Maximum time of a call without a timeout of its own."
    )
    consumer_timeout_ms = Setting(
        optional(integer(0, LONG_MAX)),
        None,
        "Iteration ends if no record comes for this long; None for never.",
        is_ours=True,
    )
    decompressed_max_bytes = Setting(
        integer(1_024, INT_MAX),
        DECOMPRESSED_SIZE_BYTES_MAX,
        "Maximum size of a decompressed batch; a larger one counts as corrupt.",
        is_ours=True,
    )

    @property
    def offset_reset(self) -> OffsetReset:
        """Policy of `auto_offset_reset`, without its duration."""
        return OffsetReset(self.auto_offset_reset.partition(":")[0])

    @property
    def offset_reset_age_ms(self) -> int:
        """Duration of `auto_offset_reset`; 0 if it has none."""
        duration = self.auto_offset_reset.partition(":")[2]
        return duration_ms(duration) if duration else 0

    def _default_client_id(self) -> str:
        """Return the default as in Java: the group or "null", and the static id or a number."""
        own = self.group_instance_id or self._next_number()
        return f"consumer-{self.group_id or 'null'}-{own}"

    def _reconcile(self, given: Collection[str]) -> None:
        super()._reconcile(given)
        self._reconcile_group("enable_auto_commit" in given)
        self._reconcile_protocol(given)
        self._reconcile_fetch_wait("fetch_max_wait_ms" in given)
        self._reconcile_receive_limit("receive_max_bytes" in given)

    def _reconcile_group(self, is_auto_commit_given: bool) -> None:
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat.interval.ms={self.heartbeat_interval_ms} must be below "
                f"session.timeout.ms={self.session_timeout_ms}: the session would end between two "
                f"heartbeats. A third of it is usual."
            )
        if self.group_id is not None:
            return
        if self.group_instance_id is not None:
            raise ConfigError(
                f"group.instance.id={self.group_instance_id!r} names a member of a group, and "
                f"there is no group: set group.id."
            )
        if is_auto_commit_given and self.enable_auto_commit:
            raise ConfigError(
                "enable.auto.commit=true has nowhere to commit to: set group.id, or leave it out."
            )
        self._settle("enable_auto_commit", False)

    def _reconcile_protocol(self, given: Collection[str]) -> None:
        if self.group_protocol == "auto":
            return  # which of them counts shows when the coordinator is known
        foreign = CLASSIC_ONLY if self.group_protocol == "consumer" else KIP848_ONLY
        for name in foreign:
            if name in given and getattr(self, name):
                raise ConfigError(
                    f"{name.replace('_', '.')} does not go with group.protocol="
                    f"{self.group_protocol}: {foreign[name]}."
                )

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
        smallest_bytes = min(self.fetch_max_bytes + RESPONSE_OVERHEAD_BYTES, INT_MAX)
        if self.receive_max_bytes >= smallest_bytes:
            return
        if is_given:
            raise ConfigError(
                f"receive_max_bytes={self.receive_max_bytes} must be at least fetch.max.bytes + "
                f"{RESPONSE_OVERHEAD_BYTES} = {smallest_bytes}: a full response would be refused."
            )
        self._settle("receive_max_bytes", smallest_bytes)


def duration_ms(text: str) -> int:
    """Return an ISO 8601 duration from days to seconds (P1DT12H) in milliseconds, rounded down.

    It accepts what Java's ``Duration.parse`` accepts (KIP-1106).
    """
    found = DURATION.fullmatch(text)
    parts = {} if found is None else {k: v for k, v in found.groupdict().items() if v is not None}
    if not parts:
        raise ValueError(f"{text!r} is no duration; write P1D, PT12H, PT30M, PT1.5S or P1DT12H.")
    if any(len(digits) > DIGITS_MAX for digits in parts.values()):
        raise ValueError(f"the duration {text!r} is too long.")
    days, hours, minutes, seconds = (
        int(parts.get(unit, 0)) for unit in ("days", "hours", "minutes", "seconds")
    )
    whole_seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return whole_seconds * 1_000 + int(parts.get("part", "").ljust(3, "0")[:3])
