"""A pytest plugin (or first import) that removes what Python lacks on Windows.

    python -m pytest -p tests.like_windows tests/network tests/producer tests/consumer

It was not run on Windows itself. Sockets and files may behave differently there.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
from typing import Final

OS: Final = ("fork", "register_at_fork", "killpg", "pread", "O_NONBLOCK", "O_CLOEXEC")
SIGNAL: Final = ("pthread_sigmask", "pause", "SIGKILL", "SIGSTOP", "SIGCONT", "SIGHUP")
SOCKET: Final = ("SO_REUSEPORT", "MSG_NOSIGNAL", "MSG_DONTWAIT")
SELECTORS: Final = ("EpollSelector", "PollSelector", "KqueueSelector")
MODULES: Final = ("fcntl", "resource", "pwd", "grp", "termios")


class _Missing:
    """In the place of a method: looking it up is what it is where there is none."""

    def __get__(self, instance: object, owner: object) -> object:
        raise AttributeError("Windows has no such method")


for module, names in ((os, OS), (signal, SIGNAL), (socket, SOCKET), (selectors, SELECTORS)):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
for name in ("sendmsg", "recvmsg", "recvmsg_into"):
    setattr(socket.socket, name, _Missing())
selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc,assignment]  # as there
for name in MODULES:
    sys.modules[name] = None  # type: ignore[assignment]  # makes its import fail
