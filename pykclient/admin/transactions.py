"""Transactions: their descriptions, and the handlers that list and abort them.

Source: the ListTransactions, DescribeTransactions, DescribeProducers and WriteTxnMarkers APIs;
KIP-664, KIP-994 (how long they are open), KIP-1152 (patterns).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.admin.call import AdminHandler, Receiver, failure
from pykclient.arguments import check_number, check_text, shown_argument, value_list
from pykclient.errors import (
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from pykclient.network.coordinators import CoordinatorType
from pykclient.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from pykclient.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from pykclient.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from pykclient.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pykclient.types import TopicPartition, by_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pykclient.admin.call import Results
    from pykclient.errors import KafkaError
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.describe_producers import ProducerState as FoundProducer
    from pykclient.protocol.messages.describe_transactions import (
        TransactionState as FoundTransaction,
    )
    from pykclient.types import Node


NO_DURATION: Final = -1
SECONDS_MAX: Final = 10**9
INT64_MAX: Final = 2**63 - 1


class TransactionListing(NamedTuple):
    """A transactional id in a list.

    `state` is one of Kafka's: ``Empty``, ``Ongoing``, ``PrepareCommit``, ``PrepareAbort``,
    ``CompleteCommit``, ``CompleteAbort``, ``PrepareEpochFence``, ``Dead``. `coordinator_id` is the
    broker that coordinates it.
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


class TransactionDescription(NamedTuple):
    """A transactional id with its current or last transaction.

    `start_ms` is the transaction's start in milliseconds since 1970, or None if none is open.
    `timeout_ms` is the time after which the coordinator aborts it. `partitions` are those written
    so far, empty if none is open.
    """

    transactional_id: str
    state: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


class ProducerState(NamedTuple):
    """A producer, idempotent or transactional, that a partition's leader knows.

    `last_sequence` is the sequence number of its last record; None if only a marker was written
    since. `last_timestamp_ms` is the time of its last batch or marker, since 1970.
    `coordinator_epoch` comes from its last marker, None before the first.
    `transaction_start_offset` is the start of its open transaction in this partition, or None.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp_ms: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


class AbortTransactionSpec(NamedTuple):
    """The transaction in one partition for `abort_transaction`.

    The fields come from `describe_producers`: `producer_id`, `producer_epoch` and
    `coordinator_epoch`, which is None before the producer's first marker.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None = None


def transactions_request(
    states: Sequence[str],
    producer_ids: Iterable[int],
    open_for_s: float | None,
    id_pattern: str | None,
) -> ListTransactionsRequest:
    """Return the request for a selection of transactions; empty arguments mean all.

    Raises:
        UsageError: an argument has the wrong type, or cannot be sent.
    """
    call = "list_transactions"
    wanted_ids = value_list(producer_ids, f"{call}: producer_ids", "a number")
    for producer_id in wanted_ids:
        check_number(producer_id, f"{call}: producer_ids", 0, INT64_MAX)
    duration_ms = NO_DURATION
    if open_for_s is not None:
        is_number = isinstance(open_for_s, (int, float)) and not isinstance(open_for_s, bool)
        if not is_number or not 0 <= open_for_s <= SECONDS_MAX:
            raise UsageError(f"{call}: open_for is {shown_argument(open_for_s)}; give seconds")
        duration_ms = round(open_for_s * 1000)
    if id_pattern is not None:
        if not isinstance(id_pattern, str):
            raise UsageError(
                f"{call}: id_pattern is {shown_argument(id_pattern)}; give a regular expression"
            )
        check_text(id_pattern, "id_pattern", call)
    return ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=wanted_ids,
        duration_filter=duration_ms,
        transactional_id_pattern=id_pattern,
    )


class ListTransactions(AdminHandler[int, tuple[TransactionListing, ...]]):
    """Lists the transactional ids that brokers, by id, coordinate.

    A broker for which `is_gone` is true has none: other brokers have taken over its ids.
    """

    receiver = Receiver.BROKER

    def __init__(self, request: ListTransactionsRequest, is_gone: Callable[[int], bool]) -> None:
        self._request = request
        self._is_gone = is_gone

    def request(self, keys: Sequence[int], timeout_ms: int) -> ListTransactionsRequest:
        return self._request

    def results(
        self, message: Message, keys: Sequence[int]
    ) -> Results[int, tuple[TransactionListing, ...]]:
        assert isinstance(message, ListTransactionsResponse)
        (key,) = keys
        if message.unknown_state_filters:
            unknown = ", ".join(message.unknown_state_filters)
            error: KafkaError | None = UsageError(
                f"list_transactions: broker {key} has no state {unknown}; write it as in 'Ongoing'"
            )
        else:
            error = failure(message.error_code, f"the transactions of broker {key}")
        yield (
            key,
            error
            or tuple(
                TransactionListing(
                    each.transactional_id, each.producer_id, each.transaction_state, key
                )
                for each in message.transaction_states
            ),
        )

    def on_unreachable(
        self, key: int, error: KafkaError
    ) -> tuple[TransactionListing, ...] | KafkaError:
        return () if self._is_gone(key) else error


