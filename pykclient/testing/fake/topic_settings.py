"""Settings of a fake topic: names, defaults and valid values, as of Kafka 4.3.1.

A refusal is a ValueError with Kafka's own message.

Owner: none; it holds no state.
Source: Java classes ``LogConfig``, ``ConfigDef``, ``ServerTopicConfigSynonyms``,
``ConfigurationControlManager``.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(Enum):
    """Type of a value; the number is the protocol's."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


LONG_MAX: Final = 2**63 - 1
_BITS: Final = {Kind.INT: 31, Kind.LONG: 63}
_NUMBER: Final = re.compile(r"[+-]?\d+", re.ASCII)
_REPLICAS: Final = re.compile(r"\*|\d+:\d+(,\d+:\d+)*", re.ASCII)

Value = bool | int | float | str | tuple[str, ...]


class TopicSetting(NamedTuple):
    """A setting: its default as text, and the name of the broker setting with the same meaning.

    Numbers range from `minimum` to `maximum`, or are `also`; a text, or each element of a list, is
    one of `choices`.
    """

    kind: Kind
    default: str
    broker_name: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    also: int | None = None
    choices: tuple[str, ...] = ()
    are_replicas: bool = False


class Operation(Enum):
    """Operation of IncrementalAlterConfigs on a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def _int(
    default: int,
    broker_name: str,
    minimum: int,
    maximum: int | None = None,
    also: int | None = None,
) -> TopicSetting:
    return TopicSetting(Kind.INT, str(default), broker_name, minimum, maximum, also)


def _long(default: int, broker_name: str | None, minimum: int | None = 0) -> TopicSetting:
    return TopicSetting(Kind.LONG, str(default), broker_name, minimum)


def _flag(broker_name: str | None) -> TopicSetting:
    return TopicSetting(Kind.BOOLEAN, "false", broker_name)


def _choice(default: str, broker_name: str, *choices: str) -> TopicSetting:
    return TopicSetting(Kind.STRING, default, broker_name, choices=choices)


_REPLICA_LIST: Final = TopicSetting(Kind.LIST, "", are_replicas=True)

SETTINGS: Final[Mapping[str, TopicSetting]] = {
    "cleanup.policy": TopicSetting(
        Kind.LIST, "delete", "log.cleanup.policy", choices=("compact", "delete")
    ),
    "compression.gzip.level": _int(-1, "compression.gzip.level", 1, 9, also=-1),
    "compression.lz4.level": _int(9, "compression.lz4.level", 1, 17),
    "compression.type": _choice(
        *("producer", "compression.type"),
        *("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    "compression.zstd.level": _int(3, "compression.zstd.level", -131_072, 22),
    "delete.retention.ms": _long(86_400_000, "log.cleaner.delete.retention.ms"),
    "errors.deadletterqueue.group.enable": _flag(None),
    "file.delete.delay.ms": _long(60_000, "log.segment.delete.delay.ms"),
    "flush.messages": _long(LONG_MAX, "log.flush.interval.messages", 1),
    "flush.ms": _long(LONG_MAX, None),
    "follower.replication.throttled.replicas": _REPLICA_LIST,
    "index.interval.bytes": _int(4_096, "log.index.interval.bytes", 0),
    "leader.replication.throttled.replicas": _REPLICA_LIST,
    "local.retention.bytes": _long(-2, "log.local.retention.bytes", -2),
    "local.retention.ms": _long(-2, "log.local.retention.ms", -2),
    "max.compaction.lag.ms": _long(LONG_MAX, "log.cleaner.max.compaction.lag.ms", 1),
    "max.message.bytes": _int(1_048_588, "message.max.bytes", 0),
    "max.decompressed.message.bytes": _int(
        2**31 - 9, "max.decompressed.message.bytes", 1, 2**31 - 9
    ),
    "message.timestamp.after.max.ms": _long(3_600_000, "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": _long(LONG_MAX, "log.message.timestamp.before.max.ms"),
    "message.timestamp.type": _choice(
        "CreateTime", "log.message.timestamp.type", "CreateTime", "LogAppendTime"
    ),
    "min.cleanable.dirty.ratio": TopicSetting(
        Kind.DOUBLE, "0.5", "log.cleaner.min.cleanable.ratio", 0, 1
    ),
    "min.compaction.lag.ms": _long(0, "log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": _int(1, "min.insync.replicas", 1),
    "preallocate": _flag("log.preallocate"),
    "remote.copy.lag.bytes": _long(-1, "log.remote.copy.lag.bytes", -1),
    "remote.copy.lag.ms": _long(0, "log.remote.copy.lag.ms", -1),
    "remote.log.copy.disable": _flag(None),
    "remote.log.delete.on.disable": _flag(None),
    "remote.storage.enable": _flag(None),
    "retention.bytes": _long(-1, "log.retention.bytes", None),
    "retention.ms": _long(604_800_000, "log.retention.ms", -1),
    "segment.bytes": _int(2**30, "log.segment.bytes", 2**20),
    "segment.index.bytes": _int(10_485_760, "log.index.size.max.bytes", 4),
    "segment.jitter.ms": _long(0, None),
    "segment.ms": _long(604_800_000, None, 1),
    "unclean.leader.election.enable": _flag("unclean.leader.election.enable"),
}

INTERNAL: Final = frozenset({"internal.segment.bytes"})
"""Settings for Kafka's own tests: accepted, but not shown to clients."""


