"""Configs: settings of topics, brokers and other resources, as Admin reads and alters them.

Owner: none; descriptions and operations are immutable.
Source: the DescribeConfigs and IncrementalAlterConfigs APIs; KIP-133, KIP-226 (sources and
synonyms), KIP-339 (incremental), KIP-569 (types and documentation); Java classes ``ConfigEntry``,
``ConfigResource``, ``AlterConfigOp``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pykclient.admin.call import AdminHandler, Receiver, failure
from pykclient.arguments import check_text, is_number, shown_argument
from pykclient.config.setting import INT_MAX
from pykclient.errors import UnknownTopicOrPartitionError, UsageError
from pykclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from pykclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.admin.call import Results
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.describe_configs import DescribeConfigsResourceResult

EnumT = TypeVar("EnumT", bound=Enum)


class ConfigResourceType(Enum):
    """The kinds of resources with settings. The numbers are the protocol's."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    """A broker's log levels."""
    CLIENT_METRICS = 16
    """Client metrics subscriptions; brokers 3.7 or newer (KIP-714)."""
    GROUP = 32
    """A group; brokers 4.0 or newer (KIP-848)."""


class ConfigResource(NamedTuple):
    """A resource with settings: ``ConfigResource(ConfigResourceType.TOPIC, "orders")``.

    A broker's name is its id as text; the empty name means the defaults of all brokers.
    """

    type: ConfigResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower().replace('_', ' ')} {self.name!r}"


class ConfigSource(Enum):
    """The source of a value. The numbers are the protocol's."""

    UNKNOWN = 0
    """A source known only to newer brokers."""
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    """The broker's properties file."""
    DEFAULT_CONFIG = 5
    """Kafka's own default."""
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigType(Enum):
    """The type of a value. The numbers are the protocol's."""

    UNKNOWN = 0
    """The broker is older than 2.6, or newer than this client."""
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSynonym(NamedTuple):
    """A value that applies if a setting is removed, with the name it has there."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A setting with its value, as text.

    `value` is None if there is none, or if it is sensitive: brokers do not send those. `synonyms`
    are empty unless requested, with the effective value first; `documentation` is None unless
    requested. `type` and `documentation` need brokers 2.6 or newer (KIP-569).
    """

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: ConfigType
    documentation: str | None

    @property
    def is_default(self) -> bool:
        """True if the value is Kafka's default."""
        return self.source is ConfigSource.DEFAULT_CONFIG


class AlterConfigOpType(Enum):
    """The kinds of changes to a setting. The numbers are the protocol's."""

    SET = 0
    DELETE = 1
    """Reset to the next value that applies, such as the default."""
    APPEND = 2
    """Add elements to a list, unless it has them."""
    SUBTRACT = 3
    """Remove elements from a list."""


@dataclass(frozen=True, slots=True)
class AlterConfigOp:
    """A change of one setting: ``AlterConfigOp("retention.ms", 60_000)`` sets it.

    `value` is converted to text: True becomes ``true``, and a list's elements are joined with
    commas. DELETE has no value. The ``repr`` omits the value: only the broker knows whether it is
    sensitive.

    Raises:
        UsageError: the name is empty, or the value is missing or cannot be sent.
    """

    name: str
    value: str | float | None = field(default=None, repr=False)
    op_type: AlterConfigOpType = AlterConfigOpType.SET

    def __post_init__(self) -> None:
        where = f"AlterConfigOp({shown_argument(self.name)})"
        if not isinstance(self.name, str) or not self.name:
            raise UsageError(f"{where}: give the name of a setting, such as 'retention.ms'")
        check_text(self.name, "name", "AlterConfigOp")
        if not isinstance(self.op_type, AlterConfigOpType):
            raise UsageError(
                f"{where}: op_type is {shown_argument(self.op_type)}; give AlterConfigOpType.SET, "
                f"DELETE, APPEND or SUBTRACT"
            )
        if self.op_type is AlterConfigOpType.DELETE:
            if self.value is not None:
                raise UsageError(f"{where}: a value is given, but DELETE has none")
        elif not isinstance(self.value, (str, int, float)):
            raise UsageError(
                f"{where}: the value is of type {type(self.value).__name__}; give text, a number "
                f"or a bool; DELETE resets it to the default"
            )


