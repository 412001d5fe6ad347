"""A verifiable client in a process of its own, ours or Java's, held to what Kafka's tests demand.

`check` goes through what it printed, in order: a record comes only from a partition that the member
has, at the position where it should go on, and no commit is beyond what was read.

Owner: the test that made it; a thread of its own reads what the process prints.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pykclient import TopicPartition
from pykclient.testing.cluster.jars import kafka_jars
from pykclient.testing.cluster.java import find_java
from pykclient.testing.spark_cluster.home import QUICK_JVM

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
EXIT_TIMEOUT_S = 60.0


class VerifiableMember:
    """A context manager; what is still running at its end is killed."""

    module: ClassVar[str] = "pykclient.testing.verifiable_consumer"
    java_tool: ClassVar[str] = "VerifiableConsumer"
    servers_option: ClassVar[str] = "--bootstrap-server"

    def __init__(
        self,
        servers: str,
        *options: str,
        java_version: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        ours = (sys.executable, "-m", self.module)
        command = ours if java_version is None else _java_command(java_version, self.java_tool)
        self._process = subprocess.Popen(
            [*command, self.servers_option, servers, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            text=True,
        )
        self.events: list[dict[str, Any]] = []
        self.errors = ""
        self._threads = [
            threading.Thread(target=read, daemon=True)
            for read in (self._read_events, self._read_errors)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self.wait()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdout.close()
        self._process.stderr.close()

    @property
    def has_ended(self) -> bool:
        """True if its process has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()

    def terminate(self) -> None:
        """Ask it to leave and to end."""
        self._process.terminate()

    def wait(self) -> int:
        """Wait until it has ended, and return its status."""
        status = self._process.wait(EXIT_TIMEOUT_S)
        for thread in self._threads:
            thread.join(EXIT_TIMEOUT_S)
        return status

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return the events of one name so far."""
        return [event for event in list(self.events) if event["name"] == name]

    def assigned(self) -> set[TopicPartition]:
        """Return the partitions that it has."""
        owned: set[TopicPartition] = set()
        for event in list(self.events):
            if event["name"] == "partitions_assigned":
                owned |= _partitions(event)
            elif event["name"] == "partitions_revoked":
                owned -= _partitions(event)
        return owned

    def values(self) -> list[str]:
        """Return the values that it was given, in order."""
        return [event["value"] for event in self.named("record_data")]

    def check(self, committed: dict[TopicPartition, int]) -> None:
        """Raise when it printed what must not be; `committed` goes from member to member."""
        owned: set[TopicPartition] = set()
        positions: dict[TopicPartition, int] = {}
        for event in list(self.events):
            match event["name"]:
                case "partitions_assigned":
                    owned |= _partitions(event)
                    positions = {place: at for place, at in positions.items() if place in owned}
                case "partitions_revoked":
                    owned -= _partitions(event)
                case "records_consumed":
                    for part in event["partitions"]:
                        place = TopicPartition(part["topic"], part["partition"])
                        assert place in owned, event
                        assert part["minOffset"] == positions.get(place, part["minOffset"]), event
                        assert part["minOffset"] >= committed.get(place, 0), event
                        assert part["count"] == part["maxOffset"] - part["minOffset"] + 1
                        positions[place] = part["maxOffset"] + 1
                case "offsets_committed":
                    assert event["success"], event
                    for part in event["offsets"]:
                        place = TopicPartition(part["topic"], part["partition"])
                        assert place in owned, event
                        assert part["offset"] <= positions[place], event
                        committed[place] = part["offset"]

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # a killed process may have cut its line short
                self.events.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self.errors = self._process.stderr.read()


def _partitions(event: dict[str, Any]) -> set[TopicPartition]:
    return {TopicPartition(part["topic"], part["partition"]) for part in event["partitions"]}


def _java_command(version: str, tool: str) -> tuple[str, ...]:
    java = find_java()
    return (
        *(str(java.executable), "-Xmx256m", *QUICK_JVM),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        *kafka_jars(version).java_options(java),
        f"org.apache.kafka.tools.{tool}",
    )
