"""A check that every replica is in sync, so that another broker may fail.

Owner: none; it holds no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykclient import Admin


def all_in_sync(admin: Admin) -> bool:
    """Return whether the replicas of all topics, internal ones included, are in sync."""
    topics = admin.describe_topics(admin.list_topics(include_internal=True))
    return all(
        set(partition.in_sync_replica_ids) == set(partition.replica_ids)
        for topic in topics.values()
        for partition in topic.partitions
    )
