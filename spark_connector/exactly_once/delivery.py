"""ExactDelivery: the options of a write that are about exactly-once delivery.

Owner: none; it is immutable, and pickled to the tasks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pykclient.errors import ConfigError
from spark_connector.exactly_once.names import (
    ATOMIC_TASK,
    ON_OLD_FAIL,
    ON_OLD_SKIP,
    RECORD_TOPIC,
    checked_atomicity,
    checked_on_old_batch,
    checked_owner,
    checked_sink_id,
)
from spark_connector.exactly_once.protocol import SinkProtocol
from spark_connector.options import EXACTLY_ONCE, delivery_of

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: Final = {
    "sinkid": "sinkId",
    "atomic": "atomic",
    "batchid": "batchId",
    "onoldbatch": "onOldBatch",
    "sinkowner": "sinkOwner",
}
"""Options that only exactly-once writes have, by name in lower case."""
BATCH_MAX: Final = 2**63 - 2


@dataclass(frozen=True, slots=True)
class ExactDelivery:
    """The checked options of a sink that writes exactly once.

    `batch` is the number of a batch write, None for the next one. `topic` is the topic of all rows,
    empty if rows name their own. `skips_old` means that a batch with a smaller number than the last
    one is skipped. `owner` is the query of a batch write, empty if no option names it.
    """

    sink_id: str
    atomicity: str
    batch: int | None
    topic: str
    skips_old: bool = False
    owner: str = ""

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> ExactDelivery | None:
        """Parse the options, named in lower case; None means that rows are written at least once.

        Raises: `ConfigError` for an invalid value, an option without effect, or a sink without a
        name.
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
            options.get("topic", "").strip(),
            checked_on_old_batch(options.get("onoldbatch", ON_OLD_FAIL)) == ON_OLD_SKIP,
            checked_owner(options.get("sinkowner")),
        )

    @property
    def protocol(self) -> SinkProtocol:
        """The rules of driver and tasks."""
        return SinkProtocol(self.sink_id, self.atomicity, self.topic, self.skips_old)

    @property
    def record_topic(self) -> str:
        """The topic whose offset carries the record."""
        return self.topic or RECORD_TOPIC

    def of_driver(self) -> ExactDelivery:
        """Return the part that all batches of the sink share."""
        return replace(self, batch=None, owner="")


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