class DescribeConfigs(AdminHandler[ConfigResource, dict[str, ConfigEntry]]):
    receiver = Receiver.BROKER
    final_errors = (UnknownTopicOrPartitionError,)

    def __init__(self, *, has_synonyms: bool, has_documentation: bool) -> None:
        self._has_synonyms = has_synonyms
        self._has_documentation = has_documentation

    def broker_id(self, key: ConfigResource) -> int | None:
        return _broker_id(key)

    def request(self, keys: Sequence[ConfigResource], timeout_ms: int) -> DescribeConfigsRequest:
        return DescribeConfigsRequest(
            resources=[DescribeConfigsResource(key.type.value, key.name, None) for key in keys],
            include_synonyms=self._has_synonyms,
            include_documentation=self._has_documentation,
        )

    def results(
        self, message: Message, keys: Sequence[ConfigResource]
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        assert isinstance(message, DescribeConfigsResponse)
        by_place = {(key.type.value, key.name): key for key in keys}
        for result in message.results:
            key = by_place.get((result.resource_type, result.resource_name))
            if key is not None:
                error = failure(result.error_code, str(key), result.error_message)
                yield key, error or {config.name: _entry(config) for config in result.configs}


class IncrementalAlterConfigs(AdminHandler[ConfigResource, ConfigResource]):
    receiver = Receiver.BROKER
    final_errors = (UnknownTopicOrPartitionError,)

    def __init__(
        self,
        operations: Mapping[ConfigResource, Sequence[AlterConfigOp]],
        *,
        is_validated_only: bool,
    ) -> None:
        self._operations = operations
        self._is_validated_only = is_validated_only

    def broker_id(self, key: ConfigResource) -> int | None:
        return _broker_id(key)

    def request(
        self, keys: Sequence[ConfigResource], timeout_ms: int
    ) -> IncrementalAlterConfigsRequest:
        return IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    key.type.value,
                    key.name,
                    [
                        AlterableConfig(each.name, each.op_type.value, setting_text(each.value))
                        for each in self._operations[key]
                    ],
                )
                for key in keys
            ],
            validate_only=self._is_validated_only,
        )

    def results(
        self, message: Message, keys: Sequence[ConfigResource]
    ) -> Results[ConfigResource, ConfigResource]:
        assert isinstance(message, IncrementalAlterConfigsResponse)
        by_place = {(key.type.value, key.name): key for key in keys}
        for result in message.responses:
            key = by_place.get((result.resource_type, result.resource_name))
            if key is not None:
                yield key, failure(result.error_code, str(key), result.error_message) or key


def check_resource(resource: object, call: str) -> None:
    """Reject anything but a `ConfigResource`, and a broker whose name is not an id."""
    if not (
        isinstance(resource, ConfigResource)
        and isinstance(resource.type, ConfigResourceType)
        and isinstance(resource.name, str)
    ):
        raise UsageError(
            f"{call}: {shown_argument(resource)} has no settings; give "
            f"ConfigResource(ConfigResourceType.TOPIC, name)"
        )
    check_text(resource.name, "name", call)
    if _is_of_one_broker(resource):
        number = int(resource.name) if resource.name.isdecimal() else -1
        if not is_number(number, INT_MAX):
            raise UsageError(f"{call}: {resource}: give the broker's id, such as '1'")


def setting_text(value: object) -> str | None:
    """Return a setting's value in the form that brokers read."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_of_one_broker(resource: ConfigResource) -> bool:
    is_of_brokers = resource.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
    return is_of_brokers and bool(resource.name)


def _broker_id(resource: ConfigResource) -> int | None:
    """Return the one broker that has these settings, or None if every broker has them."""
    return int(resource.name) if _is_of_one_broker(resource) else None


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    def kept(value: str | None) -> str | None:
        return None if config.is_sensitive else value

    return ConfigEntry(
        name=config.name,
        value=kept(config.value),
        source=_member(ConfigSource, config.config_source),
        is_sensitive=config.is_sensitive,
        is_read_only=config.read_only,
        synonyms=tuple(
            ConfigSynonym(each.name, kept(each.value), _member(ConfigSource, each.source))
            for each in config.synonyms
        ),
        type=_member(ConfigType, config.config_type),
        documentation=config.documentation or None,
    )


def _member(kind: type[EnumT], number: int) -> EnumT:
    """Return the member with a number, or the member 0 (UNKNOWN) if there is none."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)
