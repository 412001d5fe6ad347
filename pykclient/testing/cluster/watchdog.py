"""A program that outlives its parent by a moment, to end what the parent started.

It is run by its path with the bare interpreter, so it imports nothing of this package. Its own
process group is the one that the parent puts its children in. It waits for its standard input to
end, which the kernel sees to when the parent closes it or dies, however it dies. Then it kills the
group, stopped processes too, and removes the folder.

The parent's death is also looked for once a second: a process that the parent forked holds a copy
of the pipe, and would keep it open for longer than the parent lives. `PR_SET_PDEATHSIG` would not
do: it is sent when the *thread* that forked ends, it is Linux's own, and it removes no folder.

When the parent dies while a member is stopped, the kernel signals the whole group, this process
included, to hang up (an orphaned process group, in POSIX's words). So the signals that usually mean
"go" are ignored here: only the parent's end counts. One byte on standard output says when this is
so, and nothing should be started before.

To kill a group one is a member of, and live on to tidy up, takes a fork: the child leaves the group
first. Whoever holds the other end of standard output sees it end when both are done.

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
        if readable:  # Nothing is ever written, so this is the end.
            return


def clean_up(folder: str, group: int) -> None:
    """Kill the group and remove the folder; a dying process may still be making files in it."""
    deadline_s = time.monotonic() + REMOVE_TIMEOUT_S
    while True:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # No member is alive.
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
    # The parent of the two goes with the group that it is in.


if __name__ == "__main__":
    main()
