"""SparkHome: the installed PySpark, and how its Java programs and Python processes are started.

Spark gives every Python process a zip file of PySpark in front of what is installed, which Python
compiles anew in each process. A cluster runs from a folder that has all but that file: its Python
processes import the PySpark that their interpreter has installed, and has compiled.

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
"""For a JVM that lives for a test."""
QUIET_ARCHIVE: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""An archive of other jars or another Java is passed over without a word."""
_LINKED: Final = ("bin", "jars")


@dataclass(frozen=True, slots=True)
class SparkHome:
    """The PySpark in `folder`, and the Java that Spark finds."""

    folder: Path
    java: Java

    @property
    def class_archive(self) -> Path:
        """Where `spark_classes` puts Spark's classes as this Java maps them into its memory."""
        version = importlib.metadata.version("pyspark")
        return cache_folder() / f"spark-{version}" / f"classes-{self.java.vm_version}.jsa"

    @property
    def classpath(self) -> str:
        """What Spark's launcher gives to ``java -cp``."""
        jars = self.folder / "jars"
        first = map(str, jars.glob("slf4j-api-*.jar"))
        return os.pathsep.join((str(self.folder / "conf"), *first, str(jars / "*")))

    @property
    def jvm_options(self) -> tuple[str, ...]:
        """For Spark's JVMs; with the archive of its classes, if there is one."""
        archive = self.class_archive
        mapped = (f"-XX:SharedArchiveFile={archive}", *QUIET_ARCHIVE) if archive.exists() else ()
        return (*QUICK_JVM, *mapped)

    def link(self, folder: Path) -> None:
        """Make `folder` a home from which a cluster runs."""
        folder.mkdir()
        for name in _LINKED:
            (folder / name).symlink_to(self.folder / name)


def find_spark_home() -> SparkHome:
    """The installed PySpark, with its Java.

    Raises:
        MissingPrerequisiteError: there is none of them; says the cure.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise MissingPrerequisiteError(
            "Spark needs PySpark, which is not installed: pip install 'pyspark[connect]' pyarrow"
        )
    return SparkHome(Path(found.origin).parent, find_spark_java())
