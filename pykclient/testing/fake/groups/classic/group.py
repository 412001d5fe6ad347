"""A classic group: members join, the leader assigns, heartbeats keep sessions alive.

`ClassicGroupState` has the states; here are the requests and timers that change them. Responses are
collected during a change and sent when it is complete.

Owner: the group's registry.
Source: KIP-62, KIP-134 (initial delay), KIP-345 (static members), KIP-394 (member ids), KIP-814
(leaders that need not assign); Java class ``GroupMetadataManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    MemberIdRequiredError,
    NonEmptyGroupError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownServerError,
)
from pykclient.protocol.messages.sync_group import SyncGroupResponse
from pykclient.testing.fake.groups.classic.members import (
    ClassicMember,
    ClassicResponses,
    protocols_of,
)
from pykclient.testing.fake.groups.classic.state import NEXT, ClassicGroupState, ClassicState
from pykclient.testing.fake.groups.group import GroupKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pykclient.protocol.messages.join_group import JoinGroupRequest
    from pykclient.protocol.messages.sync_group import SyncGroupRequest
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.groups.group import MemberSnapshot, Refusal
    from pykclient.testing.fake.groups.registry import GroupRegistry
    from pykclient.testing.fake.timers import Timer
    from pykclient.types import TopicPartition

__all__ = ["NEW_MEMBER_JOIN_TIMEOUT_MS", "ClassicGroup", "ClassicState"]

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""Time a new member waits for its first generation. Its session timeout does not apply,
because it cannot send heartbeats yet."""
MEMBER_ID_REQUIRED_FROM_VERSION = 4

_HAVE_GENERATION = (ClassicState.COMPLETING, ClassicState.STABLE)


