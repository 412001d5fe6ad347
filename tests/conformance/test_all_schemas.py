"""The generator can do every schema of Kafka's, not only those that the library uses by now.

Goal: to use another API is to name it in a table. Method: all that `test_protocol.py` does not have
are generated into a folder of the test, and a few random messages of every version compared with
what Java makes of them.
"""

from __future__ import annotations

import importlib.util
from random import Random
from typing import TYPE_CHECKING

import pytest

from pykclient.protocol.reader import Reader
from tests.conformance.java_fields import expected_fields
from tests.conformance.protocol_mirror import ProtocolMirror
from tests.protocol.instances import Instances, SeededChoices
from tests.protocol.schemas import all_schemas, generated, jar_or_skip
from tools.protogen.emit_messages import emit_module

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from tools.protogen.spec import Message

jar_or_skip()

EXAMPLE_COUNT = 5


def groups() -> dict[str, list[Message]]:
    """Module name -> schemas: each API's pair, and each data schema by itself."""
    schemas = {name: schema for name, schema in all_schemas().items() if name not in generated()}
    pairs = {
        schema.api: [schemas[f"{schema.api}Response"], schema]
        for schema in schemas.values()
        if schema.kind == "request" and schema.versions
    }
    data = {schema.name: [schema] for schema in schemas.values() if schema.kind == "data"}
    return pairs | data


@pytest.fixture(scope="module")
def mirror() -> Iterator[ProtocolMirror]:
    with ProtocolMirror() as started:
        yield started


@pytest.mark.promise(
    "each message agrees with Java's classes in every version, and so do Kafka's other schemas"
)
@pytest.mark.parametrize("group", groups())
def test_java_agrees_on_every_schema(group: str, tmp_path: Path, mirror: ProtocolMirror) -> None:
    schemas = groups()[group]
    module = imported(emit_module(schemas, '"""For a test."""'), tmp_path / f"{group}.py")
    for schema in schemas:
        instances = Instances(schema, schemas, module)
        for version in schema.versions.each():
            for seed in range(EXAMPLE_COUNT):
                check(instances, version, Random(f"{schema.name} {version} {seed}"), mirror)


def check(instances: Instances, version: int, random: Random, mirror: ProtocolMirror) -> None:
    message = instances.make(version, SeededChoices(random))
    out = bytearray()
    message.write(out, version)
    name = instances.schema.name
    java_name = name if instances.schema.kind == "data" else f"{name}Data"
    answer = mirror.data(java_name, version, bytes(out))
    assert answer.written == out
    theirs = answer.content["message"]
    assert expected_fields(theirs, message, instances.schema.root, instances) == theirs
    reader = Reader(answer.written)
    assert instances.type.read(reader, version) == message
    reader.end()


def imported(source: str, path: Path) -> ModuleType:
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(f"generated_for_test.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
