"""Interruptions at random moments: signals, destructors, weakref callbacks and log records.

A signal arrives once after a random time; the next must be requested, so that the program can clean
up undisturbed. Its handler raises KeyboardInterrupt, SystemExit or another exception, or calls the
clients. So do the destructors of objects in reference cycles, which the garbage collector runs at
any allocation, in any thread; callbacks of weak references to such objects; and a logging handler
of the clients' loggers.

Owner: the main thread; `_act` may be called by any.
"""

from __future__ import annotations

import gc
import logging
import signal
import sys
import threading
import time
import weakref
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random
    from types import FrameType

SHORTEST_S = 1e-5
LONGEST_S = 8e-4
LOGGED_SHARE = 0.02
NESTED_SHARE = 0.1
QUIET_CHECK_S = 0.001
DEPTH_MAX = 3
"""Maximum nesting of interruptions in a thread."""
GC_THRESHOLDS = (80, 5, 20)
RAISING = ("keyboard", "exit", "exception")
KINDS = (*RAISING, "signal", "destructor", "weakref", "log")
"""Keys of `Interruptions.counts`."""


class Interruption(Exception):
    """Raised by a signal handler, as the timeout of a task queue or a test does."""


RAISED = (KeyboardInterrupt, SystemExit, Interruption)


class Interruptions:
    """Interruptions between `begin` and `end`. `act` calls the clients, and must not raise."""

    def __init__(self, source: Random, act: Callable[[], None]) -> None:
        self.counts: Counter[str] = Counter()
        self._source = source
        self._act_once = act
        self._is_wanted = self._is_coming = False
        self._depth = threading.local()
        self._acting: set[int] = set()
        self._references: dict[int, weakref.ref[Doomed]] = {}
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, _exit)
        gc.set_threshold(*GC_THRESHOLDS)
        logger = logging.getLogger("pykclient")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(ActingHandler(self))

    @property
    def count(self) -> int:
        return self.counts.total()

    def begin(self) -> None:
        self._depth.value = 0
        self._is_wanted = True

    def end(self) -> None:
        """Stop them in this thread; a last one may arrive in here."""
        self._is_wanted = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._is_coming = False
        self._acting.discard(threading.get_ident())

    def await_quiet(self) -> None:
        """Wait for other threads that handle an interruption; call after `end`."""
        while self._acting:
            time.sleep(QUIET_CHECK_S)

    def prepare(self) -> None:
        """Schedule a signal if none is scheduled, and sometimes create garbage."""
        self._prepare_signal()
        chance = self._source.random()
        if chance < 0.05:
            Doomed(lambda: self.act("destructor"))
        elif chance < 0.1:
            reference = weakref.ref(Doomed(None), self._on_dead)
            self._references[id(reference)] = reference

    def _prepare_signal(self) -> None:
        if self._is_wanted and not self._is_coming:
            self._is_coming = True
            signal.setitimer(signal.ITIMER_REAL, self._source.uniform(SHORTEST_S, LONGEST_S))

    def act(self, kind: str) -> None:
        """Interrupt the current thread with a call of the clients."""
        depth = getattr(self._depth, "value", 0)
        if not self._is_wanted or depth >= DEPTH_MAX:
            return
        me = threading.get_ident()
        try:
            self._depth.value = depth + 1
            self._acting.add(me)
            self.counts[kind] += 1
            if self._source.random() < NESTED_SHARE:
                self._prepare_signal()
            self._act_once()
        finally:
            self._depth.value = depth
            if not depth:
                self._acting.discard(me)

    def on_log(self) -> None:
        """Act on a few of the clients' log records."""
        if self._source.random() < LOGGED_SHARE:
            self.act("log")

    def _on_dead(self, reference: weakref.ref[Doomed]) -> None:
        self._references.pop(id(reference), None)
        self.act("weakref")

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        self._is_coming = False
        if not self._is_wanted:
            return
        kind = self._source.choice((*RAISING, "call", "call"))
        if kind == "call":
            self.act("signal")
            return
        self.counts[kind] += 1
        if kind == "keyboard":
            signal.raise_signal(signal.SIGINT)
        elif kind == "exit":
            signal.raise_signal(signal.SIGTERM)
        else:
            raise Interruption


class Doomed:
    """An object in a reference cycle, which only the garbage collector can destroy."""

    _on_end: Callable[[], None] | None = None  # for an interrupted `__init__`

    def __init__(self, on_end: Callable[[], None] | None) -> None:
        self._itself = self
        self._on_end = on_end

    def __del__(self) -> None:
        if self._on_end is not None:
            self._on_end()


class ActingHandler(logging.Handler):
    """Acts on log records without the handler's lock, under which calls would wait."""

    def __init__(self, interruptions: Interruptions) -> None:
        super().__init__()
        self._interruptions = interruptions

    def handle(self, record: logging.LogRecord) -> bool:
        record.getMessage()
        self._interruptions.on_log()
        return True


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
