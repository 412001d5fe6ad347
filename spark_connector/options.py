"""KafkaOptions: what the user gave to Spark for the format "pykafka", parsed and checked once.

Names, values and defaults are those of Spark's own Kafka source and sink. An option that is unknown
is refused by name. One that has no effect in this use, such as a limit of streams in a batch, is
accepted with a warning: people keep one dictionary of options for a whole pipeline. Immutable and
picklable: it travels to the tasks.

Owner: none, it is immutable.
Source: Spark's Structured Streaming + Kafka Integration Guide.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient import TopicPartition
from pykclient.admin.config import AdminConfig
from pykclient.config.given_settings import from_text
from pykclient.config.providers import PROVIDERS_MAX
from pykclient.config.unknown_keys import did_you_mean, is_known
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors import ConfigError
from pykclient.producer.config import ProducerConfig
from pykclient.types import IsolationLevel
from spark_connector.admission import EVERY_OTHER_TOPIC
from spark_connector.client_settings import (
    CLIENT_PREFIX,
    IDLE_SETTINGS,
    REFUSED_BY_READS,
    REFUSED_BY_WRITES,
    TRANSACTION_SETTINGS,
    ClientSettings,
)
from spark_connector.limits import ending_limit, json_object, shown, starting_limit
from spark_connector.offsets import TaskLimits
from spark_connector.topic_pattern import checked_pattern, found_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spark_connector.limits import OffsetLimit

_LOG = logging.getLogger(__name__)

PROVIDERS: Final = "config.providers"

POLL_TIMEOUT_MS: Final = 120_000
"""Spark's own default: ``spark.network.timeout``."""

BATCH_ROWS: Final = 10_000
"""Rows of an Arrow batch: with fewer Spark's own cost for each shows, with more nothing is won."""

BATCH_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of an Arrow batch, which the worker, the socket and the JVM each hold: large records come
in batches of fewer rows, and one that is larger than this alone."""

READ_DEFAULTS: Final[Mapping[str, object]] = {
    "allow.auto.create.topics": False,
    # The system's own grows with what comes. Kafka's default of 64 KiB takes a dozen turns for a
    # response, which costs a task more than to decode it.
    "receive.buffer.bytes": -1,
}
"""Defaults of the consumer that replace Kafka's."""

LARGE_READ: Final[Mapping[str, object]] = {"max.partition.fetch.bytes": 8 * 2**20}
"""The same for ranges of more than an Arrow batch: each request costs a task a third of a
millisecond. For a small range more would be fetched than is read."""

TRIGGER_DELAY_MS_MAX: Final = 15 * 60 * 1_000
OFFSET_RETRIES: Final = 3
OFFSET_RETRY_MS: Final = 1_000
OFFSET_POLL_INTERVAL_MS: Final = 50

AT_LEAST_ONCE: Final = "at_least_once"
EXACTLY_ONCE: Final = "exactly_once"
DELIVERIES: Final = (AT_LEAST_ONCE, EXACTLY_ONCE)
TRANSACTION_TIMEOUT: Final = "kafka.transaction.timeout.ms"

TASKS_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_TRUTHS: Final = {"true": True, "false": False}
_UNITS_BYTES: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Use(Enum):
    """The purpose of a set of options."""

    BATCH = "a batch read"
    STREAM = "a streaming read"
    SINK = "a write"


class Option(NamedTuple):
    """One option: its official spelling, what it has an effect on, and what it does."""

    name: str
    uses: frozenset[Use]
    meaning: str

    def is_refused_in(self, use: Use) -> bool:
        """Tell whether the option is refused rather than ignored: an end is refused for a stream.

        endingTimestamp is the exception: Spark's own source accepts it, so this one does too.
        """
        return use is Use.STREAM and self.name in ("endingOffsets", "endingOffsetsByTimestamp")


