"""Sink: writes the rows of one task to Kafka, with the columns of Spark's own sink.

Rows go to `Producer.send_arrow` as they come, a record batch at a time, and no object is made per
record. A task succeeds when all its rows are acknowledged. A task that is repeated writes its rows
again: the sink delivers at least once. Where it is to deliver exactly once, the rows are in a
transaction that the task prepares, and of all attempts the driver commits one.

Owner: the sink is immutable and pickled to the tasks; a task has its producer to itself.
Source: Spark's Structured Streaming + Kafka Integration Guide (columns and options of the sink).
"""

from __future__ import annotations

import json
import logging
from collections import deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from pykclient.config.unknown_keys import did_you_mean
from pykclient.errors import (
    BatchDeliveryError,
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    MessageTooLargeError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from pykclient.producer.config import ProducerConfig
from spark_connector.cluster import FIRST_RESPONSE_S_MAX
from spark_connector.exactly_once.checksum import RowsChecksum
from spark_connector.exactly_once.delivery import ExactDelivery
from spark_connector.exactly_once.driver import driver_of
from spark_connector.exactly_once.protocol import Action, Report
from spark_connector.exactly_once.record import Written
from spark_connector.exactly_once.slots import slots_of
from spark_connector.first_response import has_first_response, is_first_batch
from spark_connector.options import Use, effective_options
from spark_connector.worker_clients import worker_producer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql.types import StructType

    from pykclient import Delivery, Producer, RecordMetadataRange
    from spark_connector.client_settings import ClientSettings
    from spark_connector.exactly_once.protocol import View

_LOG = logging.getLogger(__name__)

TOPIC_WAIT_S: Final = 1.0
"""Time that a task waits for a topic that brokers do not know. Some create it on demand, which took
0.1 to 0.4 s on a busy machine; a producer waits ``max.block.ms``, a minute."""

PATIENCE: Final = ("max.block.ms", "default.api.timeout.ms", "delivery.timeout.ms", "retries")
"""Settings of the user that say how long a write waits for brokers, also for the first response."""

UNDER_WAY_BYTES_MAX: Final = 16 * 2**20
"""Maximum bytes of Arrow batches that wait for acknowledgement while Spark makes the next one.

A single batch may be larger: Spark cuts batches by rows.
"""

BATCH_BYTES: Final = 4096
"""Bytes that a batch counts besides its data, so that many small ones are bounded, too."""

_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}
"""The columns that a record is made of, and Spark's types for them. Others are ignored."""


class WrittenRows(WriterCommitMessage):
    """The report of a task: how many rows were acknowledged and how many were too large.

    Where rows are written exactly once it also has what the driver commits.
    """

    def __init__(self, row_count: int, too_large_count: int, report: Report | None = None) -> None:
        self.row_count = row_count
        self.too_large_count = too_large_count
        self.report = report


