"""Errors: what each is, how it crosses to another process, and those of brokers' codes."""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

import pytest

from pykclient import errors
from pykclient.errors import BrokerError, KafkaError, base, broker, error_for_code
from pykclient.errors.base import CAUSE_LENGTH_MAX, describe_cause, remade
from pykclient.errors.text import TEXT_LENGTH_MAX, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TREE = {
    base.KafkaError: (
        *("ConfigError", "UsageError", "WakeupError", "RebalanceListenerError"),
        *("GroupRebalancedError", "EncodeError", "DecodeError", "RetriableError"),
        *(
            "BatchDeliveryError",
            "PurgedError",
            "TransactionAbortedError",
            "TlsError",
            "AuthenticationError",
            "AdminCallError",
            "BrokerError",
            "ClusterMismatchError",
        ),
    ),
    base.RetriableError: ("BufferExhaustedError", "ConnectionFailedError", "KafkaTimeoutError"),
    base.UsageError: (
        *("ClosedError", "ConcurrentModificationError", "NotSubscribedError", "ForkedClientError"),
        *("NoOffsetForPartitionError", "TransactionStateError", "UnsupportedVersionError"),
    ),
    base.GroupRebalancedError: ("CommitFailedError",),
    base.EncodeError: ("RecordTooLargeError", "SerializationError"),
    base.DecodeError: ("CorruptRecordError", "FrameTooLargeError", "RecordDeserializationError"),
    base.ConnectionFailedError: ("DisconnectedError",),
    base.KafkaTimeoutError: ("DeliveryTimeoutError",),
}


def test_each_error_stands_at_its_place_in_the_tree() -> None:
    parents = {name: getattr(errors, name).__bases__[0] for name in base.__all__}
    del parents["KafkaError"]
    assert parents == {name: parent for parent, names in TREE.items() for name in names}


def test_only_what_ends_every_client_that_raises_it_is_fatal_by_its_class() -> None:
    """Other errors that end a client get `fatal` set where that happens; retried ones never do."""
    named: list[object] = [getattr(errors, name) for name in errors.__all__]
    kinds = [k for k in named if isinstance(k, type) and issubclass(k, KafkaError)]
    assert {kind.__name__ for kind in kinds if kind.fatal} == {
        *("ClosedError", "ForkedClientError"),
        *("FencedInstanceIdError", "ProducerFencedError", "UnreleasedInstanceIdError"),
    }
    assert not [kind for kind in kinds if kind.fatal and (kind.retriable or kind.is_refusal)]
    refusals = {kind for kind in kinds if kind.is_refusal}
    assert refusals >= {
        *(errors.TlsError, errors.AuthenticationError, errors.ClusterMismatchError),
        *(errors.UnsupportedVersionError, errors.SaslAuthenticationFailedError),
    }


def test_an_error_that_ended_its_client_is_still_fatal_as_a_copy() -> None:
    error = errors.ClusterAuthorizationFailedError("refused")
    assert not error.fatal
    error.fatal = True
    assert pickle.loads(pickle.dumps(error)).fatal
    assert not errors.ClusterAuthorizationFailedError("refused").fatal


@pytest.mark.parametrize(
    ("kind", "parent"),
    [
        (errors.ConfigError, ValueError),
        (errors.DeliveryTimeoutError, TimeoutError),
        (errors.BrokerUnsupportedVersionError, errors.UnsupportedVersionError),
        (errors.LogTruncationError, errors.OffsetOutOfRangeError),
    ],
)
def test_an_error_is_caught_like_what_it_is_a_kind_of(
    kind: type[Exception], parent: type[Exception]
) -> None:
    assert issubclass(kind, parent)


def test_a_truncated_log_is_an_offset_out_of_range_with_the_diverging_offset() -> None:
    error = errors.LogTruncationError("cut", topic="t", partition=0, offset=5, diverging_offset=3)
    assert (error.code, error.offset, error.diverging_offset) == (1, 5, 3)
    assert not error.retriable


def test_both_ways_in_which_a_rebalance_ends_a_commit_have_one_parent() -> None:
    for kind in (errors.CommitFailedError, errors.RebalanceInProgressError):
        assert issubclass(kind, errors.GroupRebalancedError)
    assert issubclass(errors.RebalanceInProgressError, errors.BrokerError)


SECRET = b"\xffa secret that belongs in no log"


def test_a_value_that_could_not_be_decoded_is_not_in_the_error() -> None:
    with pytest.raises(UnicodeDecodeError) as raised:
        SECRET.decode()
    assert "secret" in repr(raised.value)
    assert "secret" not in describe_cause(raised.value)
    assert "can't decode byte 0xff in position 0" in describe_cause(raised.value)


