"""SparkHome: the installed PySpark, and how to start its Java programs and Python processes.

Spark puts a zip file of PySpark in front of every Python process's path, and each process compiles
it again. A cluster therefore runs from a folder without that file: its Python processes import the
installed PySpark, which is already compiled.

Owner: none; it holds no state.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pykclient.testing.cluster.jars import cache_folder
from pykclient.testing.cluster.java import MissingPrerequisiteError, find_spark_java

if TYPE_CHECKING:
    from pykclient.testing.cluster.java import Java

QUICK_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""Options of a short-lived JVM."""
QUIET_ARCHIVE: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""Options that silence warnings about an archive of other jars or another Java."""
_LINKED: Final = ("bin", "jars")


@dataclass(frozen=True, slots=True)
class SparkHome:
    """The PySpark in `folder`, and the Java that Spark uses."""

    folder: Path
    java: Java

    @property
    def class_archive(self) -> Path:
        """Path of this Java's archive of Spark's classes, which `spark_classes` writes."""
        version = importlib.metadata.version("pyspark")
        return cache_folder() / f"spark-{version}" / f"classes-{self.java.vm_version}.jsa"

    @property
    def classpath(self) -> str:
        """Argument of ``java -cp``, as Spark's launcher builds it."""
        jars = self.folder / "jars"
        first = map(str, jars.glob("slf4j-api-*.jar"))
        return os.pathsep.join((str(self.folder / "conf"), *first, str(jars / "*")))

    @property
    def jvm_options(self) -> tuple[str, ...]:
        """Options of Spark's JVMs, with the class archive if it exists."""
        archive = self.class_archive
        mapped = (f"-XX:SharedArchiveFile={archive}", *QUIET_ARCHIVE) if archive.exists() else ()
        return (*QUICK_JVM, *mapped)

    def link(self, folder: Path) -> None:
        """Create in `folder` a home for a cluster to run from."""
        folder.mkdir()
        for name in _LINKED:
            (folder / name).symlink_to(self.folder / name)


def find_spark_home() -> SparkHome:
    """Find the installed PySpark and its Java.

    Raises:
        MissingPrerequisiteError: one of them is missing; the message tells how to get it.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise MissingPrerequisiteError(
            "Spark needs PySpark, which is not installed: pip install 'pyspark[connect]' pyarrow"
        )
    return SparkHome(Path(found.origin).parent, find_spark_java())
