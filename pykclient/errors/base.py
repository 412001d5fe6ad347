"""The tree of errors that this library raises.

Every error is a `KafkaError`. Attributes say what a caller may do about it: `retriable` (the same
call may succeed later), `refresh_metadata` (our view of the cluster was stale), `fatal` (the client
can do nothing more: close it and make another), `is_refusal` (a connection ended so: another
attempt at that address does not help until somebody changes something) and `not_written` (nothing
of a batch whose request ended so is in the log; after any other error it may be). They are
attributes rather than base classes because one error is often several of these at once. All that
are retriable, and no others, are also a `RetriableError`, for applications to catch; among them are
most of `BrokerError` and those marked with a star.

`fatal` belongs to the error that a client raised, not to its class alone: the same refusal ends a
producer that cannot go on without what was refused, and no other client. It is set where a client
ends. An error that the client retries by itself, or that a later call may get past, is never fatal.

    KafkaError
    |- ConfigError                    a bad or unknown setting, before anything is opened
    |- UsageError                     the caller's fault
    |  |- ClosedError, ConcurrentModificationError, NotSubscribedError,
    |  |- NoOffsetForPartitionError, TransactionStateError, ForkedClientError,
    |  '- UnsupportedVersionError
    |- WakeupError                    poll was woken on purpose
    |- RebalanceListenerError         a rebalance listener of the application failed
    |- EncodeError                    we cannot write it
    |  '- RecordTooLargeError, SerializationError
    |- DecodeError                    the bytes are wrong
    |  '- CorruptRecordError, FrameTooLargeError, RecordDeserializationError
    |- RetriableError                 the same call may succeed later
    |- BufferExhaustedError *         no memory within max_block_ms
    |- BatchDeliveryError             part of a send_batch failed
    |- TransactionAbortedError        the transaction of a record was aborted
    |- PurgedError                    a record was given up by Producer.purge
    |- ConnectionFailedError *        no connection, or it was lost
    |  '- DisconnectedError *
    |- TlsError, AuthenticationError  no connection, and trying again does not help
    |- ClusterMismatchError           another cluster is at the address of this client's one
    |- GroupRebalancedError           the group did not take offsets: it rebalances, or has done so
    |  |- CommitFailedError           ... and will not take them
    |  '- RebalanceInProgressError    ... and may, after a poll (a `BrokerError` as well)
    |- AdminCallError                 several of the things that one admin call requested failed
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
"""How many characters a message has of what an exception says."""


class KafkaError(Exception):
    """Base of every error that this library raises.

    It can be pickled and copied, with its attributes and its cause.
    """

    retriable: ClassVar[bool] = False
    refresh_metadata: ClassVar[bool] = False
    fatal: bool = False
    """True if the client that raised it can do nothing more: close it and make another."""
    is_refusal: ClassVar[bool] = False
    not_written: ClassVar[bool] = False

    def __reduce__(self) -> tuple[object, ...]:
        """Say how it is made anew, in another process or as a copy.

        Python would call its class with `args`, and forget its cause. Errors of ours need more than
        their message, so they are built without `__init__`. A cause that cannot be pickled, as an
        error of the application's may be, is replaced by a `KafkaError` that says the same.
        """
        state = {
            **vars(self),
            "__cause__": _cause_to_pickle(self.__cause__),
            "__suppress_context__": self.__suppress_context__,
        }
        return remade, (type(self), self.args), state


class RetriableError(KafkaError):
    """The same call may succeed when it is tried again.

    What `poll` raises of this kind has changed nothing: polling again is all that a service needs
    to do. A record whose delivery failed so (`DeliveryTimeoutError`) is given up, but may be in the
    log all the same: sending it again may double it. Java has a class of this meaning,
    ``RetriableException``.
    """

    retriable = True


class ConfigError(KafkaError, ValueError):
    """A setting is unknown, malformed, out of range, or not built yet. Nothing was opened."""


class UsageError(KafkaError):
    """The caller did what the interface does not allow."""


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
    """A record or offset was not sent, or not to the end, since its transaction was aborted.

    The cause is what made the abort necessary; there is none where the application chose to abort.
    """


class ForkedClientError(UsageError):
    """The client was made in another process; make a new one after a fork."""

    fatal = True


class UnsupportedVersionError(UsageError):
    """Broker and client have no version of an API in common, or a field needs a newer one."""

    is_refusal = True
    not_written = True


class WakeupError(KafkaError):
    """`Consumer.wakeup` interrupted this call."""


class RebalanceListenerError(KafkaError):
    """A rebalance listener raised an exception, which is the cause of this one.

    The rebalance went on, and the consumer can be used.
    """


class EncodeError(KafkaError):
    """A value cannot be written as the protocol wants it."""


class RecordTooLargeError(EncodeError):
    """The record exceeds `max_request_size` or `buffer_memory`."""


class SerializationError(EncodeError):
    """A serializer failed, or returned something that is not bytes."""


class DecodeError(KafkaError):
    """Bytes from a broker do not have the form they must have.

    The message is cut, since it may have names by the broker in it.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message, MESSAGE_LENGTH_MAX))


