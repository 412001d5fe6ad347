"""ACLs of a test cluster, in Kafka's terms.

They are created over the brokers' plaintext listener, as a super user, and are in effect on every
running broker when `create_acls` returns.

Owner: none; it holds no state.
Source: KIP-11, KIP-290 (prefixes); Java enums ``ResourceType``, ``PatternType``, ``AclOperation``
and ``AclPermissionType``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykclient.config.unknown_keys import did_you_mean
from pykclient.errors.base import ConfigError, KafkaTimeoutError
from pykclient.errors.broker import error_for_code
from pykclient.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from pykclient.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from pykclient.testing.cluster.probe import exchange, response_timeout_s

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pykclient.testing.clock import Deadline
    from pykclient.testing.port import Address

ASK_PAUSE_S = 0.02

_TOPIC, _GROUP, _CLUSTER, _TRANSACTIONAL_ID = 2, 3, 4, 5
_CLUSTER_NAME = "kafka-cluster"
_PATTERN_TYPES = {"LITERAL": 3, "PREFIXED": 4}
_PERMISSIONS = {"DENY": 2, "ALLOW": 3}
_OPERATIONS = {
    "ALL": 2,
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
}
_ANY = 1
"""Matches any value in a filter."""


@dataclass(frozen=True, slots=True)
class Acl:
    """A rule: `principal` may do `operation`, or may not if `permission` is DENY.

    It applies to a `topic`, a `group` or a `transactional_id`, whose names may be ``*`` or a prefix
    (`pattern_type` PREFIXED); without any of them, to the cluster.

    Raises:
        ConfigError: a term is unknown, there is more than one resource, or the principal has no
            type.
    """

    principal: str
    operation: str
    permission: str = "ALLOW"
    topic: str | None = None
    group: str | None = None
    transactional_id: str | None = None
    pattern_type: str = "LITERAL"
    host: str = "*"

    def __post_init__(self) -> None:
        if ":" not in self.principal:
            raise ConfigError(
                f"principal is {self.principal!r}; give its type, too: User:{self.principal}"
            )
        _check_word("operation", self.operation, _OPERATIONS)
        _check_word("permission", self.permission, _PERMISSIONS)
        _check_word("pattern_type", self.pattern_type, _PATTERN_TYPES)
        if len(self._names) > 1:
            raise ConfigError(f"{self} has more than one resource; create an Acl for each")

    @property
    def _names(self) -> list[tuple[int, str]]:
        named = {
            _TOPIC: self.topic,
            _GROUP: self.group,
            _TRANSACTIONAL_ID: self.transactional_id,
        }
        return [(kind, name) for kind, name in named.items() if name is not None]

    def creation(self) -> AclCreation:
        """Return the request entry that creates it."""
        kind, name = next(iter(self._names), (_CLUSTER, _CLUSTER_NAME))
        return AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=_PATTERN_TYPES[self.pattern_type],
            principal=self.principal,
            host=self.host,
            operation=_OPERATIONS[self.operation],
            permission_type=_PERMISSIONS[self.permission],
        )


def create_acls(addresses: Sequence[Address], acls: Collection[Acl], deadline: Deadline) -> None:
    """Create ACLs, and wait until the brokers at all `addresses` have them.

    Raises:
        BrokerError: the broker refused one.
        ConnectionFailedError: a broker does not respond.
        KafkaTimeoutError: a broker did not have them in time.
    """
    creations = [acl.creation() for acl in acls]
    response = exchange(
        addresses[0],
        CreateAclsRequest(creations=creations),
        CreateAclsResponse,
        timeout=response_timeout_s(deadline),
    )
    for acl, result in zip(acls, response.results, strict=True):
        if result.error_code:
            raise error_for_code(result.error_code, f"{acl}: {result.error_message or ''}")
    for address in addresses:
        while missing := [each for each in creations if each not in _acls_at(address, deadline)]:
            if deadline.has_passed():
                raise KafkaTimeoutError(
                    f"the broker at {address} did not have the ACLs within "
                    f"{deadline.timeout_ms} ms: {missing}"
                )
            time.sleep(ASK_PAUSE_S)


def _acls_at(address: Address, deadline: Deadline) -> list[AclCreation]:
    everything = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    timeout = response_timeout_s(deadline)
    response = exchange(address, everything, DescribeAclsResponse, timeout=timeout)
    if response.error_code:
        raise error_for_code(response.error_code, response.error_message)
    return [
        AclCreation(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            resource_pattern_type=resource.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    ]


def _check_word(name: str, value: str, known: Mapping[str, int]) -> None:
    if value not in known:
        raise ConfigError(
            f"{name} is {value!r}; it can be {', '.join(known)}.{did_you_mean(value, known)}"
        )
