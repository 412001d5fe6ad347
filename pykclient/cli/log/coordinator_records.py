"""Decoders for the records in brokers' internal topics: ``__consumer_offsets`` and others.

A record's key starts with the number of its kind, its value with the version of its message. A
record without a value deletes its key.

Owner: none; it holds no state.
Source: Java classes ``DumpLogSegments`` and ``CoordinatorRecordMessageParser`` within, of 4.4.0.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.cli.log.message_json import Decoded, message_fields
from pykclient.errors.base import DecodeError
from pykclient.protocol.messages import (
    consumer_group_records,
    offset_records,
    share_group_records,
    share_state_records,
    streams_group_records,
    transaction_records,
)
from pykclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from pykclient.protocol.messages.offset_records import GroupMetadataValue
from pykclient.protocol.messages.transaction_records import TransactionLogValue
from pykclient.protocol.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from pykclient.protocol.message import DataMessage

VERSION_BYTES: Final = 2
CONSUMER_PROTOCOL: Final = "consumer"
"""Protocol type of consumers. Members of other protocols have their own formats."""


TRANSACTION_STATES: Final = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort"),
    *("CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"),
)
"""Names by number."""


class Decoder(NamedTuple):
    """The messages of one internal topic: keys and values by the number of their kind."""

    keys: Mapping[int, type[DataMessage]]
    values: Mapping[int, type[DataMessage]]


def _decoder(*modules: ModuleType) -> Decoder:
    named = [
        (name, getattr(module, name))
        for module in modules
        for name in module.__all__
        if hasattr(getattr(module, name), "record_type")
    ]
    return Decoder(
        {kind.record_type: kind for name, kind in named if name.endswith("Key")},
        {kind.record_type: kind for name, kind in named if name.endswith("Value")},
    )


DECODERS: Final = {
    "offsets": _decoder(
        offset_records, consumer_group_records, share_group_records, streams_group_records
    ),
    "transactions": _decoder(transaction_records),
    "share": _decoder(share_state_records),
}
"""Decoders by the name of their option."""


def decoded(decoder: Decoder, offset: int, key: bytes | None, value: bytes | None) -> Decoded:
    """Decode the record at `offset`."""
    if key is None:
        return _unreadable(offset, "the record has no key")
    number = int.from_bytes(key[:VERSION_BYTES], "big", signed=True)
    if len(key) >= VERSION_BYTES and number not in decoder.keys:
        return Decoded({}, None, f"Unknown record type {number} at offset {offset}, skipping.")
    try:
        # The number of a kind was its key's version when there were fewer kinds.
        named = decoder.keys[number].read(Reader(key[VERSION_BYTES:]), 0)
        key_fields: dict[str, object] = {"type": str(number), "data": message_fields(named, 0)}
        if value is None:
            return Decoded(key_fields, None)
        return Decoded(key_fields, _value(decoder.values[number], value))
    except (DecodeError, KeyError) as error:
        return _unreadable(offset, str(error))


def _unreadable(offset: int, why: str) -> Decoded:
    return Decoded({}, None, f"Error at offset {offset}, skipping. {why}")


def _value(kind: type[DataMessage], data: bytes) -> dict[str, object]:
    version = int.from_bytes(data[:VERSION_BYTES], "big", signed=True)
    if len(data) < VERSION_BYTES or not kind.min_version <= version <= kind.max_version:
        raise DecodeError(f"{kind.__name__} has an unknown version {version}")
    message = kind.read(Reader(data[VERSION_BYTES:]), version)
    fields = message_fields(message, version)
    if isinstance(message, GroupMetadataValue) and message.protocol_type == CONSUMER_PROTOCOL:
        members = fields["members"]
        assert isinstance(members, list)
        for member, shown in zip(message.members, members, strict=True):
            _show_protocol(shown, "subscription", member.subscription, ConsumerProtocolSubscription)
            _show_protocol(shown, "assignment", member.assignment, ConsumerProtocolAssignment)
    if isinstance(message, TransactionLogValue):
        states = dict(enumerate(TRANSACTION_STATES))
        number = message.transaction_status
        fields["transactionStatus"] = states.get(number, str(number))
    return {"version": str(version), "data": fields}


def _show_protocol(
    shown: dict[str, object], name: str, data: bytes, kind: type[DataMessage]
) -> None:
    """Replace bytes that consumers wrote by their decoded form; anything else stays bytes."""
    version = int.from_bytes(data[:VERSION_BYTES], "big", signed=True)
    if not kind.min_version <= version <= kind.max_version:
        return
    with suppress(DecodeError):
        shown[name] = message_fields(kind.read(Reader(data[VERSION_BYTES:]), version), version)
