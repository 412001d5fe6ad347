"""Options with which a JVM that lives for a test takes half the work of one that lives for long.

Owner: none; it holds no state.
"""

from __future__ import annotations

import os
from typing import Final

QUICK_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def quick_jvm_environ() -> dict[str, str]:
    """This process's environment, with the options for the JVMs that a program starts."""
    return {**os.environ, "JDK_JAVA_OPTIONS": " ".join(QUICK_JVM)}