class DescribeTransactions(AdminHandler[str, TransactionDescription]):
    """Describes transactional ids."""

    receiver = Receiver.COORDINATOR
    coordinator_type = CoordinatorType.TRANSACTION

    def __init__(self, coordinators: Mapping[str, Node]) -> None:
        self._coordinators = coordinators

    def request(self, keys: Sequence[str], timeout_ms: int) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=list(keys))

    def results(
        self, message: Message, keys: Sequence[str]
    ) -> Results[str, TransactionDescription]:
        assert isinstance(message, DescribeTransactionsResponse)
        for found in message.transaction_states:
            name = found.transactional_id
            if name in self._coordinators:
                error = failure(found.error_code, f"transactional id {name!r}")
                yield name, error or _description(found, self._coordinators[name].id)


class DescribeProducers(AdminHandler[TopicPartition, tuple[ProducerState, ...]]):
    """Describes the producers of partitions, at the brokers in `broker_ids`."""

    receiver = Receiver.BROKER
    final_errors = (NotLeaderOrFollowerError, UnknownTopicOrPartitionError)

    def __init__(self, broker_ids: Mapping[TopicPartition, int]) -> None:
        self._broker_ids = broker_ids

    def broker_id(self, key: TopicPartition) -> int:
        return self._broker_ids[key]

    def request(self, keys: Sequence[TopicPartition], timeout_ms: int) -> DescribeProducersRequest:
        return DescribeProducersRequest(
            topics=[TopicRequest(topic, indexes) for topic, indexes in by_topic(keys).items()]
        )

    def results(
        self, message: Message, keys: Sequence[TopicPartition]
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        assert isinstance(message, DescribeProducersResponse)
        for topic in message.topics:
            for found in topic.partitions:
                key = TopicPartition(topic.name, found.partition_index)
                error = failure(found.error_code, f"the producers of {key}", found.error_message)
                yield key, error or tuple(map(_producer, found.active_producers))


class AbortTransactions(AdminHandler[TopicPartition, TopicPartition]):
    """Writes the marker that aborts a transaction in one partition, at the partition's leader."""

    receiver = Receiver.BROKER
    final_errors = (NotLeaderOrFollowerError, UnknownTopicOrPartitionError)

    def __init__(
        self, spec: AbortTransactionSpec, broker_ids: Mapping[TopicPartition, int]
    ) -> None:
        self._spec = spec
        self._broker_ids = broker_ids

    def broker_id(self, key: TopicPartition) -> int:
        return self._broker_ids[key]

    def request(self, keys: Sequence[TopicPartition], timeout_ms: int) -> WriteTxnMarkersRequest:
        spec = self._spec
        epoch = 0 if spec.coordinator_epoch is None else spec.coordinator_epoch
        marker = WritableTxnMarker(
            producer_id=spec.producer_id,
            producer_epoch=spec.producer_epoch,
            transaction_result=False,
            topics=[
                WritableTxnMarkerTopic(topic, indexes) for topic, indexes in by_topic(keys).items()
            ],
            coordinator_epoch=epoch,
        )
        return WriteTxnMarkersRequest(markers=[marker])

    def results(
        self, message: Message, keys: Sequence[TopicPartition]
    ) -> Results[TopicPartition, TopicPartition]:
        assert isinstance(message, WriteTxnMarkersResponse)
        for marker in message.markers:
            for topic in marker.topics:
                for found in topic.partitions:
                    key = TopicPartition(topic.name, found.partition_index)
                    what = f"the marker that aborts producer {marker.producer_id} in {key}"
                    yield key, failure(found.error_code, what) or key


def _description(found: FoundTransaction, coordinator_id: int) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=found.transactional_id,
        state=found.transaction_state,
        coordinator_id=coordinator_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        start_ms=None if found.transaction_start_time_ms < 0 else found.transaction_start_time_ms,
        partitions=tuple(
            sorted(
                TopicPartition(topic.topic, index)
                for topic in found.topics
                for index in topic.partitions
            )
        ),
    )


def _producer(found: FoundProducer) -> ProducerState:
    return ProducerState(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        last_sequence=_known(found.last_sequence),
        last_timestamp_ms=found.last_timestamp,
        coordinator_epoch=_known(found.coordinator_epoch),
        transaction_start_offset=_known(found.current_txn_start_offset),
    )


def _known(number: int) -> int | None:
    """Return None for -1, else the number."""
    return None if number < 0 else number