class CorruptRecordError(DecodeError):
    """A record batch is malformed or its checksum is wrong.

    `topic`, `partition` and `offset` are where; they are None while only bytes are known.
    `next_offset` is the offset after the batch, None if that is not known; `raw` is the batch as it
    came, with whatever follows it where its end is not known, and None outside a consumer.
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

    `topic`, `partition`, `offset` and `timestamp_ms` name the record; `key` and `value` are its
    raw bytes (None = null) and `headers` its headers. `next_offset` is the offset after it. What
    the deserializer raised is the cause.
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
    """Records of a `send_batch` or `send_arrow` failed, some or all.

    `sent` and `failed` hold ranges of indexes in what was given, in ascending order; together they
    have every index once. `errors` has the reason of each range in `failed`.
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
    """A record was given up since the application called `Producer.purge`.

    `may_be_written` says whether it may be in the log all the same: it was in flight, or an attempt
    before had no response.
    """

    def __init__(self, message: str, *, may_be_written: bool) -> None:
        super().__init__(message)
        self.may_be_written = may_be_written


class GroupRebalancedError(KafkaError):
    """A group did not take offsets: it distributes its partitions anew, or has done so."""


class CommitFailedError(GroupRebalancedError):
    """A group did not take offsets, and trying again would not help: others read there by now."""


class AdminCallError(KafkaError):
    """Several of the things that one admin call requested failed; the others were done.

    `errors` has the error of each that failed, by its name.
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
    """TLS could not be agreed on: a certificate that one side does not accept, for one."""

    refresh_metadata = True
    is_refusal = True


class AuthenticationError(KafkaError):
    """The broker refused who we say we are."""

    refresh_metadata = True
    is_refusal = True


class ClusterMismatchError(KafkaError):
    """Another cluster is at an address where this client has known a broker of its own cluster.

    Addresses are reused, by container platforms and tunnels. A client belongs to the cluster that
    it reached first, by the cluster id of Metadata responses, and sends nothing to another one. It
    goes on looking for its own; to use the other one, make a new client. `expected_cluster_id` and
    `found_cluster_id` are the two. Brokers from Kafka 4.4 on compare themselves with the cluster
    and the broker that the client means (KIP-1242). They do not say which they are: then
    `found_cluster_id` is empty.
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
    """A call's time ran out; the message says what it waited for, and how many milliseconds."""


class DeliveryTimeoutError(KafkaTimeoutError):
    """A record could not be delivered within `delivery_timeout_ms`.

    It is given up, but may be in the log all the same: sending it again may double it.
    """


class BrokerError(KafkaError):
    """An error code from a broker. `code` and `name` are Kafka's own."""

    code: int = -1
    name: str = "UNKNOWN_SERVER_ERROR"


def describe_cause(cause: BaseException) -> str:
    """Return the type of what the application's code raised, and the beginning of what it says.

    Not its `repr`: that of a UnicodeError has the whole value in it, and messages end up in logs.
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

    # One that can be written may still fail to be read: its class is called with `args`.
    try:
        return type(pickle.loads(pickle.dumps(cause))) is type(cause)  # noqa: S301
    except Exception:  # noqa: BLE001 - the application's class may raise anything
        return False
