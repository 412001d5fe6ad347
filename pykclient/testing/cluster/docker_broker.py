"""One Kafka server in a container: started, paused, killed and started again as a process would be.

It is stopped, running or paused, which the engine is asked for each time. Its data live as long as
the container, from one life of the server to the next.

Owner: the thread that owns the cluster.
Source: docker-py's ``Container``; the Docker Engine API's ``/containers/{id}``.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING

import docker.errors
import requests

from pykclient.errors.base import KafkaTimeoutError
from pykclient.testing.cluster.broker_state import BrokerState, check_allowed
from pykclient.testing.cluster.processes import LOG_TAIL_LINES, BrokerFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testcontainers.core.container import DockerContainer

__all__ = ["ENGINE_ERRORS", "DockerBroker"]

ENGINE_ERRORS = (docker.errors.DockerException, requests.RequestException)
"""What docker-py raises: its own, and of an engine that went away the other's."""

KILLED_STATUS = 137
"""What a process that got SIGKILL ends with, 128 and the signal's number."""

# The engine's own words; whatever else it may say is a container that does not run.
_STATES = {"running": BrokerState.RUNNING, "paused": BrokerState.PAUSED}


class DockerBroker:
    """A server, named `name` in errors, in a `container` that is not made yet."""

    def __init__(self, name: str, container: DockerContainer) -> None:
        self.name = name
        self._container = container
        self._is_made = False
        self._is_removed = False

    @property
    def state(self) -> BrokerState:
        """The state now; a server that ended, by us or by itself, is STOPPED."""
        if not self._is_made:
            return BrokerState.STOPPED
        with self._telling("look at"):
            self._container.reload()
        return _STATES.get(self._container.status, BrokerState.STOPPED)

    def start(self) -> None:
        """Start the server, in a container made at the first time. Raises `UsageError`."""
        check_allowed("start", self.name, self.state)
        with self._telling("start"):
            if self._is_made:
                self._container.get_wrapped_container().start()
            else:
                self._container.start()
                self._is_made = True

    def pause(self) -> None:
        """Freeze it: it holds its connections and answers nothing. Raises `UsageError`."""
        check_allowed("pause", self.name, self.state)
        with self._telling("pause"):
            self._container.get_wrapped_container().pause()

    def resume(self) -> None:
        """Let it go on as if no time had passed. Raises `UsageError`."""
        check_allowed("resume", self.name, self.state)
        with self._telling("resume"):
            self._container.get_wrapped_container().unpause()

    def kill(self) -> None:
        """SIGKILL, running or paused, and wait for its end. Raises `UsageError`."""
        check_allowed("kill", self.name, self.state)
        container = self._container.get_wrapped_container()
        with self._telling("kill"):
            try:
                container.kill()
            except docker.errors.APIError:
                if self.state is not BrokerState.PAUSED:
                    raise
                # Some engines do not kill what is paused.
                container.unpause()
                container.kill()
            container.wait()

    def stop(self, timeout: float) -> None:
        """SIGTERM and wait for a clean end; after `timeout` seconds, SIGKILL.

        Raises:
            UsageError: it is not running.
            KafkaTimeoutError: it did not end by itself; it was killed.
        """
        check_allowed("stop", self.name, self.state)
        container = self._container.get_wrapped_container()
        with self._telling("stop"):
            container.stop(timeout=math.ceil(timeout))
            status = container.wait()["StatusCode"]
        if status == KILLED_STATUS:
            raise KafkaTimeoutError(
                f"{self.name} did not stop within {timeout * 1000:.0f} ms and was killed"
            )

    def stay_alive(self, timeout: float) -> None:
        """Watch it for `timeout` seconds.

        Raises:
            BrokerFailedError: it has ended.
        """
        time.sleep(timeout)
        if self.state is BrokerState.STOPPED:
            raise BrokerFailedError(f"{self.name} ended; the last lines it logged:\n{self._tail()}")

    def remove(self) -> None:
        """End it in whatever state, and remove the container. A second call does nothing."""
        if not self._is_removed:
            self._is_removed = True
            # There may be one also where its start failed.
            with self._telling("remove"), contextlib.suppress(docker.errors.NotFound):
                self._container.stop(force=True, delete_volume=True)

    def _tail(self) -> str:
        with self._telling("read the log of"):
            log = self._container.get_wrapped_container().logs(tail=LOG_TAIL_LINES)
        return bytes(log).decode(errors="replace")

    @contextlib.contextmanager
    def _telling(self, action: str) -> Iterator[None]:
        """Say of an engine's error what it was about."""
        try:
            yield
        except ENGINE_ERRORS as error:
            raise BrokerFailedError(
                f"the Docker engine did not {action} {self.name}: {error}"
            ) from error
