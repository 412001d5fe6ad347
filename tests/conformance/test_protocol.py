"""Kafka's own classes read what we write, and write what we read, byte for byte.

Goal: every field stands at its place, in its form, under its name. Method: random messages of every
API and version go to a Java process as whole frames; it prints how Kafka writes the same message,
which must be the same bytes, and the value of every field by its Java name, which must be ours. A
few messages of Kafka's other schemas are compared likewise: to use another API is to name it in the
generator's table.
"""

from __future__ import annotations

import importlib.util
import struct
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from pykclient.protocol.api_keys import APIS, ApiKey, request_type, response_type
from pykclient.protocol.message import (
    DataMessage,
    Message,
    Request,
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_request_parts,
    encode_response,
    peek_correlation_id,
)
from pykclient.protocol.reader import Reader
from tests.conformance.protocol_mirror import ProtocolMirror
from tests.protocol.instances import Instances, SeededChoices
from tests.protocol.schemas import all_schemas, generated, jar_or_skip
from tools.protogen.emit_messages import emit_module

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from tools.protogen.spec import Message as Schema


if TYPE_CHECKING:
    from pykclient.protocol.message import Structure
    from tools.protogen.spec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.protocol.message import Structure

jar_or_skip()

EXAMPLE_COUNT = 40
FEW_EXAMPLES = 5
"""Number of examples for messages that the library does not use yet."""
SIZE_BYTES = 4


@pytest.fixture(scope="module")
def mirror() -> Iterator[ProtocolMirror]:
    with ProtocolMirror() as started:
        yield started


@pytest.mark.promise("Java's classes read and write the same bytes, in both directions")
@pytest.mark.parametrize("name", generated())
def test_java_agrees_on_bytes_and_fields(name: str, mirror: ProtocolMirror) -> None:
    instances = generated()[name]
    for version in instances.schema.versions.each():
        for seed in range(EXAMPLE_COUNT):
            random = Random(f"{name} {version} {seed}")
            message = instances.make(version, SeededChoices(random))
            check_against_java(message, version, random, mirror)


def check_against_java(
    message: Structure, version: int, random: Random, mirror: ProtocolMirror
) -> None:
    if isinstance(message, Request):
        content = check_request(message, version, random, mirror)
    elif isinstance(message, Message):
        content = check_response(message, version, random, mirror)
    else:
        assert isinstance(message, DataMessage)
        content = check_data(message, type(message).__name__, version, mirror)
    instances = generated()[type(message).__name__]
    root = instances.schema.root
    assert expected_fields(content["message"], message, root, instances) == content["message"]


def check_request(
    request: Request, version: int, random: Random, mirror: ProtocolMirror
) -> dict[str, Any]:
    correlation_id = random.randint(-(2**31), 2**31 - 1)
    client_id = random.choice((None, "", "client", "клиент"))
    frame = bytes(encode_request(request, version, correlation_id, client_id))
    assert b"".join(encode_request_parts(request, version, correlation_id, client_id)) == frame
    assert int.from_bytes(frame[:SIZE_BYTES], "big") == len(frame) - SIZE_BYTES
    result = mirror.request(frame[SIZE_BYTES:])
    assert result.written == frame[SIZE_BYTES:]
    assert result.content["header"] == {
        "requestApiKey": request.api_key,
        "requestApiVersion": version,
        "correlationId": correlation_id,
        "clientId": None if client_id is None else client_id.encode().hex(),
    }
    header = RequestHeader(request.api_key, version, correlation_id, client_id)
    assert decode_request(result.written) == (header, request)
    return result.content


def check_response(
    response: Message, version: int, random: Random, mirror: ProtocolMirror
) -> dict[str, Any]:
    correlation_id = random.randint(-(2**31), 2**31 - 1)
    frame = bytes(encode_response(response, version, correlation_id))
    assert int.from_bytes(frame[:SIZE_BYTES], "big") == len(frame) - SIZE_BYTES
    result = mirror.response(response.api_key, version, frame[SIZE_BYTES:])
    assert result.written == frame[SIZE_BYTES:]
    assert result.content["header"] == {"correlationId": correlation_id}
    assert peek_correlation_id(result.written) == correlation_id
    assert decode_response(type(response), version, result.written) == response
    return result.content


