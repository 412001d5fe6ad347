"""TransactionCalls: the transaction calls of the application, which wait; and `Transaction`.

Owner: any thread of the application. The sender's half is `sender/transactions.py`.
Source: Java class ``KafkaProducer``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pykclient.accel import Gate
from pykclient.arguments import check_text, is_number, offsets_by_partition, shown_argument
from pykclient.config.setting import INT_MAX
from pykclient.errors import (
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortableError,
    TransactionStateError,
    UsageError,
)
from pykclient.network.log import ClientLog
from pykclient.network.manager import Operation
from pykclient.producer.metrics import Wait
from pykclient.producer.sender.transaction_state import (
    ABORT,
    BEGIN,
    COMMIT,
    ENDING,
    INIT,
    PREPARE,
    SEND_OFFSETS,
    TransactionState,
)
from pykclient.types import NO_GENERATION, GroupMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from pykclient.producer.core import ProducerCore
    from pykclient.producer.sender.call_under_way import CallOperation
    from pykclient.producer.sender.transactions import Transactions
    from pykclient.types import OffsetAndMetadata, PreparedTransaction, TopicPartition

log: Final = ClientLog("pykclient.producer", "")

WAITS: Final = {
    INIT: Wait.INIT,
    BEGIN: Wait.BEGIN,
    SEND_OFFSETS: Wait.SEND_OFFSETS,
    PREPARE: Wait.PREPARE,
    COMMIT: Wait.COMMIT,
    ABORT: Wait.ABORT,
}

BEFORE_INIT: Final = (TransactionState.UNINITIALIZED, TransactionState.INITIALIZING)
WAITS_FOR_BULK_CALLS: Final = (PREPARE, COMMIT, ABORT)


def _let_go_on(gate: Gate, call: str, ended: CallOperation) -> None:
    # A lone commit continues at once, since a loop waits for it. After a begin, batches would come
    # before the markers of the last transaction, which costs 20 ms; after an error the sender
    # thread has more to do first.
    if call == COMMIT and ended.error is None:
        gate.open_at_once()
    else:
        gate.open()


class TransactionCalls:
    """See the module. `core` may belong to a producer without transactions."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core
        self.begun_count = 0
        """Number of transactions begun, by which a caller tells its own from the next one."""

    @property
    def is_ending(self) -> bool:
        """True if a call has ended the last transaction that was begun, or is ending it."""
        return self._transactions(BEGIN).state in ENDING

    def initialize(self) -> None:
        self._run(INIT, self._transactions(INIT).initialize)

    def initialize_once(self) -> None:
        """Initialize, unless the application or another loop has done it."""
        if self._transactions(INIT).state in BEFORE_INIT:
            self.initialize()

    def begin(self) -> None:
        self._run(BEGIN, self._transactions(BEGIN).begin)
        self.begun_count += 1

    def prepare(self) -> PreparedTransaction | None:
        return self._run(PREPARE, self._transactions(PREPARE).prepare)

    def commit(self) -> None:
        self._run(COMMIT, self._transactions(COMMIT).commit)

    def abort(self) -> None:
        self._run(ABORT, self._transactions(ABORT).abort)

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata,
    ) -> None:
        checked = offsets_by_partition(offsets, SEND_OFFSETS)
        _check_group(group_metadata)
        transactions = self._transactions(SEND_OFFSETS)
        if checked:
            self._run(SEND_OFFSETS, partial(transactions.send_offsets, checked, group_metadata))

    def abort_after(self, error: BaseException) -> None:
        """Abort the transaction that `error` left open; log a failure, since `error` is raised.

        A failed producer cannot abort, and a closing one aborts by itself.
        """
        is_fatal = self._transactions(ABORT).state is TransactionState.FATAL_ERROR
        if is_fatal or self._core.lifecycle.refusal is not None:
            return
        try:
            self.abort()
        except KafkaError as failure:
            log.warning("the transaction that %r left was not aborted: %s", error, failure)

    def _transactions(self, call: str) -> Transactions:
        transactions = self._core.transactions
        if transactions is None:
            raise TransactionStateError(
                f"{call}: this producer has no transactions; give it a transactional_id"
            )
        return transactions

    def _check_usable(self, call: str) -> None:
        """Raise the error that ended the producer, noting whether a commit is uncertain."""
        error = self._core.lifecycle.failure
        if error is not None:
            raise self._transactions(call).left_by(error, call).with_traceback(None)

    def _run(
        self, call: str, entry: Callable[[CallOperation, int], None]
    ) -> PreparedTransaction | None:
        """Run a call in the sender thread, and wait for its end.

        If the wait is interrupted, the call continues; making it again waits for it.
        """
        core, lifecycle = self._core, self._core.lifecycle
        transactions = self._transactions(call)
        if core.waiting.is_current():
            raise UsageError(f"{call}() in a delivery callback would wait for itself")
        core.waiting.check_may_wait(f"{call}()")  # before it has an effect
        if call in WAITS_FOR_BULK_CALLS and core.accumulator.acceptance.is_in_bulk_call():
            raise UsageError(
                f"{call}() was called by a handler that interrupted send_batch() or send_arrow() "
                f"in the same thread, and would wait for that call; set a flag in the handler, and "
                f"call it afterwards"
            )
        self._check_usable(call)
        fatal_count = core.metadata.fatal_count
        operation: CallOperation = Operation()
        deadline_ms = core.block_deadline_ms()
        gate = Gate()
        operation.on_done(partial(_let_go_on, gate, call))
        try:
            lifecycle.waiters[gate] = None
            core.engine.post(partial(entry, operation))
            while True:
                wait_ms = max(0, deadline_ms - core.now_ms())
                with core.calls.waiting(WAITS[call]):
                    is_opened = core.waiting.await_gate(gate, wait_ms / 1000, f"{call}()")
                if operation.is_done:
                    break
                if lifecycle.is_over:
                    self._check_usable(call)
                error = core.metadata.fatal_since(fatal_count)
                if error is not None:
                    raise error.with_traceback(None)
                if not is_opened:
                    raise KafkaTimeoutError(
                        f"{call}: not done within {core.config.max_block_ms} ms (max_block_ms): "
                        f"{transactions.describe_wait()}. It goes on; call it again to wait for it"
                    )
            error = operation.error
            if error is not None:
                raise error.with_traceback(None)
            return operation.result()
        except BaseException:  # includes an interrupt: the result is not seen then
            core.engine.post(partial(transactions.forget, call, operation))
            raise
        finally:
            lifecycle.waiters.pop(gate, None)


