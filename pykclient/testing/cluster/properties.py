"""Settings of a cluster's servers, and the Java properties files with them.

A single broker is its own controller. With several, the controller is a separate process that tests
cannot kill: any number of brokers may be down while the others elect leaders, which a quorum among
the brokers would prevent.

A broker behind a proxy, or with secured listeners, has an additional listener for other brokers and
the controller. Its client listeners then advertise the proxies' addresses, so that clients'
traffic passes the proxies and replication does not.

The settings are Kafka's defaults, except for what a small cluster cannot provide (replication of
internal topics), what would make tests wait (the initial rebalance delay), what is costly and
useless in tests (50 partitions of offsets, a cleaner buffer of 128 MiB, metadata records of an
idle cluster), and retention: records with old timestamps, common in tests, would soon be deleted.

Owner: none; it holds no state.
Source: ``KafkaConfig`` and the config classes under ``org.apache.kafka.*.config``, Kafka 4.3;
``java.util.Properties``, methods ``load`` and ``store``.
"""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors.base import ConfigError
from pykclient.testing.port import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PropertyValue = str | int | float | bool

CONTROLLER_ID = 100
"""Node id of a separate controller; brokers have ids from 1 up to below it."""

REPLICATION_FACTOR_MAX = 3
INTERNAL_PARTITION_COUNT = 5
CLEANER_BUFFER_BYTES = 4 * 1024 * 1024

_RETENTION_TIMES = frozenset(f"log.retention.{unit}" for unit in ("ms", "minutes", "hours"))
"""Settings of which Kafka uses the finest unit; ours must not be set beside any of them."""
_KEEP_FOR_EVER = {"log.retention.ms": -1}

PLAINTEXT = "PLAINTEXT"
"""Name and protocol of the client listener of an unsecured broker."""
INTER_BROKER = "REPLICATION"
"""Listener for other brokers, if it is not the client listener."""
PROTOCOL_MAP = "listener.security.protocol.map"

OWN_NUMBER = "${node.id}"

_OWNED = frozenset(
    {
        *("node.id", "process.roles", "log.dirs", "listeners", "advertised.listeners"),
        *("controller.quorum.voters", "controller.listener.names", "inter.broker.listener.name"),
    }
)