class Place(NamedTuple):
    """The task and batch that write, and their query: an empty name for a batch write.

    `attempt` counts the task's earlier attempts, as far as Spark reports them.
    """

    batch: int
    query: str
    task: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Sink:
    """The destination of a write.

    `columns` has the record's columns by the names that rows have. `exactly` is None where rows are
    written at least once. `checkpoint` is the folder of Spark's log of a stream's batches, empty if
    no option names it.
    """

    topic: str | None
    columns: Mapping[str, str]
    too_large_topic: str | None
    client: ClientSettings
    exactly: ExactDelivery | None = None
    checkpoint: str = ""

    @classmethod
    def from_spark(cls, given: Mapping[str, str], schema: StructType) -> Sink:
        """Make the sink of one write. Raises: `ConfigError` for a bad option or column."""
        options, client = effective_options(given, Use.SINK)
        exactly = ExactDelivery.from_options(options)
        topic = options.get("topic", "").strip() or None
        columns = _checked_columns(schema, topic)
        if "timestampcolumn" in options:
            columns["timestamp"] = _timestamp_column(schema, options["timestampcolumn"].strip())
        too_large_topic = options.get("onrecordtoolarge", "").strip() or None
        checkpoint = options.get("checkpointlocation", "").strip()
        made = cls(topic, columns, too_large_topic, client, exactly, checkpoint)
        # The settings are checked here, before a task needs them.
        settings = made.producer_settings()
        if exactly is not None:
            settings["transactional.id"] = exactly.sink_id
        ProducerConfig.from_settings(settings)
        return made

    def producer_settings(self) -> dict[str, object]:
        """Return the settings of the tasks' producers, without a transactional id."""
        return self.client.of_producer(is_transactional=self.exactly is not None)

    def first_response_s(self, batch: int | None) -> float | None:
        """Return how long a write waits for brokers to respond at all: a wrong address fails soon.

        None is as long as for every other request: for a later batch of a query, which has reached
        brokers before, and where the user has set how long.
        """
        is_set = any(self.client.spelling_of(name) is not None for name in PATIENCE)
        return None if batch or is_set else FIRST_RESPONSE_S_MAX

    def first_response_to_plan_s(self) -> float | None:
        """Return how long the plan of a stream's batch waits for brokers to respond at all.

        Spark does not tell a plan the number of its batch. Where the checkpoint does not tell it
        either, the batch may be a later one.
        """
        return self.first_response_s(0 if is_first_batch(self.checkpoint) else 1)

    def is_answered(self) -> bool:
        """Return False where no broker responds to the driver before tasks start.

        Otherwise each attempt of a task would find that out for itself. It is not looked for where
        the user has set how long to wait.
        """
        timeout_s = self.first_response_s(None)
        return timeout_s is None or has_first_response(self.client, timeout_s)

    def write(
        self, batches: Iterable[pa.RecordBatch], first_response_s: float | None = None
    ) -> WrittenRows:
        """Send the rows and wait until all are acknowledged.

        `first_response_s` is how long brokers may take to respond at all, None as long as always.

        Raises: `KafkaError` that names the first row that failed, its topic and the reason.
        """
        with worker_producer(self.producer_settings()) as producer:
            write = _Write(self, producer, first_response_s=first_response_s)
            return WrittenRows(*write.run(batches))

    def write_exactly(
        self, batches: Iterable[pa.RecordBatch], view: View, place: Place
    ) -> WrittenRows:
        """Send the rows in a transaction and prepare it, or drop those of a batch already written.

        Raises: what `write` and `SinkProtocol.action` raise.
        """
        assert self.exactly is not None
        task = place.task
        if place.attempt:
            view = driver_of(self.exactly, self.client).view_again(view)
        action = self.exactly.protocol.action(view, batch=place.batch, query=place.query, task=task)
        rows = (batch for batch in batches if batch.num_rows)
        report = Report(view.turn, place.query, task, None)
        if action is Action.SKIP:
            # To their end: Spark writes its state when they are read.
            skipped_count = sum(batch.num_rows for batch in rows)
            return WrittenRows(0, 0, report._replace(skipped_count=skipped_count))
        first = next(rows, None)
        if first is None:
            return WrittenRows(0, 0, report)
        slots = slots_of(self.exactly.sink_id, self.producer_settings())
        checksum = RowsChecksum()
        with slots.attempt(view.turn, place.batch) as attempt:
            write = _Write(self, attempt.producer, checksum)
            row_count, too_large_count = write.run(chain([first], rows))
            prepared = attempt.prepare()
        written = Written(
            task,
            row_count,
            prepared.transactional_id,
            prepared.producer_id,
            prepared.producer_epoch,
            prepared.transaction_version,
            checksum.value,
        )
        return WrittenRows(row_count, too_large_count, report._replace(written=written))

    def table_of(self, batch: pa.RecordBatch) -> pa.Table:
        """Select the columns of a batch that records are made of."""
        return pa.table({name: batch.column(column) for name, column in self.columns.items()})


class _Sent(NamedTuple):
    table: pa.Table
    first_row: int
    delivery: Delivery[list[RecordMetadataRange]]
    byte_count: int


