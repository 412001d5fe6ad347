"""The tree of errors that this library raises.

Every error is a `KafkaError`. Attributes say how a caller may react: `retriable` (the same call may
succeed later), `refresh_metadata` (the client's metadata was stale), `fatal` (the client is
unusable: close it and make a new one), `is_refusal` (the connection was refused: a retry at that
address does not help until something changes) and `not_written` (no record of the request's batch
is in the log; after any other error, records may be). They are attributes and not base classes
because one error often has several of them. All retriable errors, and no others, are also a
`RetriableError`, for applications to catch; they include most of `BrokerError` and those marked
with a star.

`fatal` belongs to the error that a client raised, not to its class: the same refusal ends a
producer that depends on the refused request, but no other client. It is set where a client ends. An
error that the client retries, or that a later call may overcome, is never fatal.

    KafkaError
    |- ConfigError                    a bad or unknown setting, before anything is opened
    |- UsageError                     the caller's mistake
    |  |- ClosedError, ConcurrentModificationError, NotSubscribedError,
    |  |- NoOffsetForPartitionError, TransactionStateError, ForkedClientError,
    |  '- UnsupportedVersionError
    |- WakeupError                    `wakeup` interrupted a poll
    |- RebalanceListenerError         a rebalance listener of the application failed
    |- EncodeError                    a value cannot be encoded
    |  '- RecordTooLargeError, SerializationError
    |- DecodeError                    bytes are malformed
    |  '- CorruptRecordError, FrameTooLargeError, RecordDeserializationError
    |- RetriableError                 the same call may succeed later
    |- BufferExhaustedError *         no memory within max_block_ms
    |- BatchDeliveryError             some records of a send_batch failed
    |- TransactionAbortedError        the transaction of a record was aborted
    |- PurgedError                    Producer.purge dropped a record
    |- ConnectionFailedError *        no connection, or it was lost
    |  '- DisconnectedError *
    |- TlsError, AuthenticationError  no connection, and a retry does not help
    |- ClusterMismatchError           another cluster is at an address of this client's cluster
    |- GroupRebalancedError           the group rebalances, or has done so: offsets not committed
    |  |- CommitFailedError           ... and they cannot be committed
    |  '- RebalanceInProgressError    ... and may be after a poll (a `BrokerError` as well)
    |- AdminCallError                 several items of one admin call failed
    |- KafkaTimeoutError *            says what it waited for and how long
    |  '- DeliveryTimeoutError *
    '- BrokerError                    one subclass per code in errors/broker.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from pykclient.errors.text import MESSAGE_LENGTH_MAX, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AdminCallError",
    "AuthenticationError",
    "BatchDeliveryError",
    "BrokerError",
    "BufferExhaustedError",
    "ClosedError",
    "ClusterMismatchError",
    "CommitFailedError",
    "ConcurrentModificationError",
    "ConfigError",
    "ConnectionFailedError",
    "CorruptRecordError",
    "DecodeError",
    "DeliveryTimeoutError",
    "DisconnectedError",
    "EncodeError",
    "ForkedClientError",
    "FrameTooLargeError",
    "GroupRebalancedError",
    "KafkaError",
    "KafkaTimeoutError",
    "NoOffsetForPartitionError",
    "NotSubscribedError",
    "PurgedError",
    "RebalanceListenerError",
    "RecordDeserializationError",
    "RecordTooLargeError",
    "RetriableError",
    "SerializationError",
    "TlsError",
    "TransactionAbortedError",
    "TransactionStateError",
    "UnsupportedVersionError",
    "UsageError",
    "WakeupError",
]


ErrorT = TypeVar("ErrorT", bound=BaseException)

CAUSE_LENGTH_MAX: Final = 200
"""Maximum number of characters that a message shows of an exception's text."""


