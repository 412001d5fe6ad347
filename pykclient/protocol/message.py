"""The base of all generated messages, and the headers around requests and responses.

A message is plain data: it has no state beyond its fields and never checks one before it is
written. It holds the union of all versions; a field that the chosen version lacks must have its
default (`UnsupportedVersionError`), unless Kafka's schema lets it be dropped silently.

A request on the wire is: size (4 bytes), header (API key, version, correlation id, client id, and
tags from the API's first flexible version on), message. A response: size, correlation id, tags
where the API's version is flexible, message. One exception: an ApiVersions response never has
tags in its header, since a client reads it before it knows which version the broker speaks.

Owner: whoever made the message.
Source: the Kafka protocol guide, "Request and Response Headers"; KIP-482; KIP-511 (ApiVersions).
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self, TypeVar

from pykclient.errors.base import DecodeError, EncodeError, UnsupportedVersionError
from pykclient.protocol.api_keys import ApiKey, request_type
from pykclient.protocol.primitives import GatherBuffer, write_nullable_string
from pykclient.protocol.reader import ELEMENTS_MAX, Reader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.protocol.primitives import Records

_SIZE = Struct(">i")
_REQUEST_HEADER = Struct(">hhi")
_BYTES_SHOWN_MAX = 16


class Structure:
    """A group of fields. Compares by value, and shows no secret and no long bytes."""

    __slots__: tuple[str, ...] = ()
    masked: ClassVar[tuple[str, ...]] = ()
    version_ranges: ClassVar[Mapping[str, tuple[int, int]]] = {}
    """First and last version of fields that some versions lack; only messages in files have it."""

    tagged_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that are left out where they have their default; only messages in files have it."""

    def write(self, out: bytearray, version: int) -> None:
        """Append this structure as `version` of its message has it."""
        raise NotImplementedError

    @classmethod
    def read(cls, reader: Reader, version: int) -> Self:
        """Read this structure as `version` of its message has it."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = (
            f"{name}={'***' if name in self.masked else _shown(getattr(self, name))}"
            for name in self.__slots__
        )
        return f"{type(self).__name__}({', '.join(fields)})"


class Message(Structure):
    """A request or response of one API.

    `min_version` to `max_version` are the versions that Kafka 2.1 to 4.3 brokers speak and that
    are stable; `flexible_from` is the first with compact types and tags (KIP-482), None if none.
    `unstable_version` is the one after them, where it can be written and read as well, else None;
    brokers have it with ``unstable.api.versions.enable``, and no request has it unless it says so.
    """

    __slots__ = ()
    api_key: ClassVar[ApiKey]
    min_version: ClassVar[int]
    max_version: ClassVar[int]
    flexible_from: ClassVar[int | None]
    unstable_version: ClassVar[int | None] = None


class Request(Message):
    """A message to a broker; `response_type` is the class of its response."""

    __slots__ = ()
    response_type: ClassVar[type[Message]]


class DataMessage(Structure):
    """A versioned structure that travels inside a `bytes` field and belongs to no API."""

    __slots__ = ()
    min_version: ClassVar[int]
    max_version: ClassVar[int]
    flexible_from: ClassVar[int | None]


M = TypeVar("M", bound=Message)


class RequestHeader(NamedTuple):
    """What a request says before its message. `api_key` may be one that we do not know."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def encode_request(
    request: Request, version: int, correlation_id: int, client_id: str | None
) -> bytearray:
    """The whole frame of a request, size included.

    Raises:
        UnsupportedVersionError: `version` is not one of the request's, or a field needs another.
        EncodeError: a value does not fit its type, or is null where that is not allowed.
    """
    out = bytearray(_SIZE.size)
    _write_request(out, request, version, (correlation_id, client_id))
    _SIZE.pack_into(out, 0, len(out) - _SIZE.size)
    return out


def encode_request_parts(
    request: Request, version: int, correlation_id: int, client_id: str | None
) -> list[Records]:
    """As `encode_request`, in pieces to be sent in order: large `records` are not copied.

    They must not change until the pieces were sent.
    """
    out = GatherBuffer()
    out += bytes(_SIZE.size)
    _write_request(out, request, version, (correlation_id, client_id))
    _SIZE.pack_into(out, 0, out.size - _SIZE.size)
    return out.parts()


def encode_response(response: Message, version: int, correlation_id: int) -> bytearray:
    """The whole frame of a response, size included. Raises as `encode_request` does."""
    _check_version(type(response), version)
    out = bytearray(_SIZE.size)
    try:
        out += _SIZE.pack(correlation_id)
        if _has_header_tags(type(response), version):
            out.append(0)
        response.write(out, version)
    except (struct_error, UnicodeEncodeError) as error:
        raise _unfit(response, version, error) from error
    _SIZE.pack_into(out, 0, len(out) - _SIZE.size)
    return out


