"""Records of internal topics: those that cannot be read, and the tables of their fields.

That the lines are Java's is shown in `tests/integration/test_log_decoders.py`.
"""

from __future__ import annotations

import inspect
import json
import re
from typing import TYPE_CHECKING

import pytest

from pykclient.cli.log.coordinator_records import DECODERS, decoded
from pykclient.cli.log.dump import JsonDump
from pykclient.cli.log.message_json import FIRST_VERSIONS, LAST_VERSIONS, TAGGED, json_text
from pykclient.protocol.messages import (
    consumer_group_records,
    consumer_protocol,
    control_records,
    offset_records,
    share_group_records,
    share_state_records,
    streams_group_records,
    transaction_records,
)
from tests.records.batches import build, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

TRANSACTIONS = DECODERS["transactions"]
KEY = b"\0\0\0\2tx"
MODULES = (
    consumer_group_records,
    consumer_protocol,
    control_records,
    offset_records,
    share_group_records,
    share_state_records,
    streams_group_records,
    transaction_records,
)


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (None, b"v", "Error at offset 7, skipping. the record has no key"),
        (b"", None, "Error at offset 7, skipping. "),
        (b"\0\7any", None, "Unknown record type 7 at offset 7, skipping."),
        (b"\0\0\0\5tx", None, "Error at offset 7, skipping. "),
        (KEY, b"", "Error at offset 7, skipping. TransactionLogValue has no version 0"),
        (KEY, b"\0\2any", "skipping. TransactionLogValue has no version 2 that is known here"),
        (KEY, b"\0\1any", "Error at offset 7, skipping. "),
    ],
)
def test_a_record_that_cannot_be_read_says_why(
    key: bytes | None, value: bytes | None, error: str
) -> None:
    record = decoded(TRANSACTIONS, 7, key, value)
    assert (record.key, record.value) == ({}, None)
    assert error in record.error


def test_as_json_a_record_has_its_message_beside_its_bytes() -> None:
    (batch,) = read(build([(1, KEY, None, ()), (1, None, b"v", ())]))
    dump = JsonDump(lambda *record: decoded(TRANSACTIONS, *record))
    (columns,) = batch.chunks(0, decompressed_size_bytes_max=10**6)
    lines = [json.loads(line) for line in dump.records(batch, columns, with_data=True).splitlines()]
    assert lines[0]["decoded"] == {
        "key": {"type": "0", "data": {"transactionalId": "tx"}},
        "value": None,
    }
    assert lines[1]["decoded"] == {"error": "Error at offset 1, skipping. the record has no key"}
    assert lines[1]["value"] == "v"


def test_control_characters_have_upper_case_digits_and_no_others_change() -> None:
    assert json_text({"a": "\x1f\\u001f\n"}) == '{"a":"\\u001F\\\\u001f\\n"}'


def test_the_tables_of_fields_are_those_of_the_generated_messages() -> None:
    """Goal: a new version of Kafka changes them. Method: the generator's remarks on each field."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    tagged = set()
    for module in MODULES:
        for place, first_version, plus, tag in fields_of(module):
            if int(first_version):
                first[place] = int(first_version)
                if not plus:
                    last[place] = int(first_version)
            if tag:
                tagged.add(place)
    # Of a structure that stands only in a field of these versions.
    owned = "ConsumerProtocolSubscriptionTopicPartition"
    assert first.pop(f"{owned}.topic") == first.pop(f"{owned}.partitions") == 1
    assert first == FIRST_VERSIONS
    assert last == LAST_VERSIONS
    assert tagged == TAGGED


def fields_of(module: ModuleType) -> Iterator[tuple[str, str, str, str]]:
    """Yield each field with its first version, "+" if it has no last one, and its tag, if any."""
    source = re.sub(r"= \(\n\s+(.+)\n\s+\)", r"= \1", inspect.getsource(module))
    kind = ""
    for line in source.splitlines():
        if match := re.match(r"class (\w+)", line):
            kind = match[1]
        elif match := re.match(r"        self\.(\w+) = .*  # (\d+)(\+?)(, tag \d+)?$", line):
            yield f"{kind}.{match[1]}", match[2], match[3], match[4] or ""
