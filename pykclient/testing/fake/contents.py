"""Read the records of a partition as a consumer would, for assertions in tests.

Owner: none; it reads the partition's log.
Source: ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.accel import iterate_records
from pykclient.testing.fake.cleaning import TransactionFilter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.accel import ConsumerRecord
    from pykclient.testing.fake.topics import Partition


def visible_records(
    partition: Partition, *, is_committed: bool
) -> Iterator[ConsumerRecord[bytes, bytes]]:
    """Yield the records that a consumer can read, in offset order.

    With `is_committed`, as for ``isolation_level`` read_committed.
    """
    log = partition.log
    end = log.last_stable_offset if is_committed else log.high_watermark
    start = log.log_start_offset
    transactions = TransactionFilter(log.aborted_between(start, end) if is_committed else ())
    for batch in log.batches():
        if batch.base_offset >= end:
            return
        is_aborted = transactions.may_go(batch)
        if batch.is_control or is_aborted or not batch.record_count:
            continue
        records, _ = iterate_records(
            batch.records(start),
            topic=partition.name.topic,
            partition=partition.name.partition,
            timestamp_type=batch.timestamp_type,
            leader_epoch=batch.partition_leader_epoch,
        )
        yield from records
