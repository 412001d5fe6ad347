"""The jobs done by Kafka's Java clients: Kafka's own performance tools, and a probe of ours.

The CPU is that of the JVM less that of one which handles a single record. Two things differ from
the other clients and cannot be set: ``ConsumerPerformance`` checks no checksums, and the JVM
compiles its code while the tools measure already. ``EndToEndLatency`` tells whole milliseconds
only, so latency is measured by `LatencyProbe.java`, which does the same steps.

Owner: the one thread of the process that does the job.
Source: Java classes ``ProducerPerformance``, ``ConsumerPerformance`` and ``EndToEndLatency``.
"""

from __future__ import annotations

import csv
import json
import re
import resource
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from contestants.job import LINGER_MS, POLL_RECORDS_MAX
from pykclient.testing.cluster.jars import kafka_jars
from pykclient.testing.cluster.java import find_java

if TYPE_CHECKING:
    from contestants.job import Figures, Job

TOOLS = "org.apache.kafka.tools"
PROBE = Path(__file__).with_name("LatencyProbe.java")
# What Kafka's own script for the tools gives to Java.
JVM_OPTIONS = (
    *("-server", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)
TIMEOUT_S = 600.0
SYSTEM_BUFFER = "-1"
SENT = re.compile(r"(\d+) records sent, ([\d.]+) records/sec")


def produce(job: Job) -> Figures:
    """Send each record by itself with a callback, by ``ProducerPerformance``."""
    start_up_cpu_s, _ = _sent(job, 1)
    cpu_s, rate = _sent(job, job.record_count - 1)
    return {
        "records_per_second": rate,
        "cpu_s_per_million": (cpu_s - start_up_cpu_s) / job.record_count * 1e6,
    }


def consume(job: Job) -> Figures:
    """Read record objects by ``ConsumerPerformance``; the group's joining does not count."""
    start_up_cpu_s, _ = _fetched(job, 1)
    cpu_s, row = _fetched(job, job.record_count)
    if int(row["data.consumed.in.nMsg"]) != job.record_count:
        raise RuntimeError(f"{job.topic}: {row} records read, not {job.record_count}")
    return {
        "records_per_second": float(row["fetch.nMsg.sec"]),
        "cpu_s_per_million": (cpu_s - start_up_cpu_s) / job.record_count * 1e6,
    }


def latency(job: Job) -> Figures:
    """Send one record, wait for its acknowledgement, then until it is read; and the next."""
    counts = (job.warm_up_count, job.record_count, job.value_bytes)
    arguments = [str(PROBE), job.bootstrap_servers, job.topic, *map(str, counts)]
    _, output = _run(arguments)
    figures: Figures = json.loads(output)
    return figures


def _sent(job: Job, record_count: int) -> tuple[float, float]:
    """CPU seconds of the JVM, and records a second as the tool says."""
    settings = {
        "bootstrap.servers": job.bootstrap_servers,
        "batch.size": job.batch_bytes,
        "linger.ms": LINGER_MS,
        "acks": "all",
        "enable.idempotence": "true",
        "send.buffer.bytes": SYSTEM_BUFFER,
        "receive.buffer.bytes": SYSTEM_BUFFER,
    }
    cpu_s, output = _run(
        [
            *(f"{TOOLS}.ProducerPerformance", "--topic", job.topic, "--throughput", "-1"),
            *("--num-records", str(record_count), "--record-size", str(job.value_bytes)),
            *("--command-property", *(f"{name}={value}" for name, value in settings.items())),
        ]
    )
    sent_count, rate = SENT.findall(output)[-1]
    if int(sent_count) != record_count:
        raise RuntimeError(f"{sent_count} of {record_count} records sent:\n{output}")
    return cpu_s, float(rate)


def _fetched(job: Job, record_count: int) -> tuple[float, dict[str, str]]:
    """CPU seconds of the JVM, and what the tool says, by the headings that it gives."""
    cpu_s, output = _run(
        [
            *(f"{TOOLS}.ConsumerPerformance", "--bootstrap-server", job.bootstrap_servers),
            *("--topic", job.topic, "--num-records", str(record_count)),
            *("--socket-buffer-size", SYSTEM_BUFFER),
            *("--command-property", f"max.poll.records={POLL_RECORDS_MAX}"),
        ]
    )
    (row,) = csv.DictReader(output.splitlines(), skipinitialspace=True)
    return cpu_s, row


def _run(arguments: list[str]) -> tuple[float, str]:
    """CPU seconds of a JVM with Kafka's classes, and what it wrote."""
    before_s = _children_cpu_seconds()
    ended = subprocess.run(
        [find_java().executable, *JVM_OPTIONS, "-cp", kafka_jars().classpath, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if ended.returncode != 0:
        raise RuntimeError(f"{arguments[0]} failed:\n{ended.stdout}{ended.stderr}")
    return _children_cpu_seconds() - before_s, ended.stdout


def _children_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
