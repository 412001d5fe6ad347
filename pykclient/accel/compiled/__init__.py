"""The per-record core in Cython; `accel` uses it where it was built.

The same names as `accel.pure`, with the same results and errors.

Owner: see each module.
"""

from pykclient.accel.compiled.arrow import arrow_buffers
from pykclient.accel.compiled.byte_column import ByteColumn
from pykclient.accel.compiled.decoder import decode_records, record_bytes
from pykclient.accel.compiled.fate import BatchFate
from pykclient.accel.compiled.record import ConsumerRecord, iterate_records
from pykclient.accel.compiled.rows import RowBlock, RowRun, largest_partitions
from pykclient.accel.compiled.send import (
    Delivery,
    RecordAppender,
    SendCore,
    TopicAppenders,
    murmur2,
)
from pykclient.accel.pure import ListColumns, RowGroup, crc32c

__all__ = [
    "BatchFate",
    "ByteColumn",
    "ConsumerRecord",
    "Delivery",
    "ListColumns",
    "RecordAppender",
    "RowBlock",
    "RowGroup",
    "RowRun",
    "SendCore",
    "TopicAppenders",
    "arrow_buffers",
    "crc32c",
    "decode_records",
    "iterate_records",
    "largest_partitions",
    "murmur2",
    "record_bytes",
]
