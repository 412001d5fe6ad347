"""Consumers of several clients, each a member of a group with a thread of its own.

Owner: the test that made it; `values` may be looked at by any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import subprocess
import tempfile
import threading
import time
import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pytest

from pykclient import Consumer
from pykclient.testing.cluster.jars import KAFKA_VERSIONS, kafka_jars
from pykclient.testing.cluster.java import find_java
from pykclient.testing.cluster.properties import dump_properties
from pykclient.testing.spark_cluster.home import QUICK_JVM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykclient.testing.cluster.properties import PropertyValue

TOPIC = "t"
GROUP = "g"
POLL_MS = 50
HEARTBEAT_MS = 200
"""Heartbeat interval of members; the default is 3 s."""
SESSION_MS = 6_000
"""The least that Kafka takes. A client that gives up joining leaves a member behind, which the
others wait for until its session ends."""
CLOSE_TIMEOUT_S = 30.0
WAIT_TIMEOUT_S = 60.0
LOOK_S = 0.02


def import_libraries() -> None:
    """Import the other clients' installed libraries, before any of them has a thread.

    They warn when they are imported, and which warnings count is no thread's own.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("confluent_kafka", "kafka", "aiokafka"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def wait_until(
    condition: Callable[[], bool],
    what: Callable[[], str] | str,
    *members: GroupMember,
    timeout_s: float = WAIT_TIMEOUT_S,
) -> None:
    """Wait until the condition holds. Fails if a client has failed or time is up."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        for member in members:
            member.check()
        description = what if isinstance(what, str) else what()
        assert time.monotonic() < deadline_s, f"{description}: not within {timeout_s:.0f} s"
        time.sleep(LOOK_S)


class GroupMember(ABC):
    """A member that reads until it is closed, then commits; a context manager."""

    needs: ClassVar[str | None] = None
    """Module to import."""

    def __init__(self, servers: str, topic: str = TOPIC, group_id: str = GROUP) -> None:
        self.client_module: Any = None if self.needs is None else pytest.importorskip(self.needs)
        self.servers = servers
        self.topic = topic
        self.group_id = group_id
        self.values: list[bytes] = []
        self._is_closing = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group; raise the client's error, if any. May be called again."""
        self._is_closing.set()
        self._thread.join(CLOSE_TIMEOUT_S)
        assert not self._thread.is_alive(), "the member does not end"
        self.check()

    def check(self) -> None:
        """Raise the client's error, if any."""
        if self._error is not None:
            raise self._error

    @abstractmethod
    def read(self) -> None:
        """Join, read until `_is_closing`, commit and leave."""

    def _run(self) -> None:
        try:
            self.read()
        except Exception as error:  # noqa: BLE001  # raised in the thread of the test
            self._error = error


class OurMember(GroupMember):
    """A member that is this project's consumer."""

    settings: ClassVar[Mapping[str, object]] = {}
    timing: ClassVar[Mapping[str, object]] = {
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "session_timeout_ms": SESSION_MS,
    }

    def read(self) -> None:
        with Consumer(
            {**self.timing, **self.settings},
            bootstrap_servers=self.servers,
            group_id=self.group_id,
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.subscribe([self.topic])
            while not self._is_closing.is_set():
                for record in consumer.poll(POLL_MS / 1000):
                    assert isinstance(record.value, bytes)
                    self.values.append(record.value)


class OurCooperativeMember(OurMember):
    """A member that is this project's consumer, in a cooperative group."""

    settings: ClassVar[Mapping[str, object]] = {
        "partition_assignment_strategy": "cooperative-sticky"
    }


class OurKip848Member(OurMember):
    """A member that is this project's consumer with KIP-848; the broker sets its heartbeats."""

    settings: ClassVar[Mapping[str, object]] = {"group_protocol": "consumer"}
    timing: ClassVar[Mapping[str, object]] = {}


class OurAutoMember(OurMember):
    """A member that is this project's consumer, with the protocol the coordinator supports."""

    settings: ClassVar[Mapping[str, object]] = {"group_protocol": "auto"}


class OurEagerMember(OurMember):
    """A member that is this project's consumer, with librdkafka's and aiokafka's assignors."""

    settings: ClassVar[Mapping[str, object]] = {
        "partition_assignment_strategy": ["range", "roundrobin"]
    }


class ConfluentMember(GroupMember):
    """librdkafka."""

    settings: ClassVar[Mapping[str, PropertyValue]] = {"heartbeat.interval.ms": HEARTBEAT_MS}

    def read(self) -> None:
        confluent_kafka = pytest.importorskip("confluent_kafka")
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": self.group_id,
                "auto.offset.reset": "earliest",
                **self.settings,
            }
        )
        consumer.subscribe([self.topic])
        try:
            while not self._is_closing.is_set():
                message = consumer.poll(POLL_MS / 1000)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    self.values.append(message.value())
                else:  # others are for information: it tries again by itself
                    assert not error.fatal(), error
        finally:
            consumer.close()


