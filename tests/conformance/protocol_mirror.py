"""Kafka's own classes, in a Java process that reads messages and writes them again.

`ProtocolMirror.java` says in which form it is asked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.java_mirror import JavaMirror


class Answer(NamedTuple):
    """What Kafka's classes made of some bytes: how they write it, and what they read."""

    written: bytes
    content: dict[str, Any]


class ProtocolMirror(JavaMirror):
    """The process."""

    def __init__(self) -> None:
        super().__init__(Path(__file__).with_name("ProtocolMirror.java"))

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
        apis: list[dict[str, Any]] = json.loads(self.ask("apis"))
        return apis

    def _answer(self, question: str) -> Answer:
        written, content = self.ask(question).split(" ", 1)
        return Answer(bytes.fromhex(written), json.loads(content))
