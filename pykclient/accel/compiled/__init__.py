"""The per-record core in Cython, used by `accel` if it was built.

It has the same names as `accel.pure`, with the same results and errors.
"""

import _queue
import queue

from pykclient.accel.compiled import (  # type: ignore[attr-defined]  # no types: the pure ones do
    arrow,
    batch_result,
    blocks,
    byte_column,
    contiguous,
    decoder,
    frame_memory,
    gate,
    record,
    rows,
    send,
    sockets,
)
from pykclient.accel.pure import (
    ContiguousBatches,
    ListColumns,
    RowGroup,
    __all__,
    crc32c,
)
from pykclient.accel.pure import Gate as PureGate

arrow_buffers = arrow.arrow_buffers
repeated = arrow.repeated
lz4_room_bytes = blocks.lz4_room_bytes
unlz4_small = blocks.unlz4_small
unsnappy_blocks = blocks.unsnappy_blocks
ByteColumn = byte_column.ByteColumn
decode_contiguous = contiguous.decode_contiguous
decode_messages = contiguous.decode_messages
message_offsets = contiguous.message_offsets
find_contiguous = contiguous.find_contiguous
decode_records = decoder.decode_records
record_bytes = decoder.record_bytes
BatchResult = batch_result.BatchResult
FrameMemory = frame_memory.FrameMemory
# Where a library such as gevent has replaced Python's queues, only theirs let other greenlets run.
Gate = gate.Gate if queue.SimpleQueue is _queue.SimpleQueue else PureGate
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
receive_into = sockets.receive_into
select_ready = sockets.select_ready
send_parts = sockets.send_parts
send.TopicAppenders.next_choice  # noqa: B018  # an older build lacks it, and is not to be used
