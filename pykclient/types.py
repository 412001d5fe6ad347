"""Small values that clients share: partitions, offsets, nodes, headers, group members.

All are immutable and compare by value, so they may be dictionary keys and cross threads.

Source: Java classes ``org.apache.kafka.common.TopicPartition``, ``Node`` and
``org.apache.kafka.clients.consumer.OffsetAndMetadata``, ``ConsumerGroupMetadata`` (KIP-447),
``org.apache.kafka.clients.producer.PreparedTxnState`` (KIP-939).
"""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

TOPIC_LENGTH_MAX = 249
"""Maximum length of a topic name. Brokers refuse longer ones, together with all others in the
request."""

Headers = tuple[tuple[str, bytes | None], ...]
"""Record headers in the order of writing; a name may occur more than once (KIP-82)."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partition numbers by topic, in the form of requests."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return topics


def is_topic_name(name: object) -> bool:
    """Return whether a request can carry a topic name. Brokers decide whether it is legal."""
    if not isinstance(name, str) or not 0 < len(name) <= TOPIC_LENGTH_MAX:
        return False
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the next record to read, and the committer's metadata."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class OffsetAndTimestamp(NamedTuple):
    """The result of a search by time: the first offset whose record is at or after that time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int | None = None

    @property
    def timestamp(self) -> datetime | None:
        """The timestamp in UTC; None if there is none, or it is after the year 9999."""
        return utc_datetime(self.timestamp_ms)


class Node(NamedTuple):
    """One broker's address. ``id`` is negative for addresses from ``bootstrap_servers``."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port

    def __str__(self) -> str:
        if self.id < 0:
            return f"bootstrap server {self.host}:{self.port}"
        return f"{self.host}:{self.port} (id {self.id})"


def utc_datetime(timestamp_ms: int) -> datetime | None:
    """Return a time in milliseconds since 1970 as a datetime in UTC.

    None for the -1 of a record without a timestamp, and for times that a datetime cannot hold.
    """
    # Imported here: few applications use times, and it takes its share of the import budget.
    from datetime import UTC, datetime, timedelta

    if timestamp_ms < 0:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None


class TimestampType(IntEnum):
    """The origin of a record's timestamp (KIP-32)."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class IsolationLevel(IntEnum):
    """The visibility of records in open and aborted transactions (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


NO_GENERATION = -1
"""Generation in a request that does not come from a member."""

NO_MEMBER_ID = ""


class GroupMetadata(NamedTuple):
    """A group member for which offsets are committed (KIP-447).

    `generation` is the last generation that this member joined, and `member_id` its id in it; -1
    and empty stand for no member. `group_instance_id` is set for static members (KIP-345).
    `is_subscribed` is True if the consumer uses `subscribe`, so that its offsets need a member;
    False for `assign`, and for a `GroupMetadata` that you create. `topic_ids` has the name and id
    of each topic whose records the consumer has returned: from Kafka 4.4 on, brokers refuse offsets
    of a topic that was deleted and recreated (KIP-1319). It is empty if ids are unknown.
    `commits_automatically` is True if the consumer has `enable_auto_commit`, which no transaction
    goes with.
    """

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    is_subscribed: bool = False
    topic_ids: tuple[tuple[str, bytes], ...] = ()
    commits_automatically: bool = False

    @property
    def is_member(self) -> bool:
        """True if it names a member, which the group may have removed since."""
        return self.generation != NO_GENERATION and self.member_id != NO_MEMBER_ID

    def without_generation(self) -> GroupMetadata:
        """Return the same member for joining again with its id."""
        return self._replace(generation=NO_GENERATION)

    def without_member_id(self) -> GroupMetadata:
        """Return a member that the coordinator does not know."""
        return self._replace(generation=NO_GENERATION, member_id=NO_MEMBER_ID)


class PreparedTransaction(NamedTuple):
    """A transaction that is written but open, in a form that another process can end.

    `Producer.prepare_transaction` returns it; `Admin.commit_prepared_transactions` and
    `Admin.abort_prepared_transactions` end it. It may be pickled, or sent field by field.
    `producer_epoch` belongs to this transaction alone: transactions prepared later with the id have
    another one. `transaction_version` is 2 if each transaction has its own epoch (KIP-890, brokers
    4.0 or newer), else 1; it decides the version of EndTxn.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int
