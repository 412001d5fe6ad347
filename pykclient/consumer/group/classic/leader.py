"""What a group's leader does: share the topics of all members out among them.

Owner: no state.
Source: ``onLeaderElected`` of Java's ``ConsumerCoordinator``; KIP-429, KIP-881.
"""

from __future__ import annotations

from collections import Counter
from types import NoneType
from typing import TYPE_CHECKING, Final

from pykclient.config.setting import INT_MAX
from pykclient.consumer.group.assignors import (
    Assignment,
    CooperativeStickyAssignor,
    RebalanceProtocol,
    TopicRacks,
)
from pykclient.consumer.group.classic.protocol import read_subscription
from pykclient.consumer.subscription_input import TOPIC_NAME
from pykclient.errors import UsageError
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pykclient.consumer.group.assignors import Assignor, GroupMember
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.protocol.messages.join_group import JoinGroupResponseMember

__all__ = ["GroupShares", "is_known", "read_members", "share_out", "topic_racks"]

KNOWN_TO_COOPERATE: Final = (CooperativeStickyAssignor.name,)
"""It looks at generations, too: what a member claims of an old one is no partition that it has."""

GroupShares = dict[str, Assignment]
"""What each member gets, by its id."""


def read_members(answers: Iterable[JoinGroupResponseMember]) -> dict[str, GroupMember]:
    """Read what the members told.

    Raises:
        DecodeError: one told what cannot be read.
    """
    return {
        answer.member_id: read_subscription(answer.metadata, answer.group_instance_id)
        for answer in answers
    }


def is_known(cluster: Cluster, topics: Iterable[str]) -> bool:
    """Whether a cluster has been asked about all of these topics."""
    return all(topic in cluster.topics or topic in cluster.topic_errors for topic in topics)


def topic_racks(cluster: Cluster, topics: Iterable[str]) -> TopicRacks:
    """Return the topics that there are, with the racks of each partition's replicas."""
    racks = {node.id: node.rack for node in cluster.nodes.values()}
    found: dict[str, list[frozenset[str]]] = {}
    for topic in sorted(topics):
        infos = cluster.partitions_for(topic)
        if infos is not None:
            found[topic] = [
                frozenset(rack for each in info.replica_ids if (rack := racks.get(each)))
                for info in infos
            ]
    return found


def share_out(
    assignor: Assignor,
    protocol: RebalanceProtocol,
    topics: TopicRacks,
    members: Mapping[str, GroupMember],
) -> GroupShares:
    """Return what the assignor gives each member, nothing to one that it leaves out.

    Raises:
        UsageError: an assignor of the user's own broke the rules: a partition that is given twice,
            that is no partition, or, in a cooperative group, that another member still has.
    """
    shares = {member_id: Assignment(()) for member_id in members}
    try:
        for member_id, given in assignor.assign(topics, members).items():
            shares[member_id] = _whole_share(given)
    except Exception as error:
        raise_of_signal_handler(error)
        raise UsageError(f"the assignor {assignor.name!r} failed: {error!r}") from error
    _check_members(assignor, shares, members)
    if protocol is RebalanceProtocol.COOPERATIVE and assignor.name not in KNOWN_TO_COOPERATE:
        _check_cooperative(assignor, shares, members)
    return shares


def _whole_share(given: Assignment | Iterable[TopicPartition]) -> Assignment:
    """Return a share as it can be written, also of partitions that can be looked at only once."""
    partitions, user_data = (
        (given.partitions, given.user_data) if isinstance(given, Assignment) else (given, None)
    )
    share = Assignment(tuple(partitions), user_data)
    if not isinstance(share.user_data, (bytes, NoneType)):
        raise TypeError(f"user data must be bytes, not {share.user_data!r:.100}")
    for each in share.partitions:
        if not _is_partition(each):
            raise TypeError(f"{each!r:.100} is no TopicPartition")
    return share


def _is_partition(given: object) -> bool:
    """Whether what the user's code gave can be written: it may be anything."""
    return (
        isinstance(given, TopicPartition)
        and isinstance(given.topic, str)
        and TOPIC_NAME.fullmatch(given.topic) is not None
        and isinstance(given.partition, int)
        and not isinstance(given.partition, bool)
        and 0 <= given.partition <= INT_MAX
    )


def _check_members(
    assignor: Assignor, shares: Mapping[str, Assignment], members: Iterable[str]
) -> None:
    strangers = shares.keys() - set(members)
    counts = Counter(partition for share in shares.values() for partition in share.partitions)
    doubles = [partition for partition, count in counts.items() if count > 1]
    if not strangers and not doubles:
        return
    wrong = f"{doubles[0]} twice" if doubles else f"partitions to {min(strangers)!r}, no member"
    raise UsageError(f"the assignor {assignor.name!r} gave {wrong}; correct it")


def _check_cooperative(
    assignor: Assignor,
    shares: Mapping[str, Assignment],
    members: Mapping[str, GroupMember],
) -> None:
    added: set[TopicPartition] = set()
    lost: set[TopicPartition] = set()
    for member_id, share in shares.items():
        owned = members[member_id].owned_partitions
        added.update(set(share.partitions).difference(owned))
        lost.update(set(owned).difference(share.partitions))
    if added & lost:
        raise UsageError(
            f"the assignor {assignor.name!r} gave {min(added & lost)} to a member while another "
            f"one still has it, which a cooperative assignor must not: leave it out for a round"
        )
