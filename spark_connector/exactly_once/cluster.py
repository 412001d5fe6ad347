"""SinkCluster: runs the steps of the exactly-once sink's protocol on real brokers.

The record is the metadata of an offset of the sink's group, for the first partition of `topic`: any
topic that exists will do, and the newest offset of all partitions counts. What ends the prepared
transactions of other processes is given as `end`, since no client does it yet: it returns the ids
that brokers refused for good.

Owner: one thread of the driver, which closes it.
Source: KIP-98 (transactions of offsets), KIP-447 (stable offsets), KIP-664 (lists of transactions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, TypeVar

from pykclient import Admin, GroupMetadata, OffsetAndMetadata, Producer, TopicPartition
from pykclient.errors import (
    DecodeError,
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
    UnsupportedVersionError,
)
from spark_connector.exactly_once.names import (
    driver_id,
    sink_group,
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
    from collections.abc import Callable, Mapping

    from spark_connector.exactly_once.protocol import Result, Step, Steps
    from spark_connector.exactly_once.record import Written

    EndTransactions = Callable[[tuple[Written, ...], bool], frozenset[str]]

READS_MAX: Final = 10
"""How often a record of several parts is read, until all parts are of one record."""

OPEN: Final = "Ongoing"

_Returned = TypeVar("_Returned")


class SinkCluster:
    """See the module. `producer_settings` and `admin_settings` are those of the clients; the
    transactional id is the sink's.
    """

    def __init__(
        self,
        sink_id: str,
        topic: str,
        *,
        producer_settings: Mapping[str, object],
        admin_settings: Mapping[str, object],
        end: EndTransactions,
    ) -> None:
        self._sink_id = sink_id
        self._key = TopicPartition(topic, 0)
        self._producer_settings = dict(producer_settings)
        self._admin = Admin(admin_settings)
        self._end = end
        self._producer: Producer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close both clients."""
        self._close_producer()
        self._admin.close()

    def run(self, steps: Steps[_Returned]) -> _Returned:
        """Run steps to their end. Raises: what they raise."""
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
                self._fence()
            case Read():
                return self._read()
            case Write(record):
                self._write(record)
            case End(written, is_commit):
                return self._end(written, is_commit)
            case FindClosed(written):
                return frozenset(each.transactional_id for each in written if self._is_closed(each))
            case ListOpen():
                return self._list_open()
            case AbortOpen(names):
                for name in names:
                    self._abort(name)
        return None

    def _fence(self) -> None:
        self._close_producer()
        self._producer = self._made_producer(driver_id(self._sink_id))
        self._producer.init_transactions()

    def _made_producer(self, transactional_id: str) -> Producer:
        return Producer({**self._producer_settings, "transactional.id": transactional_id})

    def _close_producer(self) -> None:
        if self._producer is not None:
            self._producer.close(timeout=0)
            self._producer = None

    def _read(self) -> SinkRecord | None:
        for _ in range(READS_MAX):
            newest = self._part(0)
            if newest is None:
                return None
            number, (count, text) = newest.offset, part_of(newest.metadata)
            others = [self._part(part) for part in range(1, count)]
            pieces = [
                part_of(each.metadata)[1]
                for each in others
                if each is not None and each.offset == number
            ]
            if len(pieces) == len(others):
                return SinkRecord.from_text(self._sink_id, number, "".join([text, *pieces]))
        raise DecodeError(
            f"The record of sink {self._sink_id!r} has {count} parts, and they are not of one "
            f"record: offsets of group {sink_group(self._sink_id)!r} have expired, or were changed."
        )

    def _part(self, part: int) -> OffsetAndMetadata | None:
        group = sink_group(self._sink_id, part)
        # Brokers wait for a transaction that is about to commit only where partitions are named.
        # The sink may have had another topic before, whose offset is among all.
        found = self._admin.list_group_offsets(group, [self._key], require_stable=True)
        found |= {
            key: each
            for key, each in self._admin.list_group_offsets(group).items()
            if key != self._key
        }
        return max(found.values(), key=lambda each: each.offset, default=None)

    def _write(self, record: SinkRecord) -> None:
        assert self._producer is not None, "a record is written after a fence"
        try:
            with self._producer.transaction():
                for part, text in enumerate(parts_of(record.to_text(self._sink_id))):
                    self._producer.send_offsets_to_transaction(
                        {self._key: OffsetAndMetadata(record.number, text)},
                        GroupMetadata(sink_group(self._sink_id, part)),
                    )
        except (ProducerFencedError, InvalidProducerEpochError) as error:
            raise SinkTakenOverError(
                f"Sink {self._sink_id!r}: another driver has taken the sink over, and this one "
                f"decides nothing more. Have one query run, with one checkpoint."
            ) from error

    def _is_closed(self, written: Written) -> bool:
        name = written.transactional_id
        try:
            found = self._admin.describe_transactions([name])[name]
        except TransactionalIdNotFoundError:
            return True
        identity = (found.producer_id, found.producer_epoch)
        return found.state != OPEN or identity != (written.producer_id, written.producer_epoch)

    def _list_open(self) -> frozenset[str]:
        try:
            found = self._admin.list_transactions(
                states=[OPEN], id_pattern=slot_pattern(self._sink_id)
            )
        except UnsupportedVersionError:
            # Brokers before 4.1 have no patterns (KIP-1152).
            found = self._admin.list_transactions(states=[OPEN])
        return frozenset(name for name in found if slot_name(self._sink_id, name) is not None)

    def _abort(self, name: str) -> None:
        """Abort by a new epoch of the id, which also keeps out who has opened the transaction."""
        assert slot_name(self._sink_id, name) is not None
        with self._made_producer(name) as producer:
            producer.init_transactions()
