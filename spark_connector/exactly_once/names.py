"""Names of the exactly-once sink: its consumer group, and its transactional ids.

All of them begin with ``pykafka-sink:``, so that one ACL with this prefix covers them:

- ``pykafka-sink:SINK`` is the consumer group whose committed offset carries the sink's record
  (`record.py`), and the transactional id of the driver that writes it. A record that is longer
  than a broker takes goes on in the groups ``pykafka-sink:SINK:part:1`` and so on.
- ``pykafka-sink:SINK:TURN:WORKER:SLOT`` is the transactional id of what one attempt of a task
  writes. `TURN` is the number of the driver's turn, which grows by one each time a driver takes
  the sink over. `WORKER` is a random name of a Python worker, and `SLOT` a number in it. A worker
  uses an id for another batch only when the batch before has ended, so that no two attempts have
  an id in common: docs/decisions/0022 says why ids are not named after task and attempt.

Owner: none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.config.unknown_keys import did_you_mean
from pykclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX: Final = "pykafka-sink"
SINK_ID_LENGTH_MAX: Final = 100

SINKS_PATTERN: Final = f"{PREFIX}:.*"
"""A pattern of RE2 for the transactional ids of all sinks (KIP-1152)."""
RECORD_TOPIC: Final = "__consumer_offsets"
"""The topic whose offset carries the record where the sink has none of its own, since rows name
theirs: brokers that have a group have it."""

_SINK_ID: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{SINK_ID_LENGTH_MAX}}}")
_SLOT_NAME: Final = re.compile(r"(\d{1,18}):([A-Za-z0-9]+):(\d{1,18})")

ATOMIC_BATCH: Final = "batch"
ATOMIC_TASK: Final = "task"
ATOMICITIES: Final = (ATOMIC_TASK, ATOMIC_BATCH)

ON_OLD_FAIL: Final = "fail"
ON_OLD_SKIP: Final = "skip"
ON_OLD_BATCH: Final = (ON_OLD_FAIL, ON_OLD_SKIP)
OWNER_LENGTH_MAX: Final = 200


class SlotName(NamedTuple):
    """The parts of an attempt's transactional id, besides the sink."""

    turn: int
    worker: str
    slot: int


def checked_sink_id(text: str) -> str:
    """Return the value of the option ``sinkId``. Raises: `ConfigError` where it is no name."""
    name = text.strip()
    if _SINK_ID.fullmatch(name) is None:
        raise ConfigError(
            f"Option 'sinkId' must be 1 to {SINK_ID_LENGTH_MAX} letters, digits, dots, dashes and "
            f"underscores, not {text[:SINK_ID_LENGTH_MAX]!r}."
        )
    return name


def checked_atomicity(text: str) -> str:
    """Return the value of the option ``atomic``. Raises: `ConfigError` for another one."""
    return _checked_word("atomic", text, ATOMICITIES)


def checked_on_old_batch(text: str) -> str:
    """Return the value of the option ``onOldBatch``. Raises: `ConfigError` for another one."""
    return _checked_word("onOldBatch", text, ON_OLD_BATCH)


def checked_owner(text: str | None) -> str:
    """Return the value of the option ``sinkOwner``, empty where it is not given.

    Raises: `ConfigError` where it is no name.
    """
    if text is None:
        return ""
    name = text.strip()
    if not (0 < len(name) <= OWNER_LENGTH_MAX and name.isprintable()):
        raise ConfigError(
            f"Option 'sinkOwner' must be 1 to {OWNER_LENGTH_MAX} printable characters that name "
            f"the query, not {text[:OWNER_LENGTH_MAX]!r}."
        )
    return name


def _checked_word(option: str, text: str, words: Sequence[str]) -> str:
    word = text.strip().lower()
    if word not in words:
        guess = did_you_mean(word, words)
        raise ConfigError(
            f"Option {option!r} must be {' or '.join(words)}, not {text[:100]!r}.{guess}"
        )
    return word


def sink_group(sink_id: str, part: int = 0) -> str:
    """Return the group that holds one part of a sink's record; the first has the sink's name."""
    name = f"{PREFIX}:{sink_id}"
    return name if part == 0 else f"{name}:part:{part}"


def driver_id(sink_id: str) -> str:
    """Return the transactional id of the driver that writes a sink's record."""
    return f"{PREFIX}:{sink_id}"


def slot_id(sink_id: str, name: SlotName) -> str:
    """Return the transactional id of an attempt."""
    return f"{slot_prefix(sink_id)}{slot_text(name)}"


def slot_text(name: SlotName) -> str:
    """Return the part of an attempt's transactional id that follows the sink."""
    return f"{name.turn}:{name.worker}:{name.slot}"


def slot_prefix(sink_id: str) -> str:
    """Return the common prefix of the transactional ids of a sink's attempts."""
    return f"{PREFIX}:{sink_id}:"


def slot_pattern(sink_id: str) -> str:
    """Return a pattern of RE2 for the transactional ids of a sink's attempts (KIP-1152)."""
    return re.escape(slot_prefix(sink_id)) + ".*"


def sink_of(transactional_id: str) -> str | None:
    """Return the sink of a driver's or an attempt's transactional id; None for another's id."""
    prefix, sign, rest = transactional_id.partition(":")
    sink_id = rest.partition(":")[0]
    is_sink = prefix == PREFIX and sign and _SINK_ID.fullmatch(sink_id) is not None
    return sink_id if is_sink else None


def slot_name(sink_id: str, transactional_id: str) -> SlotName | None:
    """Parse an attempt's transactional id; return None if it is none of this sink's."""
    prefix = slot_prefix(sink_id)
    if not transactional_id.startswith(prefix):
        return None
    found = _SLOT_NAME.fullmatch(transactional_id, len(prefix))
    return SlotName(int(found[1]), found[2], int(found[3])) if found is not None else None