def peek_correlation_id(frame: Records) -> int:
    """The correlation id of a response frame (without its size). Raises `DecodeError`."""
    return Reader(frame).int32()


def decode_response(
    response_type: type[M], version: int, frame: Records, elements_max: int = ELEMENTS_MAX
) -> M:
    """The message in a response frame (without its size), which must end where the frame ends.

    It has at most `elements_max` structures and strings in all its arrays.

    Raises:
        DecodeError: the bytes are not such a message.
        UnsupportedVersionError: `version` is not one of the response's.
    """
    _check_version(response_type, version)
    reader = Reader(frame, elements_max)
    try:
        reader.int32()
        if _has_header_tags(response_type, version):
            reader.skip_tags()
        response = response_type.read(reader, version)
        if reader.remaining == 1 and _is_flexible(response_type, version):
            # librdkafka's mock brokers end Metadata in one empty section of tags too many.
            reader.skip_tags()
        reader.end()
    except DecodeError as error:
        raise _unreadable(response_type, version, error) from error
    return response


def decode_request_header(frame: Records) -> RequestHeader:
    """The header of a request frame (without its size), whatever API and version it names.

    Raises:
        DecodeError: the frame is too short, or the client id is malformed.
    """
    reader = Reader(frame)
    return _read_request_header(reader)


def decode_request(
    frame: Records, *, passes_surplus: bool = False
) -> tuple[RequestHeader, Request]:
    """Read the header and the message in a request frame (without its size).

    With `passes_surplus` bytes after the message are passed over, as Kafka's brokers do it:
    librdkafka 2.16 writes three too many in Metadata 13 for all topics.

    Raises:
        DecodeError: the bytes are not such a message.
        UnsupportedVersionError: the API or its version is not known.
    """
    reader = Reader(frame)
    header = _read_request_header(reader)
    kind = request_type(header.api_key)
    version = header.api_version
    _check_version(kind, version)
    try:
        if _is_flexible(kind, version):
            reader.skip_tags()
        request = kind.read(reader, version)
        if not passes_surplus:
            reader.end()
    except DecodeError as error:
        raise _unreadable(kind, version, error) from error
    return header, request


def unsupported_field(field: str, version: int) -> UnsupportedVersionError:
    """The error for a field that has a value but does not exist in `version`."""
    return UnsupportedVersionError(
        f"{field} does not exist in version {version}, the highest that both sides speak;"
        f" leave it at its default or use a broker that speaks a version with it"
    )


def null_field(field: str, version: int) -> EncodeError:
    """The error for a field that is None where `version` does not allow null."""
    return EncodeError(f"{field} must not be None in version {version}")


def _write_request(
    out: bytearray, request: Request, version: int, ids: tuple[int, str | None]
) -> None:
    _check_version(type(request), version)
    correlation_id, client_id = ids
    try:
        out += _REQUEST_HEADER.pack(request.api_key, version, correlation_id)
        write_nullable_string(out, client_id)  # never compact: old brokers must read it
        if _is_flexible(type(request), version):
            out.append(0)
        request.write(out, version)
    except (struct_error, UnicodeEncodeError) as error:
        raise _unfit(request, version, error) from error


def _read_request_header(reader: Reader) -> RequestHeader:
    api_key, api_version, correlation_id = reader.unpack(_REQUEST_HEADER)
    return RequestHeader(api_key, api_version, correlation_id, reader.nullable_string())


def _is_flexible(kind: type[Message], version: int) -> bool:
    return kind.flexible_from is not None and version >= kind.flexible_from


def _has_header_tags(kind: type[Message], version: int) -> bool:
    return _is_flexible(kind, version) and kind.api_key is not ApiKey.API_VERSIONS


def _check_version(kind: type[Message], version: int) -> None:
    is_stable = kind.min_version <= version <= kind.max_version
    if not is_stable and version != kind.unstable_version:
        raise UnsupportedVersionError(
            f"{kind.__name__} version {version} is not supported; this client speaks"
            f" {kind.min_version} to {kind.max_version}"
        )


def _unfit(message: Message, version: int, error: Exception) -> EncodeError:
    return EncodeError(f"{type(message).__name__} version {version} cannot be written: {error}")


def _unreadable(kind: type[Message], version: int, error: DecodeError) -> DecodeError:
    return DecodeError(f"{kind.__name__} version {version}: {error}")


def _shown(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview) and len(value) > _BYTES_SHOWN_MAX:
        return f"<{len(value)} bytes>"
    return repr(bytes(value)) if isinstance(value, bytearray | memoryview) else repr(value)
