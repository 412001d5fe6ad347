"""AdminCore: what it makes of a call whose time is up."""

from __future__ import annotations

import pytest

from pykclient.admin.config import AdminConfig
from pykclient.admin.core import AdminCore, TimeLimit
from pykclient.admin.topics import DeleteTopics
from pykclient.errors import (
    AdminCallError,
    KafkaTimeoutError,
    NotControllerError,
    TopicAuthorizationFailedError,
)
from tests.network.scripted_port import ScriptedPort

START_MS = 1_000_000
LIMIT = TimeLimit(START_MS, 5)


@pytest.fixture
def core() -> AdminCore:
    config = AdminConfig.from_settings(bootstrap_servers="boot:9092")
    return AdminCore(config, ScriptedPort())


def test_a_call_that_is_done_gives_its_values(core: AdminCore) -> None:
    call = core.new_call(DeleteTopics(), [], START_MS)
    assert core.result(call, "the deletion of", LIMIT) == {}


def test_keys_that_are_not_done_in_time_are_named_once_with_the_last_error(
    core: AdminCore,
) -> None:
    call = core.new_call(DeleteTopics(), ["a", "b"], START_MS)
    call.last_error = NotControllerError("moved")
    with pytest.raises(KafkaTimeoutError, match=r"waited 5 ms for the deletion of a, b: .*moved"):
        core.result(call, "the deletion of", LIMIT)


def test_an_error_and_a_time_out_are_both_told(core: AdminCore) -> None:
    call = core.new_call(DeleteTopics(), ["a", "b"], START_MS)
    call.errors["a"] = TopicAuthorizationFailedError("a")
    call._unfinished.pop("a")
    with pytest.raises(AdminCallError) as raised:
        core.result(call, "the deletion of", LIMIT)
    assert isinstance(raised.value.errors["a"], TopicAuthorizationFailedError)
    assert isinstance(raised.value.errors["b"], KafkaTimeoutError)