class _Write:
    """One task's rows: those under way, and those that brokers do not take for their size.

    `checksum` gets all rows, where they are written exactly once.
    """

    def __init__(
        self,
        sink: Sink,
        producer: Producer,
        checksum: RowsChecksum | None = None,
        first_response_s: float | None = None,
    ) -> None:
        self._sink = sink
        self._first_response_s = first_response_s
        self._producer = producer
        self._checksum = checksum
        self._under_way: deque[_Sent] = deque()
        self._under_way_bytes = 0
        self._topics: set[str] = set()
        """The topics that exist."""
        self._row_count = 0
        self._too_large_count = 0

    def run(self, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
        """Write all rows: how many they were, and how many were too large."""
        for batch in batches:
            self._take(self._sink.table_of(batch))
            del batch  # or it would stay until Spark has made the next one
        # No row of this task comes any more that what lingers could wait for.
        self._producer.flush()
        while self._under_way:
            self._settle_first()
        if self._too_large_count > 1:
            _LOG.warning(
                "%d rows of this task were too large: notes of them are in topic %r.",
                self._too_large_count,
                self._sink.too_large_topic,
            )
        return self._row_count, self._too_large_count

    def _take(self, table: pa.Table) -> None:
        if self._checksum is not None:
            self._checksum.add(table)
        self._check_topics(table)
        self._await_topics(table)
        self._send(table, self._row_count)
        self._row_count += len(table)
        del table
        while self._under_way and (
            self._under_way[0].delivery.done() or self._under_way_bytes > UNDER_WAY_BYTES_MAX
        ):
            self._settle_first()

    def _check_topics(self, table: pa.Table) -> None:
        if self._sink.topic is None and table["topic"].null_count:
            row = self._row_count + table["topic"].is_null().index(True).as_py()
            raise ConfigError(
                f"Row {row} of this task has no topic: fill the column 'topic', or give the "
                f"option 'topic'."
            )

    def _await_topics(self, table: pa.Table) -> None:
        topic = self._sink.topic
        for name in table["topic"].unique().to_pylist() if topic is None else [topic]:
            self._await_topic(name)

    def _await_topic(self, topic: str) -> None:
        """Wait for a topic that is new to this task.

        Raises: `UnknownTopicOrPartitionError` when the brokers do not know it, and
        `KafkaTimeoutError` when none responds to a write that begins. Where none responds later,
        what is sent next fails in its time.
        """
        if topic in self._topics:
            return
        error = self._topic_error(topic, TOPIC_WAIT_S)
        if error is not None and self._first_response_s is not None:
            rest_s = self._first_response_s - TOPIC_WAIT_S
            if rest_s > 0:
                error = self._topic_error(topic, rest_s)
            if error is not None:
                raise error
        if error is None:
            self._topics.add(topic)
            self._first_response_s = None

    def _topic_error(self, topic: str, timeout_s: float) -> KafkaTimeoutError | None:
        """Return why a topic has no metadata after some time, None where it has."""
        try:
            self._producer.partitions_for(topic, timeout_s)
        except KafkaTimeoutError as error:
            if isinstance(error.__cause__, UnknownTopicOrPartitionError):
                raise UnknownTopicOrPartitionError(
                    f"Topic {topic!r} does not exist, and brokers did not make it within "
                    f"{TOPIC_WAIT_S} s: create it, or see kafka.bootstrap.servers and the option "
                    f"or column 'topic'."
                ) from error
            return error
        return None

    def _send(self, table: pa.Table, first_row: int) -> None:
        if not len(table):
            return
        try:
            delivery = self._producer.send_arrow(self._sink.topic, table)
        except RecordTooLargeError as error:
            # The client refuses the table for one row, before it sends any: the halves show which.
            if len(table) == 1:
                self._put_aside(table, first_row, error)
                return
            half = len(table) // 2
            self._send(table.slice(0, half), first_row)
            self._send(table.slice(half), first_row + half)
            return
        byte_count = table.nbytes + BATCH_BYTES
        self._under_way.append(_Sent(table, first_row, delivery, byte_count))
        self._under_way_bytes += byte_count

    def _settle_first(self) -> None:
        """Wait for the oldest delivery, and let go of its rows."""
        sent = self._under_way.popleft()
        self._under_way_bytes -= sent.byte_count
        try:
            sent.delivery.result()
        except BatchDeliveryError as failure:
            for rows, error in zip(failure.failed, failure.errors, strict=True):
                if not isinstance(error, (RecordTooLargeError, MessageTooLargeError)):
                    raise self._named(sent.table, rows[0], sent.first_row, error) from failure
                for row in rows:
                    self._put_aside(sent.table.slice(row, 1), sent.first_row + row, error)

    def _put_aside(self, table: pa.Table, row: int, error: KafkaError) -> None:
        """Send a note of one row in its place. Raises: `KafkaError` where there is no topic."""
        topic = self._sink.too_large_topic
        if topic is None:
            raise self._named(table, 0, row, error) from error
        self._await_topic(topic)
        record = table.to_pylist()[0]
        value = record["value"]
        note = {
            "topic": self._sink.topic or record["topic"],
            "valueBytes": None if value is None else len(value),
            "reason": str(error),
        }
        key = record.get("key")
        self._producer.send(
            topic,
            json.dumps(note).encode(),
            key.encode() if isinstance(key, str) else key,
            headers=[(header["key"], header["value"]) for header in record.get("headers") or ()],
        ).result()
        self._too_large_count += 1
        if self._too_large_count == 1:
            _LOG.warning(
                "Row %d of this task, for topic %r, was not written: %s A note is in topic %r.",
                row,
                note["topic"],
                error,
                topic,
            )

    def _named(self, table: pa.Table, index: int, first_row: int, error: KafkaError) -> KafkaError:
        topic = self._sink.topic or table["topic"][index].as_py()
        return KafkaError(f"Row {first_row + index} of this task, for topic {topic!r}: {error}")


def _checked_columns(schema: StructType, topic: str | None) -> dict[str, str]:
    columns: dict[str, str] = {}
    for field in schema:
        # Spark's columns are not case-sensitive.
        name = field.name.lower()
        if name not in _TYPES or (name == "topic" and topic is not None):
            continue
        actual = field.dataType.simpleString()
        if actual not in _TYPES[name]:
            raise ConfigError(
                f"Column {field.name!r} has type {actual}; a record's {name} is "
                f"{' or '.join(_TYPES[name])}: cast it."
            )
        if name in columns:
            raise ConfigError(f"There are two columns for a record's {name}: rename one.")
        columns[name] = field.name
    if "value" not in columns:
        raise ConfigError(
            f"There is no column 'value', which a record needs."
            f"{did_you_mean('value', schema.names)}"
        )
    if topic is None and "topic" not in columns:
        raise ConfigError(
            "Give the option 'topic', or a column 'topic' with the topic of each row."
        )
    return columns


def _timestamp_column(schema: StructType, name: str) -> str:
    found = next((field for field in schema if field.name.lower() == name.lower()), None)
    if found is None:
        raise ConfigError(
            f"Option 'timestampColumn' names no column: {name!r}.{did_you_mean(name, schema.names)}"
        )
    if found.dataType.simpleString() != "timestamp":
        raise ConfigError(
            f"Column {found.name!r} (option 'timestampColumn') has type "
            f"{found.dataType.simpleString()}, not timestamp: cast it."
        )
    return found.name
