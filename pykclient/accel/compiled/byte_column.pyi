"""The types of byte_column.pyx, which are those of the pure twin."""

from collections.abc import Iterable
from typing import final

from _typeshed import ReadableBuffer

from pykclient.accel.abc import HeadersInput

__all__ = ["ByteColumn"]

@final
class ByteColumn:
    @property
    def count(self) -> int: ...
    def __len__(self) -> int: ...
    @staticmethod
    def from_objects(objects: Iterable[object], name: str) -> ByteColumn: ...
    @staticmethod
    def from_arrow(
        count: int,
        first: int,
        *,
        validity: ReadableBuffer | None,
        offsets: ReadableBuffer | None,
        data: ReadableBuffer | None,
        offset_size: int,
    ) -> ByteColumn: ...
    @staticmethod
    def from_views(
        count: int,
        first: int,
        *,
        validity: ReadableBuffer | None,
        views: ReadableBuffer | None,
        buffers: Iterable[ReadableBuffer | None],
    ) -> ByteColumn: ...
    @staticmethod
    def from_headers(headers: Iterable[HeadersInput | None], name: str) -> ByteColumn: ...
    @staticmethod
    def from_header_columns(
        counts: ReadableBuffer, names: ByteColumn, values: ByteColumn
    ) -> ByteColumn: ...
    @staticmethod
    def repeated(item: bytes | None, count: int) -> ByteColumn: ...
