"""Members of a classic group: ids, the leader, and the protocols that all support.

A member is *pending* between receiving its id and joining with it. A static member is found by its
instance id, and keeps its place when it returns without a member id (KIP-345).

Owner: the group.
Source: Java classes ``ClassicGroupMember``, ``ClassicGroup``.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pykclient.errors.broker import FencedInstanceIdError, UnknownMemberIdError
from pykclient.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from pykclient.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.join_group import JoinGroupRequest
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.groups.group import Refusal
    from pykclient.testing.fake.timers import Timer


@dataclass(slots=True, eq=False)
class ClassicMember:
    """A member; `protocols` maps its protocols to metadata, in order of preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = 0
    session_timeout_ms: int = 0
    protocols: dict[str, bytes] = field(default_factory=dict)
    assignment: bytes = b""
    is_new: bool = False
    """True until its first generation; its session can expire even while it waits."""
    join_call: Call | None = field(default=None, repr=False)
    """Its JoinGroup, while the group waits for the others."""
    sync_call: Call | None = field(default=None, repr=False)
    """Its SyncGroup, while the group waits for the leader."""
    session_timer: Timer | None = field(default=None, repr=False)

    @property
    def is_joining(self) -> bool:
        """True if it has joined the next generation and waits."""
        return self.join_call is not None

    @property
    def is_excused(self) -> bool:
        """True if it may be silent, because it waits for a response."""
        return not self.is_new and (self.join_call is not None or self.sync_call is not None)

    def update(self, call: Call, request: JoinGroupRequest) -> None:
        """Store the request's data, and let the member wait."""
        self.protocols = protocols_of(request)
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.rebalance_timeout_ms < 0:  # version 0 has none
            self.rebalance_timeout_ms = request.session_timeout_ms
        self.join_call = call

    def stop_timer(self) -> None:
        """Cancel the session timer."""
        if self.session_timer is not None:
            self.session_timer.cancel()

    def written(self, protocol_name: str | None) -> ClassicMember:
        """Return the member as stored in the log, with only the chosen protocol."""
        protocols = {} if protocol_name is None else {protocol_name: self.metadata(protocol_name)}
        return self.copy(protocols=protocols)

    def copy(
        self, *, member_id: str | None = None, protocols: dict[str, bytes] | None = None
    ) -> ClassicMember:
        """Copy the member without waiting calls, optionally with another id or protocols."""
        return ClassicMember(
            member_id=self.member_id if member_id is None else member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            protocols=self.protocols if protocols is None else protocols,
            assignment=self.assignment,
        )

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return its metadata for a protocol, for the leader."""
        return self.protocols.get(protocol_name or "", b"")


class ClassicMembers:
    """The members, in order of arrival."""

    def __init__(self, members: Iterable[ClassicMember] = (), leader_id: str | None = None) -> None:
        self.leader_id = leader_id
        self.pending: dict[str, Timer] = {}
        """Ids that were not used yet, with the timers that expire them."""
        self.unsynced: set[str] = set()
        """Members that have the generation but sent no SyncGroup for it."""
        self._members = {member.member_id: member for member in members}
        self._static = {
            member.instance_id: member.member_id
            for member in self._members.values()
            if member.instance_id is not None
        }

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(list(self._members.values()))

    def get(self, member_id: str) -> ClassicMember | None:
        """Return a member that is not pending, or None."""
        return self._members.get(member_id)

    def static_id(self, instance_id: str | None) -> str | None:
        """Return the member id of a static member, or None."""
        return None if instance_id is None else self._static.get(instance_id)

    def check(self, member_id: str, instance_id: str | None) -> Refusal | None:
        """Return an error if this is not one of the members."""
        if instance_id is not None:
            current_id = self._static.get(instance_id)
            if current_id is not None and current_id != member_id:
                return FencedInstanceIdError
            if current_id is None:
                return UnknownMemberIdError
        return None if member_id in self._members else UnknownMemberIdError

    def add(self, member: ClassicMember) -> None:
        """Add a member; the first one becomes the leader."""
        timer = self.pending.pop(member.member_id, None)
        if timer is not None:
            timer.cancel()
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove a member, pending or not; the oldest one replaces a removed leader."""
        member = self._members.pop(member_id, None)
        if member is not None:
            member.stop_timer()
            if member.instance_id is not None:
                self._static.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self._members), None)
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            timer.cancel()
        self.unsynced.discard(member_id)

    def replace_static(self, old: ClassicMember, new_id: str) -> ClassicMember:
        """Give a static member that returned a new id; its assignment stays."""
        new = old.copy(member_id=new_id)
        old.stop_timer()
        del self._members[old.member_id]
        self._members[new_id] = new
        if old.instance_id is not None:
            self._static[old.instance_id] = new_id
        if self.leader_id == old.member_id:
            self.leader_id = new_id
        return new

    def elect(self) -> bool:
        """Make a member that has joined the leader; return False if none has."""
        leader = self._members.get(self.leader_id or "")
        if leader is None:
            return False
        if not leader.is_joining:
            joined = next((each for each in self._members.values() if each.is_joining), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return True

    @property
    def joining_count(self) -> int:
        """Number of members that joined the next generation."""
        return sum(member.is_joining for member in self._members.values())

    @property
    def have_all_joined(self) -> bool:
        """True if no member is missing, pending ones included."""
        return not self.pending and self.joining_count == len(self._members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """Longest rebalance timeout of a member."""
        return max((each.rebalance_timeout_ms for each in self._members.values()), default=0)

    def can_speak_any_of(self, names: Iterable[str]) -> bool:
        """Return whether one of these protocols is supported by all members."""
        members = self._members.values()
        return any(all(name in each.protocols for each in members) for name in names)

    def chosen_protocol(self) -> str:
        """Return the protocol with the most votes: each member votes for its first common one.

        In a tie the protocol voted for first wins. There must be a member.
        """
        members = self._members.values()
        shared = set.intersection(*(set(member.protocols) for member in members))
        votes = Counter(
            next(name for name in member.protocols if name in shared) for member in members
        )
        return votes.most_common(1)[0][0]

    def for_leader(self, protocol_name: str | None) -> list[JoinGroupResponseMember]:
        """Return the members as the leader needs them to assign."""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(protocol_name),
            )
            for member in self._members.values()
        ]

    def stop_timers(self) -> None:
        """Stop the timers of all members."""
        for timer in self.pending.values():
            timer.cancel()
        for member in self._members.values():
            member.stop_timer()


