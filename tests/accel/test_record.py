"""Record objects: every field in its place, made when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.accel import ListColumns
from pykclient.types import TimestampType

if TYPE_CHECKING:
    from types import ModuleType

COLUMNS = ListColumns(
    range(5, 7),
    [1000, 2000],
    [b"key", None],
    [None, b"value"],
    [(("h", b"x"),), ()],
    size_bytes=10,
)


def test_records_have_the_fields_of_their_columns(core: ModuleType) -> None:
    records = list(
        core.iterate_records(
            COLUMNS,
            topic="flights",
            partition=3,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            leader_epoch=8,
        )
    )
    assert records == [
        core.ConsumerRecord(
            topic="flights",
            partition=3,
            offset=5,
            timestamp_ms=1000,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            key=b"key",
            value=None,
            headers=(("h", b"x"),),
            leader_epoch=8,
            serialized_key_size=3,
            serialized_value_size=-1,
        ),
        core.ConsumerRecord(
            topic="flights",
            partition=3,
            offset=6,
            timestamp_ms=2000,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            key=None,
            value=b"value",
            headers=(),
            leader_epoch=8,
            serialized_key_size=-1,
            serialized_value_size=5,
        ),
    ]
    assert records[0].offset == 5
    assert repr(records[0]).startswith("ConsumerRecord(topic='flights', partition=3, offset=5")


def test_deserialized_keys_and_values_keep_the_sizes_of_their_bytes(core: ModuleType) -> None:
    first, second = core.iterate_records(
        COLUMNS,
        topic="t",
        partition=0,
        timestamp_type=TimestampType.CREATE_TIME,
        leader_epoch=None,
        keys=["KEY", None],
        values=[None, {"v": 1}],
    )
    assert (first.key, first.serialized_key_size) == ("KEY", 3)
    assert (second.value, second.serialized_value_size) == ({"v": 1}, 5)
    assert second.leader_epoch is None
