"""ClassicMembership: this consumer as a member of a group of the classic protocol.

*Unjoined*, then *revoking* (what is to be given up goes), *joining* (JoinGroup; a new member is
given its id first), *syncing* (SyncGroup; the leader assigns before), *assigning* (what came is
taken), *stable*. A rebalance goes round again from stable; *leaving* gives everything up and ends
unjoined. It never touches partitions: its `Participant` does, and tells when it is done. Nothing
that concerns them happens while the application is not polling (`may_rebalance`); heartbeats,
answers and SyncGroup do.

Owner: the core lock.
Source: Java class ``AbstractCoordinator``; KIP-62, KIP-345 (static members), KIP-394 (member ids).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pykclient.consumer.group.classic.protocol import PROTOCOL_TYPE
from pykclient.consumer.group.classic.requests import (
    Leaving,
    heartbeat_request,
    join_request,
    sync_request,
)
from pykclient.consumer.group.classic.state import (
    GIVEN_UP,
    MOVED,
    REFUSAL_MAX_MS,
    ClassicMember,
    ClassicState,
)
from pykclient.consumer.group.metadata import GroupMetadata
from pykclient.consumer.group.retries import Retries
from pykclient.errors import (
    DisconnectedError,
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    KafkaError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    error_for_code,
)
from pykclient.network.interrupts import raise_foreign
from pykclient.network.manager import NEVER_MS, Operation, PollResult, Request
from pykclient.protocol.messages.heartbeat import HeartbeatResponse
from pykclient.protocol.messages.join_group import JoinGroupResponse
from pykclient.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.group.classic.heartbeat import Heartbeat
    from pykclient.consumer.group.classic.requests import ClassicSettings
    from pykclient.consumer.group.history import GroupHistory
    from pykclient.consumer.group.participant import GroupCoordinator, Participant
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message
    from pykclient.protocol.message import Request as RequestMessage

__all__ = ["ClassicMembership"]


class ClassicMembership(ClassicMember):
    """The member. `ask_to_join` makes it one; `begin_leave` ends that."""

    def __init__(
        self,
        group_id: str,
        participant: Participant,
        coordinator: GroupCoordinator,
        *,
        settings: ClassicSettings,
        heartbeat: Heartbeat,
        history: GroupHistory,
        retry_backoff: Backoff,
        group_instance_id: str | None = None,
        client_id: str = "",
    ) -> None:
        super().__init__(
            GroupMetadata(group_id, group_instance_id=group_instance_id),
            heartbeat=heartbeat,
            history=history,
            client_id=client_id,
        )
        self._participant = participant
        self._coordinator = coordinator
        self._settings = settings
        self._protocol = ""
        self._was_member = False
        """Whether it was a member when the participant was given something to do."""
        self._handover: Operation[None] | Operation[str | None] | None = None
        """What the participant is busy with."""
        self._call_node_id = 0
        self._call_sent_ms = 0
        self._owed_count = 0
        """Of JoinGroup and SyncGroup requests, how many are not answered yet, void ones too."""
        self._leave_requests: list[Request] = []
        self._leave_reason = ""
        self._sends_leave = False
        self._left: Operation[None] = Operation()
        self._retries = Retries(retry_backoff)

    # Asked by the consumer's coordinator.

    @property
    def has_request_in_flight(self) -> bool:
        """Whether the coordinator owes an answer."""
        return self._call is not None or self.heartbeat.is_in_flight or bool(self._leave_requests)

    def note_poll(self, now_ms: int) -> None:
        """Note that the application asks for records: `max_poll_interval_ms` begins anew."""
        self.heartbeat.on_poll(now_ms)

    def wants_turn(self, now_ms: int) -> bool:
        """Whether a poll by the application would change something now."""
        if self._handover is not None:
            return self._handover.is_done
        if self.state in (ClassicState.UNJOINED, ClassicState.STABLE):
            return self._may_begin(now_ms)
        return self.state in (ClassicState.ASSIGNING, ClassicState.LEAVING)

    def begin_leave(self, reason: str, *, sends: bool, now_ms: int) -> Operation[None]:
        """Give up everything and leave; return what ends when the coordinator has been told.

        `sends` False keeps the membership at the coordinator until the session ends.
        """
        self._rejoin_reason = None
        was_member = self.member.is_member and not self.is_rebalancing
        self._call = self._joined = self._shares = self._assignment = None
        self._leave_reason = reason
        if self.state is ClassicState.LEAVING:
            # Asked for again, by the listener that hears of it: whoever asked first waits as well.
            self._sends_leave = self._sends_leave or sends
        else:
            self._sends_leave = sends
            self._left = Operation()
            self._to(ClassicState.LEAVING)
        self._handover = self._participant.give_up(is_member=was_member, now_ms=now_ms)
        return self._left

    def on_commit_refused(self, error_code: int, sent: GroupMetadata) -> None:
        """Hear what a commit in the name of `sent` was told about the membership."""
        if sent != self.member:
            return
        if error_code == FencedInstanceIdError.code:
            self._fail(error_for_code(error_code, self._about("OffsetCommit")))
        elif error_code == RebalanceInProgressError.code:
            self.ask_to_join("offset commit failed since group is already rebalancing")
        elif error_code in GIVEN_UP:
            self._lose_generation("OffsetCommit", error_code)

    # Asked by the engine.

    def poll(self, now_ms: int, *, may_rebalance: bool) -> PollResult:
        """Go on as far as it goes, and return what is to be sent."""
        if may_rebalance:
            self.heartbeat.on_poll(now_ms)
            self._advance(now_ms)
        elif self.state is not ClassicState.LEAVING and self.heartbeat.is_poll_late(now_ms):
            self._leave_late(now_ms)
        node_id = self._coordinator.node_id() if self._wants_coordinator() else None
        self._follow_coordinator(node_id, now_ms)
        requests = self._leave_requests if node_id is None else []
        if node_id is not None:
            requests = [*self._leave_requests, *self._due_requests(node_id, now_ms, may_rebalance)]
        self._leave_requests = []
        return PollResult(requests, self._next_ms(now_ms, has_coordinator=node_id is not None))

    def restart(self, now_ms: int, *, is_wanted: bool) -> None:
        """Forget what is in flight; a round that was under way is begun anew.

        A member is settled when it is stable with nothing to do for its participant: the last
        thing that every round does is to make it so, and the first one to end it.
        """
        is_settled = (
            self.state is ClassicState.STABLE
            and self._handover is None
            and self.member.is_member
            and self.heartbeat.is_started
        )
        self._call = self._joined = self._shares = self._assignment = self._handover = None
        self._owed_count = 0
        self._leave_requests = []
        self._left.succeed(None)
        self.heartbeat.restart(now_ms)
        if is_settled:
            return
        self.state = ClassicState.UNJOINED
        if not self.member.is_member:
            self.heartbeat.stop()
        self._rejoin_reason = "a call of the application was interrupted" if is_wanted else None

    def _wants_coordinator(self) -> bool:
        return self._rejoin_reason is not None or self.state is not ClassicState.UNJOINED

    def _next_ms(self, now_ms: int, *, has_coordinator: bool) -> int:
        retry_ms = self._retries.at_ms if self._retries.at_ms > now_ms else NEVER_MS
        is_waiting = self._call is not None
        beat_ms = self.heartbeat.next_ms(has_coordinator=has_coordinator and not is_waiting)
        return max(now_ms, min(retry_ms, beat_ms))

    def _follow_coordinator(self, node_id: int | None, now_ms: int) -> None:
        """Ask the one that coordinates now what another one has not answered.

        A coordinator may wait for the whole group before it answers; or it hangs, and others have
        taken its place since, which `Coordinators` finds out.
        """
        if self._call is None:
            return
        if now_ms >= self._call_sent_ms + REFUSAL_MAX_MS:
            self.trouble = None
        if node_id is not None and node_id != self._call_node_id:
            self._call = None
            gone = DisconnectedError(f"the coordinator of group {self.member.group_id!r} has moved")
            self._on_unanswered(gone, self._call_node_id, now_ms)

    def _may_begin(self, now_ms: int) -> bool:
        return (
            self._rejoin_reason is not None
            and self._error is None
            and now_ms >= self._retries.at_ms
            and self._coordinator.node_id() is not None
            and self._participant.may_join()
        )

    def _advance(self, now_ms: int) -> None:
        """Take the steps that concern partitions, one after the other."""
        if self.state in (ClassicState.UNJOINED, ClassicState.STABLE):
            if self._may_begin(now_ms):
                assert self._rejoin_reason is not None
                self._to(ClassicState.REVOKING)
                self._history.begin(self._rejoin_reason, now_ms)
                self._was_member = self.member.is_member
                self._handover = self._participant.prepare(
                    is_member=self._was_member, now_ms=now_ms
                )
        elif self.state is ClassicState.SYNCING:
            self._lead(now_ms)
        elif self.state is ClassicState.ASSIGNING and self._handover is None:
            self._take(now_ms)
        if self._handover is not None and self._handover.is_done:
            self._on_handed_over(now_ms)

    def _on_handed_over(self, now_ms: int) -> None:
        assert self._handover is not None
        reason = self._handover.result()
        self._handover = None
        if self.state is ClassicState.LEAVING:
            self._leave()
            self._history.end(now_ms)
        elif self.member.is_member != self._was_member:
            # The generation was lost meanwhile: what is still held is lost, too.
            self._history.fail("the generation was lost meanwhile", now_ms)
            self._to(ClassicState.UNJOINED)
        elif self.state is ClassicState.REVOKING:
            self._to(ClassicState.JOINING)
        else:
            if reason is not None:
                self.ask_to_join(reason)
            self._to(ClassicState.STABLE)
            self._history.end(now_ms)

    def _lead(self, now_ms: int) -> None:
        if self._joined is None:
            return
        try:
            self._shares = self._participant.lead(self._protocol, self._joined)
        except KafkaError as error:
            raise_foreign(error)
            self._fail_join(error, now_ms)
            return
        if self._shares is not None:
            self._joined = None

    def _take(self, now_ms: int) -> None:
        if self._assignment is None:
            self._to(ClassicState.UNJOINED)  # the generation was lost before it could be taken
            return
        assignment, self._assignment = self._assignment, None
        self._was_member = True
        try:
            self._handover = self._participant.take(self._protocol, assignment, now_ms)
        except KafkaError as error:
            raise_foreign(error)
            self._fail_join(error, now_ms)

    # Sending.

    def _due_requests(self, node_id: int, now_ms: int, may_rebalance: bool) -> list[Request]:
        if self._call is not None:
            return []  # the coordinator knows that we wait; a heartbeat would wait behind it
        if now_ms >= self._retries.at_ms and self._error is None:
            may_join = may_rebalance and self._participant.may_join()
            if self.state is ClassicState.JOINING and may_join:
                return [self._join(node_id, now_ms)]
            if self.state is ClassicState.SYNCING and self._joined is None:
                return [self._sync(node_id, now_ms)]
        if self.heartbeat.has_session_ended(now_ms):
            self._coordinator.mark_unknown(node_id, "no heartbeat was answered for a session")
            self.heartbeat.doubt(now_ms)
        elif self.heartbeat.is_due(now_ms):
            self.heartbeat.on_sent(now_ms)
            return [self._beat(node_id)]
        return []

    def _join(self, node_id: int, now_ms: int) -> Request:
        self.heartbeat.stop()
        level = logging.DEBUG if self._retries.has_failed else logging.INFO
        self._log.log(level, "group %r: joining as %r", self.member.group_id, self.member.member_id)
        protocols = self._participant.protocols(self.member)
        message = join_request(self.member, protocols, self._settings, self._rejoin_reason or "")
        return self._send(message, node_id, self._on_joined, now_ms)

    def _sync(self, node_id: int, now_ms: int) -> Request:
        message = sync_request(self.member, self._protocol, self._shares or ())
        return self._send(message, node_id, self._on_synced, now_ms)

    def _send(
        self,
        message: RequestMessage,
        node_id: int,
        on_answer: Callable[[Message, int, int], None],
        sent_ms: int,
    ) -> Request:
        call = self._call = object()
        self._call_node_id = node_id
        self._call_sent_ms = sent_ms
        self._owed_count += 1

        def on_response(response: Message | None, now_ms: int) -> None:
            self._owed_count -= 1
            if self._call is call:
                self._call = None
                assert response is not None
                on_answer(response, node_id, now_ms)

        def on_failure(error: KafkaError, now_ms: int) -> None:
            self._owed_count -= 1
            if self._call is call:
                self._call = None
                self._on_unanswered(error, node_id, now_ms)

        timeout_ms = self._settings.join_timeout_ms
        return Request(message, node_id, on_response, on_failure, timeout_ms=timeout_ms)

    def _beat(self, node_id: int) -> Request:
        member = self.member
        return Request(
            heartbeat_request(member),
            node_id,
            partial(self._on_beaten, member, node_id),
            partial(self._on_unbeaten, node_id),
            timeout_ms=self._settings.heartbeat_timeout_ms,
        )

    # Leaving.

    def _leave_late(self, now_ms: int) -> None:
        """Leave because the application does not poll; it hears of it when it does."""
        self._log.warning(
            "group %r: no poll for max_poll_interval_ms, so this member leaves and others read on; "
            "poll more often, with smaller max_poll_records, or raise max_poll_interval_ms",
            self.member.group_id,
        )
        self._history.fail("the application did not poll for max_poll_interval_ms", now_ms)
        self._leave_reason = "consumer poll timeout has expired."
        self._sends_leave = self.member.group_instance_id is None
        self._left = Operation()
        self._leave()
        self.ask_to_join("consumer pro-actively leaving the group")

    def _leave(self) -> None:
        """Tell the coordinator, if there is one and it knows this member; wait for nothing."""
        # A broker answers one connection in order, and a JoinGroup when the whole group is there.
        where = self._coordinator.other_node_id if self._owed_count else self._coordinator.node_id
        node_id = where() if self.member.member_id else None
        if self._sends_leave and node_id is not None:
            self._leave_requests.append(
                Leaving(self.member, self._leave_reason, self._left, self._log).request(node_id)
            )
        else:
            self._left.succeed(None)
        self._to(ClassicState.UNJOINED)
        self._handover = None
        self._forget_round()
        self.member = self.member.without_name()

    # Answers.

    def _on_joined(self, response: Message, node_id: int, now_ms: int) -> None:
        assert isinstance(response, JoinGroupResponse)
        code = response.error_code
        if code == 0:
            self._on_generation(response, now_ms)
        elif (
            code == MemberIdRequiredError.code and response.member_id and not self.member.member_id
        ):
            # KIP-394: how a newcomer begins, and no failure; to anybody else it is a refusal.
            self.member = self.member._replace(member_id=response.member_id)
            self._rejoin_reason = f"need to re-join with the given member-id: {response.member_id}"
        else:
            self._on_refused("JoinGroup", code, node_id, now_ms)

    def _on_generation(self, response: JoinGroupResponse, now_ms: int) -> None:
        if response.protocol_type not in (None, PROTOCOL_TYPE):
            code = InconsistentGroupProtocolError.code
            self._fail_join(error_for_code(code, self._about("JoinGroup")), now_ms)
            return
        self.member = self.member._replace(
            generation=response.generation_id, member_id=response.member_id
        )
        self._protocol = response.protocol_name or ""
        self.trouble = None
        is_leader = response.leader == response.member_id
        self._joined = response if is_leader else None
        self._shares = None
        self._to(ClassicState.SYNCING)
        self.heartbeat.start(now_ms)
        self._history.note_generation(self.member, self._protocol)
        self._log.info(
            "group %r: in generation %d as %r, %s, assignor %s",
            self.member.group_id,
            self.member.generation,
            self.member.member_id,
            "leader" if is_leader else "follower",
            self._protocol,
        )

    def _on_synced(self, response: Message, node_id: int, now_ms: int) -> None:
        assert isinstance(response, SyncGroupResponse)
        if response.error_code != 0:
            self._on_refused("SyncGroup", response.error_code, node_id, now_ms)
        elif response.protocol_type not in (None, PROTOCOL_TYPE) or (
            response.protocol_name not in (None, self._protocol)
        ):
            code = InconsistentGroupProtocolError.code
            self._fail_join(error_for_code(code, self._about("SyncGroup")), now_ms)
        else:
            self._retries.succeed()
            self._rejoin_reason = self._shares = None
            self._assignment = response.assignment
            self._to(ClassicState.ASSIGNING)

    def _on_refused(self, api: str, code: int, node_id: int, now_ms: int) -> None:
        """Go on after an error of JoinGroup or SyncGroup as Java does."""
        error = error_for_code(code, self._about(api))
        self._joined = self._shares = None
        self.trouble = error
        if code in GIVEN_UP:
            self._retries.soon(now_ms)
            self._lose_generation(api, code)
        elif code in (RebalanceInProgressError.code, MemberIdRequiredError.code):
            self._retries.soon(now_ms)
            self._join_again(error)
        elif code in MOVED or error.retriable:
            if code in MOVED:
                self._coordinator.mark_unknown(node_id, error.name)
            self._retry_later(error, now_ms)
        else:
            self._fail_join(error, now_ms)

    def _on_unanswered(self, error: KafkaError, node_id: int, now_ms: int) -> None:
        self._joined = self._shares = None
        if error.retriable:
            self._coordinator.mark_unknown(node_id, error)
            self._retry_later(error, now_ms)
        else:
            self._fail_join(error, now_ms)

    def _on_beaten(
        self, sent: GroupMetadata, node_id: int, response: Message | None, now_ms: int
    ) -> None:
        assert isinstance(response, HeartbeatResponse)
        code = response.error_code
        if code in (0, RebalanceInProgressError.code):
            self.trouble = None
            self.heartbeat.on_received(now_ms)
            if code != 0 and sent == self.member and self.state is ClassicState.STABLE:
                self._ask_once("group is already rebalancing")
            return
        self.heartbeat.on_failed(now_ms)
        error = error_for_code(code, self._about("Heartbeat"))
        if code in MOVED:
            self._coordinator.mark_unknown(node_id, error.name)
        elif sent != self.member or node_id != self._coordinator.node_id():
            # A broker that was paused gives everybody up before it sees that it is replaced.
            self._log.debug("an answer to a heartbeat of before is void: %s", error)
        elif code in GIVEN_UP:
            self._lose_generation("Heartbeat", code)
        elif not error.retriable:
            self._fail(error)

    def _on_unbeaten(self, node_id: int, error: KafkaError, now_ms: int) -> None:
        self.heartbeat.on_failed(now_ms)
        if error.retriable:
            self._coordinator.mark_unknown(node_id, error)
        else:
            self._fail(error)

    # What follows from answers.

    def _join_again(self, error: KafkaError) -> None:
        """Begin a new round in the same generation; nothing is to be given up for it."""
        self.ask_to_join(f"rebalance failed due to {type(error).__name__}")
        if self.state is ClassicState.SYNCING:
            self.heartbeat.stop()
            self._to(ClassicState.JOINING)

    def _retry_later(self, error: KafkaError, now_ms: int) -> None:
        self._retries.later(now_ms)
        self._join_again(error)

    def _fail_join(self, error: KafkaError, now_ms: int) -> None:
        """Tell the application, which may try again by polling on."""
        self._retries.later(now_ms)
        self._forget_round()
        self.member = self.member.without_generation()
        self.ask_to_join(f"rebalance failed due to {type(error).__name__}")
        self._to(ClassicState.UNJOINED)
        self._history.fail(str(error), now_ms)
        self._fail(error)
