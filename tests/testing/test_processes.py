"""Actions allowed in each state of a server, and its end. Servers are `sleep`, or a shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient.errors.base import ClosedError, KafkaError, KafkaTimeoutError, UsageError
from pykclient.testing.cluster.processes import (
    LOG_TAIL_LINES,
    BrokerFailedError,
    BrokerState,
    ProcessGroup,
    ServerProcess,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 20.0
MakeServer = Callable[[str], ServerProcess]

ACTIONS: dict[str, Callable[[ServerProcess], None]] = {
    "start": ServerProcess.start,
    "pause": ServerProcess.pause,
    "resume": ServerProcess.resume,
    "stop": lambda server: server.stop(TIMEOUT_S),
    "kill": ServerProcess.kill,
}
# Actions that lead from the beginning to each state.
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
def group() -> Iterator[ProcessGroup]:
    with closing(ProcessGroup("pykclient-test")) as group:
        yield group


@pytest.fixture
def make(group: ProcessGroup) -> MakeServer:
    """Return a function that makes a server from a shell command."""
    return lambda script: ServerProcess(
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


def test_the_error_shows_the_first_error_of_a_long_log(make: MakeServer) -> None:
    server = make("echo 0; echo [main] ERROR broken; echo cause; seq 1000; echo ERROR; exit 1")
    server.start()
    with pytest.raises(BrokerFailedError) as caught:
        server.stay_alive(TIMEOUT_S)
    shown = str(caught.value).splitlines()[1:]
    assert shown[:3] == ["[main] ERROR broken", "cause", "..."]
    assert len(shown) == 3 + LOG_TAIL_LINES


def test_a_server_that_goes_on_is_left_alone(make: MakeServer) -> None:
    server = make("exec sleep 600")
    server.start()
    server.stay_alive(0.0)
    assert server.state is BrokerState.RUNNING


def test_a_server_that_does_not_stop_is_killed_and_reported(
    make: MakeServer, tmp_path: Path
) -> None:
    deaf = tmp_path / "deaf"
    os.mkfifo(deaf)
    server = make(f"trap '' TERM; echo > {deaf}; exec sleep 600")
    server.start()
    deaf.read_bytes()  # returns when the server ignores the signal
    with pytest.raises(KafkaTimeoutError, match="did not stop within 300 ms and was killed"):
        server.stop(0.3)
    assert server.state is BrokerState.STOPPED


ROOT = Path(__file__).parents[2]

# Starts two members, pauses the first, prints the folder and the ids, and then runs the inserted
# code.
OWNER = """
import os, signal, subprocess, sys, time
from pykclient.testing.cluster.processes import ProcessGroup
group = ProcessGroup("pykclient-test")
members = [group.start(["sleep", "600"], group.folder / "log") for _ in range(2)]
members[0].send_signal(signal.SIGSTOP)
os.waitid(os.P_PID, members[0].pid, os.WSTOPPED | os.WNOWAIT)
print(group.folder, *(member.pid for member in members), flush=True)
{then}
"""


def await_true(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Poll, because other processes end in their own time, without a notice."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"after {timeout_s} s still not true: {what}"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Return whether the process runs; one that has ended but is not reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def run_owner(then: str) -> tuple[subprocess.Popen[str], Path, list[int]]:
    owner = subprocess.Popen(
        [sys.executable, "-W", "ignore::ResourceWarning", "-c", OWNER.format(then=then)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    folder, *pids = owner.stdout.readline().split()
    return owner, Path(folder), [int(pid) for pid in pids]


@pytest.mark.parametrize(
    "then",
    [
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", id="killed"),
        pytest.param("os._exit(1)", id="exits at once"),
        pytest.param("sys.exit(0)", id="exits without closing"),
        pytest.param("raise RuntimeError('as tests do')", id="fails"),
        pytest.param("del group, members; time.sleep(600)", id="forgets it"),
        pytest.param(
            # The child ends after the folder is removed; it would never if it kept the folder.
            "if os.fork() == 0:\n"
            "    os.close(1)\n"
            "    while group.folder.exists(): time.sleep(0.02)\n"
            "    os._exit(0)\n"
            "os.kill(os.getpid(), signal.SIGKILL)",
            id="killed with a forked child that holds the pipe",
        ),
    ],
)
def test_members_and_folder_vanish_when_the_owner(then: str) -> None:
    owner, folder, pids = run_owner(then)
    try:
        await_true(lambda: not any(map(is_alive, pids)), "the members ended, the paused one too")
        await_true(lambda: not folder.exists(), "the folder is gone")
    finally:
        owner.kill()
        owner.communicate()


def test_a_group_that_is_signalled_as_one_still_loses_its_folder() -> None:
    """The kernel sends SIGHUP to an orphaned group with a stopped member; so do terminals."""
    owner, folder, pids = run_owner("time.sleep(600)")
    os.killpg(os.getpgid(pids[0]), signal.SIGHUP)
    os.killpg(os.getpgid(pids[0]), signal.SIGINT)
    owner.kill()
    owner.communicate()
    await_true(lambda: not any(map(is_alive, pids)), "the members ended")
    await_true(lambda: not folder.exists(), "the folder is gone")


def test_members_are_no_part_of_our_process_group(group: ProcessGroup) -> None:
    member = group.start(["sleep", "600"], group.folder / "log")
    assert os.getpgid(member.pid) != os.getpgrp()


def test_close_ends_everything_before_it_returns_and_twice_does_nothing(
    group: ProcessGroup,
) -> None:
    member = group.start(["sleep", "600"], group.folder / "log")
    member.send_signal(signal.SIGSTOP)
    group.close()
    assert member.returncode == -signal.SIGKILL
    assert not group.folder.exists()
    with pytest.raises(ClosedError):
        group.start(["sleep", "600"], Path(os.devnull))


def test_what_a_member_prints_is_added_to_its_log(group: ProcessGroup) -> None:
    log = group.folder / "log"
    for word in ("one", "two"):
        group.start(["sh", "-c", f"echo {word}; echo {word} >&2"], log).wait(TIMEOUT_S)
    assert log.read_text() == "one\none\ntwo\ntwo\n"


def test_without_its_watchdog_nothing_more_is_started_and_close_still_cleans(
    group: ProcessGroup,
) -> None:
    member = group.start(["sleep", "600"], group.folder / "log")
    os.kill(os.getpgid(member.pid), signal.SIGKILL)  # the watchdog leads the group
    await_true(lambda: not is_alive(os.getpgid(member.pid)), "the watchdog ended")
    with pytest.raises(KafkaError, match="watches"):
        group.start(["sleep", "600"], group.folder / "log")
    group.close()
    assert not is_alive(member.pid)
    assert not group.folder.exists()
