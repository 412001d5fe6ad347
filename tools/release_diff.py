"""`python -m tools.release_diff OLD NEW`: what a release of Kafka changes for clients.

OLD and NEW are versions, which are fetched, or paths of kafka-clients jars with the jars that they
need beside them. It prints APIs, versions, fields, error codes, settings and defaults that differ,
and of what is new, what this package lacks. The exit status is 1 while it lacks anything, and 2
if a release cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pykclient.admin.config import AdminConfig
from pykclient.config.unknown_keys import UNSUPPORTED
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors import BrokerError, ConfigError, KafkaTimeoutError
from pykclient.errors import broker as broker_errors
from pykclient.producer.config import ProducerConfig
from pykclient.protocol.api_keys import APIS
from pykclient.testing.cluster.jars import kafka_jars
from pykclient.testing.cluster.java import MissingPrerequisiteError
from tools.protogen.apis import LEFT_OUT
from tools.protogen.jar import JarError, read_errors, read_schemas, read_settings
from tools.protogen.spec import parse_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pykclient.config.client import ClientConfig
    from tools.protogen.spec import Message, Struct

CONFIGS: dict[str, type[ClientConfig]] = {
    config.client: config for config in (ProducerConfig, ConsumerConfig, AdminConfig)
}


REQUIRED = "<required>"
"""Default of a setting that has none."""
CLIENTS = "broker"
"""The listener whose APIs are for clients."""


class Change(NamedTuple):
    """One difference; `lack` says what of it this package does not have, "" if it has all."""

    text: str
    lack: str = ""


class Release(NamedTuple):
    """The contents of a release: messages, error codes and settings, by name or number."""

    messages: Mapping[str, Message]
    errors: Mapping[int, str]
    settings: Mapping[tuple[str, str], str]


def read(jar: Path) -> Release:
    """Read a jar of Kafka's clients.

    Raises:
        MissingPrerequisiteError: the Java has no compiler.
        JarError: it is missing, is not a jar of Kafka's clients, or has unknown schemas.
    """
    schemas = read_schemas(jar)
    try:
        messages = parse_all(schemas)
    except ValueError as error:
        raise JarError(f"{jar}: {error}; teach it to tools/protogen/spec.py") from error
    return Release(
        messages,
        {error.code: error.name for error in read_errors(jar)},
        {(each.client, each.name): each.default for each in read_settings(jar)},
    )


def changes(old: Release, new: Release) -> Iterator[Change]:
    """Yield what differs, in the order of the report."""
    for_clients = {each.api for each in new.messages.values() if CLIENTS in each.listeners}
    for name, message in sorted(new.messages.items()):
        lack = _lack_of_api(message) if message.api in for_clients else ""
        yield from _changes_of_message(old.messages.get(name), message, lack)
    for name in sorted(old.messages.keys() - new.messages.keys()):
        yield Change(f"{name}: gone")
    for code in sorted(new.errors.keys() - old.errors.keys()):
        known = code in {kind.code for kind in _error_kinds()}
        lack = "" if known else "no error class: run python -m tools.protogen"
        yield Change(f"error code {code}, {new.errors[code]}: new", lack)
    for (client, name), default in sorted(new.settings.items()):
        before = old.settings.get((client, name))
        if before is None:
            yield Change(f"{client}: {name}: new, default {default!r}", _lack_of(client, name))
        elif before != default:
            text = f"{client}: {name}: default {before!r} is {default!r} now"
            yield Change(text, _other_default(client, name, default))
    for client, name in sorted(old.settings.keys() - new.settings.keys()):
        yield Change(f"{client}: {name}: gone")


def _changes_of_message(before: Message | None, message: Message, lack: str) -> Iterator[Change]:
    if before is None:
        yield Change(f"{message.name}: new, versions {message.versions}", lack)
        return
    if before.versions != message.versions:
        text = f"{message.name}: versions {before.versions} are {message.versions} now"
        yield Change(text, lack)
    known = {place for struct in before.structs() for place in _places(struct)}
    for struct in message.structs():
        for place in sorted(_places(struct) - known):
            yield Change(f"{message.name}: {'.'.join(place)}: new")
    present = {place for struct in message.structs() for place in _places(struct)}
    for place in sorted(known - present):
        yield Change(f"{message.name}: {'.'.join(place)}: gone")


def _places(struct: Struct) -> set[tuple[str, str]]:
    return {(struct.name, field.name) for field in struct.fields}


def _lack_of_api(message: Message) -> str:
    if message.api_key is None:
        return ""
    ours = {int(key): api for key, api in APIS.items()}.get(message.api_key)
    if ours is None:
        known = message.api in LEFT_OUT
        return (
            "" if known else "the API is neither generated nor left out: see tools/protogen/apis.py"
        )
    if ours.max_version < message.stable.high:
        return f"generated up to version {ours.max_version}: run python -m tools.protogen"
    return ""


def _error_kinds() -> Iterator[type[BrokerError]]:
    for name in broker_errors.__all__:
        kind = getattr(broker_errors, name)
        if isinstance(kind, type):
            yield kind


def _lack_of(client: str, name: str) -> str:
    key = name.replace(".", "_")
    if CONFIGS[client].setting_of(name) is not None:
        return ""
    refused = any(client in each.clients and key in each.harmless for each in UNSUPPORTED)
    return "" if refused else "neither a setting nor refused by name: see unknown_keys"


def _other_default(client: str, name: str, default: str) -> str:
    setting = CONFIGS[client].setting_of(name)
    if (
        setting is None
        or default == REQUIRED
        or setting.default_written == default.strip("[]").replace(", ", ",")
    ):
        return ""
    return f"the default here is {setting.default_written!r}"


def _jar(text: str) -> Path:
    path = Path(text)
    return path if path.suffix == ".jar" or path.exists() else kafka_jars(text).clients_jar


def main(arguments: list[str] | None = None) -> int:
    """Print the report; return 1 if anything lacks, else 0. Exit with 2 if a jar is unusable."""
    parser = argparse.ArgumentParser(prog="python -m tools.release_diff", description=__doc__)
    parser.add_argument("old", metavar="OLD", help="version or jar")
    parser.add_argument("new", metavar="NEW", help="version or jar")
    options = parser.parse_args(arguments)
    try:
        old, new = _jar(options.old), _jar(options.new)
        if old.resolve() == new.resolve():
            parser.error(f"OLD and NEW are the same: {old}; give two releases")
        found = list(changes(read(old), read(new)))
    except (ConfigError, KafkaTimeoutError, MissingPrerequisiteError, JarError) as error:
        parser.error(str(error))
    for change in found:
        print(f"{change.text}; LACKS: {change.lack}" if change.lack else change.text)
    lacks = [change for change in found if change.lack]
    print(f"{len(found)} differences; of {len(lacks)} this package lacks something")
    return 1 if lacks else 0


if __name__ == "__main__":
    sys.exit(main())
