"""What a job asks of a client, and what it refuses to count."""

from __future__ import annotations

from itertools import islice

import pytest

from contestants.job import CHUNK_COUNT, Job, measured, percentiles


def job_of(record_count: int, *, has_keys: bool = False) -> Job:
    return Job("localhost:9092", "t", 6, record_count, value_bytes=100, has_keys=has_keys)


@pytest.mark.parametrize("record_count", [1, 2, CHUNK_COUNT, CHUNK_COUNT + 1, CHUNK_COUNT + 2])
def test_the_chunks_are_all_records_but_the_one_that_goes_ahead(record_count: int) -> None:
    chunks = list(job_of(record_count).chunks())
    assert sum(chunks) == record_count - 1
    assert all(0 < count <= CHUNK_COUNT for count in chunks)


def test_keys_come_only_when_they_are_asked_for() -> None:
    assert set(islice(job_of(5).keys(), 5)) == {None}
    keys = list(islice(job_of(5, has_keys=True).keys(), 20_000))
    assert len(set(keys)) == 10_000
    assert {len(key) for key in keys if key is not None} == {8}


def test_a_poll_without_records_ends_the_job() -> None:
    with pytest.raises(RuntimeError, match="after 3 of 5 records of t"):
        job_of(5).check_silence([], 3)


@pytest.mark.promise("what arrived is counted at the broker; any error ends the run")
def test_other_bytes_than_the_topic_holds_end_the_job() -> None:
    job_of(5).check_bytes(500)
    with pytest.raises(RuntimeError, match="t: 499 bytes of values, not 500"):
        job_of(5).check_bytes(499)


def test_a_rate_and_the_cpu_of_a_million_are_measured() -> None:
    with measured(job_of(1_000)) as figures:
        sum(range(1_000_000))
    assert figures["records_per_second"] > 0
    assert figures["cpu_s_per_million"] > 0


def test_percentiles_are_values_that_occurred_in_ms() -> None:
    latencies_s = [number / 1e3 for number in range(100, 0, -1)]
    assert percentiles("ack", latencies_s) == pytest.approx({"ack_p50_ms": 51, "ack_p99_ms": 100})
    assert percentiles("ack", [0.002]) == pytest.approx({"ack_p50_ms": 2, "ack_p99_ms": 2})
