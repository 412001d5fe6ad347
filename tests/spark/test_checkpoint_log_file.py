"""Files of Spark's logs: read, written, and refused at every length at which they may be cut."""

from __future__ import annotations

from typing import Final

import pytest

from pykclient import TopicPartition
from pykclient.errors import DecodeError
from spark_connector.checkpoint.log_file import (
    Connector,
    LoggedBatch,
    SourceOffset,
    commit_from_text,
    initial_from_text,
    initial_to_text,
)
from spark_connector.offsets import StreamOffset
from tests.spark.hand_made import COMMIT, METADATA, official, ours

ENDS: Final = {"orders": {"0": 5, "1": 7}, "totals": {"0": 2}}
STARTS: Final = {"orders": {"0": 1, "1": 0}}
TEXTS: Final = {
    "ours": f"v1\n{METADATA}\n{ours(ENDS)}",
    "ours, the first": f"v1\n{METADATA}\n{ours(ENDS, STARTS)}",
    "official": f"v1\n{METADATA}\n{official(ENDS)}",
    "several": f'v1\n{METADATA}\n{{"logOffset":3}}\n-\n{official(ENDS)}',
    "named": f"v2\n{METADATA}\nfiles:-\norders:{official(ENDS)}",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_is_written_as_it_was_read(name: str) -> None:
    assert LoggedBatch.from_text(TEXTS[name]).to_text() == TEXTS[name]


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_that_is_cut_is_refused(name: str) -> None:
    text = TEXTS[name]
    # A file of several sources may end behind one of them: `check` compares their number.
    first = text.rindex("\n") + 10 if name in ("several", "named") else 0
    for length in range(first, len(text)):
        with pytest.raises(DecodeError):
            LoggedBatch.from_text(text[:length])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "\0v1\n{}\n{}",
        "v9\n{}\n{}",
        "version\n{}\n{}",
        "v1\n[]\n{}",
        'v1\n{}\n{"t":{"0":1e999}}',
        "v2\n{}\nnameless",
        "v2\n{}\nfiles:",
        'v1\n{}\n\n{"t":{"0":1}}',
        "v1\n{}\n" + '{"a":' * 100_000,
    ],
)
def test_what_is_no_file_of_offsets_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        LoggedBatch.from_text(text)


def test_the_connector_of_a_line_is_known() -> None:
    for text, connector in (
        (ours(ENDS), Connector.PYKAFKA),
        (ours({}, STARTS), Connector.PYKAFKA),
        (official(ENDS), Connector.KAFKA),
        ('{"logOffset":3}', Connector.OTHER),
        ('{"metadata":{"a":"b"}}', Connector.OTHER),
        ("1700000000000", Connector.OTHER),
        ("-", Connector.OTHER),
    ):
        assert SourceOffset.from_text(text).connector is connector, text


@pytest.mark.parametrize("write", [ours, official])
def test_a_line_that_is_moved_stays_of_its_connector(write: object) -> None:
    assert callable(write)
    line = SourceOffset.from_text(write(ENDS))
    moved = line.moved(StreamOffset({TopicPartition("orders", 1): 9}))
    assert moved.text == write({"orders": {"1": 9}})
    assert SourceOffset.from_text(moved.text) == moved


def test_where_an_official_query_began_is_read_and_written() -> None:
    text = f"\0v1\n{official(ENDS)}"
    assert initial_to_text(initial_from_text(text)) == text
    for cut in range(len(text)):
        with pytest.raises(DecodeError):
            initial_from_text(text[:cut])


def test_a_commit_that_is_cut_is_refused() -> None:
    assert commit_from_text(COMMIT) == {"nextBatchWatermarkMs": 0}
    for cut in range(len(COMMIT)):
        with pytest.raises(DecodeError):
            commit_from_text(COMMIT[:cut])
