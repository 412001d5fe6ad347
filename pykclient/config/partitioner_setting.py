"""The setting for a partitioner: an object, or a name of librdkafka's or Java's.

Owner: none; it holds no state.
Source: Java classes ``RoundRobinPartitioner``, ``DefaultPartitioner``; librdkafka's setting
``partitioner``.
"""

from __future__ import annotations

from typing import Final

from pykclient.config.setting import Kind, object_or_name
from pykclient.config.unknown_keys import java_hint

PARTITIONERS: Final = (
    "murmur2_random",
    "murmur2",
    "consistent_random",
    "consistent",
    "fnv1a_random",
    "fnv1a",
    "random",
    "round_robin",
)
"""The partitioners that can be set by name."""

_JAVA_PACKAGE: Final = "org.apache.kafka.clients.producer."
_OF_JAVA: Final = {
    f"{_JAVA_PACKAGE}RoundRobinPartitioner": "round_robin",
    f"{_JAVA_PACKAGE}internals.DefaultPartitioner": "murmur2_random",
}


def partitioner_or_name() -> Kind[object]:
    """Return the kind of a partitioner: an object, or the name of a built-in one."""
    others = object_or_name(_hint)

    def parse(value: object) -> object:
        text = value.strip() if isinstance(value, str) else ""
        name = _OF_JAVA.get(text, text)
        return name if name in PARTITIONERS else others.parse(value)

    allowed = f"one of {', '.join(PARTITIONERS)}, or {others.allowed}"
    return Kind(parse, allowed, named=others.named)


def _hint(text: str) -> str:
    """Return a hint for a Java class or a name that is nearly valid; empty for others."""
    last = text.rpartition(".")[2]
    if last == "UniformStickyPartitioner":
        return "Set partitioner.ignore.keys=true instead, as Kafka 4 has it (KIP-794)."
    if last in ("DefaultPartitioner", "RoundRobinPartitioner"):
        name = "murmur2_random" if last == "DefaultPartitioner" else "round_robin"
        return f"Java's class of this name is partitioner={name}."
    word = text.replace("-", "_").lower()
    word = {"roundrobin": "round_robin", "crc32": "consistent", "fnv1": "fnv1a"}.get(word, word)
    if word in PARTITIONERS:
        return f"Write {word!r}."
    return java_hint(text)
