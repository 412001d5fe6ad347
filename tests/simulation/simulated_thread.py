"""SimulatedThread: a thread of an application that runs only while the simulation waits for it.

Owner: the simulation.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class KilledError(BaseException):
    """The process was killed. Raised where it paused; nothing handles it."""


class SimulatedThread:
    """A thread of an application that runs only while the simulation waits for it.

    It *waits* to be resumed, *runs* until it pauses or ends, and is then *done*. No two of them
    run at once, so that a seed determines the run.
    """

    def __init__(self, program: Callable[[], None]) -> None:
        self.is_done = False
        self._program = program
        self._is_killed = False
        self._error: BaseException | None = None
        self._may_run, self._has_paused = threading.Lock(), threading.Lock()
        self._may_run.acquire()
        self._has_paused.acquire()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def resume(self) -> None:
        """Continue until it pauses or ends; raise its error if it failed."""
        if self._thread.ident is None:
            self._thread.start()
        self._may_run.release()
        self._has_paused.acquire()
        if self.is_done:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Wait until it is resumed. For the program itself."""
        if not self._is_killed:
            self._has_paused.release()
            self._may_run.acquire()
        if self._is_killed:
            raise KilledError  # again, if a cleanup handler pauses

    def kill(self) -> None:
        """End it where it pauses. No effect if it is done."""
        self._is_killed = True
        if self._thread.ident is None:
            self.is_done = True
        if not self.is_done:
            self.resume()

    def _run(self) -> None:
        self._may_run.acquire()
        try:
            if not self._is_killed:
                self._program()
        except KilledError:
            pass
        except BaseException as error:  # noqa: BLE001  # raised by `resume`
            self._error = error
        self.is_done = True
        self._has_paused.release()
