"""ConsumerConfig: every setting of a consumer.

Built by `from_settings`, immutable, picklable.

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
"""Room for what surrounds the records of a Fetch response."""

DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<part>\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
DIGITS_MAX: Final = 12
"""More of them are no time that a log could begin at."""

CLASSIC_ONLY: Final = {
    "partition_assignment_strategy": "the coordinator assigns; choose how with "
    "group.remote.assignor",
    "session_timeout_ms": "the group has it, group.consumer.session.timeout.ms of the brokers",
    "heartbeat_interval_ms": "the group has it, group.consumer.heartbeat.interval.ms of the "
    "brokers",
}
"""Settings that mean nothing where the coordinator decides, and what decides there."""

KIP848_ONLY: Final = {
    "group_remote_assignor": "members assign; choose how with partition.assignment.strategy",
}

_EARLIEST_HINT: Final = "It is now called earliest."
_LATEST_HINT: Final = "It is now called latest."


GROUP_NAME_LENGTH_MAX: Final = 249


def _group_name() -> Kind[str | None]:
    """A group's name, or None for no group."""

    def parse(value: object) -> str | None:
        if value is None:
            return None
        if isinstance(value, str) and value.strip():
            return sendable_text(value)
        raise ValueError("For no group, leave it out.")

    return Kind(parse, "a name that is not empty", annotation="str")


def _instance_name() -> Kind[str | None]:
    """A static member's name, or None for a dynamic member."""

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
"""Kafka's assignors by the names of Java's classes."""
_ASSIGNOR_NAMES: Final = (*_ASSIGNORS.values(), "fewest-brokers")


