"""Java's partitioners, which pipelines of the official sink name in ``kafka.partitioner.class``.

Two of them are what the producer does by settings of its own, the third is here. They are known by
the name of the class, whatever its package: Java has moved them.

Source: Java classes ``DefaultPartitioner``, ``UniformStickyPartitioner`` and
``RoundRobinPartitioner``.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING, Final

from pykclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pykclient import PartitionInfo

_PACKAGE: Final = "org.apache.kafka."


class RoundRobinPartitioner:
    """Gives each record of a topic the next partition, whatever its key. Partitions without a
    leader are left out, while there are others."""

    def __init__(self) -> None:
        self._turns: defaultdict[str, Iterator[int]] = defaultdict(count)

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: tuple[PartitionInfo, ...],
    ) -> int:
        """The number of one of `partitions`. Called for each record."""
        available = [one for one in partitions if one.leader_id is not None] or partitions
        return available[next(self._turns[topic]) % len(available)].partition


_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "DefaultPartitioner": {},
    "UniformStickyPartitioner": {"partitioner.ignore.keys": "true"},
    "RoundRobinPartitioner": {"partitioner.class": f"{__name__}:{RoundRobinPartitioner.__name__}"},
}


def partitioner_settings(name: str) -> Mapping[str, str] | None:
    """The producer's settings for a partitioner of Java's; None where `name` is none of Java's.

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
