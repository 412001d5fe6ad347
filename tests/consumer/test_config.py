"""What is particular to a consumer's settings."""

from __future__ import annotations

import pytest

from pykclient.consumer.config import ConsumerConfig
from pykclient.errors.base import ConfigError
from pykclient.types import IsolationLevel


def make_config(**settings: object) -> ConsumerConfig:
    return ConsumerConfig.from_settings({"bootstrap.servers": "h1:9092"}, **settings)


@pytest.mark.parametrize(
    ("old", "new"), [("smallest", "earliest"), ("largest", "latest"), ("beginning", "earliest")]
)
def test_old_reset_policies_are_refused_with_the_new_name(old: str, new: str) -> None:
    with pytest.raises(ConfigError, match=f"'{old}' is not valid: .* It is now called {new}"):
        make_config(auto_offset_reset=old)


def test_a_reset_by_duration_is_refused_until_it_is_built() -> None:
    with pytest.raises(ConfigError, match=r"by_duration:P3D.* one of latest, earliest, none"):
        make_config(auto_offset_reset="by_duration:P3D")


@pytest.mark.parametrize("level", IsolationLevel)
def test_isolation_levels_are_read_by_name(level: IsolationLevel) -> None:
    assert make_config(isolation_level=level.name.lower()).isolation_level is level


def test_a_fetch_may_not_wait_longer_than_its_request() -> None:
    with pytest.raises(ConfigError, match=r"fetch\.max\.wait\.ms=400 must be below .*=400"):
        make_config(fetch_max_wait_ms=400, request_timeout_ms=400)


def test_a_fetch_wait_that_was_not_given_shrinks_with_the_request_timeout() -> None:
    assert make_config(request_timeout_ms=400).fetch_max_wait_ms == 200
    assert make_config().fetch_max_wait_ms == 500


def test_an_answer_of_the_largest_fetch_must_be_receivable() -> None:
    with pytest.raises(ConfigError, match=r"receive_max_bytes=1000 must be at least"):
        make_config(receive_max_bytes=1_000)


def test_a_receive_limit_that_was_not_given_grows_with_the_fetch_size() -> None:
    assert make_config(fetch_max_bytes=200_000_000).receive_max_bytes == 200_000_512
    assert make_config(fetch_max_bytes=2**31 - 1).receive_max_bytes == 2**31 - 1
    assert make_config().receive_max_bytes == 100_000_000


def test_iteration_is_endless_unless_told_otherwise() -> None:
    assert make_config().consumer_timeout_ms is None
    assert make_config(consumer_timeout_ms="250").consumer_timeout_ms == 250


def test_interceptors_have_two_names() -> None:
    assert make_config(interceptor_classes=[len]).interceptors == (len,)
