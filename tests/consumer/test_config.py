"""Settings that only a consumer has."""

from __future__ import annotations

import pytest

from pykclient.consumer.config import ConsumerConfig, duration_ms
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


def test_a_reset_by_duration_has_one() -> None:
    config = make_config(auto_offset_reset="by_duration:P3D")
    assert config.auto_offset_reset == "by_duration:P3D"
    with pytest.raises(ConfigError, match=r"by_duration:3 days.* '3 days' is no duration; write"):
        make_config(auto_offset_reset="by_duration:3 days")


@pytest.mark.parametrize("level", IsolationLevel)
def test_isolation_levels_are_read_by_name(level: IsolationLevel) -> None:
    assert make_config(isolation_level=level.name.lower()).isolation_level is level


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"fetch_max_wait_ms": 400, "request_timeout_ms": 400},
            r"fetch\.max\.wait\.ms=400 must be below .*=400",
        ),
        ({"receive_max_bytes": 1_000}, "receive_max_bytes=1000 must be at least"),
        ({"enable_auto_commit": True}, r"enable\.auto\.commit=true has nowhere to commit to"),
        ({"group_instance_id": "i"}, r"group\.instance\.id='i' .* set group\.id"),
        ({"group_id": " "}, "For no group, leave it out"),
        ({"session_timeout_ms": 3_000}, r"heartbeat\.interval\.ms=3000 must be below"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, object], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        make_config(**settings)


def test_a_fetch_wait_that_was_not_given_shrinks_with_the_request_timeout() -> None:
    assert make_config(request_timeout_ms=400).fetch_max_wait_ms == 200
    assert make_config().fetch_max_wait_ms == 500


def test_a_receive_limit_that_was_not_given_grows_with_the_fetch_size() -> None:
    assert make_config(fetch_max_bytes=200_000_000).receive_max_bytes == 200_000_512
    assert make_config(fetch_max_bytes=2**31 - 1).receive_max_bytes == 2**31 - 1
    assert make_config().receive_max_bytes == 100_000_000


def test_iteration_is_endless_unless_set_otherwise() -> None:
    assert make_config().consumer_timeout_ms is None
    assert make_config(consumer_timeout_ms="250").consumer_timeout_ms == 250


def test_interceptors_have_two_names() -> None:
    assert make_config(interceptor_classes=[len]).interceptors == (len,)


@pytest.mark.parametrize(
    ("protocol", "name", "value"),
    [
        ("consumer", "partition_assignment_strategy", "range"),
        ("consumer", "session_timeout_ms", 10_000),
        ("consumer", "heartbeat_interval_ms", 1_000),
        ("classic", "group_remote_assignor", "uniform"),
    ],
)
def test_what_the_coordinator_decides_is_not_set_here(
    protocol: str, name: str, value: object
) -> None:
    with pytest.raises(ConfigError, match=rf"does not go with group\.protocol={protocol}"):
        make_config(group_id="g", group_protocol=protocol, **{name: value})
    other = {"classic": "CONSUMER", "consumer": "Classic"}[protocol]
    assert make_config(group_id="g", group_protocol=other, **{name: value})


def test_without_a_group_nothing_is_committed_automatically() -> None:
    assert not make_config().enable_auto_commit
    assert make_config(group_id="g").enable_auto_commit


@pytest.mark.parametrize("name", ["", "a b", "ü", "..", "x" * 250, 1])
def test_static_members_have_names_like_topics(name: object) -> None:
    with pytest.raises(ConfigError, match=r"group_instance_id=.* is not valid"):
        make_config(group_id="g", group_instance_id=name)


SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
DAY = 24 * HOUR


@pytest.mark.promise("offsets by time, lag, and reset by duration work")
@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("P1D", DAY),
        ("PT12H", 12 * HOUR),
        ("PT90M", 90 * MINUTE),
        ("PT5S", 5 * SECOND),
        ("PT1.5S", 1_500),
        ("PT0.0019S", 1),
        ("PT0S", 0),
        ("P2DT3H4M5.006S", 2 * DAY + 3 * HOUR + 4 * MINUTE + 5_006),
        ("pt1h", HOUR),
    ],
)
def test_a_duration_has_its_length(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.promise("offsets by time, lag, and reset by duration work")
@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "P1", "1D", "P1H", "PT1D", "P-1D", "-P1D", "P1DT", "PT1S1H", "PT.5S", "P1W",
     "P1Y", "PT\uff11H", "P1D ", "PT1.1234567890S"],
)  # fmt: skip
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration; write"):
        duration_ms(text)


def test_a_duration_beyond_any_log_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        duration_ms("P" + "9" * 5_000 + "D")
