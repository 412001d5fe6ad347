"""Records of internal topics that cannot be read, and their JSON.

That the lines are Java's is shown in `tests/integration/test_log_decoders.py`.
"""

from __future__ import annotations

import json

import pytest

from pykclient.cli.log.coordinator_records import DECODERS, decoded
from pykclient.cli.log.dump import JsonDump
from pykclient.cli.log.message_json import json_text
from tests.records.batches import build, read

TRANSACTIONS = DECODERS["transactions"]
KEY = b"\0\0\0\2tx"


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (None, b"v", "Error at offset 7, skipping. the record has no key"),
        (b"", None, "Error at offset 7, skipping. "),
        (b"\0\7any", None, "Unknown record type 7 at offset 7, skipping."),
        (b"\0\0\0\5tx", None, "Error at offset 7, skipping. "),
        (KEY, b"", "Error at offset 7, skipping. TransactionLogValue has an unknown version 0"),
        (KEY, b"\0\2any", "skipping. TransactionLogValue has an unknown version 2"),
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
