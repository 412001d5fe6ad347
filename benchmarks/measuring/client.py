"""Client: one of those that are measured, what it can do, and whether it is installed here.

Owner: none, it is immutable.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pykclient import Producer, accel
from pykclient.testing.cluster.java import MissingPrerequisiteError, find_java

if TYPE_CHECKING:
    from collections.abc import Mapping

THIS_CHECKOUT = Path(accel.__file__).parents[2]
COMPILER_MODULE = "jdk.compiler"


@dataclass(frozen=True, slots=True)
class Client:
    """A client that runs as ``contestants.<module>`` in a process of its own.

    `package` is the package that it imports and `distribution` the one whose version is shown;
    `environment` is added to the process's. A slow client does each job with a tenth of the
    records, so that a run does not take minutes. `checkout` is where our own package comes from.
    """

    name: str
    module: str
    package: str
    distribution: str
    is_slow: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    checkout: Path = THIS_CHECKOUT

    def of_checkout(self, folder: Path, name: str) -> Client:
        """Return the same client as another checkout has it, under another name."""
        return replace(self, name=name, checkout=folder)

    def missing(self, action: str) -> str | None:
        """Why it cannot do the job here, None when it can."""
        if find_spec(self.package) is None:
            return f"{self.distribution} is not installed; it is in the extra bench"
        if self.module == "with_java":
            return _missing_java(action)
        if action in ("send_batch", "send_arrow") and not hasattr(Producer, action):
            return f"this pykclient has no {action}"
        return None


def _missing_java(action: str) -> str | None:
    try:
        java = find_java()
    except MissingPrerequisiteError as error:
        return str(error)
    if action == "latency" and not java.has_module(COMPILER_MODULE):
        return f"{java.executable} has no compiler, which the probe needs: install a JDK"
    return None


PYKCLIENT = Client("pykclient", "with_pykclient", "pyarrow", "pykclient")
PURE = Client(
    "pykclient, pure",
    "with_pykclient",
    "pyarrow",
    "pykclient",
    environment={"PYKCLIENT_ACCEL": "pure"},
)
CONFLUENT = Client("confluent-kafka", "with_confluent_kafka", "confluent_kafka", "confluent-kafka")
JAVA = Client("Java", "with_java", "pykclient", "pykclient")
AIOKAFKA = Client("aiokafka", "with_aiokafka", "aiokafka", "aiokafka", is_slow=True)
KAFKA_PYTHON = Client("kafka-python", "with_kafka_python", "kafka", "kafka-python", is_slow=True)
RAW_SOCKET = Client("raw socket", "with_raw_socket", "crc32c", "crc32c")

CLIENTS = (PYKCLIENT, PURE, CONFLUENT, JAVA, AIOKAFKA, KAFKA_PYTHON, RAW_SOCKET)
