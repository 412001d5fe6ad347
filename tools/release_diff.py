"""`python -m tools.release_diff OLD NEW`: what a release of Kafka changes for clients.

OLD and NEW are versions, which are fetched, or paths of kafka-clients jars with the jars that they
need beside them. It prints APIs, versions, fields, error codes, settings and defaults that differ,
and of what is new, what this package lacks. The exit status is 1 while it lacks anything.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pykclient.admin.config import AdminConfig
from pykclient.config.unknown_keys import UNSUPPORTED
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors import BrokerError
from pykclient.errors import broker as broker_errors
from pykclient.producer.config import ProducerConfig
from pykclient.protocol.api_keys import APIS
from pykclient.testing.cluster.jars import kafka_jars
from tools.protogen.jar import read_errors, read_schemas, read_settings
from tools.protogen.spec import parse_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pykclient.config.client import ClientConfig
    from tools.protogen.spec import Message, Struct

CONFIGS: dict[str, type[ClientConfig]] = {
    config.client: config for config in (ProducerConfig, ConsumerConfig, AdminConfig)
}


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
    """
    return Release(
        parse_all(read_schemas(jar)),
        {error.code: error.name for error in read_errors(jar)},
        {(each.client, each.name): each.default for each in read_settings(jar)},
    )


def changes(old: Release, new: Release) -> Iterator[Change]:
    """Yield what differs, in the order of the report."""
    for name, message in sorted(new.messages.items()):
        yield from _changes_of_message(old.messages.get(name), message)
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


def _changes_of_message(before: Message | None, message: Message) -> Iterator[Change]:
    if before is None:
        yield Change(f"{message.name}: new, versions {message.versions}", _lack_of_api(message))
        return
    if before.versions != message.versions:
        text = f"{message.name}: versions {before.versions} are {message.versions} now"
        yield Change(text, _lack_of_api(message))
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
        return "the API is not generated: see tools/protogen/apis.py"
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
    if setting is None or setting.default_written == default.strip("[]").replace(", ", ","):
        return ""
    return f"the default here is {setting.default_written!r}"


def _jar(text: str) -> Path:
    path = Path(text)
    return path if path.suffix == ".jar" else kafka_jars(text).clients_jar


def main(arguments: list[str] | None = None) -> int:
    """Print the report; return 1 if anything lacks, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tools.release_diff", description=__doc__)
    parser.add_argument("old", type=_jar, metavar="OLD")
    parser.add_argument("new", type=_jar, metavar="NEW")
    options = parser.parse_args(arguments)
    found = list(changes(read(options.old), read(options.new)))
    for change in found:
        print(f"{change.text}; LACKS: {change.lack}" if change.lack else change.text)
    lacks = [change for change in found if change.lack]
    print(f"{len(found)} differences; of {len(lacks)} this package lacks something")
    return 1 if lacks else 0


if __name__ == "__main__":
    sys.exit(main())
