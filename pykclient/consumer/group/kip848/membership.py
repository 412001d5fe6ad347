"""ModernMembership: this consumer as a member of a group of KIP-848, where the coordinator assigns.

The member tells in heartbeats what it wants and what it has, and hears what it shall have. It gives
up what is not in that (commits, tells the listener) before it takes the rest, and only then
acknowledges: until it has, nobody else gets what it gave up. It never touches partitions: its
`ModernParticipant` does. Nothing that concerns them happens while the application is not polling
(`may_rebalance`); heartbeats and answers do. Its states are those of `ModernState`.

Owner: the core lock.
Source: KIP-848; Java classes ``AbstractMembershipManager``, ``ConsumerHeartbeatRequestManager``.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from functools import partial
from typing import TYPE_CHECKING, Final

from pykclient.consumer.group.kip848.requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    HeartbeatFields,
    heartbeat_of,
)
from pykclient.consumer.group.kip848.state import BEATING, IN_GROUP, NEXT, ModernState
from pykclient.consumer.group.metadata import GroupMetadata
from pykclient.consumer.group.retries import Retries
from pykclient.errors import (
    BrokerError,
    CoordinatorNotAvailableError,
    FencedMemberEpochError,
    NotCoordinatorError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
    error_for_code,
)
from pykclient.network.log import ClientLog
from pykclient.network.manager import NEVER_MS, Operation, PollResult, Request
from pykclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from pykclient.consumer.group.history import GroupHistory
    from pykclient.consumer.group.kip848.requests import ModernSettings
    from pykclient.consumer.group.participant import GroupCoordinator, ModernParticipant
    from pykclient.errors import KafkaError
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message

    Assignment = dict[bytes, tuple[int, ...]]

__all__ = ["ModernMembership"]

MEMBER_ID_BYTES: Final = 16

HEARTBEAT_INTERVAL_MIN_MS: Final = 50
"""No coordinator has this member beat faster. A broker may be set up to ask for 1 ms; 5 s is the
least that it allows unless it is told otherwise (``group.consumer.min.heartbeat.interval.ms``)."""

HEARTBEAT_INTERVAL_MAX_MS: Final = 30_000
"""Nor more slowly. It is twice what a broker allows unless it is told otherwise
(``group.consumer.max.heartbeat.interval.ms``), and ends before a session of 45 s, which is the
broker's default; the session is not told to members."""

MOVED: Final = (CoordinatorNotAvailableError, NotCoordinatorError)
UNKNOWN_MEMBER: Final = (FencedMemberEpochError, UnknownMemberIdError)
TOLD: Final = (TopicAuthorizationFailedError, UnreleasedInstanceIdError)
"""Errors that pass, perhaps: the application is told, and the member tries on. Of a static member
that was killed, the name is free when its session has ended."""


