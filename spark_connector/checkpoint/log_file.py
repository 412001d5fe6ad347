"""LoggedBatch: one file of Spark's log of offsets, and its text.

A file has a version, a line of metadata, and a line for each source: where the batch ends in it, or
a dash. In version 2 a line begins with the name of its source and a colon; in version 1 sources are
named by their place. A source of Kafka has ``{"topic": {"0": 23}}``, this connector's and Spark's
own alike.

Owner: none; it is immutable.
Source: Spark's classes ``OffsetSeqLog``, ``CommitLog``, ``KafkaSourceInitialOffsetWriter``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from pykclient.errors import ConfigError, DecodeError
from spark_connector.offsets import STARTS_KEY, StreamOffset

if TYPE_CHECKING:
    from collections.abc import Mapping

VOID: Final = "-"
"""The line of a source that has no offset yet."""
READ_VERSIONS: Final = (1, 2)
_VERSION: Final = re.compile(r"v(\d{1,9})")
INITIAL_PREFIX: Final = "\0"
"""Spark's own source writes it before the version, for Spark 2.1."""

WATERMARK: Final = "batchWatermarkMs"
PLANNED_AT: Final = "batchTimestampMs"


class Connector(Enum):
    """The connector that has logged an offset."""

    PYKAFKA = "pykafka"
    KAFKA = "kafka"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The line of one source. `offset` is None for another source, or before its first offset."""

    text: str
    offset: StreamOffset | None = None

    @classmethod
    def from_text(cls, text: str) -> SourceOffset:
        """Parse the offset of a line. Raises: `DecodeError` if the line is truncated."""
        if not text:
            raise DecodeError("a source has no offset, not even a dash")
        if not text.startswith("{"):
            return cls(text)
        try:
            found = StreamOffset.from_json(json.loads(text))
        except ConfigError:
            return cls(text)
        except (ValueError, OverflowError, RecursionError) as error:
            raise DecodeError(f"a line of offsets is cut or damaged: {text[:100]!r}") from error
        return cls(text, found)

    @property
    def connector(self) -> Connector:
        """The connector that logged it. Spark's own writes JSON without spaces."""
        if self.offset is None:
            return Connector.OTHER
        is_ours = '": ' in self.text or STARTS_KEY in self.text
        return Connector.PYKAFKA if is_ours else Connector.KAFKA

    def moved(self, offset: StreamOffset) -> SourceOffset:
        """Return the line of another offset, as the same connector writes it."""
        is_official = self.connector is Connector.KAFKA
        separators = (",", ":") if is_official else None
        return SourceOffset(json.dumps(offset.as_json(), separators=separators), offset)


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """One batch in the log of offsets. `sources` are by name, in Spark's order."""

    version: int
    metadata: Mapping[str, object]
    sources: Mapping[str, SourceOffset]

    @classmethod
    def from_text(cls, text: str) -> LoggedBatch:
        """Parse the batch of a file. Raises: `DecodeError` if it is truncated or damaged."""
        version, metadata, lines = _split(text)
        if version not in READ_VERSIONS:
            raise DecodeError(f"version v{version} of the file is not known: update pykclient")
        if not lines:
            raise DecodeError("the file ends before the offsets of its sources")
        if version == 1:
            named = {str(place): line for place, line in enumerate(lines)}
        else:
            pairs = [line.partition(":") for line in lines]
            if not all(colon for _, colon, _ in pairs):
                raise DecodeError("a line does not begin with the name of its source")
            named = {name: line for name, _, line in pairs}
        sources = {name: SourceOffset.from_text(line) for name, line in named.items()}
        return cls(version, metadata, sources)

    def to_text(self) -> str:
        """Return the text in Spark's format."""
        names = "" if self.version == 1 else "{}:"
        lines = [names.format(name) + source.text for name, source in self.sources.items()]
        return "\n".join([f"v{self.version}", json_line(self.metadata), *lines])

    def with_sources(self, sources: Mapping[str, SourceOffset]) -> LoggedBatch:
        """Return a copy of the batch with other ends."""
        return replace(self, sources=dict(sources))

    def at(self, now_ms: int) -> LoggedBatch:
        """Return a copy of the batch planned at another time, in milliseconds since 1970."""
        return replace(self, metadata={**self.metadata, PLANNED_AT: now_ms})

    @property
    def watermark_ms(self) -> int | None:
        """The event-time watermark in milliseconds since 1970, None if the file has none."""
        return _number(self.metadata.get(WATERMARK))

    @property
    def planned_at_ms(self) -> int | None:
        """The time at which Spark planned the batch, milliseconds since 1970."""
        return _number(self.metadata.get(PLANNED_AT))


def commit_from_text(text: str) -> Mapping[str, object]:
    """Parse a file of Spark's commit log. Raises: `DecodeError`."""
    return _split(text)[1]


def first_commit_text(watermark_ms: int) -> str:
    """Return the text of a commit if there is no earlier one to copy."""
    return f"v1\n{json_line({'nextBatchWatermarkMs': watermark_ms})}"


def initial_from_text(text: str) -> SourceOffset:
    """Parse the initial offsets of a query of Spark's own source. Raises: `DecodeError`."""
    try:
        version, line = text.removeprefix(INITIAL_PREFIX).split("\n", 1)
    except ValueError as error:
        raise DecodeError("the file is cut") from error
    found = SourceOffset.from_text(line.strip())
    if _VERSION.fullmatch(version) is None or found.offset is None:
        raise DecodeError("the file does not have the offsets of Spark's own source")
    return found


def initial_to_text(source: SourceOffset) -> str:
    """Return the text that `initial_from_text` reads."""
    return f"{INITIAL_PREFIX}v1\n{source.text}"


def json_line(value: Mapping[str, object]) -> str:
    """Return JSON as Spark writes it."""
    return json.dumps(value, separators=(",", ":"))


def _split(text: str) -> tuple[int, Mapping[str, object], list[str]]:
    """Return the version, the metadata and the other lines."""
    if not text.strip():
        raise DecodeError("the file is empty")
    head, *lines = [line.strip() for line in text.split("\n")]
    found = _VERSION.fullmatch(head)
    if found is None:
        raise DecodeError(f"the file does not begin with a version: {head[:20]!r}")
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise DecodeError("the file ends behind its version")
    metadata: Mapping[str, object] = {}
    if lines[0]:
        try:
            metadata = json.loads(lines[0])
        except (ValueError, RecursionError) as error:
            raise DecodeError("the line of metadata is cut or damaged") from error
        if not isinstance(metadata, dict):
            raise DecodeError("the line of metadata is no JSON object")
    return int(found[1]), metadata, lines[1:]


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
