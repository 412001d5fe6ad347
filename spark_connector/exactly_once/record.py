"""SinkRecord: the state of a sink that is kept in Kafka between batches, and its text.

It is the metadata of an offset that the group `names.sink_group` has committed, in transactions of
the driver. The offset is the number of the record, which grows by one each time.

The stage describes the last batch: *empty* before the first; *decided* when the transactions of its
tasks are named and each of them has to be committed; *complete* when all of them are; and
*incomplete* when brokers refused to commit some, whose rows are missing.

Owner: none; it is immutable.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from pykclient.errors import DecodeError
from spark_connector.exactly_once.names import slot_prefix

FORMAT: Final = 2
"""Format 2 added topic, checksums and application."""
READ_FORMATS: Final = (1, FORMAT)
PLAIN_LENGTH_MAX: Final = 1_000
"""Maximum length of a text that is not compressed."""
PART_LENGTH_MAX: Final = 4_000
"""Maximum length of a part; brokers accept 4096 bytes (``offset.metadata.max.bytes``)."""
TEXT_LENGTH_MAX: Final = 16 * 2**20
_PACKED: Final = "z"


class Stage(Enum):
    """The stage of a sink's last batch."""

    EMPTY = "empty"
    DECIDED = "decided"
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"


NEXT: Final[dict[Stage, frozenset[Stage]]] = {
    Stage.EMPTY: frozenset({Stage.DECIDED}),
    Stage.DECIDED: frozenset({Stage.COMPLETE, Stage.INCOMPLETE}),
    Stage.COMPLETE: frozenset({Stage.DECIDED}),
    Stage.INCOMPLETE: frozenset({Stage.DECIDED}),
}


class Missing(NamedTuple):
    """A task whose rows are missing in a batch, with their number and checksum.

    `checksum` is None in a record of format 1, which has none.
    """

    task: int
    row_count: int
    checksum: int | None = None


