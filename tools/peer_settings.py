"""`python -m tools.peer_settings [--check]`: what the settings of other clients are here.

Writes the tables in docs/coming-from-confluent-kafka.md and docs/coming-from-kafka-python.md
between two marks; the rest of the pages is written by hand. Which settings there are, and their
defaults, is in `tools/peers.toml`; what they are here is what a client says of them
(`unknown_keys`, `other_clients`).
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pykclient.config.other_clients import other_clients
from pykclient.config.setting import REQUIRED
from pykclient.config.unknown_keys import UNSUPPORTED, underscored
from pykclient.consumer.config import ConsumerConfig
from pykclient.producer.config import ProducerConfig
from tools.generated_document import write_or_compare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.config.client import ClientConfig

PEERS: Final = ("confluent-kafka", "kafka-python")
BEGINNING: Final = "<!-- Settings, written by `python -m tools.peer_settings`. Do not edit. -->\n"
END: Final = "<!-- End of the settings. -->\n"
CONFIGS: Final[tuple[type[ClientConfig], ...]] = (ProducerConfig, ConsumerConfig)
SAME_VALUES: Final = {"-1": "all", "largest": "latest", "inf": "", "none": ""}
"""Defaults that are written in another way here. "" is none, or without a limit."""
NOTES: Final = {
    ("confluent-kafka", "message.timeout.ms"): (
        ", at least linger.ms + request.timeout.ms: with a short one lower request.timeout.ms, too"
    ),
    ("confluent-kafka", "partitioner"): (
        ", with the same names; set it to consistent_random to keep the default there"
    ),
}
"""Further changes that come with a new name, by client and setting."""
LONG_NAMES: Final = "org.apache.kafka.clients.consumer."


class Kind(Enum):
    """The status of a setting here; the value is the heading of its table."""

    SAME = "Settings of the same name"
    RENAMED = "Settings of another name"
    GONE = "Settings without a counterpart"
    NOT_BUILT = "Settings of what is not built yet"


class Found(NamedTuple):
    """A setting of another client, and what it is here."""

    kind: Kind
    name: str
    there: str
    here: str
    client: str = ""
    """Whose setting it is, where it is not the same for producers and consumers."""

    @property
    def label(self) -> str:
        return f"`{self.name}`{f' ({self.client})' if self.client else ''}"


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; the result is the exit status."""
    results = [
        write_or_compare(
            arguments,
            "tools.peer_settings",
            Path(f"docs/coming-from-{peer}.md"),
            lambda path, peer=peer: document(path, peer),  # type: ignore[misc]
        )
        for peer in PEERS
    ]
    return max(results)


@cache
def peers() -> dict[str, Any]:
    """Return the other clients, by name: methods and settings."""
    return tomllib.loads(Path(__file__).with_name("peers.toml").read_text(encoding="utf-8"))


def document(path: Path, peer: str) -> str:
    """Return the page with the tables of today."""
    head, _, rest = path.read_text(encoding="utf-8").partition(BEGINNING)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGINNING}\n{tables(peer)}\n{END}{tail}"


def tables(peer: str) -> str:
    """All settings of a client, by what they are here."""
    found: dict[Kind, list[Found]] = {kind: [] for kind in Kind}
    for each in settings_of(peer):
        found[each.kind].append(each)
    parts = [f"### {Kind.SAME.value}", *_same(found.pop(Kind.SAME))]
    for kind, settings in found.items():
        by_text: dict[str, list[str]] = defaultdict(list)
        for setting in settings:
            by_text[setting.here + NOTES.get((peer, setting.name), "")].append(setting.label)
        rows = [f"| {', '.join(names)} | {text} |" for text, names in by_text.items()]
        parts += ["", f"### {kind.value}", "", "| there | here |", "| --- | --- |", *rows]
    return "\n".join(parts) + "\n"


def settings_of(peer: str) -> Iterator[Found]:
    """Yield a client's settings; twice if they differ between producers and consumers."""
    for client_names, settings in peers()[peer].items():
        if not isinstance(settings, dict):
            continue
        other = "consumer" if client_names == "producer" else "producer"
        in_other = peers()[peer][other]  # with another default
        for name, default in settings.items():
            found = {
                config.client: here(config, name, default)
                for config in CONFIGS
                if client_names in ("both", config.client)
            }
            if len(set(found.values())) == 1 and name not in in_other:
                yield next(iter(found.values()))
            else:
                yield from (each._replace(client=client) for client, each in found.items())


def here(config: type[ClientConfig], name: str, default: str) -> Found:
    """Return the status of a setting for a producer or a consumer.

    Raises:
        KeyError: the setting is unknown: add it to ``other_clients.toml``.
    """
    key = underscored(name)
    for setting in config.settings():
        if key in map(underscored, (setting.key, *setting.aliases)):
            written = setting.default_written.replace(LONG_NAMES, "")
            ours = "required" if setting.default is REQUIRED else written
            return Found(Kind.SAME, name, default, ours)
        if key == setting.name:
            return Found(Kind.RENAMED, name, default, setting.key)
    for unsupported in UNSUPPORTED:
        if config.client in unsupported.clients and key in unsupported.harmless:
            return Found(Kind.NOT_BUILT, name, default, unsupported.reason)
    if found := _of_others(key, name, default):
        return found
    for other in CONFIGS:
        if key in {underscored(setting.key) for setting in other.settings()}:
            return Found(Kind.GONE, name, default, f"Remove it: only a {other.client} has it.")
    raise KeyError(name)


def _of_others(key: str, name: str, default: str) -> Found | None:
    """Return a setting that only other clients have, None for one that is not known."""
    others = other_clients()
    if key in others.renamed:
        return Found(Kind.RENAMED, name, default, others.renamed[key])
    if key in others.not_built:
        return Found(Kind.NOT_BUILT, name, default, UNSUPPORTED[0].reason)
    if key in others.gone:
        return Found(Kind.GONE, name, default, others.gone[key])
    return None


def _same(settings: list[Found]) -> list[str]:
    rows, equal = [], []
    for setting in settings:
        if _plain(setting.there) == _plain(setting.here):
            equal.append(setting.label)
        else:
            defaults = [f"`{text}`" if text else "none" for text in (setting.there, setting.here)]
            rows.append(f"| {setting.label} | {' | '.join(defaults)} |")
    return [
        *("", "| setting | default there | default here |", "| --- | --- | --- |", *rows, ""),
        f"With the same default: {', '.join(equal)}.",
    ]


def _plain(default: str) -> str:
    text = default.lower()
    return SAME_VALUES.get(text, text)


if __name__ == "__main__":
    raise SystemExit(main())
