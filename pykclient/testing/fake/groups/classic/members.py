"""The members of one classic group: their ids, their leader, the protocols that all can speak.

A member is *pending* after it was given an id and before it has joined with it. A static member is
found by its instance id, and keeps its place when it comes back with no member id (KIP-345).

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
    """One member; `protocols` are those it can, by name, the most wanted first."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = 0
    session_timeout_ms: int = 0
    protocols: dict[str, bytes] = field(default_factory=dict)
    assignment: bytes = b""
    is_new: bool = False
    """Whether it has not got its generation yet: then even its waiting keeps it no longer."""
    join_call: Call | None = field(default=None, repr=False)
    """Its JoinGroup, while the group waits for the others."""
    sync_call: Call | None = field(default=None, repr=False)
    """Its SyncGroup, while the group waits for the leader."""
    session_timer: Timer | None = field(default=None, repr=False)

    @property
    def is_joining(self) -> bool:
        """Whether it has joined the next generation and waits."""
        return self.join_call is not None

    @property
    def is_excused(self) -> bool:
        """Whether it may be silent: it waits for us."""
        return not self.is_new and (self.join_call is not None or self.sync_call is not None)

    def update(self, call: Call, request: JoinGroupRequest) -> None:
        """Have it wait, with what it says of itself now."""
        self.protocols = protocols_of(request)
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.rebalance_timeout_ms < 0:  # version 0 has none
            self.rebalance_timeout_ms = request.session_timeout_ms
        self.join_call = call

    def stop_timer(self) -> None:
        """Let its session not end."""
        if self.session_timer is not None:
            self.session_timer.cancel()

    def written(self, protocol_name: str | None) -> ClassicMember:
        """What the log keeps: of all protocols only the one that was chosen."""
        protocols = {} if protocol_name is None else {protocol_name: self.metadata(protocol_name)}
        return self.copy(protocols=protocols)

    def copy(
        self, *, member_id: str | None = None, protocols: dict[str, bytes] | None = None
    ) -> ClassicMember:
        """The same member without what waits; by another id or with other protocols, if given."""
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
        """Its metadata for this protocol, which the leader gets."""
        return self.protocols.get(protocol_name or "", b"")


class ClassicMembers:
    """The members, in the order in which they came."""

    def __init__(self, members: Iterable[ClassicMember] = (), leader_id: str | None = None) -> None:
        self.leader_id = leader_id
        self.pending: dict[str, Timer] = {}
        """Ids that were given and not used yet, with the timers that end this."""
        self.unsynced: set[str] = set()
        """Members that have the generation and have sent no SyncGroup for it."""
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
        """The member, None when there is none; one that is pending is none."""
        return self._members.get(member_id)

    def static_id(self, instance_id: str | None) -> str | None:
        """The member id of a static member; None when it is not there, or not static."""
        return None if instance_id is None else self._static.get(instance_id)

    def check(self, member_id: str, instance_id: str | None) -> Refusal | None:
        """Why this is not one of the members, None if it is."""
        if instance_id is not None:
            current_id = self._static.get(instance_id)
            if current_id is not None and current_id != member_id:
                return FencedInstanceIdError
            if current_id is None:
                return UnknownMemberIdError
        return None if member_id in self._members else UnknownMemberIdError

    def add(self, member: ClassicMember) -> None:
        """Take a new member; the first one leads."""
        timer = self.pending.pop(member.member_id, None)
        if timer is not None:
            timer.cancel()
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> None:
        """Lose a member, pending or not; the oldest one leads when it was the leader."""
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
        """Give a static member that came back another id; what it was assigned stays its own."""
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
        """See that the leader is a member that has joined; False when none has."""
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
        """How many have joined the next generation."""
        return sum(member.is_joining for member in self._members.values())

    @property
    def have_all_joined(self) -> bool:
        """Whether no member is missing, not even one that was only given its id."""
        return not self.pending and self.joining_count == len(self._members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest may take to join."""
        return max((each.rebalance_timeout_ms for each in self._members.values()), default=0)

    def can_speak_any_of(self, names: Iterable[str]) -> bool:
        """Whether all members can one of these protocols."""
        members = self._members.values()
        return any(all(name in each.protocols for each in members) for name in names)

    def chosen_protocol(self) -> str:
        """The protocol with most votes; each member votes for the one it wants most that all can.

        The one that was voted for first wins a tie. There must be a member.
        """
        members = self._members.values()
        shared = set.intersection(*(set(member.protocols) for member in members))
        votes = Counter(
            next(name for name in member.protocols if name in shared) for member in members
        )
        return votes.most_common(1)[0][0]

    def for_leader(self, protocol_name: str | None) -> list[JoinGroupResponseMember]:
        """What the leader needs of the members to assign."""
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
    """The protocols of a request, by name, the most wanted first."""
    return {protocol.name: protocol.metadata for protocol in request.protocols}


class ClassicResponses:
    """Responses in the order in which they are to be sent."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Call, Message]] = deque()

    def add(self, call: Call, response: Message) -> None:
        """Respond to a request that does not wait."""
        self._waiting.append((call, response))

    def refuse_join(self, call: Call, member_id: str, error: Refusal) -> None:
        """Refuse a member that is none yet, or no more."""
        self.add(call, JoinGroupResponse(error_code=error.code, member_id=member_id))

    def join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        """Respond to a member's JoinGroup, if one waits."""
        if member.join_call is not None:
            self.add(member.join_call, response)
            member.join_call = None

    def sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        """Respond to a member's SyncGroup; whether one waited."""
        if member.sync_call is None:
            return False
        self.add(member.sync_call, response)
        member.sync_call = None
        return True

    def end(self, member: ClassicMember, member_id: str, error: Refusal) -> None:
        """Refuse whatever a member waits with; `member_id` is the id in the response."""
        self.join(member, JoinGroupResponse(error_code=error.code, member_id=member_id))
        self.sync(member, SyncGroupResponse(error_code=error.code))

    def send(self, now_ms: int) -> None:
        """Send them all."""
        while self._waiting:
            call, response = self._waiting.popleft()
            call.respond(response, now_ms)
