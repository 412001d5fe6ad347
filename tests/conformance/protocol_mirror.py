"""Kafka's own classes, in a Java process that reads messages and writes them again.

`ProtocolMirror.java` describes its lines.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.java_mirror import JavaMirror


class JavaResult(NamedTuple):
    """The result of Kafka's classes for some bytes: how they write them and what they read."""

    written: bytes
    content: dict[str, Any]


class ProtocolMirror(JavaMirror):
    """The process."""

    def __init__(self) -> None:
        super().__init__(Path(__file__).with_name("ProtocolMirror.java"))

    def request(self, frame: bytes) -> JavaResult:
        """Ask about a request with its header, without its size."""
        return self._result_of(f"request {frame.hex()}")

    def response(self, api_key: int, version: int, frame: bytes) -> JavaResult:
        """Ask about a response with its header, without its size."""
        return self._result_of(f"response {api_key} {version} {frame.hex()}")

    def data(self, name: str, version: int, data: bytes) -> JavaResult:
        """Ask about a message that belongs to no API."""
        return self._result_of(f"data {name} {version} {data.hex()}")

    def apis(self) -> list[dict[str, Any]]:
        """Every API of Kafka: key, name, low, high, and header versions."""
        apis: list[dict[str, Any]] = json.loads(self.call("apis"))
        return apis

    def _result_of(self, line: str) -> JavaResult:
        written, content = self.call(line).split(" ", 1)
        return JavaResult(bytes.fromhex(written), json.loads(content))
