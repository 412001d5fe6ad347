"""Spark's own Kafka connector, the oracle of this format's tests.

Run as ``python -m tests.spark.official_connector`` it fetches the jars into the user's cache.

Owner: none, it holds no state.
"""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from typing import Final

from pykclient.testing.cluster.jars import Artifact, JarSet, cached_jars

VERSIONS: Final = ("4.2.0", "4.1.1", "4.0.0")
"""The newest that Maven has runs on the engines of Spark 4.2 and 4.3, the others on their own."""


def version_for(pyspark: str) -> str:
    """Return the version of the connector that runs on a PySpark."""
    minor = ".".join(pyspark.split(".")[:2])
    return next((one for one in VERSIONS if one.startswith(f"{minor}.")), VERSIONS[0])


VERSION: Final = version_for(importlib.metadata.version("pyspark"))

_ARTIFACTS: Final = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", VERSION),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.2"),
    Artifact("org.apache.commons", "commons-pool2", "2.12.1"),
)
# What else they depend on is in Spark itself.
_JARS: Final = JarSet(
    title=f"Spark's Kafka connector {VERSION}",
    folder_name=f"spark-sql-kafka-{VERSION}",
    artifacts=_ARTIFACTS,
    required=tuple(one.jar for one in _ARTIFACTS),
    is_alone=True,
    digests=Path(__file__).with_name(f"spark-sql-kafka-{VERSION}.sha256"),
)


def official_jars() -> tuple[Path, ...]:
    """Return the jars, fetched if they are not cached yet.

    Raises: `MissingPrerequisiteError` when they cannot be fetched.
    """
    folder = cached_jars(_JARS)
    return tuple(folder / one.jar for one in _ARTIFACTS)


def official_classpath() -> str:
    """Return the jars as ``spark.driver.extraClassPath`` takes them. Raises: as `official_jars`."""
    return os.pathsep.join(map(str, official_jars()))


if __name__ == "__main__":
    official_jars()