@pytest.mark.parametrize(
    ("text", "described"),
    [("no twos", ": no twos"), ("", ""), ("x" * 10_000, ": " + "x" * CAUSE_LENGTH_MAX)],
)
def test_it_has_the_type_and_the_beginning_of_the_text(text: str, described: str) -> None:
    assert describe_cause(ValueError(*filter(None, [text]))) == f"ValueError{described}"


PLACE = {"topic": "t", "partition": 3, "offset": 7}
FIELDS: dict[str, dict[str, object]] = {
    "AdminCallError": {"errors": {"t": errors.InvalidTopicError("bad name")}},
    "BatchDeliveryError": {
        "sent": (range(2),),
        "failed": (range(2, 5),),
        "errors": (errors.DeliveryTimeoutError("late"),),
    },
    "CorruptRecordError": {**PLACE, "next_offset": 9, "raw": b"\x00\xff"},
    "PurgedError": {"may_be_written": True},
    "LogTruncationError": {**PLACE, "diverging_offset": None},
    "RecordDeserializationError": {
        **PLACE,
        "timestamp_ms": 1_700_000_000_000,
        "key": None,
        "value": b"\xff",
        "headers": (("trace", b"\x01"),),
    },
}
"""Arguments that some constructors need beside the message."""


def every_class(kind: type[KafkaError] = KafkaError) -> Iterator[type[KafkaError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__.startswith("pykclient.errors"):
            yield from every_class(child)


CLASSES = sorted(set(every_class()), key=lambda kind: kind.__name__)


def test_an_error_is_retriable_if_its_class_says_so_in_both_ways() -> None:
    by_class = {kind for kind in CLASSES if issubclass(kind, errors.RetriableError)}
    assert by_class == {kind for kind in CLASSES if kind.retriable}
    assert {errors.KafkaTimeoutError, errors.UnknownTopicOrPartitionError} <= by_class
    assert {errors.AuthenticationError, errors.CommitFailedError}.isdisjoint(by_class)


WAYS: list[Callable[[KafkaError], KafkaError]] = [
    *(
        lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ),
    copy.copy,
    copy.deepcopy,
]


def content_of(error: BaseException | None) -> object:
    """All attributes of an error, in a form that can be compared."""
    if error is None:
        return None
    fields = {
        name: [content_of(item) for item in value]
        if isinstance(value, tuple) and value and isinstance(value[0], KafkaError)
        else {key: content_of(item) for key, item in value.items()}
        if isinstance(value, dict)
        else value
        for name, value in vars(error).items()
    }
    suppressed = error.__suppress_context__
    return type(error), error.args, str(error), fields, content_of(error.__cause__), suppressed


def made(kind: type[KafkaError]) -> KafkaError:
    return kind("topic t-3: what, where, how to cure", **FIELDS.get(kind.__name__, {}))


def raised(error: KafkaError) -> KafkaError:
    """Return an error as an application catches it: with a cause, a note and a traceback."""
    try:
        try:
            raise OSError(111, "Connection refused")
        except OSError as cause:
            raise errors.ConnectionFailedError("no connection to b1:9092") from cause
    except errors.ConnectionFailedError as cause:
        try:
            raise error from cause
        except KafkaError as caught:
            caught.add_note("while importing file 7")
            return caught


def test_every_public_error_is_among_those_that_are_tried() -> None:
    named = {getattr(errors, name) for name in errors.__all__}
    assert {kind for kind in named if isinstance(kind, type)} <= set(CLASSES)
    assert len(CLASSES) > 150


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_comes_back_with_all_its_attributes(kind: type[KafkaError]) -> None:
    error = raised(made(kind))
    for way in WAYS:
        assert content_of(way(error)) == content_of(error)


def test_a_broker_code_that_is_not_known_comes_back_with_its_code() -> None:
    error = errors.error_for_code(4_711, "t-0")
    found = pickle.loads(pickle.dumps(error))
    assert (found.code, found.name) == (4_711, "UNKNOWN_CODE_4711")


class OddError(Exception):
    """An application's error that is written but cannot be read: it is called with one argument."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


class LockedError(Exception):
    """An application's error that cannot be written."""

    def __init__(self) -> None:
        super().__init__("has a lock")
        self.lock = threading.Lock()


@pytest.mark.parametrize("cause", [OddError("a", "b"), LockedError()])
def test_a_cause_that_cannot_be_pickled_is_replaced_by_its_message(cause: Exception) -> None:
    error = errors.SerializationError("value_serializer failed")
    error.__cause__ = cause
    found = pickle.loads(pickle.dumps(error))
    assert type(found.__cause__) is KafkaError
    assert str(found.__cause__) == f"{type(cause).__name__}: {cause}"


def test_causes_that_go_round_come_back_going_round() -> None:
    error = KafkaError("a")
    error.__cause__ = KafkaError("b")
    error.__cause__.__cause__ = error
    found = pickle.loads(pickle.dumps(error))
    assert found.__cause__.__cause__ is found


def test_an_error_without_a_cause_keeps_its_context_shown() -> None:
    assert not pickle.loads(pickle.dumps(KafkaError("a"))).__suppress_context__


def test_an_error_made_with_a_number_keeps_it() -> None:
    error = remade(errors.KafkaTimeoutError, (110, "timed out"))
    assert pickle.loads(pickle.dumps(error)).args == (110, "timed out")


def fail(kind_name: str) -> None:
    """Fail as a function in a worker process."""
    raise raised(made(getattr(errors, kind_name)))


def test_errors_cross_from_worker_processes() -> None:
    names = ["RecordDeserializationError", "BatchDeliveryError", "AdminCallError", "KafkaError"]
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        for name in names:
            expected = made(getattr(errors, name))
            caught = pool.submit(fail, name).exception()
            assert isinstance(caught, KafkaError)
            assert (type(caught), caught.args) == (type(expected), expected.args)
            del caught.__notes__  # the pool has its own cause: the worker's traceback as text
            caught.__cause__ = None
            caught.__suppress_context__ = False
            assert content_of(caught) == content_of(expected)
    with context.Pool(1) as workers, pytest.raises(errors.LogTruncationError) as raised_here:
        workers.apply(fail, ("LogTruncationError",))
    assert raised_here.value.offset == 7


CODES = sorted(
    getattr(broker, name).code for name in broker.__all__ if name != error_for_code.__name__
)


def test_every_code_from_minus_one_has_one_class() -> None:
    assert [-1, *range(1, max(CODES) + 1)] == CODES


def test_each_code_gives_its_error() -> None:
    for code in CODES:
        error = error_for_code(code)
        assert isinstance(error, BrokerError)
        assert error.code == code
        assert str(error).startswith(f"{error.name} (error code {code}): ")
        assert "\n" not in str(error)
        assert len(type(error).__doc__ or "") > 0


@pytest.mark.parametrize(
    ("code", "kind", "flags"),
    [
        (1, errors.OffsetOutOfRangeError, ""),
        (2, errors.CorruptMessageError, "retriable"),
        (3, errors.UnknownTopicOrPartitionError, "retriable refresh_metadata"),
        (6, errors.NotLeaderOrFollowerError, "retriable refresh_metadata"),
        (7, errors.RequestTimedOutError, "retriable"),
        (10, errors.MessageTooLargeError, ""),
        (13, errors.NetworkError, "retriable refresh_metadata"),
        (15, errors.CoordinatorNotAvailableError, "retriable"),
        (29, errors.TopicAuthorizationFailedError, ""),
        (35, errors.BrokerUnsupportedVersionError, "is_refusal"),
        (47, errors.InvalidProducerEpochError, ""),
        (56, errors.KafkaStorageError, "retriable refresh_metadata"),
        (58, errors.SaslAuthenticationFailedError, "is_refusal"),
        (82, errors.FencedInstanceIdError, "fatal"),
        (90, errors.ProducerFencedError, "fatal"),
        (-1, errors.UnknownServerError, ""),
    ],
)
def test_flags_show_what_may_be_done(code: int, kind: type[BrokerError], flags: str) -> None:
    error = error_for_code(code)
    assert type(error) is kind
    names = ("retriable", "refresh_metadata", "fatal", "is_refusal")
    assert [name for name in names if getattr(error, name)] == flags.split()


def test_message_of_the_broker_stands_before_the_explanation() -> None:
    error = error_for_code(36, "Topic 'a' already exists.")
    assert str(error) == (
        "TOPIC_ALREADY_EXISTS (error code 36): Topic 'a' already exists."
        " There is a topic with this name. Use it as it is, delete it first, or choose another name"
    )


def test_unknown_code_is_an_error_that_names_it() -> None:
    error = error_for_code(9999, "topic t")
    assert type(error) is BrokerError
    assert error.code == 9999
    assert error.name == "UNKNOWN_CODE_9999"
    assert str(error) == "error code 9999, which this client does not know: topic t"
    assert not error.retriable
    assert BrokerError.code == -1


def test_no_error_is_no_error() -> None:
    with pytest.raises(AssertionError):
        error_for_code(0)


def test_what_a_broker_says_is_cut_and_stays_on_one_line() -> None:
    assert printable("a plain reason") == "a plain reason"
    assert printable("a\nERROR forged \x1b[2J\u202e") == "a\\nERROR forged \\x1b[2J\\u202e"
    assert printable("x" * TEXT_LENGTH_MAX) == "x" * TEXT_LENGTH_MAX
    assert printable("x" * 10_000_000) == "x" * TEXT_LENGTH_MAX + "..."
    assert len(str(error_for_code(3, "m\n" * 1_000_000))) < 2 * TEXT_LENGTH_MAX
    assert len(printable("\U000e0001" * TEXT_LENGTH_MAX)) == TEXT_LENGTH_MAX + len("...")
    assert "\n" not in str(error_for_code(3, "a\nb"))
