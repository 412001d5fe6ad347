"""Finds the Kafka jar with the schemas, and runs Java against it."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

__all__ = ["KAFKA_VERSION", "find_classpath", "read_schemas"]

KAFKA_VERSION = "4.3.1"
_ARTIFACTS = (
    f"org/apache/kafka/kafka-clients/{KAFKA_VERSION}/kafka-clients-{KAFKA_VERSION}.jar",
    "org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar",
)


def find_classpath() -> list[Path]:
    """The kafka-clients jar, first, and what it needs to run; fetched with Maven when missing."""
    repository = Path(os.environ.get("MAVEN_REPOSITORY", Path.home() / ".m2" / "repository"))
    jars = [repository / artifact for artifact in _ARTIFACTS]
    if all(jar.exists() for jar in jars):
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise FileNotFoundError(
            f"kafka-clients-{KAFKA_VERSION}.jar is not in {repository} and there is no mvn to"
            " fetch it; install Maven or pass --jar"
        )
    for jar in _ARTIFACTS:
        group, name, version, _ = jar.rsplit("/", 3)
        artifact = f"{group.replace('/', '.')}:{name}:{version}"
        subprocess.run([maven, "-q", "-B", "dependency:get", f"-Dartifact={artifact}"], check=True)
    return jars


def read_schemas(jar: Path) -> dict[str, str]:
    """Schema name -> its text, for all message schemas in `jar`."""
    with zipfile.ZipFile(jar) as archive:
        return {
            Path(name).stem: archive.read(name).decode()
            for name in sorted(archive.namelist())
            if name.startswith("common/message/") and name.endswith(".json")
        }
