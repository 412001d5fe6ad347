"""Java's partitioners, which pipelines of the official sink name in ``kafka.partitioner.class``.

The producer does what each of them does by settings of its own. They are known by the name of the
class, whatever its package: Java has moved them.

Source: Java classes ``DefaultPartitioner``, ``UniformStickyPartitioner`` and
``RoundRobinPartitioner``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PACKAGE: Final = "org.apache.kafka."

_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "DefaultPartitioner": {},
    "UniformStickyPartitioner": {"partitioner.ignore.keys": "true"},
    "RoundRobinPartitioner": {"partitioner.class": "round_robin"},
}


def partitioner_settings(name: str) -> Mapping[str, str] | None:
    """Return the producer's settings for one of Java's partitioners, None for another name.

    Raises: `ConfigError` for a class of Kafka's that has no equivalent.
    """
    name = name.strip()
    if not name.startswith(_PACKAGE):
        return None
    settings = _SETTINGS.get(name.rpartition(".")[2])
    if settings is None:
        raise ConfigError(
            f"Option 'kafka.partitioner.class': {name!r} is not known here. Give "
            f"{', '.join(_SETTINGS)} by Java's name, a class of Python's as "
            f"'package.module:Name', or leave it out and fill the column 'partition'."
        )
    return settings
