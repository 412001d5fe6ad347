"""Broker error codes become errors with Kafka's name and flags and our own words."""

from __future__ import annotations

import pytest

from pykclient import errors
from pykclient.errors import BrokerError, broker, error_for_code

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
        (35, errors.BrokerUnsupportedVersionError, "fatal"),
        (47, errors.InvalidProducerEpochError, ""),
        (56, errors.KafkaStorageError, "retriable refresh_metadata"),
        (58, errors.SaslAuthenticationFailedError, "fatal"),
        (82, errors.FencedInstanceIdError, "fatal"),
        (90, errors.ProducerFencedError, "fatal"),
        (-1, errors.UnknownServerError, ""),
    ],
)
def test_flags_say_what_may_be_done(code: int, kind: type[BrokerError], flags: str) -> None:
    error = error_for_code(code)
    assert type(error) is kind
    names = ("retriable", "refresh_metadata", "fatal")
    assert [name for name in names if getattr(error, name)] == flags.split()


def test_message_of_the_broker_stands_before_the_explanation() -> None:
    error = error_for_code(36, "Topic 'a' already exists.")
    assert str(error) == (
        "TOPIC_ALREADY_EXISTS (error code 36): Topic 'a' already exists."
        " There is a topic with this name"
    )


def test_explanation_is_one_line() -> None:
    assert "\n" not in str(error_for_code(3))


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


def test_unsupported_version_from_a_broker_is_caught_like_our_own() -> None:
    assert issubclass(errors.BrokerUnsupportedVersionError, errors.UnsupportedVersionError)
