"""The per-record core in plain Python, which always works and needs no compiler.

It reads and writes the records of a batch; `pykclient.records` handles the batch's header,
compression and checksum. It never waits, except for the lock that an appender was given.

Owner: see each module.
"""

from pykclient.accel.pure.appender import RecordAppender
from pykclient.accel.pure.arrow import arrow_buffers, repeated
from pykclient.accel.pure.blocks import lz4_room_bytes, unlz4_small, unsnappy_blocks
from pykclient.accel.pure.byte_column import ByteColumn
from pykclient.accel.pure.contiguous import (
    ContiguousBatches,
    decode_contiguous,
    decode_messages,
    find_contiguous,
    message_offsets,
)
from pykclient.accel.pure.decoder import ListColumns, decode_records, record_bytes
from pykclient.accel.pure.delivery import BatchResult, Delivery
from pykclient.accel.pure.frame_memory import FrameMemory
from pykclient.accel.pure.gate import Gate
from pykclient.accel.pure.hashes import crc32c, partition_of_key
from pykclient.accel.pure.record import ConsumerRecord, iterate_records
from pykclient.accel.pure.rows import RowBlock, RowGroup, RowRun, largest_partitions
from pykclient.accel.pure.send import SendCore, TopicAppenders
from pykclient.accel.pure.sockets import receive_into, select_ready, send_parts

__all__ = [
    "BatchResult",
    "ByteColumn",
    "ConsumerRecord",
    "ContiguousBatches",
    "Delivery",
    "FrameMemory",
    "Gate",
    "ListColumns",
    "RecordAppender",
    "RowBlock",
    "RowGroup",
    "RowRun",
    "SendCore",
    "TopicAppenders",
    "arrow_buffers",
    "crc32c",
    "decode_contiguous",
    "decode_messages",
    "decode_records",
    "find_contiguous",
    "iterate_records",
    "largest_partitions",
    "lz4_room_bytes",
    "message_offsets",
    "partition_of_key",
    "receive_into",
    "record_bytes",
    "repeated",
    "select_ready",
    "send_parts",
    "unlz4_small",
    "unsnappy_blocks",
]
