"""Transaction markers, and which batches a reader of committed records leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.accel.batch_layout import HEADER_SIZE_BYTES
from pykclient.errors.base import CorruptRecordError
from pykclient.records.compression import Codec
from pykclient.records.control import (
    CONTROL_SIZE_BYTES_MAX,
    AbortedTransactions,
    ControlType,
    control_type,
)
from tests.records.batches import build, header_changed, read, resealed

if TYPE_CHECKING:
    from pykclient.records.batch import RecordBatch

ABORT, COMMIT = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"
VALUE = b"\x00\x00\x00\x00\x00\x09"


def marker(key: bytes | None, offset: int = 0, producer_id: int = 7) -> RecordBatch:
    data = build(
        [(0, key, VALUE, ())],
        base_offset=offset,
        producer_id=producer_id,
        is_transactional=True,
        is_control=True,
    )
    return read(data)[0]


def records(offset: int, producer_id: int, *, is_transactional: bool = True) -> RecordBatch:
    data = build(
        [(0, None, b"v", ())] * 2,
        base_offset=offset,
        producer_id=producer_id,
        is_transactional=is_transactional,
    )
    return read(data)[0]


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (ABORT, ControlType.ABORT),
        (COMMIT, ControlType.COMMIT),
        (b"\x00\x00\x00\x02", ControlType.OTHER),
        (b"\x00\x00\xff\xff", ControlType.OTHER),
        (b"\x00\x05\x00\x01 later versions may go on", ControlType.COMMIT),
    ],
)
def test_a_marker_has_its_type(key: bytes, kind: ControlType) -> None:
    assert control_type(marker(key)) is kind


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_a_marker_that_cannot_be_read_is_corrupt(key: bytes | None) -> None:
    with pytest.raises(CorruptRecordError, match="control record") as caught:
        control_type(marker(key, offset=12))
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("flights", 3, 12)


def test_two_markers_in_one_batch_are_corrupt() -> None:
    data = build([(0, ABORT, VALUE, ())] * 2, is_control=True)
    with pytest.raises(CorruptRecordError, match="should hold one control record, and holds 2"):
        control_type(read(data)[0])


@pytest.mark.promise(
    "a decompression bomb stops at the limit in every codec, and the error has its place"
)
def test_a_control_batch_that_decompresses_to_more_than_a_marker_is_corrupt() -> None:
    bomb = build([(0, ABORT, bytes(CONTROL_SIZE_BYTES_MAX), ())], Codec.GZIP, is_control=True)
    with pytest.raises(CorruptRecordError, match="decompress"):
        control_type(read(bomb)[0])


def test_a_control_batch_that_compaction_emptied_has_no_type() -> None:
    data = build([(0, ABORT, VALUE, ())], is_control=True)
    (batch,) = read(resealed(header_changed(data, 57, 0, 4)[:HEADER_SIZE_BYTES]))
    assert control_type(batch) is ControlType.OTHER


def hidden(batches: list[RecordBatch], aborted: list[tuple[int, int]]) -> list[int]:
    """Return the base offsets of the batches of records that are left out."""
    transactions = AbortedTransactions(aborted)
    offsets = []
    for batch in batches:
        if batch.is_control:
            transactions.on_control(batch)
        elif transactions.hides(batch):
            offsets.append(batch.base_offset)
    return offsets


def test_what_was_aborted_is_hidden_up_to_its_marker() -> None:
    batches = [
        records(0, 7),
        records(2, 8),
        records(4, 7),
        marker(ABORT, 6, 7),
        records(7, 7),
        marker(COMMIT, 9, 8),
        marker(COMMIT, 10, 7),
    ]
    assert hidden(batches, [(7, 0)]) == [0, 4]


def test_a_transaction_aborted_twice_is_hidden_both_times() -> None:
    batches = [
        records(0, 7),
        marker(ABORT, 2, 7),
        records(3, 7),
        marker(COMMIT, 5, 7),
        records(6, 7),
        marker(ABORT, 8, 7),
    ]
    assert hidden(batches, [(7, 6), (7, 0)]) == [0, 6]


def test_records_outside_a_transaction_are_not_hidden() -> None:
    assert hidden([records(0, 7, is_transactional=False)], [(7, 0)]) == []


def test_a_fetch_may_begin_in_the_middle_of_an_aborted_transaction() -> None:
    assert hidden([records(50, 7), marker(ABORT, 52, 7), records(53, 7)], [(7, 3)]) == [50]


def test_an_abort_marker_before_any_of_its_records_ends_the_transaction_all_the_same() -> None:
    # The records themselves may have been compacted away.
    assert hidden([marker(ABORT, 5, 7), records(6, 7)], [(7, 2)]) == []


@given(st.permutations([(1, 0), (2, 4), (3, 8), (4, 12)]))
def test_the_order_of_the_aborted_list_does_not_matter(aborted: list[tuple[int, int]]) -> None:
    batches = [records(4 * (number - 1), number) for number in (1, 2, 3, 4)]
    assert hidden(batches, aborted) == [0, 4, 8, 12]


def test_nothing_is_hidden_without_aborted_transactions() -> None:
    assert hidden([records(0, 7), marker(COMMIT, 2, 7)], []) == []
