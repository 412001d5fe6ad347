"""Record batches that lie, and bombs.

Owner: none.
"""

from __future__ import annotations

from typing import Final

from pykclient.protocol.reader import ELEMENTS_MAX
from pykclient.records.compression import Codec
from tests.hostile.payloads import (
    ATTRIBUTES_AT,
    ENDLESS_VARINT,
    INT32,
    INT32_MAX,
    INT64,
    LAST_OFFSET_DELTA_AT,
    MILLION,
    RECORD_COUNT_AT,
    Hostile,
    aborted,
    around,
    batch,
    body,
    bomb,
    broker,
    fetched,
    gzip_bomb,
    hang_up,
    headers,
    lz4_bomb,
    nested,
    record,
    snappy_bomb,
    wrapped,
    zigzag,
    zstd_bomb,
)
from tests.records.batches import header_changed

RECORDS: Final[tuple[Hostile, ...]] = (
    # Records.
    *(
        row
        for call in ("poll", "poll_arrow")
        for row in (
            Hostile(
                f"{call}: a bomb in gzip",
                call,
                bomb(Codec.GZIP, gzip_bomb),
                "CorruptRecordError",
                "its gzip records decompress to more than the limit",
            ),
            Hostile(
                f"{call}: a bomb in snappy",
                call,
                bomb(Codec.SNAPPY, snappy_bomb),
                "CorruptRecordError",
                "its snappy records decompress to more than the limit",
            ),
            Hostile(
                f"{call}: a bomb in lz4",
                call,
                bomb(Codec.LZ4, lz4_bomb),
                "CorruptRecordError",
                "its lz4 records decompress to more than the limit",
            ),
            Hostile(
                f"{call}: a bomb in zstd",
                call,
                bomb(Codec.ZSTD, zstd_bomb),
                "CorruptRecordError",
                "its zstd records decompress to more than the limit",
            ),
            Hostile(
                f"{call}: a snappy block of 4 GB",
                call,
                bomb(Codec.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + bytes(9)),
                "CorruptRecordError",
                "its snappy records decompress to more than the limit",
            ),
            Hostile(
                f"{call}: batches in batches",
                call,
                broker(fetch=fetched(nested)),
                "CorruptRecordError",
                "does not have the size that it claims",
            ),
            Hostile(
                f"{call}: messages that wrap messages",
                call,
                broker(fetch=fetched(lambda: wrapped(5))),
                "CorruptRecordError",
                "a message inside it is compressed again",
            ),
            Hostile(
                f"{call}: 2^31-1 records in a batch of two",
                call,
                broker(
                    fetch=fetched(lambda: header_changed(batch(), RECORD_COUNT_AT, INT32_MAX, 4))
                ),
                "CorruptRecordError",
                "it has 2147483647 records up to offset delta 1",
            ),
            Hostile(
                f"{call}: -1 records in a batch of two",
                call,
                broker(fetch=fetched(lambda: header_changed(batch(), RECORD_COUNT_AT, -1, 4))),
                "CorruptRecordError",
                "it has -1 records up to offset delta 1",
            ),
            Hostile(
                f"{call}: a record that goes beyond its batch",
                call,
                broker(fetch=fetched(lambda: around(record(b"\0\0\0\x01\x01\0", 9_999), 1))),
                "CorruptRecordError",
                "does not have the size that it claims, 9999 bytes",
            ),
            Hostile(
                f"{call}: a record of length -1",
                call,
                broker(fetch=fetched(lambda: around(record(b"\0\0\0\x01\x01\0", -1), 1))),
                "CorruptRecordError",
                "does not have the size that it claims, -1 bytes",
            ),
            Hostile(
                f"{call}: 2^31-1 headers",
                call,
                broker(
                    fetch=fetched(lambda: around(record(b"\0\0\0\x01\x01" + zigzag(INT32_MAX)), 1))
                ),
                "CorruptRecordError",
                "a record claims 2147483647 headers",
            ),
            Hostile(
                f"{call}: a varint without end in a record",
                call,
                broker(fetch=fetched(lambda: around(ENDLESS_VARINT, 1))),
                "CorruptRecordError",
                "a number is longer than 64 bits",
            ),
            Hostile(
                f"{call}: a batch that ends 2^31-1 offsets later",
                call,
                broker(
                    fetch=fetched(
                        lambda: header_changed(batch(), LAST_OFFSET_DELTA_AT, INT32_MAX, 4)
                    )
                ),
                None,
                "2",
            ),
            Hostile(
                f"{call}: a batch that ends before it begins",
                call,
                broker(fetch=fetched(lambda: header_changed(batch(), LAST_OFFSET_DELTA_AT, -5, 4))),
                "CorruptRecordError",
                "it has 2 records up to offset delta -5",
            ),
            Hostile(
                f"{call}: a batch at offset -5",
                call,
                broker(fetch=fetched(lambda: INT64(-5) + batch()[8:])),
                "CorruptRecordError",
                "its base offset is -5",
            ),
            Hostile(
                f"{call}: a batch of length -1",
                call,
                broker(fetch=fetched(lambda: batch()[:8] + INT32(-1) + batch()[12:])),
                "CorruptRecordError",
                "it claims to have 11 bytes",
            ),
            Hostile(
                f"{call}: a batch of length 2^31-1",
                call,
                broker(fetch=fetched(lambda: batch()[:8] + INT32(INT32_MAX) + batch()[12:])),
                "CorruptRecordError",
                "the broker sent 85 bytes of a batch of 2147483659",
            ),
            Hostile(
                f"{call}: a million headers",
                call,
                broker(fetch=fetched(lambda: around(headers(MILLION), 1, Codec.ZSTD))),
                None,
                "1",
            ),
            Hostile(
                f"{call}: a codec that does not exist",
                call,
                broker(fetch=fetched(lambda: header_changed(batch(), ATTRIBUTES_AT, 7, 2))),
                "CorruptRecordError",
                "its codec 7 is unknown",
            ),
            Hostile(
                f"{call}: a magic that does not exist",
                call,
                broker(fetch=fetched(lambda: batch()[:16] + b"\x77" + batch()[17:])),
                "CorruptRecordError",
                "its magic is 119, not 2",
            ),
            Hostile(
                f"{call}: batches without records for ever",
                call,
                broker(fetch=fetched(lambda: around(b"", 0))),
                "CorruptRecordError",
                "it has 0 records up to offset delta -1",
            ),
        )
    ),
    Hostile(
        "a wrong checksum",
        "poll",
        broker(fetch=fetched(lambda: batch()[:-1] + b"X")),
        "CorruptRecordError",
        "its checksum is",
    ),
    Hostile(
        "aborted transactions up to the limit",
        "poll",
        broker(fetch=body(lambda: aborted(ELEMENTS_MAX - 2))),
        None,
        "0",
    ),
    Hostile(
        "a million aborted transactions",
        "poll",
        broker(fetch=body(lambda: aborted(MILLION))),
        "DecodeError",
        "more than 100000 array elements",
    ),
    Hostile(
        "an unknown error of a fetch",
        "poll",
        broker(fetch=fetched(b"", error_code=4_321)),
        "BrokerError",
        "error code 4321, which this client does not know",
    ),
    Hostile(
        "a high watermark of -2^63",
        "poll",
        broker(fetch=fetched(b"", high_watermark=-(2**63))),
        None,
        "0",
    ),
    Hostile(
        "a replica to read from that does not exist",
        "poll",
        broker(fetch=fetched(b"", preferred_read_replica=77)),
        None,
        "0",
    ),
    Hostile("empty responses at full speed", "poll", broker(fetch=fetched(b"")), None, "0"),
    Hostile("hangs up on Fetch", "poll", broker(fetch=hang_up), None, "0"),
)