def check_data(
    message: Structure, java_name: str, version: int, mirror: ProtocolMirror
) -> dict[str, Any]:
    out = bytearray()
    message.write(out, version)
    result = mirror.data(java_name, version, bytes(out))
    assert result.written == out
    reader = Reader(result.written)
    assert type(message).read(reader, version) == message
    reader.end()
    return result.content


def test_java_has_the_same_api_keys(mirror: ProtocolMirror) -> None:
    theirs = {api["name"]: api["key"] for api in mirror.apis()}
    assert {key.name: key.value for key in ApiKey} == theirs


@pytest.mark.promise("every API version of brokers 2.1 to 4.4 is supported, with its headers")
def test_java_has_the_same_versions_and_headers(mirror: ProtocolMirror) -> None:
    java = {api["key"]: api for api in mirror.apis()}
    for key in APIS:
        request, response = request_type(key), response_type(key)
        theirs = java[key]
        for message in (request, response):
            assert (message.min_version, message.max_version) == (theirs["low"], theirs["high"])
        for version, headers in enumerate(theirs["headers"], start=theirs["low"]):
            ours = (
                len(encode_request(request(), version, 1, None)),
                len(encode_response(response(), version, 1)),
            )
            bodies = bytearray(), bytearray()
            request().write(bodies[0], version)
            response().write(bodies[1], version)
            # Size, key, version, correlation id, null client id; tags from header version 2 on.
            assert ours[0] - len(bodies[0]) == 14 + (headers[0] == 2)
            assert ours[1] - len(bodies[1]) == 8 + headers[1]


def expected_fields(
    java: dict[str, Any], message: Structure, struct: Struct, instances: Instances
) -> dict[str, Any]:
    """Our values under Java's names; what only unstable versions have, and we lack, is Java's."""
    expected = dict(java)
    for field, name in instances.fields(struct):
        java_name = field.name[0].lower() + field.name[1:]
        value, theirs = getattr(message, name), java[java_name]
        if field.struct is None or value is None:
            expected[java_name] = plain(value)
        elif field.is_array:
            pairs = zip(theirs, value, strict=True)
            expected[java_name] = [
                expected_fields(their, our, field.struct, instances) for their, our in pairs
            ]
        else:
            expected[java_name] = expected_fields(theirs, value, field.struct, instances)
    return expected


def plain(value: object) -> object:
    """`value` in the form in which the Java half writes it."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return struct.pack(">d", value).hex()
        case str():
            return value.encode().hex()
        case list():
            return [plain(item) for item in value]
        case bytes() | memoryview():
            return value.hex()
        case _:
            raise AssertionError(f"no plain form for {value!r}")


def groups() -> dict[str, list[Schema]]:
    """Return the schemas by module name: each API's pair, and each data schema by itself."""
    schemas = {name: schema for name, schema in all_schemas().items() if name not in generated()}
    pairs = {
        schema.api: [schemas[f"{schema.api}Response"], schema]
        for schema in schemas.values()
        if schema.kind == "request" and schema.versions
    }
    data = {schema.name: [schema] for schema in schemas.values() if schema.kind == "data"}
    return pairs | data


@pytest.mark.parametrize("group", groups())
def test_java_agrees_on_every_schema(group: str, tmp_path: Path, mirror: ProtocolMirror) -> None:
    schemas = groups()[group]
    module = imported(emit_module(schemas, '"""For a test."""'), tmp_path / f"{group}.py")
    for schema in schemas:
        instances = Instances(schema, schemas, module)
        for version in schema.versions.each():
            for seed in range(FEW_EXAMPLES):
                random = Random(f"{schema.name} {version} {seed}")
                message = instances.make(version, SeededChoices(random))
                java_name = schema.name if schema.kind == "data" else f"{schema.name}Data"
                theirs = check_data(message, java_name, version, mirror)["message"]
                assert expected_fields(theirs, message, schema.root, instances) == theirs


def imported(source: str, path: Path) -> ModuleType:
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(f"generated_for_test.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