class Transaction:
    """Context manager of `Producer.transaction`."""

    def __init__(self, calls: TransactionCalls) -> None:
        self._calls = calls

    def __enter__(self) -> None:
        self._calls.begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._calls.abort_after(error)
            return
        try:
            self._calls.commit()
        except TransactionAbortableError as refused:
            self._calls.abort_after(refused)
            raise


def _check_group(group: object) -> None:
    if not isinstance(group, GroupMetadata):
        raise UsageError(
            f"{SEND_OFFSETS}: group_metadata is {shown_argument(group)}; pass group_metadata() of "
            f"the consumer, called right before"
        )
    instance_id = group.group_instance_id
    texts = {"group_id": group.group_id, "member_id": group.member_id}
    if instance_id is not None:
        texts["group_instance_id"] = instance_id
    for name, text in texts.items():
        if not isinstance(text, str) or (name == "group_id" and not text):
            raise UsageError(
                f"{SEND_OFFSETS}: group_metadata has the {name} {shown_argument(text)}; pass a name"
            )
        check_text(text, f"{name} of group_metadata", SEND_OFFSETS)
    if group.commits_automatically:
        raise UsageError(
            f"{SEND_OFFSETS}: the consumer of group {group.group_id!r} commits automatically, so "
            f"that an aborted transaction would lose its records; give the consumer "
            f"enable_auto_commit=False"
        )
    if group.is_subscribed and not group.is_member:
        raise UsageError(
            f"{SEND_OFFSETS}: group_metadata is that of a consumer that has subscribed to topics, "
            f"and no rebalance of group {group.group_id!r} has made it a member yet (generation "
            f"{group.generation}). Brokers would accept the offsets even if another member owns "
            f"the partitions: poll until the group has assigned them, then call group_metadata() "
            f"again"
        )
    if group.generation != NO_GENERATION and not is_number(group.generation, INT_MAX):
        raise UsageError(
            f"{SEND_OFFSETS}: group_metadata has the generation "
            f"{shown_argument(group.generation)}; pass a number from 0, or -1 for none"
        )
