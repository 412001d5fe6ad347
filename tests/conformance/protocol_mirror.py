"""A long-lived Java process that reads messages with Kafka's own classes and writes them again.

Questions and answers alternate on a pipe, a line each; `ProtocolMirror.java` says in which form.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple, Self

from pykclient.testing.cluster.jars import kafka_jars
from pykclient.testing.cluster.java import MissingPrerequisiteError
from pykclient.testing.fixtures import skip_or_fail
from tests.java_compiler import java_with_compiler
from tools.protogen.jar import KAFKA_VERSION

__all__ = ["Answer", "ProtocolMirror"]

_SOURCE = Path(__file__).with_name("ProtocolMirror.java")
_EXIT_TIMEOUT_S = 30.0


class Answer(NamedTuple):
    """What Kafka's classes made of some bytes: how they write it, and what they read."""

    written: bytes
    content: dict[str, Any]


class ProtocolMirror:
    """The process; a context manager that ends it."""

    def __init__(self, java: Path, classpath: str) -> None:
        self._process = subprocess.Popen(
            [str(java), "-Xmx256m", "-cp", classpath, str(_SOURCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @classmethod
    def start(cls) -> Self:
        """Start it, or end the test where there is no Java, no compiler, or no jar."""
        java = java_with_compiler()
        try:
            jars = kafka_jars(KAFKA_VERSION)
        except MissingPrerequisiteError as error:
            skip_or_fail(str(error))
        return cls(java.executable, jars.classpath)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_EXIT_TIMEOUT_S)
        self._process.stdout.close()

    def request(self, frame: bytes) -> Answer:
        """Ask about a request with its header, without its size."""
        return self._answer(f"request {frame.hex()}")

    def response(self, api_key: int, version: int, frame: bytes) -> Answer:
        """Ask about a response with its header, without its size."""
        return self._answer(f"response {api_key} {version} {frame.hex()}")

    def data(self, name: str, version: int, data: bytes) -> Answer:
        """Ask about a message that belongs to no API."""
        return self._answer(f"data {name} {version} {data.hex()}")

    def apis(self) -> list[dict[str, Any]]:
        """Every API that Kafka knows: key, name, low, high, and header versions."""
        apis: list[dict[str, Any]] = json.loads(self._ask("apis"))
        return apis

    def _answer(self, question: str) -> Answer:
        written, content = self._ask(question).split(" ", 1)
        return Answer(bytes.fromhex(written), json.loads(content))

    def _ask(self, question: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        assert answer, "the Java process has ended"
        assert not answer.startswith("error "), f"{answer}; the question was {question[:200]}"
        return answer
