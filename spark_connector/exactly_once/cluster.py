"""SinkCluster: runs the steps of the exactly-once sink's protocol on real brokers.

The record is the metadata of an offset of the sink's group, for the first partition of `topic`. Any
existing topic will do; the newest offset of all partitions counts.

A driver that has fenced the others reads the record behind a *barrier*. A coordinator that hung and
was replaced may wake up, respond with an old record, and never learn of newer ones. The driver
therefore asks one broker three times:

1. The broker says that no transaction is about to write the record. 2. The driver writes the
barrier: an offset in a transaction of its own, which brokers acknowledge. 3. The same broker says
that a transaction is about to write it. The broker is therefore current. 4. Its next response is
the record. The driver aborts the transaction.

Owner: one thread of the driver, which closes it. Source: KIP-98 (transactions of offsets), KIP-447
(stable offsets), KIP-664 (lists of transactions).
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from time import sleep
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

from pykclient import (
    Admin,
    GroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    Producer,
    TopicPartition,
)
from pykclient.errors import (
    AdminCallError,
    BrokerError,
    DecodeError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
    UnsupportedVersionError,
)
from spark_connector.exactly_once.names import (
    RECORD_TOPIC,
    SINKS_PATTERN,
    driver_id,
    sink_group,
    sink_of,
    slot_name,
    slot_pattern,
)
from spark_connector.exactly_once.protocol import (
    AbortOpen,
    End,
    Fence,
    FindClosed,
    ListOpen,
    Read,
    SinkTakenOverError,
    Write,
)
from spark_connector.exactly_once.record import SinkRecord, part_of, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pykclient import TransactionDescription, TransactionListing
    from spark_connector.exactly_once.protocol import Result, Step, Steps
    from spark_connector.exactly_once.record import Written

_LOG = logging.getLogger(__name__)

READS_MAX: Final = 10
READ_PAUSE_S: Final = 0.2
"""Maximum number of reads of a multi-part record until all parts belong to one record, and the
pause between them."""

BARRIER: Final = OffsetAndMetadata(0)
BARRIERS_MAX: Final = 60
BARRIER_PAUSE_S: Final = 0.5
"""Maximum number of attempts at a barrier, and the pause between them."""

READ_S: Final = 10.0
"""Maximum time of a read at a barrier, whose transaction stays open meanwhile: Kafka ends it after
a minute."""

OPEN: Final = "Ongoing"

TOPIC_WAIT_S: Final = 1.0
"""Time that a driver waits for a topic that brokers do not know. Some create it on demand."""

REFUSED: Final = (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
)
"""Errors by which brokers say that a transaction was ended otherwise, or begun again."""

_Returned = TypeVar("_Returned")


class OpenTransaction(NamedTuple):
    """The open transaction of one attempt.

    `start_ms` is since 1970. Brokers abort the transaction once it has been open for `timeout_ms`.
    """

    transactional_id: str
    turn: int
    is_decided: bool
    start_ms: int | None
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]


class SinkCluster:
    """The cluster to which a sink writes (see the module).

    `producer_settings` and `admin_settings` are those of the clients; the transactional id is the
    sink's.
    """

    def __init__(
        self,
        sink_id: str,
        topic: str,
        *,
        producer_settings: Mapping[str, object],
        admin_settings: Mapping[str, object],
    ) -> None:
        self._sink_id = sink_id
        self._key = TopicPartition(topic, 0)
        self._producer_settings = dict(producer_settings)
        self._admin = Admin(admin_settings)
        self._producer: Producer | None = None
        self._has_topic = False

    @classmethod
    def of_record(
        cls,
        sink_id: str,
        producer_settings: Mapping[str, object],
        admin_settings: Mapping[str, object],
    ) -> Self:
        """Return the sink of a query, with the topic of its record."""
        with Admin(admin_settings) as admin:
            found = admin.list_group_offsets(sink_group(sink_id))
        newest = max(found, key=lambda key: found[key].offset, default=None)
        return cls(
            sink_id,
            RECORD_TOPIC if newest is None else newest.topic,
            producer_settings=producer_settings,
            admin_settings=admin_settings,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close both clients."""
        self._close_producer()
        self._admin.close()

    def await_brokers(self, timeout_s: float) -> None:
        """Wait until a broker responds. Raises: `KafkaTimeoutError` if none does in time."""
        with suppress(BrokerError):  # which is a response
            self._admin.describe_topics([self._key.topic], timeout_s)

    def record(self) -> SinkRecord | None:
        """Return the sink's record; None before the first batch."""
        return self._read()

    def open_transactions(self) -> list[OpenTransaction]:
        """List the open transactions of the sink's tasks, and whether each is decided.

        A driver that comes back commits a decided one, and so does an operator who settles it.
        """
        record = self._read()
        decided = () if record is None else record.written
        decided_ids = {each.transactional_id for each in decided}
        found = self._described(sorted(self._list_open()))
        return [
            OpenTransaction(
                name,
                slot.turn,
                name in decided_ids,
                each.start_ms,
                each.timeout_ms,
                each.partitions,
            )
            for name, each in found.items()
            if each.state == OPEN and (slot := slot_name(self._sink_id, name)) is not None
        ]

    def run(self, steps: Steps[_Returned]) -> _Returned:
        """Run all steps. Raises: what they raise."""
        try:
            step = next(steps)
            while True:
                try:
                    result = self._run(step)
                except KafkaError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as stop:
            returned: _Returned = stop.value
            return returned

    def _run(self, step: Step) -> Result:
        match step:
            case Fence():
                return self._fence()
            case Read():
                return self._read()
            case Write(record):
                self._write(record)
            case End(written, is_commit):
                return self._end(written, is_commit)
            case FindClosed(written):
                return self._find_closed(written)
            case ListOpen():
                return self._list_open()
            case AbortOpen(names):
                for name in names:
                    self._abort(name)
        return None

    def _fence(self) -> SinkRecord | None:
        self._close_producer()
        self._producer = producer = self._made_producer(driver_id(self._sink_id))
        producer.init_transactions()
        return self._read_behind_barrier(producer)

    def _read_behind_barrier(self, producer: Producer) -> SinkRecord | None:
        group, reason = sink_group(self._sink_id), ""
        for _ in range(BARRIERS_MAX):
            coordinator = self._admin.find_coordinators([group], READ_S)[group].id
            # Only now: that lookup has brokers make the topic of all groups, which may be this one.
            self._await_topic(producer)
            try:
                if not self._is_pending(coordinator):
                    with self._or_taken_over(), self._barrier(producer):
                        if self._is_pending(coordinator):
                            return self._read(coordinator)
                    reason = "it did not know what brokers had just acknowledged"
                else:
                    reason = "a transaction was about to write the record, it said, and has ended"
            except NotCoordinatorError as error:
                reason = str(error)
            sleep(BARRIER_PAUSE_S)
        raise KafkaTimeoutError(
            f"The record of sink {self._sink_id!r} was not read in {BARRIERS_MAX} attempts: broker "
            f"{coordinator} was named as the coordinator of group {group!r}, but {reason}. Nothing "
            f"was decided; start the query again when that broker is well."
        )

    @contextmanager
    def _barrier(self, producer: Producer) -> Iterator[None]:
        producer.begin_transaction()
        try:
            producer.send_offsets_to_transaction(
                {self._key: BARRIER}, GroupMetadata(sink_group(self._sink_id))
            )
            yield
        except KafkaError:
            with suppress(KafkaError):  # the next fence aborts it, or its time
                producer.abort_transaction()
            raise
        producer.abort_transaction()

    def _is_pending(self, coordinator: int) -> bool:
        """Return whether this broker knows of a transaction that is about to write the record."""
        try:
            self._admin.list_group_offsets(
                sink_group(self._sink_id),
                [self._key],
                READ_S,
                require_stable=True,
                coordinator_id=coordinator,
            )
        except UnstableOffsetCommitError:
            return True
        return False

    def _made_producer(self, transactional_id: str) -> Producer:
        return Producer({**self._producer_settings, "transactional.id": transactional_id})

    def _close_producer(self) -> None:
        if self._producer is not None:
            self._producer.close(timeout=0)
            self._producer = None

    def _read(self, coordinator: int | None = None) -> SinkRecord | None:
        """Read the record from this broker, behind a barrier; None means any coordinator."""
        for _ in range(READS_MAX):
            newest = self._stable_part(0) if coordinator is None else self._first_part(coordinator)
            if newest is None:
                return None
            number, (count, text) = newest.offset, part_of(newest.metadata)
            others = [self._stable_part(part) for part in range(1, count)]
            pieces = [
                part_of(each.metadata)[1]
                for each in others
                if each is not None and each.offset == number
            ]
            if len(pieces) == len(others):
                return SinkRecord.from_text(self._sink_id, number, "".join([text, *pieces]))
            sleep(READ_PAUSE_S)
        raise DecodeError(
            f"The record of sink {self._sink_id!r} has {count} parts, and they are not of one "
            f"record: offsets of group {sink_group(self._sink_id)!r} have expired, or were changed."
        )

    def _first_part(self, coordinator: int) -> OffsetAndMetadata | None:
        group = sink_group(self._sink_id)
        return _newest(
            self._admin.list_group_offsets(group, None, READ_S, coordinator_id=coordinator)
        )

    def _stable_part(self, part: int) -> OffsetAndMetadata | None:
        group = sink_group(self._sink_id, part)
        # Brokers wait for a transaction that is about to commit only where partitions are named.
        # The sink may have had another topic before, whose offset is among all.
        found = self._admin.list_group_offsets(group)
        found |= self._admin.list_group_offsets(group, [self._key], require_stable=True)
        return _newest(found)

    def _write(self, record: SinkRecord) -> None:
        assert self._producer is not None, "a record is written after a fence"
        with self._or_taken_over(), self._producer.transaction():
            for part, text in enumerate(parts_of(record.to_text(self._sink_id))):
                self._producer.send_offsets_to_transaction(
                    {self._key: OffsetAndMetadata(record.number, text)},
                    GroupMetadata(sink_group(self._sink_id, part)),
                )

    @contextmanager
    def _or_taken_over(self) -> Iterator[None]:
        try:
            yield
        except ProducerFencedError as error:
            raise SinkTakenOverError(
                f"Sink {self._sink_id!r}: another driver has taken the sink over, and this one "
                f"can no longer commit. Run one query, with one checkpoint."
            ) from error

    def _await_topic(self, producer: Producer) -> None:
        if self._has_topic:
            return
        topic = self._key.topic
        try:
            producer.partitions_for(topic, TOPIC_WAIT_S)
        except KafkaTimeoutError as error:
            if isinstance(error.__cause__, UnknownTopicOrPartitionError):
                raise UnknownTopicOrPartitionError(
                    f"Topic {topic!r} does not exist, and brokers did not make it within "
                    f"{TOPIC_WAIT_S} s: create it, or see kafka.bootstrap.servers and the option "
                    f"'topic'."
                ) from error
            # Brokers that know it may be busy: this takes as long as every other request may.
            producer.partitions_for(topic)
        self._has_topic = True

    def _end(self, written: tuple[Written, ...], is_commit: bool) -> frozenset[str]:
        prepared = [
            PreparedTransaction(
                each.transactional_id,
                each.producer_id,
                each.producer_epoch,
                each.transaction_version,
            )
            for each in written
        ]
        admin = self._admin
        end = admin.commit_prepared_transactions if is_commit else admin.abort_prepared_transactions
        errors: Mapping[str, KafkaError] = {}
        try:
            end(prepared)
        except AdminCallError as error:
            errors = error.errors
        except REFUSED as error:
            errors = {written[0].transactional_id: error}
        for each in errors.values():
            if not isinstance(each, REFUSED):
                raise each
            _LOG.warning("Sink %r: %s", self._sink_id, each)
        return frozenset(errors)

    def _find_closed(self, written: tuple[Written, ...]) -> frozenset[str]:
        found = self._described([each.transactional_id for each in written])
        return frozenset(
            each.transactional_id
            for each in written
            if (now := found.get(each.transactional_id)) is None
            or now.state != OPEN
            or (now.producer_id, now.producer_epoch) != (each.producer_id, each.producer_epoch)
        )

    def _described(self, names: Sequence[str]) -> dict[str, TransactionDescription]:
        """Return the transactions on the brokers."""
        try:
            return self._admin.describe_transactions(names)
        except (TransactionalIdNotFoundError, AdminCallError):
            # One by one, to see which they do not know.
            found: dict[str, TransactionDescription] = {}
            for name in names:
                with suppress(TransactionalIdNotFoundError):
                    found |= self._admin.describe_transactions([name])
            return found

    def _list_open(self) -> frozenset[str]:
        found = _listed(self._admin, slot_pattern(self._sink_id), states=[OPEN])
        return frozenset(name for name in found if slot_name(self._sink_id, name) is not None)

    def _abort(self, name: str) -> None:
        """Abort by starting a new epoch of the id, which also fences the transaction's producer."""
        assert slot_name(self._sink_id, name) is not None
        with self._made_producer(name) as producer:
            producer.init_transactions()


def list_sinks(admin_settings: Mapping[str, object]) -> dict[str, int]:
    """Return the sinks on the brokers, and how many transactions of tasks each has open."""
    with Admin(admin_settings) as admin:
        found = _listed(admin, SINKS_PATTERN, states=())
    counts: dict[str, int] = {}
    for name, each in found.items():
        if (sink_id := sink_of(name)) is not None:
            is_open = each.state == OPEN and slot_name(sink_id, name) is not None
            counts[sink_id] = counts.get(sink_id, 0) + is_open
    return dict(sorted(counts.items()))


def _newest(found: Mapping[TopicPartition, OffsetAndMetadata]) -> OffsetAndMetadata | None:
    return max(found.values(), key=lambda each: each.offset, default=None)


def _listed(
    admin: Admin, id_pattern: str, *, states: Sequence[str]
) -> dict[str, TransactionListing]:
    try:
        return admin.list_transactions(states=states, id_pattern=id_pattern)
    except UnsupportedVersionError:
        # Brokers before 4.1 have no patterns (KIP-1152).
        return admin.list_transactions(states=states)
