"""A copier that is bounced: consecutive processes with one transactional id.

Owner: the run that created it.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self

from tests.integration.transactional_copier import Copier


class BouncedCopier:
    """A copier, with its first process running; a context manager, which kills what still runs.

    `java_version` None means ours, otherwise Java's of that version of Kafka.
    """

    def __init__(
        self,
        servers: str,
        transactional_id: str,
        *options: str,
        java_version: str | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self._servers = servers
        self._options = (*options, "--transactional-id", transactional_id)
        self._java_version = java_version
        self._processes = ExitStack()
        self._process = self._begun()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.close()

    @property
    def is_done(self) -> bool:
        """True if it ended because everything is copied."""
        return self._process.has_ended and self._process.is_done

    @property
    def progress(self) -> float:
        """Share of its current process's records that are copied, from 0 to 1."""
        last = self._process.last
        if last is None:
            return 0.0
        total = last["consumed"] + last["remaining"]
        return last["consumed"] / total if total else 1.0

    def check(self) -> None:
        """Raise `AssertionError` if it ended by itself before everything was copied."""
        if self._process.has_ended and not self._process.is_done:
            status = self._process.wait()
            raise AssertionError(
                f"copier {self.transactional_id} ended with {status} after {self._process.last}: "
                f"{self._process.errors}"
            )

    def stop(self, *, is_clean: bool) -> None:
        """Stop its process with SIGTERM or SIGKILL, and wait for its end.

        Raises:
            AssertionError: it did not end cleanly after SIGTERM.
        """
        if is_clean:
            self._process.terminate()
        else:
            self._process.kill()
        status = self._process.wait()
        last = self._process.last
        assert not is_clean or (last and last["stage"] == "ShutdownComplete"), (
            f"copier {self.transactional_id} ended with {status} after {last}: "
            f"{self._process.errors}"
        )

    def start(self) -> None:
        """Start another process."""
        self._process = self._begun()

    def _begun(self) -> Copier:
        return self._processes.enter_context(
            Copier(self._servers, *self._options, java_version=self._java_version)
        )
