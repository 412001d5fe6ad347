"""The base class of all generated messages, and the headers of requests and responses.

A message is plain data: it has no state beyond its fields, which are checked only when it is
written. It has the fields of all versions; a field that the chosen version lacks must have its
default (`UnsupportedVersionError`), unless Kafka's schema allows to drop it silently.

A request on the wire consists of a size (4 bytes), a header (API key, version, correlation id,
client id, and tags from the API's first flexible version on) and the message. A response has a
size, the correlation id, tags if the API's version is flexible, and the message. ApiVersions
responses are an exception: they never have tags in the header, since a client reads them before it
knows the broker's versions.

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
    """A group of fields. It compares by value; its `repr` hides secrets and shortens bytes."""

    __slots__: tuple[str, ...] = ()
    masked: ClassVar[tuple[str, ...]] = ()
    version_ranges: ClassVar[Mapping[str, tuple[int, int]]] = {}
    """First and last version of fields that some versions lack; set only for messages in files."""

    tagged_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that are omitted if they have their default; set only for messages in files."""

    def write(self, out: bytearray, version: int) -> None:
        """Append this structure in the format of `version` of its message."""
        raise NotImplementedError

    @classmethod
    def read(cls, reader: Reader, version: int) -> Self:
        """Read this structure in the format of `version` of its message."""
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

    `min_version` to `max_version` are the stable versions that Kafka 2.1 to 4.3 brokers support;
    `flexible_from` is the first with compact types and tags (KIP-482), or None. `unstable_version`
    is the one after them if it can be written and read, else None; brokers support it with
    ``unstable.api.versions.enable``, and a request uses it only if it asks for it.
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
    """The header of a request. `api_key` may be unknown to this client."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def encode_request(
    request: Request, version: int, correlation_id: int, client_id: str | None
) -> bytearray:
    """Return the whole frame of a request, including its size.

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
    """Return the frame of a request in parts, without copying large `records`.

    The records must not change until the parts were sent. Raises the errors of `encode_request`.
    """
    out = GatherBuffer()
    out += bytes(_SIZE.size)
    _write_request(out, request, version, (correlation_id, client_id))
    _SIZE.pack_into(out, 0, out.size - _SIZE.size)
    return out.parts()


def encode_response(response: Message, version: int, correlation_id: int) -> bytearray:
    """Return the whole frame of a response, including its size. Raises like `encode_request`."""
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
    """Return the correlation id of a response frame (without its size). Raises `DecodeError`."""
    return Reader(frame).int32()


def decode_response(
    response_type: type[M], version: int, frame: Records, elements_max: int = ELEMENTS_MAX
) -> M:
    """Decode the message of a response frame (without its size), which must end with the frame.

    It may have at most `elements_max` structures and strings in all its arrays.

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
            # librdkafka's mock brokers write one empty tag section too many at the end of Metadata.
            reader.skip_tags()
        reader.end()
    except DecodeError as error:
        raise _unreadable(response_type, version, error) from error
    return response


def decode_request_header(frame: Records) -> RequestHeader:
    """Decode the header of a request frame (without its size), for any API and version.

    Raises:
        DecodeError: the frame is too short, or the client id is malformed.
    """
    reader = Reader(frame)
    return _read_request_header(reader)


def decode_request(
    frame: Records, *, passes_surplus: bool = False
) -> tuple[RequestHeader, Request]:
    """Decode the header and the message of a request frame (without its size).

    With `passes_surplus`, bytes after the message are ignored, as Kafka's brokers do: librdkafka
    2.16 writes three too many in Metadata 13 for all topics.

    Raises:
        DecodeError: the bytes are not such a message.
        UnsupportedVersionError: the API or its version is unknown.
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
    """Return the error for a field that has a value but does not exist in `version`."""
    return UnsupportedVersionError(
        f"{field} does not exist in version {version}, the highest that both sides speak;"
        f" leave it at its default or use a broker that speaks a version with it"
    )


def null_field(field: str, version: int) -> EncodeError:
    """Return the error for a field that is None where `version` does not allow null."""
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
