"""ExactDelivery: what the options of a write say about writing exactly once.

Owner: none; it is immutable, and pickled to the tasks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pykclient.errors import ConfigError
from spark_connector.exactly_once.names import (
    ATOMIC_TASK,
    RECORD_TOPIC,
    checked_atomicity,
    checked_sink_id,
)
from spark_connector.exactly_once.protocol import SinkProtocol
from spark_connector.options import EXACTLY_ONCE, delivery_of

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: Final = {"sinkid": "sinkId", "atomic": "atomic", "batchid": "batchId"}
"""Options that only a write which is exactly once has, by name in lower case."""
BATCH_MAX: Final = 2**63 - 2


@dataclass(frozen=True, slots=True)
class ExactDelivery:
    """The name of the sink, its unit, the number of a batch write (None: the next), and the topic
    whose offset carries the record."""

    sink_id: str
    atomicity: str
    batch: int | None
    topic: str

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> ExactDelivery | None:
        """What options say, given by name in lower case; None where rows are written at least once.

        Raises: `ConfigError` for what an option cannot be, for one without effect, and where the
        sink has no name.
        """
        if delivery_of(options) != EXACTLY_ONCE:
            idle = [name for option, name in NAMES.items() if option in options]
            if idle:
                raise ConfigError(
                    f"Option {idle[0]!r} has an effect only with delivery={EXACTLY_ONCE}: give "
                    f"that, too, or leave it out."
                )
            return None
        return cls(
            _sink_id(options),
            checked_atomicity(options.get("atomic", ATOMIC_TASK)),
            _batch(options.get("batchid")),
            options.get("topic", "").strip() or RECORD_TOPIC,
        )

    @property
    def protocol(self) -> SinkProtocol:
        """What driver and tasks do."""
        return SinkProtocol(self.sink_id, self.atomicity)


def _sink_id(options: Mapping[str, str]) -> str:
    if "sinkid" in options:
        return checked_sink_id(options["sinkid"])
    checkpoint = options.get("checkpointlocation", "").strip().rstrip("/")
    if not checkpoint:
        raise ConfigError(
            f"delivery={EXACTLY_ONCE} needs a name for the sink, the same each time the query is "
            f"started, and no other's: give the option 'sinkId' (or, in a stream, the option "
            f"'checkpointLocation', from which one is made)."
        )
    return f"checkpoint-{hashlib.sha256(checkpoint.encode()).hexdigest()[:16]}"


def _batch(text: str | None) -> int | None:
    if text is None:
        return None
    number = text.strip()
    if not (number.isascii() and number.isdigit() and len(number) < 20):
        raise ConfigError(
            f"Option 'batchId' must be an integer of at least 0, not {text[:100]!r}: the number of "
            f"this batch, larger than that of the one before."
        )
    if int(number) > BATCH_MAX:
        raise ConfigError(f"Option 'batchId' must be at most {BATCH_MAX}, not {number}.")
    return int(number)
