"""Archives of Kafka's classes that a JVM maps into memory: a server starts with half the work.

The archive of a Kafka version and a Java is next to the jars. It is made once, from a short run of
a broker. Without one, or if the jars or Java have changed, the JVM reads the jars.

``python -m pykclient.testing.cluster.kafka_classes`` makes the missing archives.

Owner: the file system; an archive is put into place complete.
Source: Java's ``-XX:ArchiveClassesAtExit`` and ``-XX:SharedArchiveFile`` (JEP 350).
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pykclient import Admin, Consumer, NewTopic, Producer
from pykclient.errors.base import KafkaError
from pykclient.testing.cluster.jars import KAFKA_VERSIONS, kafka_jars
from pykclient.testing.cluster.java import find_java
from pykclient.testing.cluster.local import LocalCluster

if TYPE_CHECKING:
    from pathlib import Path

START_TIMEOUT_S = 120.0
CONSUME_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 60.0


def make_archive(version: str) -> Path | None:
    """Make the archive of a Kafka version if needed; return None if this Java cannot.

    Raises:
        KafkaError: a broker did not start, or did not stop.
    """
    archive = kafka_jars(version).class_archive(find_java())
    if archive.exists():
        return archive
    partial = archive.with_suffix(f".partial-{os.getpid()}")
    options = (f"-XX:ArchiveClassesAtExit={partial}",)
    cluster = LocalCluster(
        1,
        version,
        {},
        proxied=False,
        security=None,
        timeout=START_TIMEOUT_S,
        server_options=options,
    )
    try:
        _exercise(str(cluster.address(1)))
        cluster.brokers[1].stop(STOP_TIMEOUT_S)
    finally:
        cluster.close()
    if not is_usable(partial, version):
        partial.unlink(missing_ok=True)
        return None
    partial.rename(archive)
    return archive


def is_usable(archive: Path, version: str) -> bool:
    """Return whether this Java can map the archive with the version's jars."""
    options = (f"-XX:SharedArchiveFile={archive}", "-Xshare:on")
    classpath = kafka_jars(version).classpath
    command = [str(find_java().executable), *options, "-cp", classpath, "-version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _exercise(servers: str) -> None:
    """Make the broker load the classes for common operations: topics, records, a group."""
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("archive", 1)])
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("archive", b"").result()
    with Consumer(
        bootstrap_servers=servers, group_id="archive", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["archive"])
        consumer.poll(CONSUME_TIMEOUT_S)


def main() -> int:
    """Make the archives of the tested versions. They are optional, and only save time."""
    with ThreadPoolExecutor() as pool:
        for version, future in [(each, pool.submit(make_archive, each)) for each in KAFKA_VERSIONS]:
            try:
                sys.stdout.write(f"Kafka {version}'s classes: {future.result() or 'the jars'}\n")
            except (KafkaError, OSError) as error:
                sys.stderr.write(f"Kafka {version}'s classes are read from the jars: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