_READS: Final = frozenset({Use.BATCH, Use.STREAM})
_BATCH: Final = frozenset({Use.BATCH})
_STREAM: Final = frozenset({Use.STREAM})
_SINK: Final = frozenset({Use.SINK})
_NOWHERE: Final[frozenset[Use]] = frozenset()

OPTIONS: Final = (
    Option(
        "kafka.bootstrap.servers",
        frozenset(Use),
        "addresses of brokers, separated by commas; it must be given",
    ),
    Option("subscribe", _READS, "topics to read, separated by commas"),
    Option(
        "subscribePattern",
        _READS,
        "a pattern (of Java) that is found in the topics' names; refused if it may take long "
        "to match",
    ),
    Option("assign", _READS, 'partitions to read, as JSON: {"topicA":[0,1]}'),
    Option(
        "startingOffsets",
        _READS,
        "`earliest` (default of a batch), `latest` (default of a stream, and only there), offsets "
        'of every partition as JSON: {"topicA":{"0":23,"1":-2}}, or where a group has committed: '
        "group:NAME",
    ),
    Option("endingOffsets", _BATCH, "`latest` (default) or offsets as JSON"),
    Option(
        "startingTimestamp",
        _READS,
        "where to start: milliseconds since 1970, ISO 8601, or a duration back from now: -PT10M",
    ),
    Option("endingTimestamp", _BATCH, "where to end, as for `startingTimestamp`"),
    Option("startingOffsetsByTimestamp", _READS, "a time for each partition, as JSON"),
    Option("endingOffsetsByTimestamp", _BATCH, "a time for each partition, as JSON"),
    Option(
        "startingOffsetsByTimestampStrategy",
        _READS,
        "where no record is as young as a starting time: `error` (default) or `latest`",
    ),
    Option("failOnDataLoss", _READS, "whether records that are gone fail the query (true)"),
    Option(
        "deadLettersTopic",
        _READS,
        "a topic that gets each damaged batch of records, which are then passed over; without it "
        "they fail the query, or are lost with `failOnDataLoss` false",
    ),
    Option("includeHeaders", _READS, "adds the column `headers` (false)"),
    Option("minPartitions", _READS, "cuts large ranges until there are about as many tasks"),
    Option(
        "maxPartitions",
        _READS,
        "has so many tasks at most: small ranges share one (a task for each range)",
    ),
    Option("maxRecordsPerPartition", _READS, "the most offsets that one task reads"),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        _READS,
        "how long a task waits for records (120000; Spark does not pass spark.network.timeout, its "
        "own source's default, to a Python source)",
    ),
    Option(
        "maxOffsetsPerTrigger",
        _STREAM,
        "the most offsets of a micro-batch, or of each topic as JSON: "
        '{"topicA":1000,"*":50}, where * is every other topic',
    ),
    Option(
        "maxBytesPerTrigger",
        _STREAM,
        "about the most bytes of a micro-batch (keys, values and headers, without compression): an "
        "integer, or with a unit such as 64m",
    ),
    Option(
        "minOffsetsPerTrigger",
        _STREAM,
        "a micro-batch after the first waits until so many have come",
    ),
    Option("maxTriggerDelay", _STREAM, "but no longer than this (15m)"),
    Option(
        "fetchOffset.numRetries",
        _READS,
        "how often a failed request for topics and offsets is repeated, in a stream also one that "
        "misses a topic or in which an end went back (3; a time-out is repeated only where this is "
        "given)",
    ),
    Option("fetchOffset.retryIntervalMs", _READS, "and how long to wait in between (1000)"),
    Option("offsetPollIntervalMs", _STREAM, "the least time between two requests for ends (50)"),
    Option(
        "commitGroup",
        _STREAM,
        "a consumer group to which finished offsets are committed; Spark does not say "
        "when a batch read has finished",
    ),
    Option("groupIdPrefix", _NOWHERE, "partitions are read without a consumer group"),
    Option("kafka.group.id", _NOWHERE, "partitions are read without a consumer group"),
    Option(
        "kafka.isolation.level",
        _READS,
        "`read_uncommitted` (default), or `read_committed`: no records of open and aborted "
        "transactions",
    ),
    Option("topic", _SINK, "the topic to write to, in place of the column `topic`"),
    Option(
        "kafka.partitioner.class",
        _SINK,
        "the partition of rows without one: a class of Python's or of Java's, as above",
    ),
    Option("timestampColumn", _SINK, "the column that has the records' time, in place of now"),
    Option(
        "onRecordTooLarge",
        _SINK,
        "a topic that gets key, headers and a note of each record that no broker takes; without "
        "it such a record fails the query",
    ),
    Option(
        "delivery",
        _SINK,
        "`at_least_once` (default), or `exactly_once`: [in transactions](#exactly-once)",
    ),
    Option(
        "sinkId",
        _SINK,
        "with `exactly_once`: the name of this sink in Kafka, the same each time the query is "
        "started, and no other's (from the text of `checkpointLocation`)",
    ),
    Option(
        "atomic",
        _SINK,
        "with `exactly_once`: `task` (default), where tasks may write again what is missing of a "
        "batch, or `batch`, where such a batch fails",
    ),
    Option(
        "batchId",
        _SINK,
        "with `exactly_once`, in a batch: its number, an integer. A write with the number of the "
        "last one is a repeat, and writes nothing (one more than the last)",
    ),
    Option(
        "onOldBatch",
        _SINK,
        "with `exactly_once`: a batch with a smaller number than the last one fails (`fail`, the "
        "default), or is skipped with a warning (`skip`)",
    ),
    Option(
        "sinkOwner",
        _SINK,
        "with `exactly_once`, in `foreachBatch`: a name of the query, the same at each start, "
        "where Spark does not tell it (the query's id)",
    ),
    Option(
        "kafka.transaction.timeout.ms",
        _SINK,
        "with `exactly_once`: how long a transaction may be open until brokers abort it, from a "
        "task's first row until the batch is committed (900000)",
    ),
    Option(
        "checkpointLocation",
        _SINK,
        "Spark's own: it passes it on. With `exactly_once` a stream without `sinkId` has a name "
        "that is made from its text",
    ),
)