# A line end would end the property and a backslash begin an escape. The others are special in
# names or at the start of values, and may be escaped anywhere.
_ESCAPES = str.maketrans({character: f"\\{character}" for character in "\\=:#! "}) | str.maketrans(
    {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
)


class ListenerPorts(NamedTuple):
    """The port that a broker binds, and the one that it advertises."""

    bound: int
    advertised: int


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """Brokers by node id with the ports of their listeners, and the controller's port.

    If a broker has the listener `INTER_BROKER`, other brokers and the controller use it.
    `protocols` are those of the client listeners; `security` has the servers' settings for them;
    `config` is the user's.

    Raises:
        ConfigError: `config` has a setting that the cluster chooses.
    """

    broker_ports: Mapping[int, Mapping[str, ListenerPorts]]
    controller_port: int
    config: Mapping[str, PropertyValue]
    protocols: Mapping[str, str] = field(default_factory=lambda: {PLAINTEXT: PLAINTEXT})
    security: Mapping[str, PropertyValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_config(self.config, maps_listeners=self._maps_listeners)

    @property
    def has_own_controller(self) -> bool:
        """True if the controller is a separate server."""
        return len(self.broker_ports) > 1

    def broker(self, node_id: int, folder: Path) -> dict[str, PropertyValue]:
        """Return the settings of broker `node_id`, with its data in `folder`."""
        ports = self.broker_ports[node_id]
        listeners = [f"{name}://{LOOPBACK}:{port.bound}" for name, port in ports.items()]
        advertised = [f"{name}://{LOOPBACK}:{port.advertised}" for name, port in ports.items()]
        if not self.has_own_controller:
            listeners.append(self._controller_listener)
        return {
            **self._shared(node_id, folder),
            "inter.broker.listener.name": INTER_BROKER if INTER_BROKER in ports else PLAINTEXT,
            "process.roles": "broker" if self.has_own_controller else "broker,controller",
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(advertised),
        }

    def controller(self, folder: Path) -> dict[str, PropertyValue]:
        """Return the settings of a separate controller."""
        return {
            **self._shared(CONTROLLER_ID, folder),
            "process.roles": "controller",
            "listeners": self._controller_listener,
        }

    @property
    def _maps_listeners(self) -> bool:
        return any(INTER_BROKER in ports for ports in self.broker_ports.values())

    @property
    def _controller_listener(self) -> str:
        return f"CONTROLLER://{LOOPBACK}:{self.controller_port}"

    def _shared(self, node_id: int, folder: Path) -> dict[str, PropertyValue]:
        voter_id = CONTROLLER_ID if self.has_own_controller else min(self.broker_ports)
        mapped = {PROTOCOL_MAP: protocol_map(self.protocols)} if self._maps_listeners else {}
        return {
            **self.security,
            **settings_of(node_id, len(self.broker_ports), self.config),
            **mapped,
            "node.id": node_id,
            "controller.quorum.voters": f"{voter_id}@{LOOPBACK}:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(folder),
        }


def protocol_map(protocols: Mapping[str, str]) -> str:
    """Return the protocol of each listener: the given ones and the cluster's own."""
    all_protocols = {**protocols, INTER_BROKER: PLAINTEXT, "CONTROLLER": PLAINTEXT}
    return ",".join(f"{name}:{protocol}" for name, protocol in all_protocols.items())


def check_config(config: Mapping[str, PropertyValue], *, maps_listeners: bool) -> None:
    """Check that a user's `config` has no setting that the cluster chooses.

    Raises:
        ConfigError: it has; the message names them.
    """
    owned = sorted((_OWNED | {PROTOCOL_MAP} if maps_listeners else _OWNED) & config.keys())
    if owned:
        raise ConfigError(
            f"config has {', '.join(owned)}, which the cluster chooses itself; leave it out"
        )


def settings_of(
    node_id: int, broker_count: int, config: Mapping[str, PropertyValue]
) -> dict[str, PropertyValue]:
    """Return the settings of any server, brokers and controller; `config` overrides them.

    ``${node.id}`` in a text of `config` is replaced by the server's number, for racks for example.
    """
    factor = min(broker_count, REPLICATION_FACTOR_MAX)
    in_sync_min = max(1, factor - 1)
    return {
        "offsets.topic.replication.factor": factor,
        "offsets.topic.num.partitions": INTERNAL_PARTITION_COUNT,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": in_sync_min,
        "transaction.state.log.num.partitions": INTERNAL_PARTITION_COUNT,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": in_sync_min,
        "share.coordinator.state.topic.num.partitions": INTERNAL_PARTITION_COUNT,
        "group.initial.rebalance.delay.ms": 0,
        "group.consumer.assignment.interval.ms": 0,  # since 4.3; older brokers ignore it
        "log.cleaner.dedupe.buffer.size": CLEANER_BUFFER_BYTES,
        "metadata.max.idle.interval.ms": 0,
        **({} if _RETENTION_TIMES & config.keys() else _KEEP_FOR_EVER),
        **{key: _of_node(value, node_id) for key, value in config.items()},
    }


def _of_node(value: PropertyValue, node_id: int) -> PropertyValue:
    return value.replace(OWN_NUMBER, str(node_id)) if isinstance(value, str) else value


def dump_properties(properties: Mapping[str, PropertyValue]) -> str:
    """Return the text of a properties file in ASCII, a line for each property, in order."""
    return "".join(
        f"{_escape(name)}={_escape(_text(value))}\n" for name, value in properties.items()
    )


def _text(value: PropertyValue) -> str:
    # Java writes booleans in lower case.
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escape(text: str) -> str:
    escaped = text.translate(_ESCAPES)
    if escaped.isascii():
        return escaped
    # Java reads the file as Latin-1, with other characters as UTF-16 units written \uXXXX.
    return "".join(
        character if character.isascii() else _utf16_units(character) for character in escaped
    )


def _utf16_units(character: str) -> str:
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[i] << 8 | data[i + 1]:04x}" for i in range(0, len(data), 2))


def new_kafka_uuid() -> str:
    """Return a random UUID in Kafka's format: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
