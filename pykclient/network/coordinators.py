"""Coordinators: the broker that coordinates a group, a transactional id or a share group.

A coordinator is looked up when a manager needs it, and forgotten when its connection is lost or a
response says that the coordinator has moved. A *suspect* coordinator does not respond in time:
another broker is asked who coordinates, and the suspect stays in use meanwhile. A lookup that
*failed* is tried again after a back-off. This module only finds coordinators;
`classic/membership.py` and `kip848/membership.py` of `consumer/group` talk to them.

Owner: the driver of the engine.
Source: Java classes ``AbstractCoordinator``, ``CoordinatorRequestManager``; KIP-699 (several keys).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from enum import Enum, IntEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from pykclient.errors import (
    CoordinatorNotAvailableError,
    DecodeError,
    DisconnectedError,
    NotCoordinatorError,
    UnsupportedVersionError,
    error_for_code,
)
from pykclient.network.cluster.node import CoordinatorNode, broker_node
from pykclient.network.log import ClientLog, RateLimitedLog
from pykclient.network.manager import NEVER_MS, PollResult, Request
from pykclient.network.retry import Attempt
from pykclient.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pykclient.errors import KafkaError
    from pykclient.network.broker.client import NetworkClient
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message

MOVED_ERRORS: Final = (CoordinatorNotAvailableError, NotCoordinatorError)
"""Errors that mean the broker is no longer the coordinator."""

SEVERAL_KEYS_FROM_VERSION: Final = 4

SUSPECT_INTERVAL_MS: Final = 2_000
"""Interval between two lookups of a suspect coordinator. It may hang, or wait for a whole group to
join. Members that wait with it send no heartbeats, which would be as many requests."""


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


LOWEST_VERSIONS: Final = {
    CoordinatorType.GROUP: 0,
    CoordinatorType.TRANSACTION: 1,
    CoordinatorType.SHARE: 6,
}


class CoordinatorState(Enum):
    UNKNOWN = "unknown"
    WANTED = "wanted"
    LOOKING_UP = "looking_up"
    KNOWN = "known"
    SUSPECT = "suspect"
    FAILED = "failed"


NEXT: Final[dict[CoordinatorState, frozenset[CoordinatorState]]] = {
    CoordinatorState.UNKNOWN: frozenset({CoordinatorState.WANTED}),
    CoordinatorState.WANTED: frozenset({CoordinatorState.LOOKING_UP}),
    CoordinatorState.LOOKING_UP: frozenset(
        {CoordinatorState.WANTED, CoordinatorState.KNOWN, CoordinatorState.FAILED}
    ),
    CoordinatorState.KNOWN: frozenset({CoordinatorState.UNKNOWN, CoordinatorState.SUSPECT}),
    CoordinatorState.SUSPECT: frozenset({CoordinatorState.KNOWN, CoordinatorState.LOOKING_UP}),
    CoordinatorState.FAILED: frozenset({CoordinatorState.UNKNOWN}),
}


class CoordinatorLookup:
    """The coordinator of one key and the state of its lookup, shared by all that use it."""

    def __init__(self, owner: Coordinators, key_type: CoordinatorType, key: str) -> None:
        self.key_type = key_type
        self.key = key
        self._owner = owner
        self.reset()

    def __str__(self) -> str:
        return f"{self.key_type.name.lower()} {self.key!r}"

    def reset(self) -> None:
        self.attempt = Attempt(self._owner.retry_backoff)
        self.state = CoordinatorState.UNKNOWN
        self.known_node: CoordinatorNode | None = None
        self.found_node: CoordinatorNode | None = None
        """The coordinator found last, even if it has been forgotten since."""
        self.is_loss_logged = False
        """True if the last log line about this coordinator reported its loss."""
        self.suspect_at_ms = 0
        """Earliest time at which an unresponsive coordinator counts as suspect."""
        self.doubted_id: int | None = None
        """The broker in doubt, until another broker has named the coordinator."""

    def node(self) -> CoordinatorNode | None:
        """Return the coordinator; if it is unknown, request a lookup and return None.

        The node's id identifies a separate connection: use it as the `node_id` of requests.
        """
        if self.known_node is not None and self._owner.is_unavailable(self.known_node):
            self._forget("it cannot be reached")
        if self.state is CoordinatorState.UNKNOWN:
            self.to(CoordinatorState.WANTED)
        return self.known_node

    def node_id(self) -> int | None:
        node = self.node()
        return None if node is None else node.id

    def data_node_id(self) -> int | None:
        """Return the same broker's id for data, a connection that no JoinGroup blocks."""
        node = self.node()
        return None if node is None else node.broker_id

    def node_id_for(self, attempts: Iterable[Attempt]) -> int | None:
        """Return `node_id`; if there is none, record why in the attempts that wait for it."""
        node_id = self.node_id()
        if node_id is None:
            for attempt in attempts:
                attempt.last_error = self.attempt.last_error or attempt.last_error
        return node_id

    def failure(self) -> KafkaError | None:
        """Return the error of the lookup if a retry cannot cure it, else None.

        The error stands until a back-off has passed; the next call of `node` then looks again.
        """
        return self.attempt.last_error if self.state is CoordinatorState.FAILED else None

    def is_replaced(self, node_id: int) -> bool:
        """Return whether the broker that responded is no longer the coordinator.

        Its statements about members are void then: a broker that was paused removes all members
        before it notices that it was replaced.
        """
        return node_id != self.node_id()

    def has_moved(self, node_id: int, error: KafkaError, reason: str | None = None) -> bool:
        """Return whether an error says that the broker is not the coordinator; forget it if so.

        The broker has neither processed nor refused the request, so the request goes to the next
        coordinator. `reason` replaces `error` in the log.
        """
        has_moved = isinstance(error, MOVED_ERRORS)
        if has_moved:
            self.mark_unknown(node_id, reason or error)
        return has_moved

    def mark_unknown(self, node_id: int, reason: object) -> None:
        """Forget the coordinator if it is this node; a newer one stays known."""
        if self.known_node is not None and self.known_node.id == node_id:
            self._forget(reason)

    def doubt(self, node_id: int, reason: object) -> None:
        """Look the coordinator up at another broker, if this node is the known one."""
        node = self.known_node
        if node is not None and node.id == node_id:
            self.doubted_id = node.broker_id
            self._forget(reason)

    def to(self, state: CoordinatorState) -> None:
        assert state in NEXT[self.state], f"{self}: {self.state} -> {state}"
        self.state = state

    def _forget(self, reason: object) -> None:
        self.is_loss_logged |= self._owner.log_loss(self, reason)
        self.known_node = None
        # The lookup that began while it was suspect continues.
        is_suspect = self.state is CoordinatorState.SUSPECT
        self.to(CoordinatorState.LOOKING_UP if is_suspect else CoordinatorState.UNKNOWN)


