"""Arena: a broker, its topics, and clients that do one job each in a process of their own.

A produce job counts only when the broker's end offsets say that every record arrived; any error of
a client ends the benchmark, with what the client wrote.

Owner: the thread that made it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from contestants.job import Job
from measuring.client import PYKCLIENT
from pykclient import Admin, Consumer, NewTopic, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contestants.job import Figures
    from measuring.client import Client
    from measuring.instructions import Instructions

FOLDER = Path(__file__).parents[1]
VALUE_BYTES = 100
PARTITION_COUNT = 6
BATCH_BYTES = 1_000_000
LATENCY_RECORDS_MIN = 20
# Files of deleted topics go at once: a run leaves gigabytes behind otherwise.
TOPIC_CONFIG = {"file.delete.delay.ms": 1_000}
TOPIC_NUMBERS = count(1)
JOB_TIMEOUT_S = 1800.0
COUNTED_LINGER_MS = 5_000
"""Under valgrind a client is slower by a factor of 50, and its batches are to fill all the same."""


class ContestantFailedError(RuntimeError):
    """A client failed at its job; the message ends with what it wrote."""


class Arena:
    """The cluster at which clients take turns; `bootstrap_servers` must have no other use.

    With `tls_servers` and `ca_location` clients connect with TLS, to another listener of it. With
    `instructions` only their instructions are counted.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        tls_servers: str = "",
        ca_location: str | None = None,
        instructions: Instructions | None = None,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.client_servers = tls_servers or bootstrap_servers
        self.ca_location = ca_location
        self.instructions = instructions

    @contextmanager
    def topic(self, partition_count: int = PARTITION_COUNT) -> Iterator[str]:
        """Provide a new topic, which is deleted afterwards."""
        name = f"bench-{os.getpid()}-{next(TOPIC_NUMBERS)}"
        topic = NewTopic(
            name, num_partitions=partition_count, replication_factor=1, config=TOPIC_CONFIG
        )
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            admin.create_topics([topic])
            yield name
            admin.delete_topics([name])

    @contextmanager
    def filled_topic(
        self,
        record_count: int,
        *,
        partition_count: int = PARTITION_COUNT,
        value_bytes: int = VALUE_BYTES,
        batch_bytes: int = BATCH_BYTES,
        has_keys: bool = False,
    ) -> Iterator[Job]:
        """Provide a new topic with records in it, as the job of reading them."""
        with self.topic(partition_count) as name:
            job = self._job(
                name, partition_count, record_count, value_bytes, batch_bytes, has_keys=has_keys
            )
            self.append(PYKCLIENT, "produce", job)
            yield job

    def produce(
        self,
        client: Client,
        action: str,
        record_count: int,
        *,
        partition_count: int = PARTITION_COUNT,
        value_bytes: int = VALUE_BYTES,
        batch_bytes: int = BATCH_BYTES,
        has_keys: bool = False,
    ) -> Figures:
        """Measure a client that sends to a new topic; return once all records have arrived."""
        with self.topic(partition_count) as name:
            job = self._job(
                name, partition_count, record_count, value_bytes, batch_bytes, has_keys=has_keys
            )
            return self.append(client, action, job)

    def latency(self, client: Client, record_count: int) -> Figures:
        """Measure a client that sends and reads one record after the other, in a new topic."""
        with self.topic(1) as name:
            record_count = max(record_count, LATENCY_RECORDS_MIN)
            job = self._job(name, 1, record_count, VALUE_BYTES, BATCH_BYTES, has_keys=False)
            return self.run(client, "latency", job)

    def transactions(self, client: Client, record_count: int) -> Figures:
        """Measure a client that sends transactions to a new topic."""
        with self.topic(PARTITION_COUNT) as name:
            job = self._job(
                name, PARTITION_COUNT, record_count, VALUE_BYTES, BATCH_BYTES, has_keys=False
            )
            return self.run(client, "transactions", job)

    def append(self, client: Client, action: str, job: Job) -> Figures:
        """Measure a client that sends to an existing topic; return once all records have arrived.

        Raises:
            ContestantFailedError: it failed, or the number of records that arrived differs.
        """
        before_count = self._record_count(job)
        figures = self.run(client, action, job)
        arrived_count = self._record_count(job) - before_count
        if arrived_count != job.record_count:
            raise ContestantFailedError(
                f"{client.name}, {action}: {arrived_count} of {job.record_count} records arrived "
                f"in {job.topic}"
            )
        return figures

    def run(self, client: Client, action: str, job: Job) -> Figures:
        """Run a client's job in a fresh process and return its figures.

        Raises:
            ContestantFailedError: it failed, or did not end within half an hour.
        """
        command = [sys.executable, "-P", "-m", "contestants", client.module, action]
        import_path = os.pathsep.join(map(str, (FOLDER, client.checkout)))
        added = {**client.environment, "PYTHONPATH": import_path}
        if self.instructions is not None:
            command = [*self.instructions.command, *command]
            added.update(self.instructions.environment)
            job = replace(job, linger_ms=COUNTED_LINGER_MS)
        try:
            ended = subprocess.run(
                [*command, json.dumps(asdict(job))],
                env={**os.environ, **added},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=JOB_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ContestantFailedError(f"{client.name}, {action}: {error}") from error
        if ended.returncode != 0:
            raise ContestantFailedError(f"{client.name}, {action}:\n{ended.stdout}{ended.stderr}")
        if self.instructions is not None:
            instructions = self.instructions.counted(ended.stderr)
            return {"instructions_per_record": instructions / job.record_count}
        figures: Figures = json.loads(ended.stdout)
        return figures

    def _job(
        self,
        topic: str,
        partition_count: int,
        record_count: int,
        value_bytes: int,
        batch_bytes: int,
        *,
        has_keys: bool,
    ) -> Job:
        return Job(
            self.client_servers,
            topic,
            partition_count,
            record_count,
            value_bytes,
            batch_bytes,
            has_keys,
            self.ca_location,
        )

    def _record_count(self, job: Job) -> int:
        partitions = [TopicPartition(job.topic, index) for index in range(job.partition_count)]
        with Consumer(bootstrap_servers=self.bootstrap_servers) as consumer:
            return sum(consumer.end_offsets(partitions).values())