def protocols_of(request: JoinGroupRequest) -> dict[str, bytes]:
    """Return the protocols of a request by name, in order of preference."""
    return {protocol.name: protocol.metadata for protocol in request.protocols}


class ClassicResponses:
    """Responses, in the order in which to send them."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Call, Message]] = deque()

    def add(self, call: Call, response: Message) -> None:
        """Add a response to a call."""
        self._waiting.append((call, response))

    def refuse_join(self, call: Call, member_id: str, error: Refusal) -> None:
        """Refuse a JoinGroup of a client that is not a member."""
        self.add(call, JoinGroupResponse(error_code=error.code, member_id=member_id))

    def join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        """Respond to a member's JoinGroup, if one waits."""
        if member.join_call is not None:
            self.add(member.join_call, response)
            member.join_call = None

    def sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        """Respond to a member's SyncGroup; return whether one waited."""
        if member.sync_call is None:
            return False
        self.add(member.sync_call, response)
        member.sync_call = None
        return True

    def end(self, member: ClassicMember, member_id: str, error: Refusal) -> None:
        """Refuse a member's waiting requests; `member_id` is the id in the response."""
        self.join(member, JoinGroupResponse(error_code=error.code, member_id=member_id))
        self.sync(member, SyncGroupResponse(error_code=error.code))

    def send(self, now_ms: int) -> None:
        """Send all responses."""
        while self._waiting:
            call, response = self._waiting.popleft()
            call.respond(response, now_ms)
