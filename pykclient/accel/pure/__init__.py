"""The per-record core in plain Python; always works and needs no compiler.

It reads and writes the records of a batch; the batch's header, its compression and its checksum are
`pykclient.records`. It never waits, except for the lock that an appender was given.

Owner: see each module.
"""

from pykclient.accel.pure.appender import RecordAppender
from pykclient.accel.pure.decoder import decode_records
from pykclient.accel.pure.delivery import Delivery
from pykclient.accel.pure.hashes import crc32c, murmur2
from pykclient.accel.pure.record import ConsumerRecord, iterate_records
from pykclient.accel.pure.send import SendCore, TopicAppenders

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
