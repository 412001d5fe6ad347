"""AutoMembership: a membership with the newest protocol that the group's coordinator supports.

States: *idle* without a subscription. With one it is *losing* the partitions of an earlier
membership, if any. Then it is *choosing*: it requests the coordinator's ApiVersions, although the
connection has them, since a feature may have been enabled meanwhile. If the coordinator has
ConsumerGroupHeartbeat of Kafka 4.0 and the feature ``group.version``, the state is *consumer*
(`Kip848Membership` acts). Otherwise it is *entering classic* (`ClassicMembership` acts), and
*classic* once the coordinator has assigned a member id.

An error in the coordinator's response is no choice: it is retried, or raised by `poll` first.

A choice is valid for one membership. The next one chooses again, when the coordinator no longer
knows the last: a classic member that was removed, or failed to join (its error is raised first),
loses its partitions and chooses. One that was fenced does not: its error stays. A KIP-848 member is
*refused* (`refusal`) if the coordinator no longer supports such groups, or if the group is classic
and must not be converted. It commits, revokes its partitions and enters as a classic member. A
static member (KIP-345) of an earlier membership may still exist. With the other protocol it is
replaced at once: Kafka refuses an instance id (UNRELEASED_INSTANCE_ID) only if both are KIP-848
members.

One membership ends before the other one acts: this consumer is never two members at a time.

Owner: the core lock.
Source: ours; Java's client has no such choice. The minimum version is that of franz-go
(``should848``). Brokers convert groups online (KIP-848, ``group.consumer.migration.policy``).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from pykclient.consumer.config import CLASSIC_ONLY, KIP848_ONLY
from pykclient.consumer.group.kip848.membership import GROUP_FEATURE
from pykclient.consumer.group.rebalance import LoseAll
from pykclient.errors import UnsupportedVersionError, error_for_code
from pykclient.network.broker.handshake import CLIENT_SOFTWARE_NAME
from pykclient.network.log import ClientLog
from pykclient.network.manager import PollResult, Request
from pykclient.network.retry import Attempt
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.classic.membership import ClassicMembership
    from pykclient.consumer.group.kip848.membership import Kip848Membership
    from pykclient.consumer.group.rebalance import GroupContext, Intent
    from pykclient.errors import BrokerError, KafkaError
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.manager import Operation
    from pykclient.protocol.message import Message
    from pykclient.types import GroupMetadata, TopicPartition

GROUP_VERSION_MIN: Final = 1
"""Minimum level of the feature for KIP-848 groups."""
HEARTBEAT_VERSION_MIN: Final = 1
"""Minimum version of ConsumerGroupHeartbeat: that of Kafka 4.0 (KIP-1082). Version 0 was a
preview."""
NO_FEATURES: Final = -1
"""Epoch of the features in a response that lists none."""


class AutoState(Enum):
    IDLE = "idle"
    CHOOSING = "choosing"
    CONSUMER = "consumer"
    ENTERING_CLASSIC = "entering_classic"
    CLASSIC = "classic"
    LOSING = "losing"


_S = AutoState
NEXT: Final[dict[AutoState, frozenset[AutoState]]] = {
    _S.IDLE: frozenset({_S.LOSING, _S.CONSUMER, _S.ENTERING_CLASSIC}),
    _S.CHOOSING: frozenset({_S.CONSUMER, _S.ENTERING_CLASSIC, _S.IDLE}),
    _S.CONSUMER: frozenset({_S.ENTERING_CLASSIC, _S.IDLE}),
    _S.ENTERING_CLASSIC: frozenset({_S.CLASSIC, _S.LOSING, _S.IDLE}),
    _S.CLASSIC: frozenset({_S.LOSING, _S.IDLE}),
    _S.LOSING: frozenset({_S.CHOOSING, _S.IDLE}),
}


class AutoMembership:
    """The membership of ``group_protocol=auto``, which chooses one of two by the coordinator."""

    def __init__(
        self,
        config: ConsumerConfig,
        context: GroupContext,
        *,
        classic: ClassicMembership,
        kip848: Kip848Membership,
    ) -> None:
        self.state = AutoState.IDLE
        self._config = config
        self._coordinator = context.coordinator
        self._log = ClientLog("pykclient.consumer", config.client_id)
        self._classic = classic
        self._kip848 = kip848
        self._acting: ClassicMembership | Kip848Membership | None = None
        """Membership of the last choice; None before the first one."""
        self._attempt = Attempt(context.retry_backoff)
        """Attempt to learn the coordinator's versions."""
        self._call: object | None = None
        """The request in flight for them; responses to other requests are late."""
        self._intent: Intent | None = None
        """The loss of partitions before the next choice."""
        self._error: KafkaError | None = None
        self._refusal: BrokerError | None = None
        """Error of the coordinator's last response to that request; None if it was good."""

    # For the group.

    @property
    def protocol(self) -> str | None:
        """Protocol of the last choice, `classic` or `consumer`; None before the first one."""
        return None if self._acting is None else self._acting.protocol

    @property
    def member(self) -> GroupMetadata:
        return self._chosen.member

    @property
    def topics(self) -> frozenset[str]:
        return self._chosen.topics

    @property
    def unlisted(self) -> list[TopicPartition]:
        return self._chosen.unlisted

    @property
    def left(self) -> Operation[None]:
        return self._chosen.left

    @property
    def can_commit(self) -> bool:
        return self._chosen.can_commit

    @property
    def is_rebalancing(self) -> bool:
        return self._chosen.is_rebalancing

    @property
    def rejection(self) -> KafkaError | None:
        return self._refusal or self._chosen.rejection

    @property
    def must_poll(self) -> bool:
        return self._chosen.must_poll

    @property
    def has_request_in_flight(self) -> bool:
        return self._call is not None or self._chosen.has_request_in_flight

    @property
    def has_error(self) -> bool:
        return self._error is not None or self._chosen.has_error

    def take_error(self) -> KafkaError | None:
        error, self._error = self._error, None
        if error is not None:
            return error
        error = self._chosen.take_error()
        self._note_classic_member()
        if error is not None and not error.fatal and self.state is AutoState.ENTERING_CLASSIC:
            self._to(AutoState.LOSING)  # it may be a KIP-848 group by now
        return error

    @property
    def _chosen(self) -> ClassicMembership | Kip848Membership:
        return self._acting or self._kip848

    def match(self, cluster: Cluster) -> None:
        self._chosen.match(cluster)

    def on_subscribed(self) -> None:
        if self.state in (AutoState.CHOOSING, AutoState.LOSING):
            return  # the chosen membership will join with the subscription of that time
        if self.state is AutoState.IDLE:
            if self._chosen.is_outside and not self._chosen.has_error:
                self._to(AutoState.LOSING)
                return
            is_classic = self._chosen is self._classic
            self._to(AutoState.ENTERING_CLASSIC if is_classic else AutoState.CONSUMER)
        self._chosen.on_subscribed()

    def enforce_rebalance(self, reason: str) -> None:
        self._chosen.enforce_rebalance(reason)

    def on_commit_refused(self, sent: GroupMetadata, error: BrokerError) -> KafkaError:
        return self._chosen.on_commit_refused(sent, error)

    def wants_turn(self, now_ms: int) -> bool:
        if self._intent is not None:
            return self._intent.is_done
        if self.state is AutoState.CHOOSING:
            return False
        return (
            self.state is AutoState.LOSING
            or self._must_enter_classic
            or self._has_lost_classic
            or self._chosen.wants_turn(now_ms)
        )

    @property
    def _must_enter_classic(self) -> bool:
        kip848 = self._kip848
        is_refused = kip848.is_outside and kip848.refusal is not None
        return self.state is AutoState.CONSUMER and is_refused

    @property
    def _has_lost_classic(self) -> bool:
        # A fatal error stays. The member that has fenced this one must not be fenced in turn.
        is_lost = self._classic.is_outside and not self._classic.has_error
        return self.state is AutoState.CLASSIC and is_lost

    def _note_classic_member(self) -> None:
        """Stay with the classic protocol, since the coordinator has assigned a member id."""
        if self.state is AutoState.ENTERING_CLASSIC and self._classic.member.member_id:
            self._to(AutoState.CLASSIC)

    def begin_leave(self, reason: str, *, sends: bool) -> Intent:
        if self._intent is not None:
            self._intent.cancel()
        self._intent = self._call = self._error = self._refusal = None
        if self.state is not AutoState.IDLE:
            self._to(AutoState.IDLE)
        return self._chosen.begin_leave(reason, sends=sends)

    def leave_late(self) -> None:
        self._chosen.leave_late()

    def advance(self, now_ms: int) -> Intent | None:
        if self.state is AutoState.LOSING:
            return self._lose()
        if self.state is AutoState.CHOOSING:
            return None
        if self._must_enter_classic:
            assert self._kip848.refusal is not None
            self._enter(self._classic, self._kip848.refusal)
        elif self._has_lost_classic:
            self._to(AutoState.LOSING)
            return self._lose()
        return self._chosen.advance(now_ms)

    def _lose(self) -> Intent | None:
        if self._intent is None:
            self._intent = LoseAll()
            return self._intent
        if self._intent.is_done:
            self._intent = None
            self._to(AutoState.CHOOSING)
        return None

    def poll(self, now_ms: int, *, may_rebalance: bool) -> PollResult:
        if self.state is AutoState.CHOOSING:
            return self._ask(now_ms)
        if self.state is AutoState.LOSING:
            return PollResult()
        # Also while the application works: the member may lose its generation before the next poll.
        self._note_classic_member()
        return self._chosen.poll(now_ms, may_rebalance=may_rebalance)

    def restart(self, now_ms: int, *, is_wanted: bool) -> None:
        """Drop requests in flight. A choice that was under way is repeated."""
        self._call = self._intent = None
        self._attempt.lost()
        for membership in (self._classic, self._kip848):
            membership.restart(now_ms, is_wanted=is_wanted and membership is self._acting)
        if not is_wanted:
            self.state = AutoState.IDLE
        elif self.state is AutoState.IDLE:
            self.on_subscribed()

    # The choice.

    def _ask(self, now_ms: int) -> PollResult:
        if self._call is not None:
            return PollResult()
        if not self._attempt.is_due(now_ms):
            return PollResult(next_poll_ms=self._attempt.due_ms)
        node_id = self._coordinator.node_id()
        if node_id is None or self._error is not None:
            return PollResult()
        call = self._call = object()

        def on_response(response: Message | None, now_ms: int) -> None:
            assert isinstance(response, ApiVersionsResponse)
            if self._call is call:
                self._call = None
                self._on_versions(response, node_id, now_ms)

        def on_failure(error: KafkaError, now_ms: int) -> None:
            if self._call is call:
                self._call = None
                self._on_failure(error, node_id, now_ms)

        message = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=__version__
        )
        return PollResult([Request(message, node_id, on_response, on_failure)])

    def _on_versions(self, response: ApiVersionsResponse, node_id: int, now_ms: int) -> None:
        if self._coordinator.is_replaced(node_id):
            self._attempt.succeeded()
            return  # the new coordinator gets the next request
        if response.error_code != 0:
            self._on_refused(response.error_code, node_id, now_ms)
            return
        self._attempt.succeeded()
        self._refusal = None
        reason = why_classic(response)
        if reason is None:
            self._enter(self._kip848, "the coordinator supports KIP-848 groups")
        else:
            self._enter(self._classic, reason)

    def _on_refused(self, code: int, node_id: int, now_ms: int) -> None:
        """Handle an error of the coordinator; its response then contains no API versions.

        An error that a retry cures is retried; `poll` raises others, and then it is retried, too.
        """
        about = f"ApiVersions of the coordinator of group {self._coordinator.key!r}"
        self._refusal = error = error_for_code(code, about)
        self._coordinator.has_moved(node_id, error, error.name)
        self._error = self._attempt.failed(error, now_ms)

    def _on_failure(self, error: KafkaError, node_id: int, now_ms: int) -> None:
        if isinstance(error, UnsupportedVersionError):
            self._enter(self._classic, str(error))
            return
        self._error = self._attempt.failed(error, now_ms)
        if error.retriable:
            self._coordinator.mark_unknown(node_id, error)

    def _enter(self, membership: ClassicMembership | Kip848Membership, reason: str) -> None:
        is_classic = membership is self._classic
        unused = self._given(KIP848_ONLY if is_classic else CLASSIC_ONLY)
        self._log.info(
            "group %r: uses the %s protocol: %s%s",
            membership.member.group_id,
            membership.protocol,
            reason,
            f"; not used with it: {', '.join(unused)}" if unused else "",
        )
        self._acting = membership
        self._to(AutoState.ENTERING_CLASSIC if is_classic else AutoState.CONSUMER)
        membership.on_subscribed()

    def _given(self, names: Iterable[str]) -> list[str]:
        """Return the settings that differ from their defaults."""
        defaults = {each.name: each.default for each in self._config.settings()}
        return [name for name in names if getattr(self._config, name) != defaults[name]]

    def _to(self, state: AutoState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state


def why_classic(response: ApiVersionsResponse) -> str | None:
    """Return why a coordinator does not support KIP-848 groups; None if it does."""
    newest = max(
        (
            each.max_version
            for each in response.api_keys
            if each.api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT
        ),
        default=-1,
    )
    if newest < HEARTBEAT_VERSION_MIN:
        return "the coordinator has no ConsumerGroupHeartbeat of Kafka 4.0 or newer"
    levels = {each.name: each.max_version_level for each in response.finalized_features}
    has_features = response.finalized_features_epoch != NO_FEATURES
    if has_features and levels.get(GROUP_FEATURE, 0) < GROUP_VERSION_MIN:
        return f"the feature {GROUP_FEATURE} is not enabled in the cluster"
    return None
