"""A program that briefly outlives its parent, to kill what the parent started.

It is run by its path with the bare interpreter, so it imports nothing of this package. Its process
group is the one into which the parent puts its children. It waits until its standard input ends,
which happens when the parent closes it or dies for any reason. It then kills the group, stopped
processes included, and removes the folder.

It also checks once a second whether the parent has died: a process forked by the parent holds a
copy of the pipe and may keep it open for longer. `PR_SET_PDEATHSIG` is no alternative: it is sent
when the *thread* that forked ends, exists only on Linux, and removes no folder.

If the parent dies while a member is stopped, the kernel sends SIGHUP to the whole group, this
process included (an orphaned process group in POSIX). The usual termination signals are therefore
ignored; only the parent's end counts. One byte on standard output signals that this is set up;
nothing should be started before.

To kill its own group and survive to clean up, it forks: the child leaves the group first. Standard
output ends when both are done.

Usage: watchdog.py FOLDER PARENT_PID

Owner: the process itself.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import time

READY = b"+"
PARENT_CHECK_S = 1.0
REMOVE_TIMEOUT_S = 10.0
REMOVE_PAUSE_S = 0.02


def watch(parent_pid: int) -> None:
    """Return when the parent has closed our standard input or has died."""
    while os.getppid() == parent_pid:
        readable, _, _ = select.select([sys.stdin], [], [], PARENT_CHECK_S)
        if readable:  # nothing is ever written, so this is the end
            return


def clean_up(folder: str, group: int) -> None:
    """Kill the group and remove the folder, in which a dying process may still create files."""
    deadline_s = time.monotonic() + REMOVE_TIMEOUT_S
    while True:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # no member is alive
            os.killpg(group, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return
        if time.monotonic() > deadline_s:
            sys.exit(f"{folder} could not be removed")
        time.sleep(REMOVE_PAUSE_S)


def main() -> None:
    """Wait for the parent's end, then fork, and let the child clean up."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.write(sys.stdout.fileno(), READY)
    folder, parent_pid = sys.argv[1], int(sys.argv[2])
    watch(parent_pid)
    group = os.getpgrp()
    if os.fork() == 0:
        os.setpgid(0, 0)
        clean_up(folder, group)
    # The parent of the fork dies with its group.


if __name__ == "__main__":
    main()
