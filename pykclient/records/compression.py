"""The codecs of a record batch: codec id -> compress, decompress.

Owner: no state.
Source: Kafka protocol guide, "Record Batch", attributes bits 0-2.
"""

from __future__ import annotations

from enum import IntEnum

from pykclient.errors.base import ConfigError, DecodeError

__all__ = ["Codec", "compress", "decompress"]


class Codec(IntEnum):
    """How the records of a batch are compressed; the number stands in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """Return `data` compressed, at `level` or the codec's default (KIP-390)."""
    if codec is Codec.NONE:
        return bytes(data)
    raise ConfigError(f"codec {codec.name.lower()} is not built yet")


def decompress(codec: Codec, data: bytes | bytearray | memoryview, size_bytes_max: int) -> bytes:
    """Return `data` decompressed, refusing to make more than `size_bytes_max` bytes."""
    if codec is Codec.NONE:
        return bytes(data)
    raise DecodeError(f"codec {codec.name.lower()} is not built yet")
