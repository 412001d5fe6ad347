"""When heartbeats are due, and when sessions end."""

from __future__ import annotations

from random import Random

import pytest

from pykclient.consumer.group.classic.heartbeat import Heartbeat
from pykclient.network.manager import NEVER_MS
from pykclient.network.retry import Backoff
from tests.consumer.group.classic_scene import group_config


@pytest.fixture
def heartbeat() -> Heartbeat:
    config = group_config(heartbeat_interval_ms=3_000, session_timeout_ms=10_000)
    return Heartbeat(config, Backoff(100, 1_000, jitter=0, random=Random(1)))


def test_before_it_is_started_nothing_is_due(heartbeat: Heartbeat) -> None:
    assert not heartbeat.is_due(10**9)
    assert not heartbeat.has_session_ended(10**9)
    assert heartbeat.next_ms == NEVER_MS


def test_the_first_one_is_due_after_an_interval(heartbeat: Heartbeat) -> None:
    heartbeat.start(1_000)
    assert not heartbeat.is_due(3_999)
    assert heartbeat.is_due(4_000)
    assert heartbeat.next_ms == 4_000


def test_none_is_due_while_one_is_in_flight(heartbeat: Heartbeat) -> None:
    heartbeat.start(0)
    heartbeat.on_sent(3_000)
    assert not heartbeat.is_due(9_000)
    assert heartbeat.next_ms == 10_000
    heartbeat.on_received(9_000)
    assert heartbeat.is_due(9_000)


def test_a_response_begins_a_session(heartbeat: Heartbeat) -> None:
    heartbeat.start(0)
    assert heartbeat.has_session_ended(10_000)
    heartbeat.on_received(5_000)
    assert not heartbeat.has_session_ended(14_999)
    assert heartbeat.has_session_ended(15_000)


def test_failures_are_followed_ever_later(heartbeat: Heartbeat) -> None:
    heartbeat.start(0)
    heartbeat.on_failed(1_000)
    assert heartbeat.next_ms == 1_100
    heartbeat.on_failed(2_000)
    assert heartbeat.next_ms == 2_200
    heartbeat.on_received(2_300)
    heartbeat.on_failed(3_000)
    assert heartbeat.next_ms == 3_100


def test_an_extended_session_has_a_heartbeat_at_once(heartbeat: Heartbeat) -> None:
    heartbeat.start(0)
    heartbeat.on_sent(3_000)
    heartbeat.extend(10_000)
    assert heartbeat.is_due(10_000)
    assert not heartbeat.has_session_ended(19_999)


def test_what_comes_after_the_end_changes_nothing(heartbeat: Heartbeat) -> None:
    heartbeat.start(0)
    heartbeat.on_sent(3_000)
    heartbeat.stop()
    heartbeat.on_received(4_000)
    heartbeat.on_failed(4_000)
    assert not heartbeat.is_started
    assert heartbeat.next_ms == NEVER_MS
