"""What may be done to a server in which state. The server here is `sleep`, or a shell."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from pykclient.errors.base import KafkaTimeoutError, UsageError
from pykclient.testing.cluster.processes import (
    LOG_TAIL_LINES,
    BrokerFailedError,
    BrokerProcess,
    BrokerState,
    ProcessGroup,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMEOUT_S = 20.0
MakeServer = Callable[[str], BrokerProcess]

ACTIONS: dict[str, Callable[[BrokerProcess], None]] = {
    "start": BrokerProcess.start,
    "pause": BrokerProcess.pause,
    "resume": BrokerProcess.resume,
    "stop": lambda server: server.stop(TIMEOUT_S),
    "kill": BrokerProcess.kill,
}
# How to get from the beginning into each state.
PATHS = {
    BrokerState.STOPPED: (),
    BrokerState.RUNNING: ("start",),
    BrokerState.PAUSED: ("start", "pause"),
}
ALLOWED = {
    (BrokerState.STOPPED, "start"): BrokerState.RUNNING,
    (BrokerState.RUNNING, "pause"): BrokerState.PAUSED,
    (BrokerState.RUNNING, "stop"): BrokerState.STOPPED,
    (BrokerState.RUNNING, "kill"): BrokerState.STOPPED,
    (BrokerState.PAUSED, "resume"): BrokerState.RUNNING,
    (BrokerState.PAUSED, "kill"): BrokerState.STOPPED,
}


@pytest.fixture
def make() -> Iterator[MakeServer]:
    """Makes a server that runs a shell command."""
    with closing(ProcessGroup("pykclient-test")) as group:
        yield lambda script: BrokerProcess(
            "broker 1", ["sh", "-c", script], log=group.folder / "log", ports=(), group=group
        )


@pytest.mark.parametrize("state", PATHS)
@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_in_every_state(make: MakeServer, state: BrokerState, action: str) -> None:
    server = make("exec sleep 600")
    for step in PATHS[state]:
        ACTIONS[step](server)
    assert server.state is state
    if (state, action) in ALLOWED:
        ACTIONS[action](server)
        assert server.state is ALLOWED[state, action]
    else:
        with pytest.raises(UsageError, match=f"broker 1 is {state.value}; to {action} it"):
            ACTIONS[action](server)
        assert server.state is state


def test_a_server_lives_more_than_once_and_keeps_one_log(make: MakeServer) -> None:
    server = make("echo alive; exit 1")
    for life in (1, 2):
        server.start()
        with pytest.raises(BrokerFailedError, match="broker 1 ended with status 1") as caught:
            server.stay_alive(TIMEOUT_S)
        assert str(caught.value).endswith("\n" + "\n".join(["alive"] * life))
        assert server.state is BrokerState.STOPPED


def test_the_error_shows_the_end_of_a_long_log(make: MakeServer) -> None:
    server = make("seq 1000; exit 1")
    server.start()
    with pytest.raises(BrokerFailedError) as caught:
        server.stay_alive(TIMEOUT_S)
    shown = str(caught.value).splitlines()[1:]
    assert shown == [str(number) for number in range(1001 - LOG_TAIL_LINES, 1001)]


def test_a_server_that_goes_on_is_left_alone(make: MakeServer) -> None:
    server = make("exec sleep 600")
    server.start()
    server.stay_alive(0.0)
    assert server.state is BrokerState.RUNNING


def test_a_server_that_will_not_stop_is_killed_and_that_is_said(
    make: MakeServer, tmp_path: Path
) -> None:
    deaf = tmp_path / "deaf"
    os.mkfifo(deaf)
    server = make(f"trap '' TERM; echo > {deaf}; exec sleep 600")
    server.start()
    deaf.read_bytes()  # Returns when the server ignores the signal.
    with pytest.raises(KafkaTimeoutError, match="did not stop within 300 ms and was killed"):
        server.stop(0.3)
    assert server.state is BrokerState.STOPPED
