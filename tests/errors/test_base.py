"""The tree of errors: what each is, and what a caller may do about it."""

from __future__ import annotations

import pytest

from pykclient import errors
from pykclient.errors import base
from pykclient.errors.base import CAUSE_LENGTH_MAX, describe_cause

TREE = {
    "ConfigError": base.KafkaError,
    "UsageError": base.KafkaError,
    "ClosedError": base.UsageError,
    "ConcurrentModificationError": base.UsageError,
    "NotSubscribedError": base.UsageError,
    "NoOffsetForPartitionError": base.UsageError,
    "TransactionStateError": base.UsageError,
    "ForkedClientError": base.UsageError,
    "UnsupportedVersionError": base.UsageError,
    "WakeupError": base.KafkaError,
    "RebalanceListenerError": base.KafkaError,
    "GroupRebalancedError": base.KafkaError,
    "CommitFailedError": base.GroupRebalancedError,
    "EncodeError": base.KafkaError,
    "RecordTooLargeError": base.EncodeError,
    "SerializationError": base.EncodeError,
    "DecodeError": base.KafkaError,
    "CorruptRecordError": base.DecodeError,
    "FrameTooLargeError": base.DecodeError,
    "RecordDeserializationError": base.DecodeError,
    "BufferExhaustedError": base.KafkaError,
    "BatchDeliveryError": base.KafkaError,
    "ConnectionFailedError": base.KafkaError,
    "AdminCallError": base.KafkaError,
    "DisconnectedError": base.ConnectionFailedError,
    "TlsError": base.ConnectionFailedError,
    "AuthenticationError": base.ConnectionFailedError,
    "KafkaTimeoutError": base.KafkaError,
    "DeliveryTimeoutError": base.KafkaTimeoutError,
    "BrokerError": base.KafkaError,
}


@pytest.mark.parametrize(("name", "parent"), TREE.items())
def test_error_stands_at_its_place_in_the_tree(name: str, parent: type[Exception]) -> None:
    error = getattr(errors, name)
    assert error.__bases__[0] is parent


def test_the_tree_is_whole() -> None:
    assert {*TREE, "KafkaError"} == set(base.__all__)


def test_a_configuration_error_is_a_value_error_and_a_timeout_a_timeout_error() -> None:
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.DeliveryTimeoutError, TimeoutError)


def test_a_truncated_log_is_an_offset_out_of_range_that_says_more() -> None:
    error = errors.LogTruncationError("cut", topic="t", partition=0, offset=5, diverging_offset=3)
    assert isinstance(error, errors.OffsetOutOfRangeError)
    assert (error.code, error.offset, error.diverging_offset) == (1, 5, 3)
    assert not error.retriable


def test_both_ways_in_which_a_rebalance_ends_a_commit_have_one_parent() -> None:
    for kind in (errors.CommitFailedError, errors.RebalanceInProgressError):
        assert issubclass(kind, errors.GroupRebalancedError)
    assert issubclass(errors.RebalanceInProgressError, errors.BrokerError)


def test_everything_is_public_in_one_place() -> None:
    assert set(base.__all__) < set(errors.__all__)
    assert set(errors.broker.__all__) < set(errors.__all__)
    assert all(hasattr(errors, name) for name in errors.__all__)
    assert len(errors.__all__) == len(set(errors.__all__))


SECRET = b"\xffa secret that belongs in no log"


def test_it_tells_the_type_and_what_it_says() -> None:
    assert describe_cause(ValueError("no twos")) == "ValueError: no twos"
    assert describe_cause(ValueError()) == "ValueError"


def test_a_value_that_could_not_be_decoded_is_not_told() -> None:
    with pytest.raises(UnicodeDecodeError) as raised:
        SECRET.decode()
    assert "secret" in repr(raised.value)
    assert "secret" not in describe_cause(raised.value)
    assert "can't decode byte 0xff in position 0" in describe_cause(raised.value)


def test_of_a_long_text_the_beginning_is_told() -> None:
    assert describe_cause(ValueError("x" * 10_000)) == "ValueError: " + "x" * CAUSE_LENGTH_MAX
