"""Nothing that a process group started outlives its owner, however the owner ends.

The owner is a Python process of its own, so that it can be killed; the members are `sleep`. That
they are gone is what the kernel says of their ids.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient.errors.base import ClosedError, KafkaError
from pykclient.testing.cluster.processes import ProcessGroup

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 20.0

# Starts two members, pauses the first, says where its folder and who they are, and then does what
# is inserted.
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


def await_true(condition: Callable[[], bool], what: str) -> None:
    """Other processes end in their own time, and tell nobody."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"after {TIMEOUT_S} s still not true: {what}"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and waits for its parent's notice does not."""
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


@pytest.mark.promise(
    "brokers are gone after `close`, and after a crash of the process that started them"
)
@pytest.mark.parametrize(
    "then",
    [
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", id="killed"),
        pytest.param("os._exit(1)", id="exits at once"),
        pytest.param("sys.exit(0)", id="exits without closing"),
        pytest.param("raise RuntimeError('as tests do')", id="fails"),
        pytest.param("del group, members; time.sleep(600)", id="forgets it"),
        pytest.param(
            # The child ends when the folder does, and so never if it kept the folder alive.
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
    """The kernel hangs up a group whose parent died while a member was stopped; so do terminals."""
    owner, folder, pids = run_owner("time.sleep(600)")
    os.killpg(os.getpgid(pids[0]), signal.SIGHUP)
    os.killpg(os.getpgid(pids[0]), signal.SIGINT)
    owner.kill()
    owner.communicate()
    await_true(lambda: not any(map(is_alive, pids)), "the members ended")
    await_true(lambda: not folder.exists(), "the folder is gone")


def test_members_are_no_part_of_our_process_group() -> None:
    group = ProcessGroup("pykclient-test")
    try:
        member = group.start(["sleep", "600"], group.folder / "log")
        assert os.getpgid(member.pid) != os.getpgrp()
    finally:
        group.close()


def test_close_ends_everything_before_it_returns_and_twice_does_nothing() -> None:
    group = ProcessGroup("pykclient-test")
    member = group.start(["sleep", "600"], group.folder / "log")
    member.send_signal(signal.SIGSTOP)
    group.close()
    assert member.returncode == -signal.SIGKILL
    assert not group.folder.exists()
    group.close()


def test_what_a_member_prints_is_added_to_its_log() -> None:
    group = ProcessGroup("pykclient-test")
    try:
        log = group.folder / "log"
        for word in ("one", "two"):
            group.start(["sh", "-c", f"echo {word}; echo {word} >&2"], log).wait(TIMEOUT_S)
        assert log.read_text() == "one\none\ntwo\ntwo\n"
    finally:
        group.close()


def test_a_closed_group_starts_nothing() -> None:
    group = ProcessGroup("pykclient-test")
    group.close()
    with pytest.raises(ClosedError):
        group.start(["sleep", "600"], Path(os.devnull))


def test_without_its_watchdog_nothing_more_is_started_and_close_still_cleans() -> None:
    group = ProcessGroup("pykclient-test")
    member = group.start(["sleep", "600"], group.folder / "log")
    os.kill(os.getpgid(member.pid), signal.SIGKILL)  # The watchdog leads the group.
    await_true(lambda: not is_alive(os.getpgid(member.pid)), "the watchdog ended")
    with pytest.raises(KafkaError, match="watches"):
        group.start(["sleep", "600"], group.folder / "log")
    group.close()
    assert not is_alive(member.pid)
    assert not group.folder.exists()
