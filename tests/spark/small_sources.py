"""Small sources that note in a file what Spark calls: they show what Spark does, not what we do.

Spark's Python processes import them from here, by name.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from spark_connector.versions import HAS_READ_LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

PARTITION_COUNT = 2
ROW_COUNT = 3


class Call(NamedTuple):
    """One recorded call of a source: name, arguments, process and time."""

    name: str
    argument: object
    process: int
    time_s: float


class Calls:
    """A log of calls, one per line of a file; processes share `path`."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def note(self, name: str, argument: object = None) -> None:
        line = json.dumps((name, argument, os.getpid(), time.monotonic()))
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def read(self) -> list[Call]:
        """All calls so far; a line that is being written is left out."""
        if not self._path.exists():
            return []
        whole, _, _ = self._path.read_text(encoding="utf-8").rpartition("\n")
        return [Call(*json.loads(line)) for line in whole.splitlines()]

    def of(self, name: str) -> list[Call]:
        return [call for call in self.read() if call.name == name]


class NotedSource(DataSource):
    """A batch of two partitions of three rows, and a stream of one row for each offset.

    The options: `calls`, the file that calls are noted in; `first`, a file with the initial
    offset of a stream, and `end`, its last; `fails`, a file that makes tasks fail while it exists;
    `raises`, with which `streamReader` raises.
    """

    @classmethod
    def name(cls) -> str:
        return "noted"

    def schema(self) -> str:
        given = {key: value for key, value in self.options.items() if key != "calls"}
        Calls(self.options["calls"]).note("schema", given)
        return "p INT, n INT"

    def reader(self, schema: StructType) -> DataSourceReader:
        return NotedReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if "raises" in self.options:
            raise ValueError("the reason that the source gives")
        return NotedStreamReader(self.options) if HAS_READ_LIMITS else OldStreamReader(self.options)


class NotedReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._calls = Calls(options["calls"])

    def partitions(self) -> Sequence[InputPartition]:
        self._calls.note("partitions")
        return [InputPartition(partition) for partition in range(PARTITION_COUNT)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        gc.callbacks.append(self._note_collection)
        self._calls.note("read", os.environ.get("SPARK_REUSE_WORKER"))
        return iter([(partition.value, number) for number in range(ROW_COUNT)])

    def _note_collection(self, phase: str, info: dict[str, int]) -> None:
        """Record the first full garbage collection that follows a read in its process."""
        if phase == "start" and info["generation"] == 2:
            gc.callbacks.remove(self._note_collection)
            self._calls.note("collected")


class FilteredSource(NotedSource):
    """The same batch, with a reader that takes `p = ...` off Spark."""

    @classmethod
    def name(cls) -> str:
        return "filtered"

    def reader(self, schema: StructType) -> DataSourceReader:
        return FilteredReader(self.options)


class FilteredReader(NotedReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._wanted = range(PARTITION_COUNT)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        from pyspark.sql.datasource import EqualTo  # PySpark 4.0 has no filters

        for one in filters:
            if isinstance(one, EqualTo) and one.attribute == ("p",):
                self._wanted = range(one.value, one.value + 1)
            else:
                yield one

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(partition) for partition in self._wanted]


class NotedStreamReader(DataSourceStreamReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._calls = Calls(options["calls"])
        self._calls.note("streamReader", [self._options, dict(os.environ), sys.argv])

    def initialOffset(self) -> dict[str, int]:
        first = int(Path(self._options["first"]).read_text(encoding="utf-8"))
        self._calls.note("initialOffset", first)
        return {"at": first}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        """One more than `start`, until the stream is at its end."""
        self._calls.note("latestOffset", start["at"])
        self._calls.note("limit", repr(limit))
        return {"at": min(start["at"] + 1, int(self._options["end"]))}

    def reportLatestOffset(self) -> dict[str, int]:
        self._calls.note("reportLatestOffset")
        return {"at": 1_000}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self._calls.note("partitions", [start["at"], end["at"]])
        return [InputPartition(start["at"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        task = TaskContext.get()
        self._calls.note("read", None if task is None else repr(vars(task)))
        if Path(self._options["fails"]).exists():
            raise ValueError("this task fails")
        return iter([(0, partition.value)])

    def commit(self, end: dict[str, int]) -> None:
        self._calls.note("commit", end["at"])

    def stop(self) -> None:
        self._calls.note("stop")


class OldStreamReader(NotedStreamReader):
    """The same stream, as a PySpark calls it that has no limits for a micro-batch."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._at: int | None = None

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        """One more than the end that Spark has got or has shown last."""
        if self._at is None:
            self._at = int(Path(self._options["first"]).read_text(encoding="utf-8"))
        found = super().latestOffset({"at": self._at}, None)
        self._at = found["at"]
        return found

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self._at = end["at"]
        return super().partitions(start, end)