class KafkaError(Exception):
    """Base class of every error that this library raises.

    It can be pickled and copied, with its attributes and its cause.
    """

    retriable: ClassVar[bool] = False
    refresh_metadata: ClassVar[bool] = False
    fatal: bool = False
    """True if the client that raised it is unusable: close it and make a new one."""
    is_refusal: ClassVar[bool] = False
    not_written: ClassVar[bool] = False

    def __reduce__(self) -> tuple[object, ...]:
        """Return how to rebuild the error in another process or as a copy.

        Python would call the class with `args`, and drop the cause. Our errors need more than their
        message, so they are built without `__init__`. A cause that cannot be pickled, as an
        application's error may be, is replaced by a `KafkaError` with the same text.
        """
        state = {
            **vars(self),
            "__cause__": _cause_to_pickle(self.__cause__),
            "__suppress_context__": self.__suppress_context__,
        }
        return remade, (type(self), self.args), state


class RetriableError(KafkaError):
    """The same call may succeed when it is retried.

    If `poll` raises such an error, nothing has changed: a service only needs to poll again. If a
    delivery fails with one (`DeliveryTimeoutError`), the record is dropped but may be in the log:
    sending it again may duplicate it. Java's ``RetriableException`` has the same meaning.
    """

    retriable = True


class ConfigError(KafkaError, ValueError):
    """A setting is unknown, malformed, out of range, or not supported yet. Nothing was opened."""


class UsageError(KafkaError):
    """The caller did something that the interface does not allow."""


class ClosedError(UsageError):
    """The client was closed."""

    fatal = True


class ConcurrentModificationError(UsageError):
    """A second thread called a consumer that another thread is using."""


class NotSubscribedError(UsageError):
    """The consumer has neither a subscription nor an assignment."""


class NoOffsetForPartitionError(UsageError):
    """A partition has no position and `auto_offset_reset` is ``none``."""


class TransactionStateError(UsageError):
    """The call does not fit the transaction's state."""


class TransactionAbortedError(KafkaError):
    """A record or offset was not sent, or not completely, because its transaction was aborted.

    The cause is the reason of the abort; None if the application chose to abort.
    """


class ForkedClientError(UsageError):
    """The client was made in another process; make a new one after a fork."""

    fatal = True


class UnsupportedVersionError(UsageError):
    """Broker and client share no version of an API, or a field needs a newer one."""

    is_refusal = True
    not_written = True


class WakeupError(KafkaError):
    """`Consumer.wakeup` interrupted this call."""


class RebalanceListenerError(KafkaError):
    """A rebalance listener raised an exception, which is the cause of this one.

    The rebalance continued, and the consumer stays usable.
    """


class EncodeError(KafkaError):
    """A value cannot be encoded in the protocol's format."""


class RecordTooLargeError(EncodeError):
    """The record exceeds `max_request_size` or `buffer_memory`."""


class SerializationError(EncodeError):
    """A serializer failed, or returned something that is not bytes."""


class DecodeError(KafkaError):
    """Bytes from a broker are malformed.

    The message is cut, since it may contain names chosen by the broker.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message, MESSAGE_LENGTH_MAX))


class CorruptRecordError(DecodeError):
    """A record batch is malformed or its checksum is wrong.

    `topic`, `partition` and `offset` are its location; None while only bytes are known.
    `next_offset` is the offset after the batch, None if unknown. `raw` is the batch as received,
    followed by more bytes if its end is unknown; None outside a consumer.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        next_offset: int | None = None,
        raw: bytes | None = None,
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset
        self.raw = raw


class FrameTooLargeError(DecodeError):
    """A frame's length is negative or beyond the limit; nothing was allocated for it."""


