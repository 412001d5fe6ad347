"""What a job asks of a client, the thread that computes beside it, and resident memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest

from contestants import resident
from contestants.busy_loop import PAUSE_S, BusyLoop
from contestants.job import CHUNK_COUNT, Job, measured, percentiles


def job_of(record_count: int, *, has_keys: bool = False) -> Job:
    return Job("localhost:9092", "t", 6, record_count, value_bytes=100, has_keys=has_keys)


@pytest.mark.parametrize("record_count", [1, 2, CHUNK_COUNT, CHUNK_COUNT + 1, CHUNK_COUNT + 2])
def test_the_chunks_are_all_records_but_the_one_that_goes_ahead(record_count: int) -> None:
    chunks = list(job_of(record_count).chunks())
    assert sum(chunks) == record_count - 1
    assert all(0 < count <= CHUNK_COUNT for count in chunks)


def test_keys_come_only_when_they_are_requested() -> None:
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


def test_each_acknowledgement_has_its_latency() -> None:
    loop = BusyLoop(2)
    slices: list[None] = []
    for on_delivery in loop.turns(between=lambda: slices.append(None)):
        on_delivery("metadata", None)
    assert len(loop.latencies_s()) == 2
    assert slices


def test_it_reports_from_when_until_when_it_computed() -> None:
    before_s = time.monotonic()
    figures = BusyLoop(2).compute()
    after_s = time.monotonic()
    from_s, until_s = figures["computing_from_s"], figures["computing_until_s"]
    assert before_s <= from_s < from_s + 2 * PAUSE_S <= until_s <= after_s


def test_a_missing_acknowledgement_is_an_error() -> None:
    loop = BusyLoop(1)
    list(loop.turns())
    with pytest.raises(RuntimeError, match="0 of 1 acknowledged"):
        loop.latencies_s()


def test_a_record_that_failed_is_an_error() -> None:
    loop = BusyLoop(1)
    (on_delivery,) = loop.turns()
    with pytest.raises(TimeoutError, match="too late"):
        on_delivery(None, TimeoutError("too late"))


MEASURED_ALONE = """
from contestants.resident import ResidentGrowth
growth = ResidentGrowth()
taken = bytearray(b"x") * (64 * 2**20)
del taken
print(growth.peak_mib())
"""


def _keeps_peaks() -> bool:
    status = Path("/proc/self/status")
    return (
        os.access("/proc/self/clear_refs", os.W_OK)
        and status.exists()
        and "VmHWM:" in status.read_text(encoding="ascii")
    )


@pytest.mark.skipif(not _keeps_peaks(), reason="this kernel keeps no peak that can be set back")
def test_a_peak_that_has_gone_again_is_seen() -> None:
    # In a process of its own: what other tests left behind could be freed meanwhile.
    described = subprocess.run(
        [sys.executable, "-c", MEASURED_ALONE],
        env=os.environ | {"PYTHONPATH": str(Path(resident.__file__).parents[1])},
        capture_output=True,
        check=True,
        text=True,
    )
    assert 60 < float(described.stdout) < 100
