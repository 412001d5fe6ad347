"""The per-record core in Cython; `accel` uses it where it was built.

The same names as `accel.pure`, with the same results and errors.

Owner: see each module.
"""

from pykclient.accel.compiled.send import (
    Delivery,
    RecordAppender,
    SendCore,
    TopicAppenders,
    murmur2,
)
from pykclient.accel.pure import ConsumerRecord, crc32c, decode_records, iterate_records

__all__ = [
    "ConsumerRecord",
    "Delivery",
    "RecordAppender",
    "SendCore",
    "TopicAppenders",
    "crc32c",
    "decode_records",
    "iterate_records",
    "murmur2",
]