class ClassicGroup:
    """A group, at first empty. It responds to calls itself, now or later."""

    def __init__(self, name: str, registry: GroupRegistry) -> None:
        self.name = name
        self.kind = GroupKind.CLASSIC
        self._now = ClassicGroupState()
        self._registry = registry
        self._settings = registry.settings
        self._timers = registry.timers
        self._began_empty = False
        """True if the current rebalance began in an empty group."""
        self._has_new_member = False
        """True if a member joined during the initial delay."""
        self._emptied_ms: int | None = None
        """When the last member left."""
        self._join_timer: Timer | None = None
        self._sync_timer: Timer | None = None
        self._responses = ClassicResponses()

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return self._now.state.value

    @property
    def generation(self) -> int:
        """Number of the last completed rebalance."""
        return self._now.generation

    @property
    def protocol_type(self) -> str:
        """``consumer`` for consumers; empty if it never had a member."""
        return self._now.protocol_type

    @property
    def protocol_name(self) -> str | None:
        """The chosen assignor."""
        return self._now.protocol_name

    @property
    def leader_id(self) -> str | None:
        """The member that assigns."""
        return self._now.members.leader_id

    @property
    def is_empty(self) -> bool:
        """True in the state Empty."""
        return self._now.is_empty

    def members(self) -> tuple[MemberSnapshot, ...]:
        """Return the members, oldest first."""
        return self._now.snapshots()

    # Joining.

    def join(self, call: Call, request: JoinGroupRequest, now_ms: int) -> None:
        """Add a member, or refuse it at once; the response is sent when all have joined."""
        is_static = request.group_instance_id is not None
        refusal = self._now.check_join(
            request.member_id,
            request.protocol_type,
            protocols_of(request),
            self._settings.group_max_size,
        )
        if refusal is GroupMaxSizeReachedError:
            self._now.members.remove(request.member_id)
            self._responses.refuse_join(call, "", refusal)
        elif refusal is not None:
            self._responses.refuse_join(call, request.member_id, refusal)
        elif not request.member_id:
            self._join_new(call, request, now_ms)
        elif request.member_id in self._now.members.pending and is_static:
            # Static members get no id first; Kafka's own response to this is as poor.
            self._responses.refuse_join(call, request.member_id, UnknownServerError)
        elif request.member_id in self._now.members.pending:
            self._add(call, request, request.member_id, now_ms)
        else:
            self._rejoin(call, request, now_ms)
        self._responses.send(now_ms)

    def _join_new(self, call: Call, request: JoinGroupRequest, now_ms: int) -> None:
        members = self._now.members
        instance_id = request.group_instance_id
        if instance_id is not None:
            new_id = self._registry.new_member_id(instance_id)
            old = members.get(members.static_id(instance_id) or "")
            if old is None:
                self._add(call, request, new_id, now_ms)
            else:
                self._replace(old, call, request, new_id, now_ms)
            return
        new_id = self._registry.new_member_id(call.header.client_id or "")
        if call.version < MEMBER_ID_REQUIRED_FROM_VERSION:
            self._add(call, request, new_id, now_ms)
            return
        members.pending[new_id] = self._timers.add(
            now_ms + request.session_timeout_ms,
            lambda then_ms: self._on_session_timeout(new_id, then_ms),
        )
        self._responses.refuse_join(call, new_id, MemberIdRequiredError)

    def _rejoin(self, call: Call, request: JoinGroupRequest, now_ms: int) -> None:
        members, state = self._now.members, self._now.state
        member_id = request.member_id
        refusal = members.check(member_id, request.group_instance_id)
        member = members.get(member_id)
        if refusal is not None or member is None:
            self._responses.refuse_join(call, member_id, refusal or UnknownMemberIdError)
            return
        is_leader = member_id == members.leader_id
        # A leader rejoins a stable group to assign again, because of a new topic for example.
        is_on_purpose = is_leader and state is ClassicState.STABLE
        has_changed = list(member.protocols.items()) != list(protocols_of(request).items())
        if state is ClassicState.PREPARING or has_changed or is_on_purpose:
            member.update(call, request)
            self._rebalance(now_ms)
        else:
            # It missed the first response.
            response = self._now.generation_for(member, is_leader=is_leader)
            self._responses.add(call, response)

    def _add(self, call: Call, request: JoinGroupRequest, member_id: str, now_ms: int) -> None:
        group = self._now
        if group.state is ClassicState.PREPARING and self._began_empty:
            self._has_new_member = True
        if not len(group.members):
            group.protocol_type = request.protocol_type
        member = ClassicMember(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=call.header.client_id or "",
            client_host=f"/{call.client_host}",
            is_new=True,
        )
        member.update(call, request)
        group.members.add(member)
        self._keep_alive(member, now_ms, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance(now_ms)

    def _replace(
        self,
        old: ClassicMember,
        call: Call,
        request: JoinGroupRequest,
        new_id: str,
        now_ms: int,
    ) -> None:
        """Replace a static member that returned; another client with its name is fenced."""
        group = self._now
        old_leader_id = group.members.leader_id
        self._responses.end(old, old.member_id, FencedInstanceIdError)
        member = group.members.replace_static(old, new_id)
        member.update(call, request)
        self._keep_alive(member, now_ms, member.session_timeout_ms)
        if group.state is ClassicState.COMPLETING:
            # The leader may already be assigning to the old id.
            self._begin_rebalance(now_ms)
        elif group.state is not ClassicState.STABLE:
            self._complete_join_if_ready(now_ms)
        elif group.members.chosen_protocol() != group.protocol_name:
            self._rebalance(now_ms)
        else:
            group.write()
            self._responses.join(
                member, group.generation_again(member, old_leader_id, call.version)
            )

    # Rebalancing.

    def _rebalance(self, now_ms: int) -> None:
        """Begin a rebalance, or continue the current one."""
        if ClassicState.PREPARING in NEXT[self._now.state]:
            self._begin_rebalance(now_ms)
        else:
            self._complete_join_if_ready(now_ms)

    def _begin_rebalance(self, now_ms: int) -> None:
        group = self._now
        if group.state is ClassicState.COMPLETING:
            for member in group.members:
                member.assignment = b""
                error_code = RebalanceInProgressError.code
                self._respond_to_sync(member, SyncGroupResponse(error_code=error_code), now_ms)
        _stop(self._sync_timer)
        group.members.unsynced.clear()
        self._began_empty = group.is_empty
        group.to(ClassicState.PREPARING)
        if self._began_empty:
            delay_ms = self._settings.group_initial_rebalance_delay_ms
            left_ms = max(0, group.members.rebalance_timeout_ms - delay_ms)
            self._wait_for_more(delay_ms, left_ms, now_ms)
        elif group.members.have_all_joined:
            self._complete_join(now_ms)
        else:
            self._wait_for_rest(now_ms)

    def _wait_for_more(self, delay_ms: int, left_ms: int, now_ms: int) -> None:
        """Wait for the first members; wait again if one joined and time is left."""

        def go_on(then_ms: int) -> None:
            if self._has_new_member and left_ms:
                next_ms = min(self._settings.group_initial_rebalance_delay_ms, left_ms)
                self._wait_for_more(next_ms, max(0, left_ms - delay_ms), then_ms)
            else:
                self._give_up_waiting(then_ms)

        self._has_new_member = False
        self._start_join_timer(now_ms + delay_ms, go_on)

    def _wait_for_rest(self, now_ms: int) -> None:
        deadline_ms = now_ms + self._now.members.rebalance_timeout_ms
        self._start_join_timer(deadline_ms, self._give_up_waiting)

    def _give_up_waiting(self, now_ms: int) -> None:
        self._complete_join(now_ms)
        self._responses.send(now_ms)

    def _complete_join_if_ready(self, now_ms: int) -> None:
        """Complete the join when all have joined, except during the initial delay."""
        if not self._began_empty:
            self._complete_join_if_all_are_here(now_ms)

    def _complete_join_if_all_are_here(self, now_ms: int) -> None:
        group = self._now
        if group.state is ClassicState.PREPARING and group.members.have_all_joined:
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """Begin the next generation with the members that joined; static ones may be late."""
        group = self._now
        _stop(self._join_timer)
        for member in group.members:
            if not member.is_joining and member.instance_id is None:
                group.members.remove(member.member_id)
        if not group.members.elect() and len(group.members):
            # Only static members are left, and none has joined: wait for their sessions.
            self._wait_for_rest(now_ms)
            return
        group.begin_generation()
        if group.is_empty:
            self._emptied_ms = now_ms
        else:
            self._send_generation(now_ms)

    def _send_generation(self, now_ms: int) -> None:
        group = self._now
        for member in group.members:
            is_leader = member.member_id == group.members.leader_id
            if member.is_joining:
                self._responses.join(member, group.generation_for(member, is_leader=is_leader))
            self._keep_alive(member, now_ms, member.session_timeout_ms)
            member.is_new = False
            group.members.unsynced.add(member.member_id)
        deadline_ms = now_ms + group.members.rebalance_timeout_ms
        self._sync_timer = self._timers.add(deadline_ms, self._on_sync_timeout)

    # Assigning.

    def sync(self, call: Call, request: SyncGroupRequest, now_ms: int) -> None:
        """Take the leader's assignments, or send a member its own once the leader's are there."""
        group = self._now
        refusal = group.check_sync(request)
        member = group.members.get(request.member_id)
        if refusal is not None or member is None:
            code = (refusal or UnknownMemberIdError).code
            self._responses.add(call, SyncGroupResponse(error_code=code))
        elif group.state is ClassicState.STABLE:
            self._on_synced(member)
            self._responses.add(call, group.assignment_of(member))
        else:
            member.sync_call = call
            self._on_synced(member)
            if member.member_id == group.members.leader_id:
                group.assign({each.member_id: each.assignment for each in request.assignments})
                for each in group.members:
                    self._respond_to_sync(each, group.assignment_of(each), now_ms)
        self._responses.send(now_ms)

    def _respond_to_sync(
        self, member: ClassicMember, response: SyncGroupResponse, now_ms: int
    ) -> None:
        if self._responses.sync(member, response):
            self._keep_alive(member, now_ms, member.session_timeout_ms)

    def _on_synced(self, member: ClassicMember) -> None:
        unsynced = self._now.members.unsynced
        unsynced.discard(member.member_id)
        if not unsynced:
            _stop(self._sync_timer)

    def _on_sync_timeout(self, now_ms: int) -> None:
        """Remove the members that sent no SyncGroup, and rebalance."""
        members = self._now.members
        for member_id in sorted(members.unsynced):
            members.remove(member_id)
        self._begin_rebalance(now_ms)
        self._responses.send(now_ms)

    # Staying and leaving.

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> Refusal | None:
        """Keep a member's session alive, or return an error, such as to rejoin."""
        refusal = self._now.check_member(member_id, instance_id, generation)
        if refusal is None:
            self._keep_session(member_id, now_ms)
            if self._now.state is ClassicState.PREPARING:
                refusal = RebalanceInProgressError
        return refusal

    def leave(
        self, identities: Iterable[tuple[str, str | None]], now_ms: int
    ) -> list[Refusal | None]:
        """Remove members, by member id and instance id; return the error of each.

        An administrator may name static members by instance id alone.
        """
        refusals = [self._leave_one(*identity) for identity in identities]
        if None in refusals:
            if self._now.state in _HAVE_GENERATION:
                self._rebalance(now_ms)
            else:
                self._complete_join_if_ready(now_ms)
        self._responses.send(now_ms)
        return refusals

    def _leave_one(self, member_id: str, instance_id: str | None) -> Refusal | None:
        members = self._now.members
        if member_id in members.pending:
            members.remove(member_id)
            return None
        if not member_id:
            member_id = members.static_id(instance_id) or ""
        refusal = members.check(member_id, instance_id)
        member = members.get(member_id)
        if refusal is None and member is not None:
            self._remove(member)
        return refusal

    def expire_member(self, member_id: str, now_ms: int) -> bool:
        """Expire a member's session; return False if the member does not exist."""
        members = self._now.members
        if members.get(member_id) is None and member_id not in members.pending:
            return False
        self._expire(member_id, now_ms)
        return True

    def _on_session_timeout(self, member_id: str, now_ms: int) -> None:
        member = self._now.members.get(member_id)
        # A member that waits for a response may be silent; the response restarts its timer.
        if member is None or not member.is_excused:
            self._expire(member_id, now_ms)

    def _expire(self, member_id: str, now_ms: int) -> None:
        member = self._now.members.get(member_id)
        if member is None:
            self._now.members.remove(member_id)
        else:
            self._remove(member)
        if member is not None and self._now.state in _HAVE_GENERATION:
            self._rebalance(now_ms)
        else:
            self._complete_join_if_all_are_here(now_ms)
        self._responses.send(now_ms)

    def _remove(self, member: ClassicMember) -> None:
        self._responses.end(member, "", UnknownMemberIdError)
        self._now.members.remove(member.member_id)

    def _keep_session(self, member_id: str, now_ms: int) -> None:
        member = self._now.members.get(member_id)
        if member is not None:
            self._keep_alive(member, now_ms, member.session_timeout_ms)

    def _keep_alive(self, member: ClassicMember, now_ms: int, timeout_ms: int) -> None:
        member_id = member.member_id
        _stop(member.session_timer)
        member.session_timer = self._timers.add(
            now_ms + timeout_ms, lambda then_ms: self._on_session_timeout(member_id, then_ms)
        )

    # Offsets.

    def check_commit(
        self,
        member_id: str,
        generation_or_member_epoch: int,
        *,
        instance_id: str | None = None,
        is_transactional: bool = False,
        version: int = 0,
        partitions: Iterable[TopicPartition] = (),
    ) -> Refusal | None:
        """Check that a member may commit; any client may if the group is empty."""
        del version, partitions  # the same for all versions and partitions
        return self._now.check_commit(
            member_id, instance_id, generation_or_member_epoch, is_transactional=is_transactional
        )

    def on_commit(self, member_id: str, now_ms: int) -> None:
        """Keep the member's session alive."""
        self._keep_session(member_id, now_ms)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> Refusal | None:
        """Allow any client."""
        del member_id, member_epoch
        return None

    def check_offset_delete(self) -> Refusal | None:
        """Check that the subscribed topics are known."""
        return self._now.check_offset_delete()

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member may read the topic."""
        return self._now.is_subscribed_to(topic)

    def retention_start_ms(self, topic: str, committed_ms: int) -> int | None:
        """Return the start of retention (KIP-211); None if the topic may be in use."""
        group = self._now
        if not group.protocol_type:
            return committed_ms
        if group.is_empty:
            return committed_ms if self._emptied_ms is None else self._emptied_ms
        is_known = group.state is ClassicState.STABLE and group.is_consumers
        return committed_ms if is_known and not group.is_subscribed_to(topic) else None

    def check_delete(self) -> Refusal | None:
        """Check that the group is empty."""
        return None if self.is_empty else NonEmptyGroupError

    # Changes of the coordinator.

    def on_coordinator_lost(self, now_ms: int) -> None:
        """Refuse every waiting request, so that clients look for the new coordinator."""
        self._end_all(NotCoordinatorError, now_ms)

    def on_coordinator_gained(self, now_ms: int) -> None:
        """Load the group from the log; every member's session timer starts again."""
        self._now.load()
        for member in self._now.members:
            self._keep_alive(member, now_ms, member.session_timeout_ms)

    def on_deleted(self, now_ms: int) -> None:
        """End the group after its deletion."""
        self._now.to(ClassicState.DEAD)
        self._end_all(CoordinatorNotAvailableError, now_ms)

    def _end_all(self, error: Refusal, now_ms: int) -> None:
        for member in self._now.members:
            self._responses.end(member, member.member_id, error)
        self._now.members.stop_timers()
        _stop(self._join_timer)
        _stop(self._sync_timer)
        self._responses.send(now_ms)

    def _start_join_timer(self, deadline_ms: int, callback: Callable[[int], None]) -> None:
        _stop(self._join_timer)
        self._join_timer = self._timers.add(deadline_ms, callback)


def _stop(timer: Timer | None) -> None:
    if timer is not None:
        timer.cancel()
