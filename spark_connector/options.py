"""KafkaOptions: what the user gave to ``spark.read``, parsed and checked once.

Names, values and defaults are those of Spark's own Kafka source. An option that is unknown, or
known but not built, is refused by name. Immutable and picklable: it travels to the tasks. Values of
``kafka.*`` never appear in `repr`, since secrets are among them; the client's own errors show the
value of a setting that is none.

Owner: none, it is immutable.
Source: Spark's Structured Streaming + Kafka Integration Guide.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pykclient import TopicPartition
from pykclient.config.setting import did_you_mean
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors import ConfigError
from spark_connector.offsets import EARLIEST, LATEST, OffsetLimit

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KafkaOptions", "TopicChoice"]

CLIENT_PREFIX: Final = "kafka."
POLL_TIMEOUT_MS: Final = 120_000
"""Spark's own default: ``spark.network.timeout``."""

BATCH_ROWS: Final = 10_000
"""Rows of an Arrow batch: with fewer Spark's own cost for each shows, with more nothing is won."""

SHOWN_LENGTH_MAX: Final = 200

_TRUTHS: Final = {"true": True, "false": False}

_OPTIONS: Final = {
    name.lower(): name
    for name in (
        "assign",
        "endingOffsets",
        "endingOffsetsByTimestamp",
        "endingTimestamp",
        "failOnDataLoss",
        "includeHeaders",
        "kafkaConsumer.pollTimeoutMs",
        "maxRecordsPerPartition",
        "minPartitions",
        "startingOffsets",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "startingTimestamp",
        "subscribe",
        "subscribePattern",
    )
}

_STREAMING: Final = "It limits a streaming read, which is not built yet."
_NO_GROUP: Final = "Partitions are read without a consumer group: leave it out."
_RETRIES: Final = (
    "Asking for offsets is repeated until kafka.default.api.timeout.ms is over: set that."
)

_REFUSED: Final = {
    "maxoffsetspertrigger": _STREAMING,
    "minoffsetspertrigger": _STREAMING,
    "maxtriggerdelay": _STREAMING,
    "groupidprefix": _NO_GROUP,
    "fetchoffset.numretries": _RETRIES,
    "fetchoffset.retryintervalms": _RETRIES,
    "topic": "It is the topic to write to, and writing is not built yet. To read, give subscribe.",
    "path": "Kafka has no paths: give subscribe.",
}

