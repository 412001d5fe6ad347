"""LoggedStream: a query with Spark's log of offsets and of commits, without Spark.

It calls a reader in the order in which Spark's ``MicroBatchExecution`` does. A batch that was
logged and not committed is repeated first: it starts where the batch before ended, and the first
one at an initial offset that is requested again. A new reader stands for each new process.

Owner: the test that makes it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from spark_connector.schema import record_schema
from spark_connector.stream_reader import KafkaStreamReader

if TYPE_CHECKING:
    from collections.abc import Mapping


class CrashError(Exception):
    """The end of a driver between the log of a batch and its commit."""


class LoggedStream:
    """A stream that reads values.

    `log` has the end of each batch as text, `batches` the values of each committed one.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self.batches: list[list[str]] = []

    @property
    def values(self) -> list[str]:
        """The values of all committed batches, in order."""
        return sorted(value for batch in self.batches for value in batch)

    def run(self, options: Mapping[str, str], *, crashes: bool = False) -> None:
        """Read all available records in a new process, which may crash in its first batch.

        Raises: what the reader raises, and `CrashError`.
        """
        reader = KafkaStreamReader(options, record_schema(include_headers=False))
        try:
            reader.prepareForTriggerAvailableNow()
            while True:
                if len(self.log) == len(self.batches) and not self._log_next(reader):
                    return
                if crashes:
                    raise CrashError
                start = self._start(reader, len(self.batches))
                parts = reader.partitions(start, json.loads(self.log[-1]))
                rows = [batch for part in parts for batch in reader.read(part)]
                values = [value for batch in rows for value in batch["value"].to_pylist()]
                self.batches.append([value.decode() for value in values])
        finally:
            reader.stop()

    def _log_next(self, reader: KafkaStreamReader) -> bool:
        start = self._start(reader, len(self.log))
        end = json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit()))
        is_new = not self.log or end != self.log[-1]
        if is_new:
            self.log.append(end)
        return is_new

    def _start(self, reader: KafkaStreamReader, batch: int) -> Any:
        return json.loads(self.log[batch - 1]) if batch else reader.initialOffset()
