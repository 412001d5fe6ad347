"""An archive of Spark's classes that a JVM maps into memory: it starts with half the work.

The archive of a PySpark and a Java is in the user's cache. It is made once, from a short run of a
driver. Without one, or if the jars or Java have changed, the JVM reads the jars.

``python -m pykclient.testing.spark_cluster.spark_classes`` makes it if it is missing.

Owner: the file system; an archive is put into place complete.
Source: Java's ``-XX:ArchiveClassesAtExit`` and ``-XX:SharedArchiveFile`` (JEP 350).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pykclient.errors.base import KafkaError
from pykclient.testing.cluster.java import MissingPrerequisiteError
from pykclient.testing.port import LOOPBACK
from pykclient.testing.spark_cluster.home import QUICK_JVM, QUIET_ARCHIVE, find_spark_home

if TYPE_CHECKING:
    from pykclient.testing.spark_cluster.home import SparkHome

JOB = Path(__file__).with_name("archive_job.py")
TIMEOUT_S = 300.0
LOG_TAIL = 2_000


def make_archive(home: SparkHome) -> Path | None:
    """Make the archive if needed; return None if this Java cannot.

    Raises:
        KafkaError: Spark failed; the message has the tail of its output.
    """
    archive = home.class_archive
    if is_usable(archive, home):
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_suffix(f".partial-{os.getpid()}")
    options = (*QUICK_JVM, *QUIET_ARCHIVE, f"-XX:ArchiveClassesAtExit={partial}")
    with TemporaryDirectory() as folder:
        settings = {
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": " ".join(options),
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
        }
        given = (part for key, value in settings.items() for part in ("--conf", f"{key}={value}"))
        ended = subprocess.run(
            [str(home.folder / "bin" / "spark-submit"), *given, str(JOB), f"{folder}/checkpoint"],
            env={
                **os.environ,
                "SPARK_HOME": str(home.folder),
                "SPARK_LOCAL_IP": LOOPBACK,
                "PYSPARK_PYTHON": sys.executable,
            },
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if ended.returncode:
        partial.unlink(missing_ok=True)
        raise KafkaError(f"spark-submit ended with {ended.returncode}: {ended.stdout[-LOG_TAIL:]}")
    if not is_usable(partial, home):
        partial.unlink(missing_ok=True)
        return None
    partial.rename(archive)
    return archive


def is_usable(archive: Path, home: SparkHome) -> bool:
    """Return whether the file exists and Java can map it with this PySpark's jars."""
    if not archive.exists():
        return False
    options = (f"-XX:SharedArchiveFile={archive}", "-Xshare:on", *QUICK_JVM)
    command = [str(home.java.executable), *options, "-cp", home.classpath, "-version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def main() -> int:
    """Make the archive. It is optional, as is Spark."""
    try:
        archive = make_archive(find_spark_home())
        sys.stdout.write(f"Spark's classes: {archive or 'the jars'}\n")
    except MissingPrerequisiteError as error:
        sys.stdout.write(f"No archive of Spark's classes: {error}\n")
    except (KafkaError, OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"Spark's classes are read from the jars: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
