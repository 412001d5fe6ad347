"""A topic of one test's own, on a cluster that the whole run shares."""

from __future__ import annotations

import itertools
import os

from pykclient import Admin, NewTopic

__all__ = ["fresh_topic"]

_numbers = itertools.count(1)


def fresh_topic(bootstrap_servers: str, stem: str, *, partition_count: int = 1) -> str:
    """Create a topic that nobody else has, and return its name.

    The process id keeps runs apart that share an existing cluster.
    """
    name = f"{stem}-{os.getpid()}-{next(_numbers)}"
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, num_partitions=partition_count, replication_factor=1)])
    return name
