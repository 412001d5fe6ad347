"""The handshake that opens a connection: ApiVersions, before anything else.

A broker that does not know our version of ApiVersions responds with UNSUPPORTED_VERSION in version
0, and gets the request again in a version that it supports. Brokers that are too old for this
client are refused here.

From version 5 on, the request names the cluster and the broker that the client expects, once it
knows both. Another broker responds with REBOOTSTRAP_REQUIRED. The client then gets better addresses
from the right brokers or, if none are left, from the bootstrap servers.

If a listener requires SASL and the client has none, the broker closes the connection on the first
request after this one, without a reason. The next handshake therefore also sends SaslHandshake: its
response says whether the listener requires SASL, and if so the handshake fails.

Owner: the driver of the engine.
Source: KIP-35, KIP-511 (names and versions of client software; fall-back), KIP-584 (features);
KIP-43 (SaslHandshake); KIP-1242 (misrouted connections). The check for SASL is ours.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors import (
    AuthenticationError,
    BrokerUnsupportedVersionError,
    DecodeError,
    RebootstrapRequiredError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    error_for_code,
)
from pykclient.network.broker import errors as failures
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import decode_response
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykclient.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.errors import BrokerError
    from pykclient.protocol.message import Message, Request
    from pykclient.types import Node

CLIENT_SOFTWARE_NAME = "pykclient"

HEADER_BYTES = 4
"""Size of response header version 0, the correlation id alone, which ApiVersions responses always
have."""

IDENTITY_FROM_VERSION = 5
"""First version of ApiVersions that names cluster and broker, from Kafka 4.4 on."""

METADATA_VERSION_MIN = 4
"""First version of Metadata that can avoid topic creation. Leader epochs (KIP-320) came with
version 7, in Kafka 2.1; services that only resemble Kafka, such as Azure Event Hubs, stop before
it."""

OLDEST_RELEASE = "2.1"
FIRST_RELEASES: dict[ApiKey, str] = {
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "2.3",
    ApiKey.OFFSET_DELETE: "2.4",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "4.0",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "4.0",
}
"""First Kafka release with an API, for APIs that the oldest supported release lacks."""


class HandshakeState(Enum):
    VERSIONS = "versions"
    SASL = "sasl"
    DONE = "done"
    FAILED = "failed"


NEXT: dict[HandshakeState, frozenset[HandshakeState]] = {
    HandshakeState.VERSIONS: frozenset(
        {HandshakeState.SASL, HandshakeState.DONE, HandshakeState.FAILED}
    ),
    HandshakeState.SASL: frozenset({HandshakeState.DONE, HandshakeState.FAILED}),
    HandshakeState.DONE: frozenset(),
    HandshakeState.FAILED: frozenset(),
}


class Handshake:
    """The handshake of one connection; `message` and `version` are sent next.

    `protocol` is the client's security_protocol, for messages.
    """

    def __init__(self, node: Node, protocol: str = "PLAINTEXT") -> None:
        self._node = node
        self._protocol = protocol
        self._versions_version = -1
        """Version of the ApiVersions response."""
        self.checks_sasl = False
        """True if the client has no SASL and should check whether the listener requires it."""
        self.requires_sasl = False
        """True if the listener is known to require SASL."""
        self.versions: ApiVersions | None = None
        """The broker's API versions; None before the handshake is done."""
        self.state = HandshakeState.VERSIONS
        self.version = ApiVersionsRequest.max_version
        """Version of `message`. An older one may be chosen before anything is sent."""
        self._versions_request = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=__version__
        )
        self.message: Request = self._versions_request

    def expect(self, cluster_id: str, broker_id: int) -> None:
        """Name the expected cluster and broker, which brokers from Kafka 4.4 on check."""
        self._versions_request.cluster_id = cluster_id
        self._versions_request.node_id = broker_id

    @property
    def is_verified(self) -> bool:
        """True if the broker has confirmed that it is the expected one."""
        return (
            self.versions is not None
            and self._versions_version >= IDENTITY_FROM_VERSION
            and self._versions_request.cluster_id is not None
        )

    def on_frame(self, frame: memoryview) -> bool:
        """Process the broker's response; return whether `message` is to be sent next.

        Raises:
            AuthenticationError: the listener requires SASL, but the client has none.
            DecodeError: the response is malformed.
            ClusterMismatchError: another broker is at the address.
            UnsupportedVersionError: the broker is too old, or does not serve clients.
            BrokerError: the broker refused for another reason.
        """
        if self.state is HandshakeState.SASL:
            self._take_mechanisms(decode_response(SaslHandshakeResponse, self.version, frame))
            return False
        error_code = int.from_bytes(frame[HEADER_BYTES : HEADER_BYTES + 2], "big", signed=True)
        if error_code == BrokerUnsupportedVersionError.code:
            self._fall_back(_refused_ranges(frame))
            return True
        response = decode_response(ApiVersionsResponse, self.version, frame)
        self._versions_version = self.version
        if response.error_code != 0:
            self._to(HandshakeState.FAILED)
            check_reached(self._node, response.error_code, self._versions_request.cluster_id)
            raise _refused(self._node, response.error_code)
        return self._accept(_ranges(response), _features(response))

    def _accept(self, ranges: dict[int, tuple[int, int]], features: FinalizedFeatures) -> bool:
        """Store the broker's version ranges; return whether there is more to send."""
        metadata = ranges.get(int(ApiKey.METADATA))
        if metadata is None:
            self._to(HandshakeState.FAILED)
            raise UnsupportedVersionError(
                f"{self._node} does not serve clients: it has no Metadata API; if this is a "
                f"controller's address, use a broker's"
            )
        if metadata[1] < METADATA_VERSION_MIN:
            self._to(HandshakeState.FAILED)
            raise UnsupportedVersionError(
                f"{self._node} is older than Kafka 2.1: it speaks Metadata up to version "
                f"{metadata[1]}, this client needs {METADATA_VERSION_MIN}; use Kafka 2.1 or newer"
            )
        self.versions = ApiVersions(self._node, ranges, features)
        # Any mechanism will do: the response lists all of them.
        request = SaslHandshakeRequest(mechanism="PLAIN")
        if self.checks_sasl and self.versions.common_range(request) is not None:
            self.message, self.version = request, self.versions.choose(request, None)
            self._to(HandshakeState.SASL)
            return True
        self._to(HandshakeState.DONE)
        return False

    def _take_mechanisms(self, response: SaslHandshakeResponse) -> None:
        if response.error_code not in (0, UnsupportedSaslMechanismError.code):
            # ILLEGAL_SASL_STATE: the listener has no SASL. Other errors will show in requests.
            self._to(HandshakeState.DONE)
            return
        self.requires_sasl = True
        self._to(HandshakeState.FAILED)
        offered = ", ".join(map(repr, response.mechanisms)) or "one that it offers"
        raise AuthenticationError(
            f"{self._node}: its listener requires SASL, but security_protocol={self._protocol} has "
            f"none: set security_protocol=SASL_{self._protocol}, sasl_mechanism to one of "
            f"{offered}, and the credentials; or use the port of another listener"
        )

    def _fall_back(self, ranges: dict[int, tuple[int, int]]) -> None:
        # Brokers since 2.4 list their range of ApiVersions beside the refusal; older ones do not.
        known = ranges.get(int(ApiVersionsRequest.api_key), (0, 0))
        version = min(known[1], self.version - 1)
        if version < max(known[0], ApiVersionsRequest.min_version):
            self._to(HandshakeState.FAILED)
            raise UnsupportedVersionError(
                f"{self._node} refuses every version of ApiVersions that this client "
                f"speaks ({ApiVersionsRequest.min_version} to {ApiVersionsRequest.max_version}); "
                f"use Kafka 2.1 or newer"
            )
        self.version = version

    def _to(self, state: HandshakeState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state


def check_reached(node: Node, error_code: int, cluster_id: str | None) -> None:
    """Check that a response to ApiVersions comes from the broker that the client expects.

    `cluster_id` is the expected cluster's, or None if any will do.

    Raises:
        ClusterMismatchError: another broker is at the address.
        RebootstrapRequiredError: the same, and the client expects no cluster.
    """
    if error_code == RebootstrapRequiredError.code:
        if cluster_id is None:
            raise _refused(node, error_code)
        raise failures.misrouted(node, cluster_id)


def _refused(node: Node, error_code: int) -> BrokerError:
    return error_for_code(error_code, f"{node} refused the ApiVersions request")


def _refused_ranges(frame: memoryview) -> dict[int, tuple[int, int]]:
    """Return the version ranges listed with a refusal; none if they cannot be decoded.

    The refusal itself is clear, so malformed ranges are no reason to fail: librdkafka's mock
    cluster lists its range in its own format.
    """
    try:
        return _ranges(decode_response(ApiVersionsResponse, 0, frame))
    except DecodeError:
        return {}


def _ranges(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def _features(response: ApiVersionsResponse) -> FinalizedFeatures:
    levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
    return FinalizedFeatures(response.finalized_features_epoch, MappingProxyType(levels))


class FinalizedFeatures(NamedTuple):
    """Levels of the features that are enabled in the whole cluster (KIP-584), by name.

    `epoch` orders the lists of several brokers; -1 if a broker lists none.
    """

    epoch: int = -1
    levels: Mapping[str, int] = MappingProxyType({})

    def level(self, name: str) -> int:
        """Return a feature's level; 0 if it is not enabled."""
        return self.levels.get(name, 0)


class ApiVersions:
    """The versions of each API that one broker supports, by API key. Immutable."""

    __slots__ = ("_node", "features", "ranges")

    def __init__(
        self,
        node: Node,
        ranges: Mapping[int, tuple[int, int]],
        features: FinalizedFeatures | None = None,
    ) -> None:
        self._node = node
        self.ranges = MappingProxyType(dict(ranges))
        self.features = features or FinalizedFeatures()

    def listed_max(self, key: ApiKey) -> int:
        """Return the newest version of an API that the broker lists; -1 if it lists none."""
        return self.ranges.get(int(key), (-1, -1))[1]

    def common_range(
        self, message: type[Message] | Message, newest: int | None = None
    ) -> tuple[int, int] | None:
        """Return the versions that both sides support, up to `newest` or our newest stable one."""
        broker = self.ranges.get(int(message.api_key))
        if broker is None:
            return None
        lowest = max(broker[0], message.min_version)
        highest = min(broker[1], message.max_version if newest is None else newest)
        return (lowest, highest) if lowest <= highest else None

    def choose(self, message: Message, max_version: int | None) -> int:
        """Return the highest version that both sides support, up to `max_version`.

        The unstable version is chosen only if `max_version` names it.

        Raises:
            UnsupportedVersionError: there is none; the text has the ranges of both sides.
        """
        newest = max_version
        if newest is not None and newest != message.unstable_version:
            newest = min(newest, message.max_version)
        common = self.common_range(message, newest)
        if common is not None:
            return common[1]
        raise UnsupportedVersionError(self._explain(message, max_version))

    def _explain(self, message: Message, max_version: int | None) -> str:
        broker = self.ranges.get(int(message.api_key))
        release = FIRST_RELEASES.get(message.api_key, OLDEST_RELEASE)
        theirs = "does not have it" if broker is None else f"speaks versions {_span(*broker)}"
        highest = message.max_version
        if max_version is not None:
            highest = min(highest, max_version)
        return (
            f"{self._node} cannot serve {message.api_key.name}: it {theirs}, this client "
            f"needs one of {_span(message.min_version, highest)}; use Kafka {release} or "
            f"newer, or a release of pykclient that supports the broker"
        )


def _span(lowest: int, highest: int) -> str:
    return str(lowest) if lowest == highest else f"{lowest} to {highest}"