_REFUSED_CLIENT_SETTINGS: Final = {
    "auto.offset.reset": "Where to start is startingOffsets, and failOnDataLoss what happens when "
    "records are gone.",
    "key.deserializer": "Keys are bytes: decode the column.",
    "value.deserializer": "Values are bytes: decode the column.",
    "enable.auto.commit": "Nothing is committed: leave it out.",
    "interceptor.classes": "Interceptors could change records: leave it out.",
    "group.id": _NO_GROUP,
}


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Which partitions to read: all of `topics`, all of topics that `pattern` is found in, or
    `partitions`. Exactly one is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """The checked options of one read. `client_settings` are the ``kafka.*`` ones, unprefixed."""

    choice: TopicChoice
    starting: OffsetLimit
    ending: OffsetLimit
    client_settings: Mapping[str, str]
    partitions_min: int | None
    records_per_partition_max: int | None
    poll_timeout_ms: int
    fail_on_data_loss: bool
    include_headers: bool

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> KafkaOptions:
        """The options of one ``load()``; names are not case-sensitive.

        Raises: `ConfigError` naming the option, what it may be, and how to cure it.
        """
        given = {name.lower(): str(value) for name, value in options.items()}
        client_settings = {
            name.removeprefix(CLIENT_PREFIX): given.pop(name)
            for name in list(given)
            if name.startswith(CLIENT_PREFIX)
        }
        _check_names(given)
        _check_client_settings(client_settings)
        return cls(
            choice=_choice(given),
            starting=_starting(given),
            ending=_ending(given),
            client_settings=client_settings,
            partitions_min=_positive(given, "minPartitions"),
            records_per_partition_max=_positive(given, "maxRecordsPerPartition"),
            poll_timeout_ms=_positive(given, "kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS,
            fail_on_data_loss=_truth(given, "failOnDataLoss", default=True),
            include_headers=_truth(given, "includeHeaders", default=False),
        )

    def consumer_settings(self) -> dict[str, object]:
        """The user's settings, and what follows from ranges being fixed before they are read."""
        settings: dict[str, object] = dict(self.client_settings)
        if _spelling_of("allow.auto.create.topics", self.client_settings) is None:
            settings["allow.auto.create.topics"] = False
        settings["auto.offset.reset"] = "none"
        return settings

    @property
    def batch_rows(self) -> int:
        """The most rows of an Arrow batch: `BATCH_ROWS`, or the user's max.poll.records."""
        spelling = _spelling_of("max.poll.records", self.client_settings)
        if spelling is None:
            return BATCH_ROWS
        return ConsumerConfig.max_poll_records.read(self.client_settings[spelling], spelling)

    def __repr__(self) -> str:
        return (
            f"KafkaOptions(choice={self.choice}, starting={self.starting}, ending={self.ending}, "
            f"client_settings={sorted(self.client_settings)})"
        )


def _check_names(given: Mapping[str, str]) -> None:
    for name in given:
        if name in _OPTIONS:
            continue
        if name in _REFUSED:
            raise ConfigError(f"Option {name!r} cannot be used here. {_REFUSED[name]}")
        guess = did_you_mean(name, [*_OPTIONS.values(), f"{CLIENT_PREFIX}bootstrap.servers"])
        raise ConfigError(
            f"Format 'pykafka' has no option {name!r}.{guess} Settings of the consumer begin "
            f"with 'kafka.'."
        )


def _check_client_settings(settings: Mapping[str, str]) -> None:
    for key, advice in _REFUSED_CLIENT_SETTINGS.items():
        if (spelling := _spelling_of(key, settings)) is not None:
            raise ConfigError(f"Option 'kafka.{spelling}' cannot be used. {advice}")
    if _spelling_of("bootstrap.servers", settings) is None:
        raise ConfigError(
            "Option 'kafka.bootstrap.servers' is missing: give broker addresses such as "
            "'kafka1:9092,kafka2:9092'."
        )


def _spelling_of(key: str, settings: Mapping[str, str]) -> str | None:
    wanted = ConsumerConfig.setting_of(key)
    assert wanted is not None, key
    return next((given for given in settings if ConsumerConfig.setting_of(given) is wanted), None)


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
        return TopicChoice(pattern=_checked_pattern(text))
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise ConfigError("Option 'subscribe' names no topic: give 'topicA,topicB'.")
    return TopicChoice(topics=topics)


def _checked_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(f"Option 'subscribePattern' is no pattern: {error}.") from error
    if not text:
        raise ConfigError("Option 'subscribePattern' is empty: '.*' is every topic.")
    return text


def _starting(given: Mapping[str, str]) -> OffsetLimit:
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise ConfigError(
            f"Option 'startingOffsetsByTimestampStrategy' must be error or latest, "
            f"not {strategy!r}."
        )
    fallback = LATEST if strategy == "latest" else None
    return _by_time(given, "starting", fallback) or _by_offset(
        given, "startingOffsets", default=EARLIEST, refused=LATEST
    )


def _ending(given: Mapping[str, str]) -> OffsetLimit:
    return _by_time(given, "ending", LATEST) or _by_offset(
        given, "endingOffsets", default=LATEST, refused=EARLIEST
    )


def _by_time(given: Mapping[str, str], end: str, fallback: int | None) -> OffsetLimit | None:
    """A time for all partitions, or else one for each, or None when neither was given."""
    everywhere, each = f"{end}Timestamp", f"{end}OffsetsByTimestamp"
    if everywhere.lower() in given:
        value = _integer(given, everywhere, minimum=0)
        return OffsetLimit(everywhere, everywhere=value, is_timestamp=True, fallback=fallback)
    if each.lower() in given:
        values = _offsets_from_json(each, given[each.lower()], minimum=0)
        return OffsetLimit(each, by_partition=values, is_timestamp=True, fallback=fallback)
    return None


def _by_offset(given: Mapping[str, str], option: str, *, default: int, refused: int) -> OffsetLimit:
    """An edge or offsets, of which one edge makes no sense at this end of a batch."""
    names = {"earliest": EARLIEST, "latest": LATEST}
    complaint = (
        f"Option '{option}' of a batch read cannot be "
        f"{'latest (-1)' if refused == LATEST else 'earliest (-2)'}: "
        f"give {'earliest' if default == EARLIEST else 'latest'}, or offsets as JSON."
    )
    text = given.get(option.lower(), "").strip()
    if option.lower() not in given:
        return OffsetLimit(option, everywhere=default)
    if (edge := names.get(text.lower())) is not None:
        if edge == refused:
            raise ConfigError(complaint)
        return OffsetLimit(option, everywhere=edge)
    values = _offsets_from_json(option, text, minimum=EARLIEST)
    if refused in values.values():
        raise ConfigError(complaint)
    return OffsetLimit(option, by_partition=values)


def _positive(given: Mapping[str, str], option: str) -> int | None:
    return _integer(given, option, minimum=1) if option.lower() in given else None


def _integer(given: Mapping[str, str], option: str, *, minimum: int) -> int:
    text = given[option.lower()].strip()
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) >= minimum):
        raise ConfigError(
            f"Option '{option}' must be an integer of at least {minimum}, not {text[:100]!r}."
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
    for topic, numbers in _object(option, text, '{"topicA":[0,1],"topicB":[2]}').items():
        if not topic or not isinstance(numbers, list) or not all(map(_is_index, numbers)):
            raise ConfigError(
                f"{option}: {topic!r} needs a list of partition numbers, not {_shown(numbers)}."
            )
        partitions.update(dict.fromkeys(TopicPartition(topic, number) for number in numbers))
    if not partitions:
        raise ConfigError(f"{option} names no partition.")
    return tuple(sorted(partitions))


def _offsets_from_json(option: str, text: str, *, minimum: int) -> dict[TopicPartition, int]:
    """``{"topic": {"0": 23}}`` as a number for each partition, none below `minimum`."""
    values: dict[TopicPartition, int] = {}
    for topic, numbers in _object(option, text, '{"topicA":{"0":23,"1":45}}').items():
        if not topic or not isinstance(numbers, dict):
            raise ConfigError(
                f'{option}: {topic!r} needs an object such as {{"0":23}}, not {_shown(numbers)}.'
            )
        for partition, value in numbers.items():
            if not (partition.isascii() and partition.isdigit()):
                raise ConfigError(f"{option}: {partition!r} of {topic!r} is no partition number.")
            if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
                raise ConfigError(
                    f"{option}: {topic}-{partition} needs an integer of at least {minimum}, "
                    f"not {_shown(value)}."
                )
            values[TopicPartition(topic, int(partition))] = value
    return values


def _object(option: str, text: str, example: str) -> dict[str, object]:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"{option} must be JSON such as {example}, not {_shown(text)}.")
    return value


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}..."
