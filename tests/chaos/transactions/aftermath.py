"""State that transactions must leave behind once everything is copied.

Owner: none; it holds no state.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pykclient import Consumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient import Admin

TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.2
ONGOING: Final = "Ongoing"
ENDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort"})


def committed_otherwise(
    admin: Admin, servers: str, group: str, topic: str, partition_count: int
) -> list[str]:
    """Return where a group is not at the end of a topic that it has read completely.

    Between its offset and the end there may be transaction markers, but no record.
    """
    partitions = [TopicPartition(topic, number) for number in range(partition_count)]
    committed = admin.list_group_offsets(group, require_stable=True)
    violations: list[str] = []
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        for partition in partitions:
            found = committed.get(partition)
            consumer.seek(partition, 0 if found is None else found.offset)
        deadline_s = time.monotonic() + TIMEOUT_S
        while any(consumer.position(each) < end for each, end in ends.items()):
            assert time.monotonic() < deadline_s, f"{topic} is not read to its end"
            violations += [
                f"{group} has committed {committed.get(record.topic_partition)} in "
                f"{record.topic_partition}, which has a record at {record.offset}"
                for record in consumer.poll(POLL_S)
            ]
    return violations


def still_open(admin: Admin, transactional_ids: Iterable[str]) -> list[str]:
    """Return the transactional ids whose transactions have not ended."""
    found = admin.describe_transactions(transactional_ids)
    return [
        f"the transaction of {name} is {each.state}"
        for name, each in found.items()
        if each.state not in ENDED
    ]