class ConfluentCooperativeMember(ConfluentMember):
    """librdkafka in a cooperative group."""

    settings: ClassVar[Mapping[str, PropertyValue]] = {
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": "cooperative-sticky",
    }


class KafkaPythonMember(GroupMember):
    """kafka-python."""

    needs = "kafka"

    def read(self) -> None:
        consumer = self.client_module.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.servers.split(","),
            group_id=self.group_id,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
        )
        try:
            while not self._is_closing.is_set():
                # A shorter time would interrupt its joining.
                for records in consumer.poll(timeout_ms=10 * POLL_MS).values():
                    self.values += [record.value for record in records]
        finally:
            consumer.close()


class AiokafkaMember(GroupMember):
    """aiokafka, with an event loop of its own."""

    needs = "aiokafka"

    def read(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        consumer = self.client_module.AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.servers,
            group_id=self.group_id,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
        )
        await consumer.start()
        try:
            while not self._is_closing.is_set():
                for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                    self.values += [record.value for record in records]
        finally:
            await consumer.stop()


class JavaMember(GroupMember):
    """Kafka's console consumer in its own process, which prints one record per line."""

    version: ClassVar[str] = KAFKA_VERSIONS[0]
    settings: ClassVar[Mapping[str, PropertyValue]] = {"heartbeat.interval.ms": HEARTBEAT_MS}

    @property
    def subscription(self) -> tuple[str, str]:
        return ("--topic", self.topic)

    def read(self) -> None:
        config = "--consumer.config" if self.version < "4" else "--command-config"
        java = find_java()
        with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
            file.write(dump_properties({"group.id": self.group_id, **self.settings}))
            file.flush()
            process = subprocess.Popen(
                [
                    *(java.executable, "-Xmx256m", *QUICK_JVM),
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                    *kafka_jars(self.version).java_options(java),
                    "org.apache.kafka.tools.consumer.ConsoleConsumer",
                    *("--bootstrap-server", self.servers, *self.subscription, "--from-beginning"),
                    *(config, str(Path(file.name))),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            self._follow(process)

    def _follow(self, process: subprocess.Popen[bytes]) -> None:
        closer = threading.Thread(target=self._terminate, args=[process], daemon=True)
        closer.start()
        assert process.stdout is not None
        try:
            for line in process.stdout:
                self.values.append(line.rstrip(b"\n"))
        finally:
            self._is_closing.set()
            _, description = process.communicate(timeout=CLOSE_TIMEOUT_S)
            closer.join(CLOSE_TIMEOUT_S)
        # 143: ended by the signal that we sent, after it had left the group.
        assert process.returncode in (0, 143), description.decode(errors="replace")[-4000:]

    def _terminate(self, process: subprocess.Popen[bytes]) -> None:
        self._is_closing.wait()
        process.terminate()


class CooperativeJavaMember(JavaMember):
    """Kafka's console consumer in a cooperative group."""

    settings: ClassVar[Mapping[str, PropertyValue]] = {
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": (
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
        ),
    }


class OldestJavaMember(JavaMember):
    """Kafka's console consumer of the oldest version."""

    version = KAFKA_VERSIONS[-1]


class ConfluentKip848Member(ConfluentMember):
    """librdkafka with KIP-848; the broker sets its heartbeat interval."""

    settings: ClassVar[Mapping[str, PropertyValue]] = {"group.protocol": "consumer"}


class JavaKip848Member(JavaMember):
    """Kafka's console consumer with KIP-848."""

    settings: ClassVar[Mapping[str, PropertyValue]] = {"group.protocol": "consumer"}


class JavaRegexMember(JavaKip848Member):
    """Kafka's console consumer, subscribed by a regular expression."""

    @property
    def subscription(self) -> tuple[str, str]:
        return ("--include", f"{self.topic}|nothing.*")
