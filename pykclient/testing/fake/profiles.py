"""Profiles: services that speak Kafka's protocol without being Kafka, imitated by fake brokers.

A profile is a table of the API versions that a service announces, and its other differences. All of
it is second-hand, from published source code, logs and documents; this project has not measured the
services, and they change. Versions that fake brokers do not support are left out; an API without an
entry is one that the service lacks.

Confluent Cloud, Amazon MSK and Aiven run Kafka itself and need no profile.

Owner: none; profiles are immutable.
Source: `source` of each profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pykclient.arguments import shown_argument
from pykclient.errors.base import UsageError
from pykclient.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

VersionRange = tuple[int, int]

ANY: Final[VersionRange] = (0, 32_767)
"""An API in unknown versions, because the service does not publish them."""


@dataclass(frozen=True)
class Profile:
    """Differences of a service from Kafka; `source` tells where they were found."""

    name: str
    source: str
    versions: Mapping[ApiKey, VersionRange] | None = None
    """API versions it announces; None for all that a fake broker supports."""
    closes_on_unknown_versions: bool = False
    """True to close the connection on an unknown version of ApiVersions (Kafka responds
    with the versions it knows)."""
    responds_without_acks: bool = False
    """True to respond to Produce requests with acks=0."""

    def limits(self, spoken: Mapping[ApiKey, VersionRange]) -> dict[ApiKey, VersionRange | None]:
        """Restrict the versions in `spoken` to the profile's; None removes an API."""
        if self.versions is None:
            return {}
        limits: dict[ApiKey, VersionRange | None] = {}
        for key, (low, high) in spoken.items():
            listed = self.versions.get(key)
            has_both = listed is not None and max(low, listed[0]) <= min(high, listed[1])
            limits[key] = listed if has_both else None
        return limits


KAFKA: Final = Profile("kafka", "Kafka itself")

EVENT_HUBS: Final = Profile(
    "event-hubs",
    "Logs of Azure Event Hubs in github.com/oliveigah/klife issue 13, IBM/sarama issue 2470, "
    "twmb/franz-go issue 1312 (SASL, ApiVersions) and Azure/azure-event-hubs-for-kafka issue 69 "
    "(groups, topics); franz-go's kgo/broker.go for the closed connection and the response to "
    "acks=0. Newer logs have Metadata up to version 9. InitProducerId is documented as there; its "
    "versions are assumed.",
    MappingProxyType(
        {
            ApiKey.PRODUCE: (3, 7),
            ApiKey.FETCH: (4, 6),
            ApiKey.LIST_OFFSETS: (0, 8),
            ApiKey.METADATA: (0, 5),
            ApiKey.OFFSET_COMMIT: (0, 8),
            ApiKey.OFFSET_FETCH: (0, 8),
            ApiKey.FIND_COORDINATOR: (0, 4),
            ApiKey.JOIN_GROUP: (0, 9),
            ApiKey.HEARTBEAT: (0, 4),
            ApiKey.LEAVE_GROUP: (0, 5),
            ApiKey.SYNC_GROUP: (0, 5),
            ApiKey.DESCRIBE_GROUPS: (0, 1),
            ApiKey.LIST_GROUPS: (0, 1),
            ApiKey.SASL_HANDSHAKE: (0, 1),
            ApiKey.API_VERSIONS: (0, 3),
            ApiKey.CREATE_TOPICS: (0, 2),
            ApiKey.DELETE_TOPICS: (0, 2),
            ApiKey.INIT_PRODUCER_ID: (0, 1),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: (0, 0),
            ApiKey.SASL_AUTHENTICATE: (0, 2),
        }
    ),
    closes_on_unknown_versions=True,
    responds_without_acks=True,
)

REDPANDA: Final = Profile(
    "redpanda",
    "The handlers in src/v/kafka/server/handlers of github.com/redpanda-data/redpanda at commit "
    "1c6cff34 of December 2024, after its release 24.3.",
    MappingProxyType(
        {
            ApiKey.PRODUCE: (0, 7),
            ApiKey.FETCH: (4, 11),
            ApiKey.LIST_OFFSETS: (0, 4),
            ApiKey.METADATA: (0, 8),
            ApiKey.OFFSET_COMMIT: (1, 8),
            ApiKey.OFFSET_FETCH: (1, 7),
            ApiKey.FIND_COORDINATOR: (0, 3),
            ApiKey.JOIN_GROUP: (0, 6),
            ApiKey.HEARTBEAT: (0, 4),
            ApiKey.LEAVE_GROUP: (0, 4),
            ApiKey.SYNC_GROUP: (0, 4),
            ApiKey.DESCRIBE_GROUPS: (0, 5),
            ApiKey.LIST_GROUPS: (0, 4),
            ApiKey.SASL_HANDSHAKE: (0, 1),
            ApiKey.API_VERSIONS: (0, 3),
            ApiKey.CREATE_TOPICS: (0, 6),
            ApiKey.DELETE_TOPICS: (0, 5),
            ApiKey.DELETE_RECORDS: (0, 2),
            ApiKey.INIT_PRODUCER_ID: (0, 3),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: (0, 4),
            ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
            ApiKey.ADD_OFFSETS_TO_TXN: (0, 1),
            ApiKey.END_TXN: (0, 3),
            ApiKey.TXN_OFFSET_COMMIT: (0, 3),
            ApiKey.DESCRIBE_CONFIGS: (0, 4),
            ApiKey.SASL_AUTHENTICATE: (0, 2),
            ApiKey.CREATE_PARTITIONS: (0, 3),
            ApiKey.DELETE_GROUPS: (0, 2),
            ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
            ApiKey.OFFSET_DELETE: (0, 0),
        }
    ),
)

WARPSTREAM: Final = Profile(
    "warpstream",
    "The list of APIs in docs.warpstream.com, reference, protocol and feature support. It has no "
    "versions, so that they are not limited here.",
    MappingProxyType(
        dict.fromkeys(
            (
                *(ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID, ApiKey.FETCH, ApiKey.LIST_OFFSETS),
                *(ApiKey.METADATA, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH),
                *(ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT),
                *(ApiKey.SYNC_GROUP, ApiKey.LEAVE_GROUP, ApiKey.OFFSET_DELETE),
                *(ApiKey.API_VERSIONS, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS),
                *(ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_CLUSTER),
                *(ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS, ApiKey.CREATE_PARTITIONS),
                *(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN),
                *(ApiKey.TXN_OFFSET_COMMIT, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
            ),
            ANY,
        )
    ),
)

PROFILES: Final[Mapping[str, Profile]] = MappingProxyType(
    {profile.name: profile for profile in (KAFKA, EVENT_HUBS, REDPANDA, WARPSTREAM)}
)


def profile_named(name: object) -> Profile:
    """Return a profile by name. Raises `UsageError` if it does not exist."""
    if isinstance(name, str) and name in PROFILES:
        return PROFILES[name]
    raise UsageError(f"profile is {shown_argument(name)}; give one of {', '.join(PROFILES)}")
