"""The per-record core in Cython; `accel` uses it where it was built.

The same names as `accel.pure`, with the same results and errors.

Owner: see each module.
"""

from pykclient.accel.compiled import (
    arrow,
    batch_result,
    byte_column,
    contiguous,
    decoder,
    frame_memory,
    record,
    rows,
    send,
)
from pykclient.accel.pure import ContiguousBatches, ListColumns, RowGroup, crc32c

__all__ = [
    "BatchResult",
    "ByteColumn",
    "ConsumerRecord",
    "ContiguousBatches",
    "Delivery",
    "FrameMemory",
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
    "decode_records",
    "find_contiguous",
    "iterate_records",
    "largest_partitions",
    "partition_of_key",
    "record_bytes",
    "repeated",
]

arrow_buffers = arrow.arrow_buffers
repeated = arrow.repeated
ByteColumn = byte_column.ByteColumn
decode_contiguous = contiguous.decode_contiguous
find_contiguous = contiguous.find_contiguous
decode_records = decoder.decode_records
record_bytes = decoder.record_bytes
BatchResult = batch_result.BatchResult
FrameMemory = frame_memory.FrameMemory
ConsumerRecord = record.ConsumerRecord
iterate_records = record.iterate_records
RowBlock = rows.RowBlock
RowRun = rows.RowRun
largest_partitions = rows.largest_partitions
Delivery = send.Delivery
RecordAppender = send.RecordAppender
SendCore = send.SendCore
TopicAppenders = send.TopicAppenders
partition_of_key = send.partition_of_key