def check_config(config: Mapping[str, str]) -> None:
    """Raise ValueError for an unknown setting or an invalid value."""
    for name in config:
        if name not in SETTINGS and name not in INTERNAL:
            raise ValueError(f"Unknown topic config name: {name}")
    values = {name: _checked(name, text) for name, text in config.items() if name in SETTINGS}
    least, most = (values.get(f"{end}.compaction.lag.ms") for end in ("min", "max"))
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise ValueError(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > "
            f"max.compaction.lag.ms ({most})"
        )
    if values.get("remote.storage.enable"):
        raise ValueError(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage."
        )


def shown_value(name: str, text: str) -> str:
    """Return a value as a broker shows it, after parsing."""
    try:
        value = _parsed(name, text)
    except ValueError:  # set by a test, which may bypass the checks
        return text
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def altered(
    config: Mapping[str, str], operation: Operation, name: str, text: str
) -> dict[str, str]:
    """Return a topic's settings after one change; `check_config` must check the result."""
    config = dict(config)
    if operation is Operation.DELETE:
        config.pop(name, None)
        return config
    if operation is Operation.SET:
        config[name] = text
        return config
    setting = SETTINGS.get(name)
    if setting is None or setting.kind is not Kind.LIST:
        raise ValueError(f"Can't {operation.name} to key {name} because its type is not LIST.")
    given = _elements(text)
    kept = dict.fromkeys(_elements(config.get(name, setting.default)))
    if operation is Operation.APPEND:
        kept.update(dict.fromkeys(given))
    else:
        kept = {each: None for each in kept if each not in given}
    config[name] = ",".join(kept)
    return config


def _checked(name: str, text: str) -> Value:
    setting, value = SETTINGS[name], _parsed(name, text)
    refusal = f"Invalid value {value} for configuration {name}: "
    if isinstance(value, tuple):
        _check_list(name, setting, value)
    elif isinstance(value, str):
        if value not in setting.choices:
            raise ValueError(f"{refusal}String must be one of: {', '.join(setting.choices)}")
    elif not isinstance(value, bool) and value != setting.also:
        is_low = setting.minimum is not None and value < setting.minimum
        is_high = setting.maximum is not None and value > setting.maximum
        if setting.also is not None and (is_low or is_high):
            raise ValueError(
                f"{refusal}Value must be between {setting.minimum} and {setting.maximum} or equal "
                f"to {setting.also}"
            )
        if is_low:
            raise ValueError(f"{refusal}Value must be at least {setting.minimum}")
        if is_high:
            raise ValueError(f"{refusal}Value must be no more than {setting.maximum}")
    return value


def _check_list(name: str, setting: TopicSetting, values: tuple[str, ...]) -> None:
    if setting.are_replicas:
        if values and not _REPLICAS.fullmatch(",".join(values)):
            raise ValueError(
                f"Invalid value [{', '.join(values)}] for configuration {name}: {name} must be the "
                f"literal '*' or a list of replicas in the following format: "
                f"[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            )
        return
    for value in values:
        if not value:
            raise ValueError(f"Configuration '{name}' values must not be empty.")
        if value not in setting.choices:
            raise ValueError(
                f"Invalid value {value} for configuration {name}: String must be one of: "
                f"{', '.join(setting.choices)}"
            )


def _parsed(name: str, text: str) -> Value:
    refusal = f"Invalid value {text} for configuration {name}: "
    kind, text = SETTINGS[name].kind, text.strip()
    match kind:
        case Kind.LIST:
            return tuple(dict.fromkeys(_elements(text)))
        case Kind.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ValueError(f"{refusal}Expected value to be either true or false")
            return text.lower() == "true"
        case Kind.DOUBLE:
            try:
                return float(text.replace("_", "?"))  # Python would accept the underscores
            except ValueError as error:
                raise ValueError(f"{refusal}Not a number of type DOUBLE") from error
        case Kind.INT | Kind.LONG:
            number = int(text) if _NUMBER.fullmatch(text) else None
            if number is None or not -(2 ** _BITS[kind]) <= number < 2 ** _BITS[kind]:
                raise ValueError(f"{refusal}Not a number of type {kind.name}")
            return number
    return text


def _elements(text: str) -> list[str]:
    text = text.strip()
    return re.split(r"\s*,\s*", text) if text else []