class Coordinators:
    """The manager of all coordinators. The engine polls it after the managers that need them."""

    def __init__(
        self,
        metadata: Metadata,
        client: NetworkClient,
        *,
        retry_backoff: Backoff,
        client_id: str = "",
    ) -> None:
        self._log = ClientLog("pykclient.network", client_id)
        self._repeated = RateLimitedLog(self._log)
        self._metadata = metadata
        self._client = client
        self.retry_backoff = retry_backoff
        self._lookups: dict[tuple[CoordinatorType, str], CoordinatorLookup] = {}
        self._takes_several_keys = True
        """True until a broker proves not to support several keys in one request."""
        self._now_ms = 0

    # For the other managers.

    def find(self, key_type: CoordinatorType, key: str) -> CoordinatorLookup:
        """Return the lookup of a key. It sends nothing until it is used."""
        lookup = self._lookups.get((key_type, key))
        if lookup is None:
            lookup = self._lookups[key_type, key] = CoordinatorLookup(self, key_type, key)
        return lookup

    def is_unavailable(self, node: CoordinatorNode) -> bool:
        return self._client.is_unavailable(node.id, self._now_ms)

    def log_loss(self, lookup: CoordinatorLookup, reason: object) -> bool:
        """Log the loss of a coordinator, unless it was logged recently; return whether it was."""
        node = lookup.known_node
        return self._repeated.log(
            logging.INFO,
            self._now_ms,
            (str(lookup), node, reason if isinstance(reason, str) else type(reason)),
            "%s: the coordinator %s is no longer used: %s",
            lookup,
            node,
            reason,
        )

    # For the engine.

    def poll(self, now_ms: int) -> PollResult:
        self._now_ms = now_ms
        due: defaultdict[CoordinatorType, list[CoordinatorLookup]] = defaultdict(list)
        next_poll_ms = NEVER_MS
        for lookup in self._lookups.values():
            if lookup.state is CoordinatorState.FAILED and lookup.attempt.due_ms <= now_ms:
                lookup.to(CoordinatorState.UNKNOWN)
            due_ms = self._due_ms(lookup)
            if due_ms > now_ms:
                next_poll_ms = min(next_poll_ms, due_ms)
            else:
                due[lookup.key_type].append(lookup)
        requests: list[Request] = []
        for lookups in due.values():
            if self._takes_several_keys:
                requests.append(self._request(lookups))
            else:
                requests.extend(self._request([lookup]) for lookup in lookups)
        return PollResult(requests, next_poll_ms)

    def restart(self, now_ms: int) -> None:
        del now_ms
        for lookup in self._lookups.values():
            lookup.reset()

    def _due_ms(self, lookup: CoordinatorLookup) -> int:
        if lookup.state is CoordinatorState.WANTED:
            return lookup.attempt.due_ms
        if lookup.state is CoordinatorState.KNOWN:
            assert lookup.known_node is not None
            return max(self._client.suspect_ms(lookup.known_node.id), lookup.suspect_at_ms)
        return NEVER_MS

    def _request(self, lookups: list[CoordinatorLookup]) -> Request:
        key_type = lookups[0].key_type
        keys = [lookup.key for lookup in lookups]
        doubted = (each.doubted_id for each in lookups if each.doubted_id is not None)
        for lookup in lookups:
            is_known = lookup.state is CoordinatorState.KNOWN
            lookup.to(CoordinatorState.SUSPECT if is_known else CoordinatorState.LOOKING_UP)
        return Request(
            FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys),
            node_id=None,
            on_response=partial(self._on_response, lookups),
            on_failure=partial(self._on_failure, lookups),
            check=partial(_check, keys),
            build=partial(_build, key_type, keys),
            is_movable=True,
            avoided_id=next(doubted, None),
        )

    # Responses.

    def _on_response(
        self, lookups: list[CoordinatorLookup], message: Message | None, now_ms: int
    ) -> None:
        assert isinstance(message, FindCoordinatorResponse)
        found = _found([lookup.key for lookup in lookups], message)
        for lookup, coordinator in zip(lookups, found, strict=True):
            if coordinator.error_code != 0:
                said = f": {coordinator.error_message}" if coordinator.error_message else ""
                text = f"FindCoordinator of {lookup}{said}"
                self._on_error(lookup, error_for_code(coordinator.error_code, text), now_ms)
            else:
                self._learn(lookup, CoordinatorNode.of(broker_node(_Address(coordinator))), now_ms)

    def _learn(self, lookup: CoordinatorLookup, node: CoordinatorNode, now_ms: int) -> None:
        suspect = lookup.known_node
        lookup.to(CoordinatorState.KNOWN)
        if suspect == node:
            self._log.debug("%s: the coordinator is still %s, which is suspect", lookup, node)
            lookup.suspect_at_ms = now_ms + SUSPECT_INTERVAL_MS
            return
        # Finding the same coordinator again after a loss that was not logged is logged at DEBUG.
        is_known_to_log = node == lookup.found_node and not lookup.is_loss_logged
        self._log.log(
            logging.DEBUG if is_known_to_log else logging.INFO,
            "%s: the coordinator is %s",
            lookup,
            node,
        )
        lookup.is_loss_logged = False
        lookup.doubted_id = None
        lookup.known_node = lookup.found_node = node
        lookup.attempt.succeeded()
        # If it proves to be wrong at once, the next lookup waits for a back-off.
        lookup.attempt.due_ms = now_ms + self.retry_backoff.delay_ms(0)
        self._metadata.learn_coordinator(node)
        if suspect is not None and suspect.id != node.id:
            gone = DisconnectedError(f"{suspect} did not respond, and {node} has taken its place")
            self._client.abandon(suspect.id, gone, now_ms)

    def _on_failure(self, lookups: list[CoordinatorLookup], error: KafkaError, now_ms: int) -> None:
        if isinstance(error, UnsupportedVersionError) and len(lookups) > 1:
            self._takes_several_keys = False
            for lookup in lookups:
                is_known = lookup.state is CoordinatorState.SUSPECT
                lookup.to(CoordinatorState.KNOWN if is_known else CoordinatorState.WANTED)
            return
        for lookup in lookups:
            self._on_error(lookup, error, now_ms)

    def _on_error(self, lookup: CoordinatorLookup, error: KafkaError, now_ms: int) -> None:
        if lookup.state is CoordinatorState.SUSPECT:
            self._log.debug(
                "%s: could not check whether it is still %s: %s", lookup, lookup.known_node, error
            )
            lookup.suspect_at_ms = now_ms + SUSPECT_INTERVAL_MS
            lookup.to(CoordinatorState.KNOWN)
            return
        has_failed = lookup.attempt.failed(error, now_ms) is not None
        lookup.to(CoordinatorState.FAILED if has_failed else CoordinatorState.WANTED)
        self._log.debug("%s: no coordinator yet: %s", lookup, lookup.attempt.last_error)


