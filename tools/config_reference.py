"""`python -m tools.config_reference [--check]`: write docs/configuration.md, or compare it.

It says of every key that Kafka's own clients have what it means here, or why it is refused. All of
it comes from the config classes and from `pykclient.config.unknown_keys`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pykclient.admin.config import AdminConfig
from pykclient.config.setting import REQUIRED
from pykclient.config.unknown_keys import UNSUPPORTED
from pykclient.consumer.config import ConsumerConfig
from pykclient.producer.config import ProducerConfig
from tools.generated_document import write_or_compare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.config.client import ClientConfig
    from pykclient.config.setting import Setting
    from pykclient.config.unknown_keys import Unsupported

PATH = Path("docs/configuration.md")
CONFIGS: tuple[type[ClientConfig], ...] = (ConsumerConfig, ProducerConfig, AdminConfig)
INTRODUCTION = """\
# Configuration

<!-- Written by `python -m tools.config_reference` from the config classes. Do not edit. -->

Every key that Kafka 4.3's own clients have is here, with Kafka's default: first those that are
supported, then those that are refused, with the reason. A key may be spelled with dots, as in a
properties file, or with underscores, as a keyword: `Consumer(group_id="g")`. Times are
milliseconds, sizes bytes. Keys in *italics* are this library's own.

A refused key raises `ConfigError`, so that no program relies on a missing feature. Only the value
that describes the actual behaviour is accepted, so that a file written for Java's client works.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; the result is the exit status."""
    return write_or_compare(arguments, "tools.config_reference", PATH, lambda _: reference())


def reference() -> str:
    """Return the whole document."""
    parts = [INTRODUCTION]
    for config in CONFIGS:
        parts.extend(_client(config))
    return "\n".join(parts)


def _client(config: type[ClientConfig]) -> Iterator[str]:
    settings = sorted(config.settings(), key=lambda setting: setting.key)
    refused = [unsupported for unsupported in UNSUPPORTED if config.client in unsupported.clients]
    refused_count = sum(len(unsupported.harmless) for unsupported in refused)
    ours_count = sum(setting.is_ours for setting in settings)
    yield f"## {config.client.title()}\n"
    yield (
        f"Of Kafka's {len(settings) - ours_count + refused_count} keys "
        f"{len(settings) - ours_count} are supported; {ours_count} more are this library's own.\n"
    )
    yield "| key | default | values | meaning |\n| --- | --- | --- | --- |"
    yield from map(_supported, settings)
    for unsupported in refused:
        yield f"\n**Refused.** {unsupported.reason}\n"
        yield "| key | taken is only |\n| --- | --- |"
        yield from _refused(unsupported)
    yield ""


def _supported(setting: Setting[object]) -> str:
    key = f"*`{setting.key}`*" if setting.is_ours else f"`{setting.key}`"
    default = "required" if setting.default is REQUIRED else _value(setting.default_written)
    also = ", ".join(f"`{alias}`" for alias in setting.aliases)
    meaning = f"{setting.meaning} Also: {also}." if also else setting.meaning
    return _row(key, default, setting.kind.allowed, meaning)


def _refused(unsupported: Unsupported) -> Iterator[str]:
    for name, harmless in sorted(unsupported.harmless.items()):
        yield _row(f"`{name.replace('_', '.')}`", " or ".join(map(_value, harmless)))


def _value(text: str) -> str:
    return f"`{text}`" if text else "none"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    raise SystemExit(main())
