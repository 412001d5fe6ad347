"""Names of other clients and of old releases, with what takes their place here.

The names come from confluent-kafka, kafka-python, aiokafka, librdkafka and Kafka 0.8. The file
``other_clients.toml`` has them, and is read when a name is wrong.

Owner: none; the tables never change.
Source: ours.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class OtherClients:
    """The vocabulary of other clients."""

    def __init__(self, text: str) -> None:
        # Imported here: only a mistake needs it, and it takes its share of the import budget.
        import tomllib

        found = tomllib.loads(text)
        settings = found["settings"]
        self.renamed: Mapping[str, str] = settings["renamed"]
        """Kafka's name today of a setting, by its other name with underscores."""

        self.gone = {name: cure for cure, names in settings["gone"].items() for name in names}
        """The cure for a setting without a counterpart, by its name."""

        self.not_built: Sequence[str] = settings["not_built"]
        """Settings of a part of TLS or SASL that is not built."""

        self.methods: Mapping[str, Mapping[str, str]] = found["methods"]
        """Replacement of a method, by the class here and the name there."""

        self.arguments: Mapping[str, str] = found["arguments"]
        """Replacement of an argument, by its name there."""


@cache
def other_clients() -> OtherClients:
    """Read the vocabulary, once."""
    from importlib.resources import files

    return OtherClients(files("pykclient.config").joinpath("other_clients.toml").read_text("utf-8"))