class ModernMembership:
    """The member. `ask_to_join` makes it one; `begin_leave` ends that."""

    def __init__(
        self,
        group_id: str,
        participant: ModernParticipant,
        coordinator: GroupCoordinator,
        *,
        settings: ModernSettings,
        history: GroupHistory,
        retry_backoff: Backoff,
        group_instance_id: str | None = None,
        client_id: str = "",
    ) -> None:
        # KIP-1082: the member makes its id itself, and keeps it for life.
        member_id = urlsafe_b64encode(retry_backoff.random.randbytes(MEMBER_ID_BYTES))
        self.member = GroupMetadata(
            group_id,
            member_id=member_id.decode().rstrip("="),
            group_instance_id=group_instance_id,
        )
        self.trouble: KafkaError | None = None
        """Why the coordinator does not take this member in, as it said last; None if it does."""
        self.state = ModernState.UNSUBSCRIBED
        self._participant = participant
        self._coordinator = coordinator
        self._settings = settings
        self._history = history
        self._log = ClientLog("pykclient.consumer", client_id)
        self._fields = HeartbeatFields(settings)
        self._wants_join = False
        self._call: object | None = None
        """The heartbeat in flight; answers to others come too late."""
        self._target: Assignment = {}
        self._current: Assignment = {}
        """What was reconciled last."""
        self._reconciling: Assignment | None = None
        self._handover: Operation[None] | None = None
        """What the participant is busy with."""
        self._left: Operation[None] = Operation()
        self._leave_epoch: int | None = None
        self._is_late = False
        self._may_be_known = False
        """Whether the coordinator may have this member, though it has not said so yet."""
        self._is_torn = False
        """Whether what was reconciled last is not known: it is looked at again."""
        self._must_lose = False
        """Whether others may have what this consumer still has; the next poll gives it up."""
        self._interval_ms = 0
        self._due_ms = 0
        self._polled_ms = 0
        self._retries = Retries(retry_backoff)
        self._error: KafkaError | None = None

    # Asked by the consumer's coordinator.

    @property
    def can_commit(self) -> bool:
        """Whether a commit in the name of `member` has a chance."""
        return self.member.is_member

    @property
    def has_request_in_flight(self) -> bool:
        """Whether the coordinator owes an answer."""
        return self._call is not None

    @property
    def has_error(self) -> bool:
        """Whether `take_error` would return one."""
        return self._error is not None

    def take_error(self) -> KafkaError | None:
        """Return what the application must know, and forget it; what is fatal stays."""
        error = self._error
        if error is not None and not (error.fatal and self.state is ModernState.FATAL):
            self._error = None
        return error

    def ask_to_join(self) -> None:
        """Have it join at the application's next poll, if it is no member."""
        self._wants_join = self.state not in IN_GROUP

    def on_commit_refused(self, error_code: int, sent: GroupMetadata) -> None:
        """Hear what a commit was told: a heartbeat will tell whether this is a member still."""
        del error_code, sent
        self._due_ms = 0

    def note_poll(self, now_ms: int) -> None:
        """Note that the application asks for records: `max_poll_interval_ms` begins anew."""
        self._polled_ms = now_ms

    def wants_turn(self, now_ms: int) -> bool:
        """Whether a poll by the application would change something now."""
        if self._handover is not None:
            return self._handover.is_done
        if self.state is ModernState.UNSUBSCRIBED:
            return self._wants_join
        if self.state is ModernState.FATAL:
            return self._must_lose or self._may_try_again(now_ms)
        if self.state is ModernState.RECONCILING:
            return self._is_torn or self._participant.resolve(self._target) != self._current
        return self.state in (ModernState.FENCED, ModernState.STALE, ModernState.PREPARE_LEAVING)

    def _may_try_again(self, now_ms: int) -> bool:
        return self._error is None and now_ms >= self._retries.at_ms

    def begin_leave(self, reason: str, *, sends: bool, now_ms: int) -> Operation[None]:
        """Give everything up and leave; return what ends when the coordinator has been told.

        `sends` False keeps the membership at the coordinator until the session ends; a static
        member tells that it will be back.
        """
        self._log.info("group %r: leaving: %s", self.member.group_id, reason)
        self._wants_join, self._error = False, None
        if self.state is not ModernState.PREPARE_LEAVING:
            # Else it is asked for again, by the listener that hears of it: both wait for one end.
            self._left = Operation()
        is_static = self.member.group_instance_id is not None
        self._leave_epoch = LEAVE_EPOCH if sends else LEAVE_STATIC_EPOCH if is_static else None
        if not self._may_be_known:
            self._leave_epoch = None
        self._to(ModernState.PREPARE_LEAVING)
        self._reconciling, self._must_lose = None, False
        self._handover = self._participant.give_up(is_member=self.member.is_member, now_ms=now_ms)
        return self._left

    def restart(self, now_ms: int, *, is_wanted: bool) -> None:
        """Forget what is in flight; what was being given up or taken is begun anew.

        The next heartbeat tells everything, so that the coordinator does.
        """
        del now_ms
        is_busy = self._handover is not None or self._reconciling is not None
        self._call = self._handover = self._reconciling = None
        self._fields.forget()
        self._due_ms = 0
        self._left.succeed(None)
        if self.state is ModernState.JOINING and not self.member.is_member:
            return
        if self.state in (ModernState.PREPARE_LEAVING, ModernState.LEAVING):
            is_left = not self.member.is_member
            self.state = ModernState.UNSUBSCRIBED if is_left else ModernState.RECONCILING
            is_busy, self._must_lose = True, is_left
        if self.state in IN_GROUP and not self.member.is_member:
            self.state = ModernState.FENCED
        if self.state in IN_GROUP and (
            is_busy or self.state is not ModernState.STABLE or self._target != self._current
        ):
            self._is_torn = True
            self.state = ModernState.RECONCILING
        self._must_lose = self._must_lose or self.state in (
            ModernState.FENCED,
            ModernState.STALE,
        )
        self._wants_join = is_wanted and self.state is ModernState.UNSUBSCRIBED

    # Asked by the engine.

    def poll(self, now_ms: int, *, may_rebalance: bool) -> PollResult:
        """Go on as far as it goes, and return what is to be sent."""
        if may_rebalance:
            self._polled_ms = now_ms
            self._advance(now_ms)
        elif self.state in IN_GROUP and now_ms >= self._late_ms():
            self._leave_late(now_ms)
        if self.state is ModernState.FATAL and now_ms < self._retries.at_ms:
            return PollResult(next_poll_ms=self._retries.at_ms)
        if self.state not in BEATING and self.state is not ModernState.LEAVING:
            return PollResult()
        node_id = self._coordinator.node_id()
        requests = []
        if node_id is not None and self._is_due(now_ms):
            requests.append(self._beat(node_id, now_ms))
        elif node_id is None and self.state is ModernState.LEAVING:
            self._finish_leaving()  # nobody there to be told: the session will end
        return PollResult(requests, self._next_ms(now_ms, has_coordinator=node_id is not None))

    def _late_ms(self) -> int:
        return self._polled_ms + self._settings.rebalance_timeout_ms

    def _next_ms(self, now_ms: int, *, has_coordinator: bool) -> int:
        late_ms = self._late_ms() if self.state in IN_GROUP else NEVER_MS
        if self._call is not None or not has_coordinator:
            return late_ms
        due_ms = self._due_ms if self.state in IN_GROUP or self.member.is_member else NEVER_MS
        return max(now_ms, min(late_ms, max(due_ms, self._retries.at_ms)))

    def _is_due(self, now_ms: int) -> bool:
        if self.state is ModernState.LEAVING:
            return True
        if self._call is not None or now_ms < self._retries.at_ms:
            return False
        if self.state is ModernState.PREPARE_LEAVING:
            return self.member.is_member and now_ms >= self._due_ms
        if self.state in (ModernState.JOINING, ModernState.ACKNOWLEDGING):
            return True
        interest = self._participant.interest()
        return now_ms >= self._due_ms or self._fields.has_news(interest, self._current)

    def _advance(self, now_ms: int) -> None:
        """Take the steps that concern partitions, one after the other."""
        if self._handover is not None:
            if self._handover.is_done:
                self._handover = None
                self._on_handed_over(now_ms)
        elif self.state is ModernState.UNSUBSCRIBED and self._wants_join:
            self._join("the consumer has subscribed", now_ms)
        elif self._must_lose:
            self._must_lose = False
            self._handover = self._participant.give_up(is_member=False, now_ms=now_ms)
        elif self.state is ModernState.FATAL and self._may_try_again(now_ms):
            self._join("the consumer tries again", now_ms)
        elif self.state is ModernState.RECONCILING:
            self._reconcile(now_ms)

    def _join(self, reason: str, now_ms: int) -> None:
        self._wants_join = False
        self._history.begin(reason, now_ms)
        self._fields.forget()
        self._target, self._current = {}, {}
        self._is_torn = False
        self._to(ModernState.JOINING)

    def _reconcile(self, now_ms: int) -> None:
        assigned = self._participant.resolve(self._target)
        if assigned != self._target:
            self._participant.ask_for_names()
        if assigned == self._current and not self._is_torn:
            if assigned == self._target:
                self._to(ModernState.STABLE)
            return
        self._history.begin_once("the coordinator assigns anew", now_ms)
        self._history.note_generation(self.member, self._settings.server_assignor or "")
        self._reconciling = assigned
        self._handover = self._participant.reconcile(assigned, now_ms)

    def _on_handed_over(self, now_ms: int) -> None:
        if self.state is ModernState.RECONCILING and self._reconciling is not None:
            self._current, self._reconciling = self._reconciling, None
            self._is_torn = False
            self._to(ModernState.ACKNOWLEDGING)
            self._history.end(now_ms)
        elif self.state in (ModernState.FENCED, ModernState.STALE):
            self._join(f"the consumer joins again, it was {self.state.value}", now_ms)
        elif self.state is ModernState.PREPARE_LEAVING:
            self._history.end(now_ms)
            self._to(ModernState.LEAVING)
            if self._leave_epoch is None:
                self._finish_leaving()

    # Sending.

    def _beat(self, node_id: int, now_ms: int) -> Request:
        call = self._call = object()
        if self.state is ModernState.LEAVING:
            assert self._leave_epoch is not None
            message = heartbeat_of(self.member, self._leave_epoch)
            left = self._left
            self._finish_leaving(is_told=True)
            return Request(
                message,
                node_id,
                lambda response, now_ms: left.succeed(None),
                lambda error, now_ms: left.succeed(None),  # the session will end
                timeout_ms=self._settings.request_timeout_ms,
            )
        is_joining = self.state is ModernState.JOINING
        self._may_be_known = True
        message = self._fields.request(
            self.member,
            self._participant.interest(),
            self._current,
            epoch=JOIN_EPOCH if is_joining else self.member.generation,
        )
        if self.state is ModernState.ACKNOWLEDGING:
            is_all = self._target == self._current
            self._to(ModernState.STABLE if is_all else ModernState.RECONCILING)
        self._due_ms = now_ms + self._interval_ms
        return Request(
            message,
            node_id,
            partial(self._on_response, call, node_id),
            partial(self._on_failure, call, node_id),
        )

    def _finish_leaving(self, *, is_told: bool = False) -> None:
        """Be no member any more. `is_told` leaves the end of leaving to the answer."""
        self._call = None
        self._may_be_known = False
        self.member = self.member.without_generation()
        if self._is_late:
            self._is_late, self._must_lose = False, True
            self._to(ModernState.STALE)
        else:
            self._to(ModernState.UNSUBSCRIBED)
        if not is_told:
            self._left.succeed(None)

    def _leave_late(self, now_ms: int) -> None:
        """Leave because the application does not poll; it hears of it when it does."""
        self._log.warning(
            "group %r: no poll for max_poll_interval_ms, so this member leaves and others read on; "
            "poll more often, with smaller max_poll_records, or raise max_poll_interval_ms",
            self.member.group_id,
        )
        is_static = self.member.group_instance_id is not None
        self._leave_epoch = LEAVE_STATIC_EPOCH if is_static else LEAVE_EPOCH
        self._is_late = True
        self._left = Operation()
        self._history.fail("the application did not poll for max_poll_interval_ms", now_ms)
        self._stop(now_ms)
        self._to(ModernState.LEAVING)
        if not self._may_be_known:
            self._finish_leaving()

    # Answers.

    def _on_response(
        self, call: object, node_id: int, response: Message | None, now_ms: int
    ) -> None:
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if self._call is not call:
            return
        self._call = None
        if response.error_code != 0:
            said = f": {response.error_message}" if response.error_message else ""
            about = f"ConsumerGroupHeartbeat of group {self.member.group_id!r}{said}"
            self._on_refused(error_for_code(response.error_code, about), node_id, now_ms)
            return
        self._retries.succeed()
        self.trouble = None
        told_ms = response.heartbeat_interval_ms
        self._interval_ms = min(max(told_ms, HEARTBEAT_INTERVAL_MIN_MS), HEARTBEAT_INTERVAL_MAX_MS)
        self._due_ms = now_ms + self._interval_ms
        is_new = not self.member.is_member
        self.member = self.member._replace(
            generation=response.member_epoch,
            member_id=response.member_id or self.member.member_id,
        )
        if is_new:
            self._log.info("group %r: joined as %r", self.member.group_id, self.member.member_id)
        if self.state is ModernState.PREPARE_LEAVING:
            return
        if response.assignment is not None or self.state is ModernState.JOINING:
            told = [] if response.assignment is None else response.assignment.topic_partitions
            self._on_target(
                {each.topic_id: tuple(sorted(each.partitions)) for each in told}, now_ms
            )

    def _on_target(self, target: Assignment, now_ms: int) -> None:
        before = self._target
        self._target = {topic_id: numbers for topic_id, numbers in target.items() if numbers}
        is_idle = self._reconciling is None and self.state is not ModernState.JOINING
        if (
            is_idle
            and self._target != before
            and self._participant.resolve(self._target) == self._current
        ):
            # What was assigned in between, and taken back, is given up only when that is told.
            self._fields.forget_assigned()
        if self._target != self._current:
            self._to(ModernState.RECONCILING)
        elif (
            self._reconciling is None and not self._is_torn and self.state is not ModernState.STABLE
        ):
            if self.state is ModernState.JOINING:
                self._history.note_generation(self.member, "")
                self._history.end(now_ms)
            self._to(ModernState.STABLE)

    def _on_failure(self, call: object, node_id: int, error: KafkaError, now_ms: int) -> None:
        if self._call is not call:
            return
        self._call = None
        self._fields.forget()
        if error.retriable:
            self._coordinator.mark_unknown(node_id, error)
            self._retry_later(now_ms)
        else:
            self._fail(error, now_ms)

    def _on_refused(self, error: BrokerError, node_id: int, now_ms: int) -> None:
        """Go on after an error as Java does."""
        passes = error.retriable or isinstance(error, UNKNOWN_MEMBER)
        self.trouble = error if passes else None
        self._fields.forget()
        self._may_be_known = self.member.is_member
        if isinstance(error, MOVED):
            self._coordinator.mark_unknown(node_id, error.name)
            self._due_ms = 0  # as soon as the other one is found
        elif isinstance(error, UNKNOWN_MEMBER) and node_id != self._coordinator.node_id():
            # A broker that was paused gives everybody up before it sees that it is replaced.
            self._due_ms = 0
        elif isinstance(error, UNKNOWN_MEMBER):
            self._on_fenced(error, now_ms)
        elif isinstance(error, TOLD):
            self._retry_later(now_ms)
            self._error = error
        elif error.retriable:
            self._retry_later(now_ms)
        else:
            self._fail(error, now_ms)

    def _on_fenced(self, error: BrokerError, now_ms: int) -> None:
        self._log.info("group %r: membership is lost: %s", self.member.group_id, error)
        if self.state is ModernState.PREPARE_LEAVING:
            self._leave_epoch = None  # it has nothing to leave any more
            self.member = self.member.without_generation()
            return
        self._retries.soon(now_ms)
        self._due_ms = 0  # of a heartbeat that nobody expects any more
        self._drop_out(ModernState.FENCED, str(error), now_ms)

    def _retry_later(self, now_ms: int) -> None:
        self._retries.later(now_ms)
        self._due_ms = 0

    def _fail(self, error: KafkaError, now_ms: int) -> None:
        """Tell the application; unless it is fatal it may try again by polling on."""
        self._retry_later(now_ms)
        self._error = _unsupported(error) if isinstance(error, UnsupportedVersionError) else error
        if self.state in IN_GROUP:
            self._drop_out(ModernState.FATAL, str(error), now_ms)
        else:
            self._leave_epoch = None

    def _drop_out(self, state: ModernState, reason: str, now_ms: int) -> None:
        self._history.fail(reason, now_ms)
        self._stop(now_ms)
        self._must_lose = True
        self._may_be_known = False
        self.member = self.member.without_generation()
        self._to(state)

    def _stop(self, now_ms: int) -> None:
        self._participant.stop(now_ms)
        self._handover = self._reconciling = None

    def _to(self, state: ModernState) -> None:
        assert state in NEXT[self.state] or state is self.state, f"{self.state} -> {state}"
        self.state = state


def _unsupported(cause: KafkaError) -> UnsupportedVersionError:
    error = UnsupportedVersionError(
        f"the brokers have no groups of KIP-848: set group_protocol=classic, or use Kafka 4.0 or "
        f"newer ({cause})"
    )
    error.__cause__ = cause
    return error