class _Address:
    """The address of a coordinator in a response. It has no rack."""

    rack: str | None = None

    def __init__(self, coordinator: Coordinator) -> None:
        self.node_id, self.host, self.port = coordinator.node_id, coordinator.host, coordinator.port


def _build(key_type: CoordinatorType, keys: Sequence[str], version: int) -> FindCoordinatorRequest:
    """Build the request for a version.

    Raises:
        UnsupportedVersionError: it has no room for several keys, or for keys of this type.
    """
    if version < LOWEST_VERSIONS[key_type]:
        raise UnsupportedVersionError(
            f"FindCoordinator version {version} has no {key_type.name.lower()} coordinators; "
            f"use a broker that speaks version {LOWEST_VERSIONS[key_type]} or newer"
        )
    if version >= SEVERAL_KEYS_FROM_VERSION:
        return FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
    if len(keys) > 1:
        raise UnsupportedVersionError(
            f"FindCoordinator version {version} takes one key, not {len(keys)}"
        )
    return FindCoordinatorRequest(key_type=key_type, key=keys[0])


def _found(keys: Sequence[str], message: FindCoordinatorResponse) -> list[Coordinator]:
    """Return the coordinators in the order of the keys. Requires that the response was checked."""
    if message.coordinators:
        by_key = {coordinator.key: coordinator for coordinator in message.coordinators}
        return [by_key[key] for key in keys]
    return [
        Coordinator(
            key=keys[0],
            node_id=message.node_id,
            host=message.host,
            port=message.port,
            error_code=message.error_code,
            error_message=message.error_message,
        )
    ]


def _check(keys: Sequence[str], message: Message) -> None:
    """Check that a response names each key once, with a valid address."""
    assert isinstance(message, FindCoordinatorResponse)
    if message.coordinators or len(keys) > 1:
        found = sorted(each.key for each in message.coordinators)
        if found != sorted(keys):
            raise DecodeError(
                f"a FindCoordinator response names keys {found}; {list(keys)} were requested"
            )
    for coordinator in _found(keys, message):
        if coordinator.error_code == 0:
            broker_node(_Address(coordinator))
