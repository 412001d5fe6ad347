"""Options with which a JVM that lives for a test takes half the work of one that lives for long.

Owner: none; it holds no state.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pykclient.testing.spark_cluster.home import QUICK_JVM, find_spark_home

if TYPE_CHECKING:
    from pathlib import Path


def quick_jvm_environ() -> dict[str, str]:
    """Return this process's environment, with the options for JVMs that a program starts."""
    return {**os.environ, "JDK_JAVA_OPTIONS": " ".join(QUICK_JVM)}


def quick_spark_environ(folder: Path) -> dict[str, str]:
    """Return the same for a program that starts Spark, which runs from `folder` (see `SparkHome`).

    Raises: `MissingPrerequisiteError` where Spark cannot run.
    """
    home = find_spark_home()
    home.link(folder)
    options = " ".join(home.jvm_options)
    return {**os.environ, "SPARK_HOME": str(folder), "JDK_JAVA_OPTIONS": options}
