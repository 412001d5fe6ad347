"""Positions of the fields in a batch's header, for readers and writers of batches.

Owner: none; constants.
Source: Kafka protocol guide, "Record Batch"; KIP-98; KIP-534.
"""

from __future__ import annotations

import struct
from typing import Final

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE_BYTES: Final = HEADER.size
LENGTH_END: Final = 12
"""End of the length field, which counts the bytes after it."""
MAGIC_AT: Final = 16
CRC_AT: Final = 17
CRC_START: Final = 21
"""Start of the bytes that the checksum covers, after itself."""

MAGIC: Final = 2

ATTRIBUTE_CODEC: Final = 0x07
ATTRIBUTE_LOG_APPEND_TIME: Final = 0x08
ATTRIBUTE_TRANSACTIONAL: Final = 0x10
ATTRIBUTE_CONTROL: Final = 0x20
ATTRIBUTE_DELETE_HORIZON: Final = 0x40

OFFSET_MAX: Final = 2**63 - 1

CHUNK_RECORD_COUNT_MAX: Final = 10_000
"""Maximum number of records decoded at once, so that a batch of millions of tiny ones stays
bounded."""