class Written(NamedTuple):
    """The prepared transaction of one attempt of a task: its identity and its rows.

    `checksum` is that of `checksum.RowsChecksum`, None in a record of format 1.
    """

    task: int
    row_count: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int
    checksum: int | None = None

    @property
    def rows(self) -> Missing:
        """The rows as a record lists them when they are missing."""
        return Missing(self.task, self.row_count, self.checksum)


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """The record of a sink (see the module).

    `turn` is the number of the driver that has the sink, from 1. `application` names that driver's
    Spark application, empty if it is unknown. `batch` is the number of the last decided batch, -1
    before the first; `query` is the id of its query, empty for a batch write. `topic` is the topic
    of all rows of that batch, empty if rows name their own, None in a record of format 1.
    `task_count` is the number of that batch's tasks. `written` are the transactions to commit of a
    decided batch. `missing` are the tasks of an incomplete batch whose rows are missing.
    """

    turn: int
    number: int = 0
    stage: Stage = Stage.EMPTY
    batch: int = -1
    query: str = ""
    topic: str | None = None
    task_count: int = 0
    written: tuple[Written, ...] = ()
    missing: tuple[Missing, ...] = ()
    application: str = ""

    def taken_over(self, application: str) -> SinkRecord:
        """Return a copy with the next turn, for a driver of this application."""
        return replace(self, turn=self.turn + 1, number=self.number + 1, application=application)

    def decided(
        self, batch: int, query: str, written: tuple[Written, ...], *, topic: str, task_count: int
    ) -> SinkRecord:
        """Return the decision that the batch consists of exactly these transactions."""
        return self._to(
            Stage.DECIDED,
            batch=batch,
            query=query,
            topic=topic,
            task_count=task_count,
            written=written,
            missing=(),
        )

    def ended(self, refused: frozenset[str]) -> SinkRecord:
        """Return the record after a decided batch; `refused` ids can no longer be committed."""
        missing = tuple(each.rows for each in self.written if each.transactional_id in refused)
        stage = Stage.INCOMPLETE if missing else Stage.COMPLETE
        return self._to(stage, written=(), missing=missing)

    def _to(self, stage: Stage, **changes: object) -> SinkRecord:
        assert stage in NEXT[self.stage], f"{self.stage} -> {stage}"
        changed: SinkRecord = replace(self, number=self.number + 1, stage=stage, **changes)  # type: ignore[arg-type]
        return changed

    def to_text(self, sink_id: str) -> str:
        """Return the text that `from_text` reads."""
        prefix = slot_prefix(sink_id)
        fields = {
            "format": FORMAT,
            "turn": self.turn,
            "application": self.application,
            "stage": self.stage.value,
            "batch": self.batch,
            "query": self.query,
            "topic": self.topic,
            "tasks": self.task_count,
            "written": [
                [task, rows, name.removeprefix(prefix), producer_id, epoch, version, checksum]
                for task, rows, name, producer_id, epoch, version, checksum in self.written
            ],
            "missing": [list(each) for each in self.missing],
        }
        text = json.dumps(fields, separators=(",", ":"))
        if len(text) <= PLAIN_LENGTH_MAX:
            return text
        return _PACKED + base64.b64encode(zlib.compress(text.encode())).decode()

    @classmethod
    def from_text(cls, sink_id: str, number: int, text: str) -> SinkRecord:
        """Parse the record of a sink. Raises: `DecodeError` if the text is not a record."""
        try:
            found = json.loads(_unpacked(text) if text.startswith(_PACKED) else text)
            if found["format"] not in READ_FORMATS:
                raise DecodeError(
                    f"The record of sink {sink_id!r} has format {found['format']!r}, which this "
                    f"version does not read: update pykclient on the driver."
                )
            prefix = slot_prefix(sink_id)
            topic = found.get("topic")
            return cls(
                turn=int(found["turn"]),
                number=number,
                stage=Stage(found["stage"]),
                batch=int(found["batch"]),
                application=str(found.get("application", "")),
                query=str(found["query"]),
                topic=None if topic is None else str(topic),
                task_count=int(found["tasks"]),
                written=tuple(
                    Written(
                        int(task),
                        int(rows),
                        prefix + str(name),
                        int(producer_id),
                        int(epoch),
                        int(version),
                        *map(_checksum, checksums),
                    )
                    for task, rows, name, producer_id, epoch, version, *checksums in found[
                        "written"
                    ]
                ),
                missing=tuple(
                    Missing(int(task), int(rows), *map(_checksum, checksums))
                    for task, rows, *checksums in found["missing"]
                ),
            )
        except (ValueError, TypeError, KeyError, zlib.error) as error:
            raise DecodeError(
                f"The record of sink {sink_id!r} cannot be read ({error!r}): {text[:100]!r}. "
                f"Something else has committed offsets for its group; give another sinkId."
            ) from error


def parts_of(text: str) -> list[str]:
    """Split a record into texts; each has its place and the number of parts."""
    pieces = [text[at : at + PART_LENGTH_MAX] for at in range(0, len(text), PART_LENGTH_MAX)]
    return [f"{index + 1}/{len(pieces)} {piece}" for index, piece in enumerate(pieces)]


def part_of(text: str) -> tuple[int, str]:
    """Return the number of a record's parts, and the text of this one.

    Raises: `DecodeError` if it is not a part of a record.
    """
    head, _, piece = text.partition(" ")
    _, _, count = head.partition("/")
    if not (count.isascii() and count.isdigit() and 0 < int(count) < 10_000):
        raise DecodeError(f"This is no part of a sink's record: {text[:100]!r}")
    return int(count), piece


def _checksum(value: object) -> int | None:
    if value is not None and not isinstance(value, int):
        raise ValueError(f"no checksum: {value!r}")
    return value


def _unpacked(text: str) -> bytes:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(base64.b64decode(text[len(_PACKED) :]), TEXT_LENGTH_MAX)
    if unpacker.unconsumed_tail:
        raise ValueError(f"more than {TEXT_LENGTH_MAX} bytes")
    return data