def _assignor_list() -> Kind[tuple[object, ...]]:
    """Several assignors: names, Java's class names, or what `object_list` takes; at least one."""
    others = object_list()

    def parse(value: object) -> tuple[object, ...]:
        items = listed(value) if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)) or not items:
            raise ValueError("Give at least one.")
        return tuple(_assignor_name(item) or others.parse([item])[0] for item in items)

    return Kind(
        parse,
        f"a list of {', '.join(_ASSIGNOR_NAMES)}, or assignors of your own ({others.allowed})",
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
        "The consumer group: what subscribe shares partitions in, and where offsets are committed.",
    )
    group_instance_id = Setting(
        _instance_name(),
        None,
        "Makes this a static member (KIP-345): it keeps its partitions over a restart that is "
        "shorter than session_timeout_ms.",
    )
    group_protocol = Setting(
        choice({"classic": "classic", "consumer": "consumer"}, is_case_kept=False),
        "classic",
        "How members of a group agree: classic, where one of them assigns, or consumer, where the "
        "coordinator does (KIP-848, Kafka 4.0 and newer).",
    )
    group_remote_assignor = Setting(
        string(),
        "",
        "The coordinator's assignor, uniform or range, with group_protocol=consumer; empty leaves "
        "it to the group.",
    )
    partition_assignment_strategy: Setting[tuple[object, ...]] = Setting(
        _assignor_list(),
        ("range", "cooperative-sticky"),
        "How the group's leader shares partitions out, in order of preference: range, roundrobin, "
        "sticky, cooperative-sticky, fewest-brokers, or an assignor of your own.",
    )
    session_timeout_ms = Setting(
        integer(0), 45_000, "A member without a heartbeat for so long is out."
    )
    heartbeat_interval_ms = Setting(
        integer(0),
        3_000,
        "How often a member sends one; less than the session, mostly a third.",
    )
    max_poll_interval_ms = Setting(
        integer(1),
        300_000,
        "A member that does not poll for so long leaves the group, and others read on.",
    )
    exclude_internal_topics = Setting(
        boolean(),
        True,
        "A pattern matched here matches none of Kafka's own topics; one that brokers match may.",
    )
    enable_auto_commit = Setting(
        boolean(),
        True,
        "Commit what the application has finished with, every auto_commit_interval_ms and before "
        "partitions are given up. Without group_id nothing is committed.",
    )
    auto_commit_interval_ms = Setting(
        integer(0), 5_000, "How often offsets are committed automatically."
    )
    enable_auto_offset_store = Setting(
        boolean(),
        True,
        "Count as finished what came before the latest poll. Without it, commits go up to the "
        "first record that was not given to Consumer.store_offset. Of what was returned from that "
        "record on, its offsets and a byte per record are kept in memory.",
        key="enable.auto.offset.store",
        is_ours=True,
    )
    auto_offset_reset = Setting(
        _offset_reset(),
        "latest",
        "Where to read a partition that has no position, or whose position is gone: its end, its "
        "beginning, the first record that is no older than a duration (KIP-1106), or nowhere "
        "(none raises an error).",
    )
    key_deserializer = Setting(
        serializer_or_name("Deserializer", "K"),
        None,
        "Turns bytes into keys; none leaves bytes as they are.",
    )
    value_deserializer = Setting(
        serializer_or_name("Deserializer", "V"),
        None,
        "Turns bytes into values; none leaves bytes as they are.",
    )
    interceptors: Setting[tuple[object, ...]] = Setting(
        object_list(), (), "Called for records before the application.", key="interceptor.classes"
    )
    on_record_error: Setting[object] = Setting(
        _on_record_error(),
        RAISE,
        "What becomes of a record that cannot be read: raise stops there, skip goes on behind it, "
        "and a function is called with the error (which has the raw bytes) and goes on when it "
        "returns.",
        is_ours=True,
    )
    on_stall = Setting(
        choice({word: word for word in (RAISE, LOG)}),
        RAISE,
        "What an empty poll does where nothing can be read for long, though trying again may help "
        "(brokers or a coordinator out of reach, no leader, an unknown topic): raise the error, as "
        "is right for scripts, or log it and go on, as a service wants it and Java does.",
        is_ours=True,
    )
    isolation_level = Setting(
        choice({level.name.lower(): level for level in IsolationLevel}),
        IsolationLevel.READ_UNCOMMITTED,
        "Whether records of open and aborted transactions are seen (KIP-98).",
    )
    max_poll_records = Setting(integer(1), 500, "Most records that one poll returns.")
    fetch_min_bytes = Setting(
        integer(0), 1, "A broker waits for so much data before it responds to a fetch."
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
        "Most data that is requested of all brokers at a time, each for its part; a first batch "
        "that is larger comes whole.",
    )
    max_partition_fetch_bytes = Setting(
        integer(0),
        1_048_576,
        "Most data of one partition in a Fetch response; a first batch that is larger comes whole.",
    )
    fetch_order = Setting(
        choice({FAIR: FAIR, LAG: LAG}),
        FAIR,
        "Which partitions come first where a fetch has no room for all: fair takes turns, lag puts "
        "those first that are furthest behind, and does without fetch sessions, in which brokers "
        "choose the order.",
        is_ours=True,
    )
    check_crcs = Setting(boolean(), True, "Check the checksum of every batch.")
    allow_auto_create_topics = Setting(
        boolean(), True, "Let brokers create a topic that is requested, if they are set up so."
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
        DECOMPRESSED_SIZE_BYTES_MAX,
        "Largest size that a compressed batch may decompress to; a larger one is corrupt.",
        is_ours=True,
    )

    @property
    def offset_reset(self) -> OffsetReset:
        """The policy in `auto_offset_reset`, without its duration."""
        return OffsetReset(self.auto_offset_reset.partition(":")[0])

    @property
    def offset_reset_age_ms(self) -> int:
        """The duration in `auto_offset_reset`; 0 where it has none."""
        duration = self.auto_offset_reset.partition(":")[2]
        return duration_ms(duration) if duration else 0

    def _default_client_id(self) -> str:
        """As Java's: the group, "null" for none, and a static member's own name or a number."""
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
                f"there is none: set group.id."
            )
        if is_auto_commit_given and self.enable_auto_commit:
            raise ConfigError(
                "enable.auto.commit=true has nowhere to commit to: set group.id, or leave it out."
            )
        self._settle("enable_auto_commit", False)

    def _reconcile_protocol(self, given: Collection[str]) -> None:
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
    """Return an ISO 8601 duration with days to seconds (P1DT12H) in milliseconds, rounded down.

    As Java's ``Duration.parse`` reads it (KIP-1106).
    """
    found = DURATION.fullmatch(text)
    parts = {} if found is None else {k: v for k, v in found.groupdict().items() if v is not None}
    if not parts:
        raise ValueError(f"{text!r} is no duration; write P1D, PT12H, PT30M, PT1.5S or P1DT12H.")
    if any(len(digits) > DIGITS_MAX for digits in parts.values()):
        raise ValueError(f"{text!r} is too long a duration.")
    days, hours, minutes, seconds = (
        int(parts.get(unit, 0)) for unit in ("days", "hours", "minutes", "seconds")
    )
    whole_seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return whole_seconds * 1_000 + int(parts.get("part", "").ljust(3, "0")[:3])