class RecordDeserializationError(DecodeError):
    """A deserializer failed on one record, whose raw bytes are kept here.

    `topic`, `partition`, `offset` and `timestamp_ms` identify the record; `key` and `value` are its
    raw bytes (None = null) and `headers` its headers. `next_offset` is the offset after it. The
    deserializer's exception is the cause.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = offset + 1
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = headers


class BufferExhaustedError(RetriableError):
    """No memory became free in time, or waiting for it would block the sender thread itself."""


class BatchDeliveryError(KafkaError):
    """Some or all records of a `send_batch` or `send_arrow` failed.

    `sent` and `failed` hold ranges of indexes of the arguments, in ascending order; together they
    contain every index once. `errors` has the reason of each range in `failed`.
    """

    def __init__(
        self,
        message: str,
        *,
        sent: tuple[range, ...],
        failed: tuple[range, ...],
        errors: tuple[KafkaError, ...],
    ) -> None:
        super().__init__(message)
        self.sent = sent
        self.failed = failed
        self.errors = errors


class PurgedError(KafkaError):
    """A record was dropped because the application called `Producer.purge`.

    `may_be_written` is True if it may be in the log: it was in flight, or an earlier attempt got no
    response.
    """

    def __init__(self, message: str, *, may_be_written: bool) -> None:
        super().__init__(message)
        self.may_be_written = may_be_written


class GroupRebalancedError(KafkaError):
    """A group did not commit offsets because it is rebalancing, or has rebalanced."""


class CommitFailedError(GroupRebalancedError):
    """A group did not commit offsets; a retry would not help, since others have the partitions."""


class AdminCallError(KafkaError):
    """Several items of one admin call failed; the others succeeded.

    `errors` has the error of each failed item, by its name.
    """

    def __init__(self, message: str, *, errors: Mapping[str, KafkaError]) -> None:
        super().__init__(message)
        self.errors = errors


class ConnectionFailedError(RetriableError):
    """A connection to a broker could not be made."""

    refresh_metadata = True


class DisconnectedError(ConnectionFailedError):
    """The connection ended before the response came."""


class TlsError(KafkaError):
    """TLS failed, for example because one side does not accept a certificate."""

    refresh_metadata = True
    is_refusal = True


class AuthenticationError(KafkaError):
    """The broker refused the client's identity."""

    refresh_metadata = True
    is_refusal = True


class ClusterMismatchError(KafkaError):
    """Another cluster is at an address where this client knew a broker of its own cluster.

    Container platforms and tunnels reuse addresses. A client belongs to the cluster that it reached
    first, by the cluster id in Metadata responses, and sends nothing to another one. It keeps
    looking for its own cluster; to use the other one, make a new client. `expected_cluster_id` and
    `found_cluster_id` are the two ids. Brokers from Kafka 4.4 on check the cluster and broker that
    the client expects (KIP-1242) without naming their own; `found_cluster_id` is then empty.
    """

    refresh_metadata = True
    is_refusal = True
    not_written = True

    def __init__(
        self, message: str, *, expected_cluster_id: str = "", found_cluster_id: str = ""
    ) -> None:
        super().__init__(message)
        self.expected_cluster_id = expected_cluster_id
        self.found_cluster_id = found_cluster_id


class KafkaTimeoutError(RetriableError, TimeoutError):
    """A call timed out; the message says what it waited for, and for how many milliseconds."""


class DeliveryTimeoutError(KafkaTimeoutError):
    """A record could not be delivered within `delivery_timeout_ms`.

    It is dropped, but may be in the log: sending it again may duplicate it.
    """


class BrokerError(KafkaError):
    """An error code from a broker. `code` and `name` are Kafka's."""

    code: int = -1
    name: str = "UNKNOWN_SERVER_ERROR"


def describe_cause(cause: BaseException) -> str:
    """Return the type of an exception of application code, and the beginning of its text.

    The `repr` is not used: a UnicodeError's contains the whole value, and messages end up in logs.
    """
    said = str(cause)[:CAUSE_LENGTH_MAX]
    name = type(cause).__name__
    return f"{name}: {said}" if said else name


def remade(kind: type[ErrorT], args: tuple[object, ...]) -> ErrorT:
    """Return an error with its arguments; pickle sets its attributes afterwards."""
    error = kind.__new__(kind, *args)
    error.args = args
    return error


def _cause_to_pickle(cause: BaseException | None) -> BaseException | None:
    if cause is None or isinstance(cause, KafkaError) or _can_be_pickled(cause):
        return cause
    return KafkaError(describe_cause(cause))


def _can_be_pickled(cause: BaseException) -> bool:
    # Imported here: few programs need it, and it takes its share of the import budget.
    import pickle

    # An error that can be pickled may still fail to unpickle: its class is called with `args`.
    try:
        return type(pickle.loads(pickle.dumps(cause))) is type(cause)  # noqa: S301
    except Exception:  # noqa: BLE001 - the application's class may raise anything
        return False
