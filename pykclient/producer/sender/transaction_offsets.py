"""TransactionOffsets: sends the offsets of a transaction.

One call of `send_offsets_to_transaction` is processed at a time; others wait. With transaction
version 1 its group is added to the transaction first. The offsets go to the group's coordinator.
The transaction must be aborted if they are not accepted in `delivery_timeout_ms`, as for a record,
or if their topic stays unknown for `request_timeout_ms`: it was deleted, or created again.

Owner: the sender thread.
Source: Java class ``TransactionManager`` (``TxnOffsetCommitHandler``); KIP-98, KIP-447, KIP-1319.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pykclient.errors import (
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
    error_for_code,
)
from pykclient.network.coordinators import MOVED_ERRORS, CoordinatorType
from pykclient.network.manager import NEVER_MS
from pykclient.producer.sender.transaction_requests import (
    build_offsets,
    check_offsets,
    committed,
    offsets_max_version,
)
from pykclient.producer.sender.transaction_state import MEMBERSHIP_ERRORS, SENDING, left_group
from pykclient.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from pykclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.network.coordinators import CoordinatorLookup, Coordinators
    from pykclient.network.manager import Request
    from pykclient.producer.config import ProducerConfig
    from pykclient.producer.sender.call_under_way import CallOperation
    from pykclient.producer.sender.transactions import Transactions
    from pykclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

    Offsets = Mapping[TopicPartition, OffsetAndMetadata]


GONE_ERRORS: Final = (UnknownTopicOrPartitionError, UnknownTopicIdError)
"""Errors of a topic that is new to the coordinator, or was deleted."""


@dataclass(slots=True, eq=False)
class _SentOffsets:
    """One call of `send_offsets_to_transaction`."""

    group: GroupMetadata
    offsets: Offsets
    operation: CallOperation
    deadline_ms: int
    limit: str
    """The deadline as errors name it: a time-out and its setting."""


class TransactionOffsets:
    """See the module. `transactions` has the state, and the attempt that all requests share."""

    def __init__(
        self, config: ProducerConfig, transactions: Transactions, coordinators: Coordinators
    ) -> None:
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._request_timeout_ms = config.request_timeout_ms
        self._transactions = transactions
        self._coordinators = coordinators
        self._sent: deque[_SentOffsets] = deque()
        self.added_groups: set[str] = set()
        """Groups that were added to the transaction (version 1)."""

    @property
    def is_empty(self) -> bool:
        return not self._sent

    @property
    def deadline_ms(self) -> int:
        """Time until which the offsets that are sent next must be accepted."""
        return self._sent[0].deadline_ms if self._sent else NEVER_MS

    def add(
        self, group: GroupMetadata, offsets: Offsets, operation: CallOperation, now_ms: int
    ) -> None:
        limit = f"{self._delivery_timeout_ms} ms (delivery_timeout_ms)"
        deadline_ms = now_ms + self._delivery_timeout_ms
        self._sent.append(_SentOffsets(group, offsets, operation, deadline_ms, limit))

    def end(self, error: KafkaError) -> None:
        """Fail the calls whose offsets were not accepted."""
        while self._sent:
            self._sent.popleft().operation.fail(error)

    def check_deadline(self, now_ms: int) -> None:
        """Abort the transaction if its offsets were not accepted in time."""
        if now_ms >= self.deadline_ms:
            self._transactions.make_abortable(self._late(self._sent[0]))

    def next_request(self, now_ms: int) -> Request | None:
        transactions = self._transactions
        sent = self._sent[0]
        group_id = sent.group.group_id
        if not transactions.is_v2 and group_id not in self.added_groups:
            return transactions.to_coordinator(partial(self._add_group, group_id), now_ms)
        lookup = self._coordinators.find(CoordinatorType.GROUP, group_id)
        node_id = lookup.node_id_for([transactions.attempt])
        failure = lookup.failure()
        if failure is not None:
            transactions.make_abortable(failure)
            return None
        if node_id is None:
            return None
        transactions.is_started = True
        return transactions.request(
            TxnOffsetCommitRequest(),
            node_id,
            TxnOffsetCommitResponse,
            partial(self._on_offsets, sent, lookup, node_id),
            max_version=offsets_max_version(sent.group, sent.offsets, is_v2=transactions.is_v2),
            check=partial(check_offsets, sent.group, sent.offsets),
            build=partial(
                build_offsets,
                sent.group,
                sent.offsets,
                transactional_id=transactions.transactional_id,
                identity=transactions.sequences.identity,
            ),
        )

    def _add_group(self, group_id: str, node_id: int) -> Request:
        transactions = self._transactions
        transactions.is_started = True
        producer_id, epoch = transactions.sequences.identity
        message = AddOffsetsToTxnRequest(
            transactions.transactional_id, producer_id, epoch, group_id
        )
        return transactions.request(
            message, node_id, AddOffsetsToTxnResponse, partial(self._on_group, group_id, node_id)
        )

    def _on_group(
        self, group_id: str, node_id: int, response: AddOffsetsToTxnResponse, now_ms: int
    ) -> None:
        transactions = self._transactions
        if response.error_code == 0:
            transactions.attempt.succeeded()
            self.added_groups.add(group_id)
            return
        error = error_for_code(
            response.error_code,
            transactions.about(f"group {group_id!r} could not be added to the transaction"),
        )
        transactions.on_error(
            error, now_ms, node_id, is_fatal=isinstance(error, InvalidTxnStateError)
        )

    def _on_offsets(
        self,
        sent: _SentOffsets,
        lookup: CoordinatorLookup,
        node_id: int,
        response: TxnOffsetCommitResponse,
        now_ms: int,
    ) -> None:
        transactions = self._transactions
        codes = committed(sent.group, response)
        partition, code = next((found for found in codes if found[1] != 0), (None, 0))
        if code == 0:
            transactions.attempt.succeeded()
            if self._sent and self._sent[0] is sent:
                self._sent.popleft()
                sent.operation.succeed(None)
            return
        group_id = sent.group.group_id
        error = error_for_code(
            code,
            transactions.about(f"group {group_id!r} did not accept the offset of {partition}"),
        )
        if isinstance(error, MOVED_ERRORS):
            lookup.mark_unknown(node_id, error)
            transactions.attempt.back_off(error, now_ms)
            return
        if isinstance(error, MEMBERSHIP_ERRORS):
            transactions.attempt.lost()
            if transactions.state in SENDING:
                transactions.make_abortable(left_group(sent.group, error))
            return
        if isinstance(error, GONE_ERRORS) and now_ms + self._request_timeout_ms < sent.deadline_ms:
            sent.deadline_ms = now_ms + self._request_timeout_ms
            sent.limit = f"{self._request_timeout_ms} ms (request_timeout_ms)"
        is_fatal = isinstance(error, (InvalidTxnStateError, UnsupportedForMessageFormatError))
        transactions.on_error(error, now_ms, None, is_fatal=is_fatal)

    def _late(self, sent: _SentOffsets) -> KafkaError:
        """Return the error of offsets that were not accepted in time."""
        transactions = self._transactions
        error: KafkaError = KafkaTimeoutError(
            f"group {sent.group.group_id!r} did not accept offsets within {sent.limit}: "
            f"{transactions.describe_wait()}"
        )
        error.__cause__ = transactions.attempt.last_error
        return error
