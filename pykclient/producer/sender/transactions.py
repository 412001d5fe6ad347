"""Transactions: the state of a producer's transactions, and their requests.

The application's calls are posted, and end as operations. One request is under way at a time. These
rules keep a transaction whole:

- It ends (EndTxn) when nothing of it is under way: each batch has a certain result and is in no
  request, and so have its offsets. It is aborted if a batch fails for good (also one that expires
  in flight), or if `send` or a bulk call did not accept a record. A bulk call under way delays the
  end (`Acceptance`).
- The identity comes from the coordinator: by InitProducerId, and with transaction version 2
  (KIP-890) by EndTxn. All sequences then start over together.
- With version 1 separate requests add partitions and groups before anything is sent to them. Such a
  request without a response may be handled late, in the next transaction. A new epoch, which the
  coordinator assigns at the end, keeps it out. Brokers before Kafka 2.5 assign none.
- An abort drops batches that no request carries, and waits for the others.
- A coordinator that hung may answer from what it knew before it was replaced. Such an error is
  final only when the coordinator that another broker names confirms it.
- A coordinator drops a transactional id that was unused for too long. The transaction that finds
  out must be aborted. Its abort gets a new identity by naming the old one, so that another producer
  with the id fences this one.
- A commit whose result the application has not seen (time-out, interrupt) continues, and only
  calling it again tells how it ended.
- Once EndTxn is sent to commit, only its response makes the transaction abortable.
- Preparing a transaction waits as a commit does, without EndTxn. The holder of its
  `PreparedTransaction` then ends it. Closing leaves it open, unless no call has returned that.

Owner: the sender thread; any thread may call `describe_wait`.
Source: Java class ``TransactionManager``; KIP-98, KIP-360 (new epochs), KIP-447 (groups), KIP-588
(fencing), KIP-890 (version 2), KIP-939 (two-phase commits).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from pykclient.errors import (
    ClosedError,
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    OperationNotAttemptedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionStateError,
    UnsupportedVersionError,
    error_for_code,
)
from pykclient.network.coordinators import MOVED_ERRORS, CoordinatorType
from pykclient.network.log import ClientLog
from pykclient.network.manager import IDLE, NEVER_MS, PollResult, Request
from pykclient.network.retry import Attempt
from pykclient.producer.accumulator.batch import NO_IDENTITY, ProducerIdentity
from pykclient.producer.sender.call_under_way import CallUnderWay
from pykclient.producer.sender.idempotence import Idempotence
from pykclient.producer.sender.transaction_offsets import TransactionOffsets
from pykclient.producer.sender.transaction_requests import (
    ADD_PARTITIONS_MAX,
    END_TXN_MAX_OF_VERSION_1,
    NEW_EPOCH_FROM_VERSION,
    PRODUCE_MAX_OF_VERSION_1,
    TWO_PHASE_COMMIT_VERSION,
    add_partitions,
    added,
    build_init_producer_id,
    check_added,
    check_end,
    check_identity,
)
from pykclient.producer.sender.transaction_state import (
    ABORT,
    ABORTING_FROM,
    BEGIN,
    COMMIT,
    DROPPING,
    FATAL_ERRORS,
    FENCED_ERRORS,
    INIT,
    NEXT,
    OPEN,
    PREPARE,
    SEND_OFFSETS,
    SENDING,
    STALE_ERRORS,
    UNCERTAIN_ERRORS,
    NewEpoch,
    TransactionState,
    explained,
    is_uncertain_end,
    of_late_commit,
    of_uncertain_end,
    refusal,
)
from pykclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
)
from pykclient.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from pykclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykclient.types import PreparedTransaction, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykclient.network.broker.client import NetworkClient
    from pykclient.network.coordinators import Coordinators
    from pykclient.network.retry import Backoff
    from pykclient.producer.accumulator.accumulator import RecordAccumulator
    from pykclient.producer.config import ProducerConfig
    from pykclient.producer.sender.call_under_way import CallOperation
    from pykclient.protocol.message import Message
    from pykclient.types import GroupMetadata, OffsetAndMetadata

    Offsets = Mapping[TopicPartition, OffsetAndMetadata]

ResponseT = TypeVar("ResponseT", bound="Message")

FEATURE: Final = "transaction.version"
VERSION_1: Final = 1
VERSION_2: Final = 2
"""Level of the feature from which on Produce itself adds partitions (KIP-890)."""

CONCURRENT_BACKOFF_MS_MAX: Final = 20
"""Maximum back-off while the coordinator completes the previous transaction; Java's only one. That
takes a few milliseconds, so the first back-off is 1 ms, and each is twice the last.
"""

BULK_LOOK_MS: Final = 1_000
"""Interval at which an end that waits for bulk calls checks whether they have ended."""

_S: Final = TransactionState


class Transactions:
    """Manager of a producer's transactions. Comes after `Sender` in the engine.

    `withdraw` fails the batches that no request carries, and returns whether there were any;
    `on_fatal` is called when the producer can no longer be used.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        *,
        client: NetworkClient,
        coordinators: Coordinators,
        backoff: Backoff,
        withdraw: Callable[[KafkaError, int], bool],
        on_fatal: Callable[[KafkaError, int], None],
    ) -> None:
        assert config.transactional_id is not None
        self.transactional_id = config.transactional_id
        self.state = _S.UNINITIALIZED
        self.is_v2 = False
        """True if the transaction has version 2 (KIP-890)."""
        self.sequences = Idempotence(
            in_flight_max=config.max_in_flight_requests_per_connection,
            backoff=backoff,
            on_assigned=accumulator.look_at_all,
            on_failed=on_fatal,
            on_broken=self._on_broken,
            client_id=config.client_id,
        )
        self._log = ClientLog("pykclient.producer", config.client_id)
        self._timeout_ms = config.transaction_timeout_ms
        self._is_two_phase = config.transaction_two_phase_commit_enable
        self._accumulator = accumulator
        self._client = client
        self._coordinators = coordinators
        self._coordinator = coordinators.find(CoordinatorType.TRANSACTION, self.transactional_id)
        self._withdraw = withdraw
        self._on_fatal = on_fatal
        self.attempt = Attempt(backoff)
        self._call = CallUnderWay()
        self._beginning: list[CallOperation] = []
        """Calls of `begin_transaction` that wait for an abort that no other call waits for."""
        self._receiver_count = 0
        """Number of calls that have returned the prepared transaction."""
        self._cause: KafkaError | None = None
        """Reason why the transaction must be aborted, or the producer can no longer be used."""
        self._new_epoch = NewEpoch.NOT_NEEDED
        self.is_started = False
        """True if the coordinator may know the transaction."""
        self._was_prepared = False
        self._started_ms = 0
        self._uncertain_end_count = 0
        """Number of EndTxn requests of the transaction that may have been handled: those in flight,
        and those that ended without a response that says otherwise."""
        self._wanted: dict[TopicPartition, None] = {}
        """Partitions to add before batches may be sent to them (version 1)."""
        self._added: set[TopicPartition] = set()
        self._offsets = TransactionOffsets(config, self, coordinators)
        self._close_deadline_ms = NEVER_MS
        self._now_ms = 0
        accumulator.pause(self._refusal("send"))

    # The application's calls, posted.

    def initialize(self, operation: CallOperation, now_ms: int) -> None:
        if self.state in (_S.UNINITIALIZED, _S.PREPARED):
            self._to(_S.INITIALIZING)
            self._reset()  # a prepared transaction is ended elsewhere, or by the new identity
            self._accumulator.pause(self._refusal("send"))
            self._call.begin(INIT, operation)
        elif not (self._call.join(INIT, operation) or self._call.take_unseen(INIT, operation)):
            called_before = TransactionStateError(
                f"{INIT}: it was called before; call it once, or after {PREPARE}()"
            )
            operation.fail(self._refusal(INIT) if self.state is _S.FATAL_ERROR else called_before)
        self._poll_soon(now_ms)

    def begin(self, operation: CallOperation, now_ms: int) -> None:
        if self._call.take_unseen(BEGIN, operation):
            return
        self._take_failure(now_ms)  # of a call between two transactions
        if self._close_deadline_ms != NEVER_MS:
            error = ClosedError("begin_transaction: the producer is closed; create a new one")
            operation.fail(error)
            return
        if self.state is _S.ABORTING and not self._call.waiting_count:
            self._beginning.append(operation)  # the abort goes on after a time-out, say
            return
        if self.state is not _S.READY or self._call.unseen == COMMIT:
            operation.fail(self._refusal(BEGIN))
            return
        self._call.unseen = ""
        self._learn_version()
        self._to(_S.IN_TRANSACTION)
        self._accumulator.resume()
        self._started_ms = now_ms
        operation.succeed(None)

    def prepare(self, operation: CallOperation, now_ms: int) -> None:
        self._take_failure(now_ms)
        if self.state is _S.IN_TRANSACTION:
            self._send_all(PREPARE, _S.PREPARING, operation, now_ms)
        elif self.state is _S.PREPARED:
            self._receiver_count += 1
            operation.succeed(self._prepared())
        else:
            self._join(PREPARE, operation)

    def commit(self, operation: CallOperation, now_ms: int) -> None:
        self._take_failure(now_ms)
        if self.state is _S.IN_TRANSACTION:
            self._send_all(COMMIT, _S.COMMITTING, operation, now_ms)
        elif self.state is _S.PREPARED:
            self._to(_S.COMMIT_REQUESTED)  # all is written, and another process may commit it
            self._call.begin(COMMIT, operation)
            self._accumulator.pause(self._refusal("send"))
            self._poll_soon(now_ms)
        else:
            self._join(COMMIT, operation)

    def abort(self, operation: CallOperation, now_ms: int) -> None:
        if self.state in ABORTING_FROM:
            self._begin_abort(operation, now_ms)
        else:
            self._join(ABORT, operation)

    def send_offsets(
        self,
        offsets: Offsets,
        group: GroupMetadata,
        operation: CallOperation,
        now_ms: int,
    ) -> None:
        self._take_failure(now_ms)
        if self.state is not _S.IN_TRANSACTION:
            operation.fail(self._refusal(SEND_OFFSETS))
            return
        self._call.unseen = ""
        self._offsets.add(group, offsets, operation, now_ms)

    def forget(self, call: str, operation: CallOperation, now_ms: int) -> None:
        """Handle a caller that left a call without its result."""
        if operation in self._beginning:
            self._beginning.remove(operation)
        elif self._call.leave(operation):
            return
        elif operation.is_done and operation.error is None:
            is_last = self.state is (_S.IN_TRANSACTION if call == BEGIN else _S.READY)
            if is_last and call != SEND_OFFSETS:
                self._call.unseen = call
            elif self.state is _S.PREPARED and operation.result() == self._prepared():
                self._receiver_count -= 1

    def left_by(self, error: KafkaError, call: str) -> KafkaError:
        """Return the error of a call that `error`, the producer's end, cut off. Any thread."""
        if call == COMMIT and (self._is_end_uncertain or is_uncertain_end(self._cause)):
            return of_uncertain_end(error)
        if call == COMMIT and self._call.unseen == COMMIT and isinstance(error, ClosedError):
            return ClosedError(f"{error}. The last {COMMIT}() succeeded before that")
        return error

    def describe_wait(self) -> str:
        """Return why a call has not ended. Any thread."""
        error = self.attempt.last_error or self._coordinator.attempt.last_error
        state = f"the state is {self.state.value!r}"
        why = str(error) if error is not None else self._client.describe_failures()
        return f"{state}; {why}" if why else state

    # For the sender.

    @property
    def produce_version_max(self) -> int | None:
        """Maximum version of Produce that does not add partitions by itself, None for no limit."""
        return None if self.is_v2 else PRODUCE_MAX_OF_VERSION_1

    def may_send(self, partition: TopicPartition) -> bool:
        """Return whether a batch may be sent to a partition now; if not, request to add it."""
        if self.state not in SENDING or self._is_identity_due:
            return False
        if self.is_v2 or partition in self._added:
            self.is_started = True
            return True
        self._wanted[partition] = None
        return False

    def _take_failure(self, now_ms: int) -> None:
        """Process the failure of a call that could not append records, if there is one."""
        error = self._accumulator.acceptance.take_failure()
        if error is not None:
            self.on_batch_failed(error, now_ms)

    def on_batch_failed(self, error: KafkaError, now_ms: int | None = None) -> None:
        """Handle records of the transaction that were not, or may not be, written."""
        if isinstance(error, TransactionAbortedError) or self.state is _S.FATAL_ERROR:
            return
        if isinstance(error, FATAL_ERRORS):
            self._fail_for_good(error, self._now_ms if now_ms is None else now_ms)
        elif self.state in SENDING:
            self.make_abortable(error)

    def reported(self, error: KafkaError) -> KafkaError:
        """Return the error for a batch's deliveries: during an abort, the abort.

        It is fatal if it ends the producer, in `on_batch_failed`.
        """
        if isinstance(error, FATAL_ERRORS):
            error.fatal = True
        if self.state not in DROPPING or isinstance(error, TransactionAbortedError):
            return error
        aborted = self._aborted()
        aborted.__cause__ = error
        aborted.fatal = error.fatal
        return aborted

    def on_producer_failed(self, error: KafkaError) -> None:
        """End all calls, since the producer has failed."""
        if self.state is _S.FATAL_ERROR:
            return
        if self._is_end_uncertain:
            error = of_uncertain_end(error)
        self._to(_S.FATAL_ERROR)
        self._cause = error
        self._call.end(error)
        self._offsets.end(error)
        self._end_beginning(error)

    # Closing.

    @property
    def is_settled(self) -> bool:
        """True if a closing producer need not wait for a transaction."""
        return self.state not in OPEN

    def close(self, now_ms: int, deadline_ms: int) -> None:
        """Abort an open transaction until the deadline, also one prepared for no caller."""
        self._close_deadline_ms = min(self._close_deadline_ms, deadline_ms)
        is_left = self.state in (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR)
        if is_left or self._is_prepared_for_nobody:
            self._begin_abort(None, now_ms)

    # Each step.

    def poll(self, now_ms: int) -> PollResult:
        self._now_ms = now_ms
        if self.state in (_S.UNINITIALIZED, _S.FATAL_ERROR):
            return IDLE
        if now_ms >= self._close_deadline_ms:
            self._give_up()
            return IDLE
        self._take_failure(now_ms)
        self._offsets.check_deadline(now_ms)
        is_left = self.state is _S.ABORTABLE_ERROR or self._is_prepared_for_nobody
        if is_left and self._close_deadline_ms != NEVER_MS:
            self._begin_abort(None, now_ms)  # a commit has failed since: no other call comes
        if self.state in DROPPING and self._withdraw(self._aborted(), now_ms):
            return PollResult(next_poll_ms=now_ms)
        if not self.attempt.is_due(now_ms):
            return PollResult(next_poll_ms=min(self.attempt.next_ms, self._deadline_ms))
        state = self.state
        request = self._next_request(now_ms)
        if request is None:
            has_ended = self.state is not state
            return PollResult(next_poll_ms=now_ms if has_ended else self._look_ms(now_ms))
        self.attempt.sent()
        return PollResult((request,), self._deadline_ms)

    @property
    def _deadline_ms(self) -> int:
        """Time of the next deadline: of the close, or of offsets that are being sent."""
        return min(self._close_deadline_ms, self._offsets.deadline_ms)

    def _look_ms(self, now_ms: int) -> int:
        """Return when to check again. An interrupted bulk call may end without a wake-up."""
        if self._accumulator.acceptance.has_bulk_call:
            return min(now_ms + BULK_LOOK_MS, self._deadline_ms)
        return self._deadline_ms

    def _next_request(self, now_ms: int) -> Request | None:
        if self.state is _S.INITIALIZING or self._is_identity_due:
            return self.to_coordinator(self._init_producer_id, now_ms)
        if self.state in SENDING:
            if self._wanted:
                return self.to_coordinator(self._add_partitions, now_ms)
            if not self._offsets.is_empty:
                return self._offsets.next_request(now_ms)
        if self.state is _S.COMMIT_REQUESTED:
            return self.to_coordinator(self._end_txn, now_ms)
        if self.state in (_S.PREPARING, _S.COMMITTING, _S.ABORTING) and self._is_quiet:
            return self._next_of_end(now_ms)
        return None

    def _next_of_end(self, now_ms: int) -> Request | None:
        """End or prepare the transaction, since nothing of it is under way."""
        self._take_failure(now_ms)  # of a bulk call that has ended during this step
        if self.state is _S.ABORTABLE_ERROR:
            return None
        if not self.is_started:
            self._end(now_ms)
            return None
        if self.state is _S.PREPARING:
            self._end_prepare()
            return None
        if self._is_id_expired and self.state is _S.ABORTING:
            return self.to_coordinator(self._init_producer_id, now_ms)
        return self.to_coordinator(self._end_txn, now_ms)

    @property
    def _is_identity_due(self) -> bool:
        """True if the coordinator must assign a new epoch before anything else is sent."""
        return (
            self._new_epoch is not NewEpoch.NOT_NEEDED
            and not self.is_started
            and self.state in (_S.READY, _S.IN_TRANSACTION, _S.PREPARING, _S.COMMITTING)
        )

    @property
    def _is_prepared_for_nobody(self) -> bool:
        """True if no call has returned, or will return, the transaction that is prepared."""
        if self.state is _S.PREPARING:
            return not self._call.waiting_count
        return self.state is _S.PREPARED and self._receiver_count == 0

    @property
    def _is_id_expired(self) -> bool:
        """True if the coordinator has dropped the transactional id, and so has no transaction.

        It then refuses EndTxn, and InitProducerId returns a new producer id. If another producer
        got one before, the coordinator fences this one.
        """
        return isinstance(self._cause, InvalidProducerIdMappingError)

    @property
    def _is_end_uncertain(self) -> bool:
        """True if the transaction may be committed, without a response that says so."""
        return self.state is _S.COMMIT_REQUESTED and self._uncertain_end_count > 0

    @property
    def _is_quiet(self) -> bool:
        """True if no record of the transaction is or can come under way."""
        return (
            self._accumulator.is_empty
            and not self.sequences.has_undecided
            and not self._accumulator.acceptance.has_bulk_call
        )

    def to_coordinator(self, make: Callable[[int], Request], now_ms: int) -> Request | None:
        """Return a request to the coordinator; None while it is unknown."""
        node_id = self._coordinator.node_id_for([self.attempt])
        failure = self._coordinator.failure()
        if failure is not None:
            self._fail_for_good(failure, now_ms)
            return None
        return None if node_id is None else make(node_id)

    def request(
        self,
        message: Message,
        node_id: int,
        response_type: type[ResponseT],
        on_response: Callable[[ResponseT, int], None],
        *,
        max_version: int | None = None,
        check: Callable[[Message], None] | None = None,
        build: Callable[[int], Message] | None = None,
    ) -> Request:
        def receive(response: Message | None, now_ms: int) -> None:
            assert isinstance(response, response_type)
            self.attempt.lost()  # what comes next depends on the response
            if self.state is _S.FATAL_ERROR:
                return
            on_response(response, now_ms)

        return Request(
            message,  # type: ignore[arg-type]
            node_id=node_id,
            on_response=receive,
            on_failure=partial(self._on_failure, type(message)),
            max_version=max_version,
            check=check,
            build=build,  # type: ignore[arg-type]
        )

    # The identity.

    def _init_producer_id(self, node_id: int) -> Request:
        is_new = self.state is _S.INITIALIZING
        producer_id, epoch = NO_IDENTITY if is_new else self.sequences.identity
        message = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            enable2_pc=self._is_two_phase,
        )
        return self.request(
            message,
            node_id,
            InitProducerIdResponse,
            partial(self._on_identity, node_id),
            max_version=TWO_PHASE_COMMIT_VERSION if self._is_two_phase else None,
            check=check_identity,
            build=partial(self._build_init_producer_id, message),
        )

    def _on_identity(self, node_id: int, response: InitProducerIdResponse, now_ms: int) -> None:
        if response.error_code != 0:
            self.on_error(
                error_for_code(response.error_code, self.about("InitProducerId")),
                now_ms,
                node_id,
                is_fatal=True,
            )
            return
        self.attempt.succeeded()
        self._take_identity(ProducerIdentity(response.producer_id, response.producer_epoch), now_ms)
        if self.state is _S.INITIALIZING:
            self._to(_S.READY)
            self._learn_version()
            self._accumulator.pause(self._refusal("send"))
            self._call.end(None)
        elif self.state is _S.ABORTING:
            # There is no transaction to end. But batches may have come while the request was under
            # way: a later step drops them, and then ends.
            self.is_started = False

    def _take_identity(self, identity: ProducerIdentity, now_ms: int) -> None:
        is_same_id = identity.producer_id == self.sequences.identity.producer_id
        self._log.log(
            logging.DEBUG if is_same_id else logging.INFO,
            "transactional_id %r: producer id %d, epoch %d",
            self.transactional_id,
            *identity,
        )
        self.sequences.restart_all(identity)
        self._new_epoch = NewEpoch.NOT_NEEDED
        self._accumulator.look_at_all(now_ms)

    def _build_init_producer_id(
        self, message: InitProducerIdRequest, version: int
    ) -> InitProducerIdRequest:
        is_prepared = self._new_epoch is NewEpoch.PREPARED and self.state is not _S.ABORTING
        if is_prepared and version < NEW_EPOCH_FROM_VERSION:
            # Without the id: any `init_transactions` after `prepare_transaction` gets a new one.
            message = InitProducerIdRequest(
                transactional_id=message.transactional_id,
                transaction_timeout_ms=message.transaction_timeout_ms,
            )
        return build_init_producer_id(message, version)

    def _goes_on_without_epoch(self, kind: type[Message], error: KafkaError) -> bool:
        """Return True if the broker is too old to assign an epoch, and the epoch is optional.

        It only keeps out a late request, against which Java's client does not guard.
        """
        return (
            kind is InitProducerIdRequest
            and isinstance(error, UnsupportedVersionError)
            and self._new_epoch is NewEpoch.LATE_REQUEST
            and self._is_identity_due
        )

    def _need_epoch(self, reason: NewEpoch) -> None:
        self._new_epoch = max(self._new_epoch, reason)

    def _learn_version(self) -> None:
        self.is_v2 = self._client.features.level(FEATURE) >= VERSION_2

    # Partitions (version 1).

    def _add_partitions(self, node_id: int) -> Request:
        partitions = list(self._wanted)
        self.is_started = True
        message = add_partitions(self.transactional_id, self.sequences.identity, partitions)
        return self.request(
            message,
            node_id,
            AddPartitionsToTxnResponse,
            partial(self._on_added, node_id),
            max_version=ADD_PARTITIONS_MAX,
            check=partial(check_added, partitions),
        )

    def _on_added(self, node_id: int, response: AddPartitionsToTxnResponse, now_ms: int) -> None:
        error: KafkaError | None = None
        is_any_added = False
        for partition, code in added(response):
            if code == 0:
                is_any_added = True
                self._added.add(partition)
                self._wanted.pop(partition, None)
                self._accumulator.look_at(partition, now_ms)
            elif code != OperationNotAttemptedError.code and error is None:
                error = error_for_code(
                    code, self.about(f"{partition} could not be added to the transaction")
                )
        if error is not None:
            self.on_error(error, now_ms, node_id, is_fatal=isinstance(error, InvalidTxnStateError))
        elif is_any_added:
            self.attempt.succeeded()
        else:
            not_attempted = OperationNotAttemptedError(self.about("no partition was added"))
            self.attempt.back_off(not_attempted, now_ms)

    # Ending a transaction.

    def _end_txn(self, node_id: int) -> Request:
        if self.state is _S.COMMITTING:
            self._to(_S.COMMIT_REQUESTED)  # from now on it may be committed
        self._uncertain_end_count += 1
        producer_id, epoch = self.sequences.identity
        is_commit = self.state is _S.COMMIT_REQUESTED
        message = EndTxnRequest(self.transactional_id, producer_id, epoch, is_commit)
        return self.request(
            message,
            node_id,
            EndTxnResponse,
            partial(self._on_end, node_id),
            max_version=None if self.is_v2 else END_TXN_MAX_OF_VERSION_1,
            check=check_end,
        )

    def _on_end(self, node_id: int, response: EndTxnResponse, now_ms: int) -> None:
        if response.error_code != 0:
            error: KafkaError = error_for_code(response.error_code, self.about("EndTxn"))
            self._uncertain_end_count -= not isinstance(error, UNCERTAIN_ERRORS)
            is_unknown_there = isinstance(error, InvalidTxnStateError) and not (
                self._added or self._offsets.added_groups or self.is_v2
            )
            if self.state is _S.ABORTING and isinstance(error, InvalidProducerIdMappingError):
                self._cause = error
                return
            if not (is_unknown_there and self.state is _S.ABORTING):
                if self.is_v2 and self.state is _S.COMMIT_REQUESTED and not self._was_prepared:
                    error = of_late_commit(error)
                self.on_error(error, now_ms, node_id, is_fatal=True)
                return
        self.attempt.succeeded()
        # The holder of its `PreparedTransaction` may end it again, and must not end the next one.
        if self._was_prepared:
            self._need_epoch(NewEpoch.PREPARED)
        if response.producer_id >= 0:
            self._take_identity(
                ProducerIdentity(response.producer_id, response.producer_epoch), now_ms
            )
        self._end(now_ms)

    def _end(self, now_ms: int) -> None:
        """Finish the call, since the transaction has ended as requested."""
        self._log.debug("transactional_id %r: %s has ended", self.transactional_id, self._call.name)
        self._to(_S.READY)
        self._reset()
        self._accumulator.pause(self._refusal("send"))
        self._call.end(None)
        beginning, self._beginning = self._beginning, []
        for operation in beginning:
            self.begin(operation, now_ms)
        self._poll_soon(now_ms)

    def _reset(self) -> None:
        self.is_started = self._was_prepared = False
        self._uncertain_end_count = 0
        self._cause = None
        self._added.clear()
        self._offsets.added_groups.clear()
        self._wanted.clear()

    def _end_prepare(self) -> None:
        self._to(_S.PREPARED)
        self._was_prepared = True
        self._accumulator.pause(self._refusal("send"))
        self._receiver_count = self._call.waiting_count
        self._call.end(None, self._prepared())

    def _prepared(self) -> PreparedTransaction:
        version = VERSION_2 if self.is_v2 else VERSION_1
        return PreparedTransaction(self.transactional_id, *self.sequences.identity, version)

    def _begin_abort(self, operation: CallOperation | None, now_ms: int) -> None:
        if self.state is not _S.ABORTABLE_ERROR:
            self._accumulator.pause(self._refusal("send", _S.ABORTING))
        self._to(_S.ABORTING)
        self._call.end(self._refusal(self._call.name))  # of a prepare that has not ended
        self._call.begin(ABORT, operation)
        self._wanted.clear()
        self._offsets.end(self._aborted())
        self._poll_soon(now_ms)

    def _give_up(self) -> None:
        """Stop waiting for the transaction's end, since the close time-out is over."""
        end = f"the coordinator aborts it after transaction_timeout_ms={self._timeout_ms}"
        if self._is_two_phase:
            end = f"it stays open until a producer with the id calls {INIT}()"
        if self.state in OPEN:
            self._log.warning(
                "close: the transaction of transactional_id %r has not ended in time (%s); if it "
                "is not being committed, %s",
                self.transactional_id,
                self.describe_wait(),
                end,
            )
        call = self._call.name or SEND_OFFSETS
        what = f"{call}: the producer was closed before this had ended"
        if call == COMMIT and not (self._is_end_uncertain or self._was_prepared):
            what += f"; nothing of the transaction is committed, and {end}"
        self.on_producer_failed(ClosedError(what))

    # Errors.

    def _on_failure(self, kind: type[Message], error: KafkaError, now_ms: int) -> None:
        """Handle a request that ended without a response."""
        if kind is not InitProducerIdRequest and not error.not_written:
            self._need_epoch(NewEpoch.LATE_REQUEST)
        if self._goes_on_without_epoch(kind, error):
            self._new_epoch = NewEpoch.NOT_NEEDED
            self.attempt.succeeded()
            self._accumulator.look_at_all(now_ms)
            return
        if kind is EndTxnRequest and error.not_written:
            self._uncertain_end_count -= 1
        if self.attempt.failed(error, now_ms) is not None:
            self._fail_for_good(error, now_ms)

    def on_error(
        self, error: KafkaError, now_ms: int, node_id: int | None, *, is_fatal: bool
    ) -> None:
        """Process an error in a response; `is_fatal` applies if nothing else handles it.

        `node_id` is the transaction coordinator's, None for another broker.
        """
        is_confirmed = node_id is None or isinstance(self.attempt.last_error, STALE_ERRORS)
        self.attempt.back_off(error, now_ms)
        if isinstance(error, MOVED_ERRORS):
            if node_id is not None:
                self._coordinator.mark_unknown(node_id, error)
        elif isinstance(error, ConcurrentTransactionsError):
            exponent = min(self.attempt.failure_count - 1, CONCURRENT_BACKOFF_MS_MAX.bit_length())
            self.attempt.due_ms = now_ms + min(2**exponent, CONCURRENT_BACKOFF_MS_MAX)
        elif error.retriable:
            pass
        elif isinstance(error, TransactionAbortableError):
            self._on_abortable(error, now_ms)
        elif isinstance(error, STALE_ERRORS) and not is_confirmed:
            assert node_id is not None
            self._coordinator.doubt(node_id, error)
        elif isinstance(error, FENCED_ERRORS) or is_fatal or isinstance(error, FATAL_ERRORS):
            self._fail_for_good(error, now_ms)
        elif self.state in SENDING:
            self.make_abortable(error)

    def _on_abortable(self, error: TransactionAbortableError, now_ms: int) -> None:
        """Process an error that requires an abort."""
        if self._is_end_uncertain:
            self._fail_for_good(error, now_ms)  # an earlier attempt may have committed it
        elif self.state in (*SENDING, _S.COMMIT_REQUESTED):
            self.make_abortable(error)

    def _on_broken(self, reason: str) -> None:
        """Handle the end of a sequence. A requested commit continues."""
        self._need_epoch(NewEpoch.GAP)
        if self.state in SENDING:
            self.make_abortable(KafkaError(reason))

    def make_abortable(self, cause: KafkaError) -> None:
        """Require the application to abort the transaction, which cannot be committed any more."""
        self._log.warning(
            "transactional_id %r: the transaction must be aborted: %s",
            self.transactional_id,
            cause,
        )
        self._to(_S.ABORTABLE_ERROR)
        self._cause = cause
        self._accumulator.pause(self._refusal("send"))
        self._wanted.clear()
        self._offsets.end(self._refusal(SEND_OFFSETS))
        self._call.end(self._refusal(self._call.name or COMMIT))

    def _fail_for_good(self, error: KafkaError, now_ms: int) -> None:
        """Fail the producer."""
        fatal = explained(
            error,
            self.transactional_id,
            self.sequences.identity,
            timeout_ms=self._timeout_ms,
            open_ms=now_ms - self._started_ms if self.state in OPEN else 0,
            is_uncertain=self._is_end_uncertain,
            was_prepared=self._was_prepared,
            is_two_phase=self._is_two_phase,
        )
        self.on_producer_failed(fatal)
        self._on_fatal(fatal, now_ms)

    def _refusal(self, call: str, state: TransactionState | None = None) -> KafkaError:
        return refusal(
            call,
            state or self.state,
            cause=self._cause,
            is_commit_unseen=self._call.unseen == COMMIT,
        )

    def _aborted(self) -> TransactionAbortedError:
        error = TransactionAbortedError("the transaction was aborted before this was sent")
        error.__cause__ = self._cause
        return error

    # Calls under way.

    def _send_all(
        self, call: str, state: TransactionState, operation: CallOperation, now_ms: int
    ) -> None:
        """Begin a call that accepts no more records, and sends all there are."""
        self._to(state)
        self._call.begin(call, operation)
        self._accumulator.pause(self._refusal("send"))
        self._accumulator.look(now_ms)
        self._accumulator.look_at_all(now_ms)

    def _join(self, call: str, operation: CallOperation) -> None:
        """Make an operation wait for the call under way, or report an end that was not seen.

        Fail the operation if neither is this call.
        """
        if not (self._call.join(call, operation) or self._call.take_unseen(call, operation)):
            operation.fail(self._refusal(call))

    def _end_beginning(self, error: KafkaError) -> None:
        while self._beginning:
            self._beginning.pop().fail(error)

    def _poll_soon(self, now_ms: int) -> None:
        """Skip the back-off in the next step."""
        self.attempt.due_ms = min(self.attempt.due_ms, now_ms)

    def about(self, what: str) -> str:
        return f"transactional_id {self.transactional_id!r}: {what}"

    def _to(self, state: TransactionState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state