_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}

_TABLES: Final = (
    "Spark gives a Python source none of the options of CREATE TABLE ... USING: write CREATE "
    "TEMPORARY VIEW ... USING pykafka OPTIONS (...)."
)

REFUSED: Final = {
    "path": "Kafka has no paths: give subscribe.",
    "provider": _TABLES,
}
_REFUSED_BY_NAME: Final = {name.lower(): name for name in REFUSED}


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """The partitions to read: all of `topics`, all of topics matching `pattern`, or `partitions`.

    Exactly one is set. A pattern may match anywhere in the name.
    """

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()

    def may_have(self, topic: str) -> bool:
        """Return whether partitions of a topic may be read."""
        if self.pattern:
            return bool(found_in(self.pattern, [topic]))
        return topic in self.topics or any(one.topic == topic for one in self.partitions)


class StreamLimits(NamedTuple):
    """Limits of a stream's reads, and the group that its progress is committed to."""

    offsets_max: int | None
    offsets_min: int | None
    trigger_delay_ms_max: int
    offset_retries: int
    offset_retry_ms: int
    offset_poll_interval_ms: int
    commit_group: str
    are_offset_retries_given: bool = False
    topic_offsets_max: Mapping[str, int] | None = None
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """The checked options of one read. `client` has the ``kafka.*`` ones."""

    choice: TopicChoice
    starting: OffsetLimit
    ending: OffsetLimit
    client: ClientSettings
    tasks: TaskLimits
    poll_timeout_ms: int
    fail_on_data_loss: bool
    include_headers: bool
    stream: StreamLimits
    dead_letters_topic: str = ""

    @classmethod
    def from_spark(cls, options: Mapping[str, str], use: Use) -> KafkaOptions:
        """Parse the options of one ``load()`` for one use; names are not case-sensitive.

        Raises: `ConfigError` that names the option, its valid values, and the cure.
        """
        given, client = effective_options(options, use)
        choice = _choice(given)
        checked = cls(
            choice=choice,
            starting=starting_limit(given, is_stream=use is Use.STREAM),
            ending=ending_limit(given),
            client=client,
            tasks=_task_limits(given),
            poll_timeout_ms=_positive(given, "kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS,
            fail_on_data_loss=_truth(given, "failOnDataLoss", default=True),
            include_headers=_truth(given, "includeHeaders", default=False),
            stream=_stream_limits(given, choice),
            dead_letters_topic=_dead_letters_topic(given, choice),
        )
        if checked.dead_letters_topic:
            # The settings are checked here, before a task needs them.
            ProducerConfig.from_settings(checked.dead_letters_settings())
        return checked

    def consumer_settings(self, *, offset_count: int = 0) -> dict[str, object]:
        """Return the user's settings, with those that follow from ranges fixed in advance.

        `offset_count` is the number of offsets that one task reads: large ranges are fetched in
        large pieces.
        """
        settings = self.client.of(ConsumerConfig)
        defaults = {**READ_DEFAULTS, **(LARGE_READ if offset_count > BATCH_ROWS else {})}
        for name, value in defaults.items():
            if self.client.spelling_of(name) is None:
                settings[name] = value
        return {**settings, "auto.offset.reset": "none"}

    def uncommitted_settings(self) -> dict[str, object] | None:
        """`consumer_settings` for reading uncommitted records; None where these do already."""
        settings = self.consumer_settings()
        level = ConsumerConfig.from_settings(settings).isolation_level
        spelling = self.client.spelling_of("isolation.level")
        if spelling is None or level is IsolationLevel.READ_UNCOMMITTED:
            return None
        return {**settings, spelling: "read_uncommitted"}

    def admin_settings(self) -> dict[str, object]:
        """Return those of the user's settings that an admin client has, too."""
        return self.client.of(AdminConfig)

    def dead_letters_settings(self) -> dict[str, object]:
        """Return the user's settings for a producer without transactions."""
        settings = self.client.of_sink_driver()
        for key in REFUSED_BY_WRITES:
            settings.pop(self.client.spelling_of(key) or "", None)
        return settings

    @property
    def batch_rows(self) -> int:
        """The most rows of an Arrow batch: `BATCH_ROWS`, or more by max.poll.records."""
        config = ConsumerConfig.from_settings(self.consumer_settings())
        return max(BATCH_ROWS, config.max_poll_records)

    @property
    def metadata_age_ms_max(self) -> int:
        """Interval at which a stream looks for new partitions, the client's metadata.max.age.ms."""
        return AdminConfig.from_settings(self.admin_settings()).metadata_max_age_ms


def includes_headers(options: Mapping[str, str]) -> bool:
    """Tell whether the options ask for the headers column, in a batch or a stream.

    Raises: `ConfigError` if the options are valid for neither.
    """
    given, settings = _divided(options)
    _check_names(given)
    ClientSettings(settings).check(REFUSED_BY_READS)
    return _truth(given, "includeHeaders", default=False)


def effective_options(
    options: Mapping[str, str], use: Use
) -> tuple[dict[str, str], ClientSettings]:
    """Return the options of reads or writes, by name in lower case, and the client's settings.

    A warning names the options without effect in this use.

    Raises: `ConfigError` for an unknown option, for the end of a stream, which has none, and for no
    options at all, which is how Spark reads and writes a table.
    """
    if not options:
        raise ConfigError(f"There are no options. {_TABLES}")
    given, settings = _divided(options)
    _check_names(given)
    client = ClientSettings(settings)
    client.check(REFUSED_BY_WRITES if use is Use.SINK else REFUSED_BY_READS)
    idle = [_BY_NAME[name] for name in given if use not in _BY_NAME[name].uses]
    if ends := [option.name for option in idle if option.is_refused_in(use)]:
        raise ConfigError(f"A streaming read has no end: leave out {', '.join(ends)}.")
    idle += [_BY_NAME[f"{CLIENT_PREFIX}{key}"] for key in _idle_settings(given, client, use)]
    for option in idle:
        if option.name == TRANSACTION_TIMEOUT and use is Use.SINK:
            _LOG.warning("Option %r has no effect: rows are written at least once.", option.name)
        elif option.name != "checkpointLocation":
            why = f" in {use.value}" if option.uses else f": {option.meaning}"
            _LOG.warning("Option %r has no effect%s.", option.name, why)
    # A batch checks what a stream's options say, though they have no effect in it.
    uses = _SINK if use is Use.SINK else _READS
    return {name: value for name, value in given.items() if uses & _BY_NAME[name].uses}, client


def _idle_settings(given: Mapping[str, str], client: ClientSettings, use: Use) -> Iterator[str]:
    is_exact = use is Use.SINK and delivery_of(given) == EXACTLY_ONCE
    for key in IDLE_SETTINGS:
        is_idle = not is_exact or key not in TRANSACTION_SETTINGS
        if is_idle and client.spelling_of(key) is not None:
            yield key


def delivery_of(given: Mapping[str, str]) -> str:
    """Return the value of the option ``delivery``. Raises: `ConfigError` if it is unknown."""
    delivery = given.get("delivery", AT_LEAST_ONCE).strip().lower()
    if delivery not in DELIVERIES:
        raise ConfigError(
            f"Option 'delivery' must be {' or '.join(DELIVERIES)}, not {delivery[:100]!r}."
            f"{did_you_mean(delivery[:100], DELIVERIES)}"
        )
    return delivery


def of_spark(options: Mapping[str, str]) -> dict[str, str]:
    """Return options as text: whoever may write SQL gives them.

    The text is under the policy of the driver's process, and takes it along to the tasks.
    """
    texts = {
        name: value if isinstance(value, str) else str(value) for name, value in options.items()
    }
    return from_text(texts, "Spark's options", process="the driver", is_known=_is_known)


def _is_known(name: str) -> bool:
    name = name.lower()
    if name.startswith(CLIENT_PREFIX):
        return is_known(name.removeprefix(CLIENT_PREFIX))
    return name in _BY_NAME or name in _REFUSED_BY_NAME


def _divided(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split the options into the format's own, by name in lower case, and the client's settings."""
    given = {name.lower(): value for name, value in of_spark(options).items()}
    settings = {
        name.removeprefix(CLIENT_PREFIX): given.pop(name)
        for name in list(given)
        if name.startswith(CLIENT_PREFIX)
    }
    return given, _with_provider_names(settings)


def _with_provider_names(settings: dict[str, str]) -> dict[str, str]:
    """Return settings with the names of configuration providers as they are given.

    Spark lower-cases the names of options, and a reference such as ``${Vault:path:key}`` has the
    name as ``config.providers`` lists it.
    """
    names = [name.strip() for name in settings.get(PROVIDERS, "").split(",")]
    names = names[: PROVIDERS_MAX + 1]  # of more, the client says that they are too many
    prefixes = {f"{PROVIDERS}.{name.lower()}.": f"{PROVIDERS}.{name}." for name in names}
    found = {}
    for key, value in settings.items():
        lower = next((prefix for prefix in prefixes if key.startswith(prefix)), None)
        found[key if lower is None else prefixes[lower] + key.removeprefix(lower)] = value
    return found


def _check_names(given: Mapping[str, str]) -> None:
    for name in given:
        if name in _BY_NAME:
            continue
        if (refused := _REFUSED_BY_NAME.get(name)) is not None:
            raise ConfigError(f"Option {refused!r} cannot be used here. {REFUSED[refused]}")
        guess = did_you_mean(name, [one.name for one in OPTIONS])
        raise ConfigError(
            f"Format 'pykafka' has no option {name!r}.{guess} Settings of the client begin with "
            f"'kafka.'."
        )


def _task_limits(given: Mapping[str, str]) -> TaskLimits:
    limits = TaskLimits(
        records_max=_positive(given, "maxRecordsPerPartition"),
        tasks_min=_positive(given, "minPartitions", maximum=TASKS_MAX),
        tasks_max=_positive(given, "maxPartitions", maximum=TASKS_MAX),
    )
    if limits.tasks_max is None:
        return limits
    if limits.records_max is not None:
        raise ConfigError(
            "Give one of the options maxPartitions and maxRecordsPerPartition: the second cuts "
            "what is too large for a task, the first has tasks share what is small."
        )
    if limits.tasks_min is not None and limits.tasks_min > limits.tasks_max:
        raise ConfigError(
            f"minPartitions ({limits.tasks_min}) is larger than maxPartitions ({limits.tasks_max})."
        )
    return limits


def _dead_letters_topic(given: Mapping[str, str], choice: TopicChoice) -> str:
    if "deadletterstopic" not in given:
        return ""
    topic = given["deadletterstopic"].strip()
    if not topic:
        raise ConfigError("Option 'deadLettersTopic' names no topic: give one, or leave it out.")
    if choice.may_have(topic):
        raise ConfigError(
            f"Option 'deadLettersTopic' names topic {shown(topic)}, which this query reads: give "
            f"another one."
        )
    return topic


def _stream_limits(given: Mapping[str, str], choice: TopicChoice) -> StreamLimits:
    topic_offsets_max = _topic_limits(given, choice)
    offsets_max = None if topic_offsets_max else _positive(given, "maxOffsetsPerTrigger")
    offsets_min = _positive(given, "minOffsetsPerTrigger")
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise ConfigError(
            f"minOffsetsPerTrigger ({offsets_min}) is larger than maxOffsetsPerTrigger "
            f"({offsets_max})."
        )

    def number(option: str, default: int, minimum: int = 0) -> int:
        return _integer(given, option, minimum=minimum) if option.lower() in given else default

    return StreamLimits(
        offsets_max,
        offsets_min,
        trigger_delay_ms_max=_delay_ms(given),
        offset_retries=number("fetchOffset.numRetries", OFFSET_RETRIES, minimum=1),
        offset_retry_ms=number("fetchOffset.retryIntervalMs", OFFSET_RETRY_MS),
        offset_poll_interval_ms=number("offsetPollIntervalMs", OFFSET_POLL_INTERVAL_MS),
        commit_group=given.get("commitgroup", "").strip(),
        are_offset_retries_given="fetchoffset.numretries" in given,
        topic_offsets_max=topic_offsets_max,
        bytes_max=_bytes(given, "maxBytesPerTrigger"),
    )


def _topic_limits(given: Mapping[str, str], choice: TopicChoice) -> dict[str, int] | None:
    """Return the limit of each topic, None where the option is no JSON."""
    option = "maxOffsetsPerTrigger"
    text = given.get(option.lower(), "").strip()
    if not text.startswith("{"):
        return None
    limits: dict[str, int] = {}
    for topic, count in json_object(option, text, '{"topicA":1000,"*":50}').items():
        if not (isinstance(count, int) and count is not True and 1 <= count <= LONG_MAX):
            raise ConfigError(
                f"{option}: {shown(topic)} needs an integer of at least 1, not {shown(count)}."
            )
        if topic != EVERY_OTHER_TOPIC and not choice.may_have(topic):
            topics = choice.topics or [one.topic for one in choice.partitions]
            raise ConfigError(
                f"{option} names topic {shown(topic)}, which this query does not read."
                f"{did_you_mean(topic, topics)} Every topic that it does not name is "
                f"{EVERY_OTHER_TOPIC!r}."
            )
        limits[topic] = count
    if not limits:
        raise ConfigError(f"{option} names no topic: give an integer, or leave it out.")
    return limits


def _bytes(given: Mapping[str, str], option: str) -> int | None:
    """Return a number of bytes: ``67108864``, ``64m`` or ``1g``, as Spark reads a size."""
    if option.lower() not in given:
        return None
    text = given[option.lower()].strip().lower()
    found = re.fullmatch(r"([0-9]{1,19})\s*(?:([kmgt])i?)?b?", text)
    size = 0 if found is None else int(found[1]) * _UNITS_BYTES[found[2] or ""]
    if not 1 <= size <= LONG_MAX:
        raise ConfigError(
            f"Option '{option}' must be an integer of at least 1, or a size such as 64m, "
            f"not {text[:100]!r}."
        )
    return size


def _delay_ms(given: Mapping[str, str]) -> int:
    """``15m``, ``30s``, ``1h``, or milliseconds, as Spark reads a time."""
    text = given.get("maxtriggerdelay", "").strip().lower()
    if not text:
        return TRIGGER_DELAY_MS_MAX
    found = re.fullmatch(r"(\d{1,15})\s*(ms|s|m|min|h|d)?", text)
    if found is None:
        raise ConfigError(f"Option 'maxTriggerDelay' must be a time such as 15m, not {text!r}.")
    return int(found[1]) * _UNITS_MS[(found[2] or "ms").replace("min", "m")]


def _choice(given: Mapping[str, str]) -> TopicChoice:
    named = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(named) != 1:
        raise ConfigError(
            f"Give exactly one of the options subscribe, subscribePattern and assign; given: "
            f"{', '.join(named) or 'none'}."
        )
    text = given[named[0].lower()].strip()
    if named == ["assign"]:
        return TopicChoice(partitions=_partitions_from_json("assign", text))
    if named == ["subscribePattern"]:
        return TopicChoice(pattern=checked_pattern(text))
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise ConfigError("Option 'subscribe' names no topic: give 'topicA,topicB'.")
    return TopicChoice(topics=topics)


def _positive(given: Mapping[str, str], option: str, *, maximum: int = LONG_MAX) -> int | None:
    if option.lower() not in given:
        return None
    return _integer(given, option, minimum=1, maximum=maximum)


def _integer(
    given: Mapping[str, str], option: str, *, minimum: int, maximum: int = LONG_MAX
) -> int:
    text = given[option.lower()].strip()
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    if not (is_number and minimum <= int(text) <= maximum):
        at_most = "" if maximum == LONG_MAX else f" and at most {maximum}"
        raise ConfigError(
            f"Option '{option}' must be an integer of at least {minimum}{at_most}, "
            f"not {text[:100]!r}."
        )
    return int(text)


def _truth(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = given.get(option.lower(), str(default)).strip().lower()
    if text not in _TRUTHS:
        raise ConfigError(f"Option '{option}' must be true or false, not {text[:100]!r}.")
    return _TRUTHS[text]


def _partitions_from_json(option: str, text: str) -> tuple[TopicPartition, ...]:
    """``{"topic": [0, 1]}`` as partitions."""
    partitions: dict[TopicPartition, None] = {}
    for topic, numbers in json_object(option, text, '{"topicA":[0,1],"topicB":[2]}').items():
        if not topic or not isinstance(numbers, list) or not all(map(_is_index, numbers)):
            raise ConfigError(
                f"{option}: {shown(topic)} needs a list of partition numbers, not {shown(numbers)}."
            )
        partitions.update(dict.fromkeys(TopicPartition(topic, number) for number in numbers))
    if not partitions:
        raise ConfigError(f"{option} names no partition.")
    return tuple(sorted(partitions))


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
