"""Kafka's own schemas, for tests: those whose messages are generated, and all there are."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from pykclient.testing.cluster.java import MissingPrerequisiteError
from pykclient.testing.fixtures import skip_or_fail
from tests.protocol.instances import Instances
from tools.protogen.apis import APIS, DATA, UNSTABLE_APIS
from tools.protogen.jar import find_jar, read_schemas
from tools.protogen.spec import Message, parse_all, snake_case

if TYPE_CHECKING:
    from collections.abc import Iterator


def jar_or_skip() -> None:
    """End the test module where Kafka's jar can neither be found nor fetched."""
    try:
        find_jar()
    except MissingPrerequisiteError as error:
        skip_or_fail(f"the message schemas are in Kafka's jar: {error}")


@cache
def all_schemas() -> dict[str, Message]:
    """Name -> schema, for everything in the jar."""
    return parse_all(read_schemas(find_jar()), UNSTABLE_APIS)


def groups() -> Iterator[tuple[str, list[Message]]]:
    """Yield each module's name with the schemas that it holds, in the order of the generator."""
    schemas = all_schemas()
    for api in APIS:
        yield snake_case(api), [schemas[f"{api}Response"], schemas[f"{api}Request"]]
    for module, names in DATA.items():
        yield module, [schemas[name] for name in names]


@cache
def generated() -> dict[str, Instances]:
    """Message name -> how to make instances, for every generated message."""
    return {
        schema.name: Instances(
            schema, schemas, import_module(f"pykclient.protocol.messages.{module}")
        )
        for module, schemas in groups()
        for schema in schemas
    }
