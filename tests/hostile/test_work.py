"""Made-up batches and responses cost at most 20 times the CPU of usual ones, and little memory.

Figures are CPU of the process, not time that passes: the least of several measurements.
"""

from __future__ import annotations

import random
import time
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from pykclient import accel
from pykclient.errors import CorruptRecordError
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.fetch import AbortedTransaction
from pykclient.records.compression import Codec
from tests.consumer.serving_port import A, ServingPort, consumer_over
from tests.hostile.client import memory_kb
from tests.hostile.inflated import (
    GROUP_SHAPES,
    TARGETS,
    InflatedBroker,
    inflated,
    usual_metadata,
    with_group_data,
)
from tests.hostile.made_up import MadeUp, Part, made_up, placed, usual
from tests.hostile.payloads import Hostile
from tests.hostile.peer import KIP848_VERSIONS
from tests.hostile.test_hostile import TEXT_LENGTH_MAX, Client, Report
from tests.records.batches import build
from tests.soak import seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse

SIZE_BYTES: Final = 60_000
SOAK_SIZE_BYTES: Final = 1_000_000
TIMES_USUAL_MAX: Final = 20
MIXED_TIMES_USUAL_MAX: Final = 60
"""For batches of which each differs from the one before in version, epoch or kind of timestamps."""
GROWTH_KB_MAX: Final = 200_000
RECEIVE_MAX_KB: Final = 100_000
"""The default of `receive_max_bytes`."""
USUAL_SIZE_BYTES: Final = 300_000
SHORT_COUNT: Final = 10
ROUND_COUNT: Final = 4
BASE_ROUND_COUNT: Final = 12
"""Measurements of what is usual, of which the least counts: other work makes one dearer."""
ERRORS_MAX: Final = 20
CALL_TIMEOUT_MS: Final = 300
USUAL_TIMEOUTS_MS: Final = (CALL_TIMEOUT_MS, 1_000, 10_000)
"""The next one is for a machine on which a call does not come to read its response in the first."""
CALL_CPU_S: Final = 0.01
"""A call with usual responses, in a process that makes no other."""
SOAK_RESPONSE_SIZE_BYTES: Final = 3_000_000


class Cost(NamedTuple):
    """The cost of reading: CPU, memory, and the bytes that a broker sent for it."""

    cpu_s: float
    growth_kb: int
    received_bytes: int

    @property
    def cpu_s_per_mb(self) -> float:
        """CPU of a megabyte, without that of a consumer that is made."""
        return max(0.0, self.cpu_s - constant_cpu_s()) * 1_000_000 / self.received_bytes


class MadeUpPort(ServingPort):
    """A broker whose partition has made-up batches; it counts the bytes that it sends."""

    def __init__(self, found: MadeUp) -> None:
        super().__init__()
        self.logs[0].append(found.end, found.data)
        self._aborted = [AbortedTransaction(*each) for each in found.aborted]
        self.sent_bytes = 0

    def _fetch(self, message: FetchRequest) -> FetchResponse | None:
        response = super()._fetch(message)
        if response is not None:
            (topic,) = response.responses
            (partition,) = topic.partitions
            partition.last_stable_offset = partition.high_watermark
            partition.aborted_transactions = self._aborted
            self.sent_bytes += len(partition.records or b"") + 20 * len(self._aborted)
        return response


def read(found: MadeUp, **settings: Any) -> Cost:
    """Read all records, each field of them, past errors."""
    port = MadeUpPort(found)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now on
    before_kb, begun_s = memory_kb("VmRSS"), time.process_time()
    with consumer_over(port, A, **settings) as consumer:
        error_count = 0
        while consumer.position(A) < found.end and error_count < ERRORS_MAX:
            try:
                for record in consumer.poll(0):
                    assert len((record.key, record.value, record.headers)) == 3
            except CorruptRecordError as error:
                error_count += 1
                if error.next_offset is None:
                    break
                consumer.seek(A, error.next_offset)
    cpu_s = time.process_time() - begun_s
    return Cost(cpu_s, memory_kb("VmHWM") - before_kb, port.sent_bytes)


@cache
def constant_cpu_s() -> float:
    return min(read(usual(Codec.NONE, 1)).cpu_s for _ in range(BASE_ROUND_COUNT))


@cache
def usual_cost(codec: Codec) -> float:
    found = usual(codec, USUAL_SIZE_BYTES)
    return min(read(found).cpu_s_per_mb for _ in range(BASE_ROUND_COUNT))


def flaws_of(found: MadeUp) -> list[str]:
    """Return the costs that exceed a limit in every measurement."""
    level = "read_committed" if found.aborted else "read_uncommitted"
    times_max = MIXED_TIMES_USUAL_MAX if found.is_mixed else TIMES_USUAL_MAX
    limit = times_max * usual_cost(found.codec)
    for _ in range(ROUND_COUNT):
        cost = read(found, isolation_level=level)
        flaws = []
        if cost.cpu_s_per_mb > limit:
            flaws.append(f"{cost.cpu_s_per_mb:.3f} s of CPU a megabyte, over {limit:.3f}")
        if cost.growth_kb > GROWTH_KB_MAX:
            flaws.append(f"grew by {cost.growth_kb} kB")
        if not flaws:
            break
    return flaws


@pytest.mark.promise("a crafted megabyte costs at most 20 times the CPU of an ordinary one")
@pytest.mark.parametrize("seed", seeds(SHORT_COUNT, soak_count=300))
def test_made_up_batches_cost_little_for_their_size(seed: int) -> None:
    size_bytes = SIZE_BYTES if seed < SHORT_COUNT else SOAK_SIZE_BYTES
    found = made_up(seed, size_bytes)
    assert flaws_of(found) == [], found.name


@pytest.mark.parametrize(
    "codec",
    [
        Codec.LZ4,
        *(pytest.param(codec, marks=pytest.mark.soak) for codec in (Codec.GZIP, Codec.ZSTD)),
    ],
)
def test_a_poll_over_many_bombs_takes_little_memory(codec: Codec) -> None:
    """Each batch decompresses to almost as much as one may."""
    part = Part(build([(1, None, bytes(60_000_000), ())], codec))
    found = placed("zeros", codec, [part], 6 * len(part.data))
    assert read(found).growth_kb < GROWTH_KB_MAX + RECEIVE_MAX_KB


# Responses.


class Met(NamedTuple):
    """The cost of a call in a process of its own."""

    report: Report
    sent_bytes: int
    shape: str

    @property
    def cpu_s_per_mb(self) -> float:
        cpu_s = max(0.0, self.report["cpu_seconds"] - CALL_CPU_S)
        return float(cpu_s * 1_000_000 / max(1, self.sent_bytes))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    client = Client(accel.implementation)
    yield client
    client.close()


def meet(client: Client, call: str, peer: InflatedBroker, timeout_ms: int = CALL_TIMEOUT_MS) -> Met:
    given = Hostile("inflated", call, lambda: peer, "TimeoutError", "", given_ms=timeout_ms)
    return Met(client.meet(given), peer.sent_bytes, peer.shape)


@pytest.fixture(scope="module")
def usual_response_cost(client: Client) -> float:
    """CPU seconds of a megabyte of Metadata, partitions in topics."""
    metadata = partial(usual_metadata, size_bytes=USUAL_SIZE_BYTES)
    for timeout_ms in USUAL_TIMEOUTS_MS:
        brokers = [InflatedBroker(ApiKey.METADATA, metadata) for _ in range(ROUND_COUNT)]
        costs = [meet(client, "list_topics", broker, timeout_ms).cpu_s_per_mb for broker in brokers]
        if min(costs) > 0:
            break
    assert min(costs) > 0, "each usual response has to be read, to be measured"
    return min(costs)


@pytest.mark.parametrize("seed", seeds(4, soak_count=150))
def test_inflated_responses_cost_little_for_their_size(
    seed: int, client: Client, usual_response_cost: float
) -> None:
    size_bytes = USUAL_SIZE_BYTES if seed < 4 else SOAK_RESPONSE_SIZE_BYTES
    call, api = TARGETS[seed % len(TARGETS)]
    versions = KIP848_VERSIONS if call == "join_kip848" else None

    def made() -> InflatedBroker:
        return InflatedBroker(api, partial(inflated, random.Random(seed), size_bytes), versions)

    flaws = flaws_of_responses(client, call, made, size_bytes, usual_response_cost)
    assert flaws == [], f"{seed}: {call}, {api.name}"


@pytest.mark.parametrize(
    ("call", "api", "shape"),
    [
        pytest.param(*target, shape, marks=() if shape == "one topic" else pytest.mark.soak)
        for target in (
            ("join", ApiKey.SYNC_GROUP),
            ("join", ApiKey.JOIN_GROUP),
            ("describe_groups", ApiKey.DESCRIBE_GROUPS),
        )
        for shape in GROUP_SHAPES
    ],
)
def test_partitions_of_a_group_cost_little_for_their_size(
    call: str, api: ApiKey, shape: str, client: Client, usual_response_cost: float
) -> None:
    """A partition takes four bytes in an assignment, and forty in Metadata."""
    inflate = partial(with_group_data, shape=shape, size_bytes=USUAL_SIZE_BYTES)

    def made() -> InflatedBroker:
        return InflatedBroker(api, inflate)

    flaws = flaws_of_responses(client, call, made, USUAL_SIZE_BYTES, usual_response_cost)
    assert flaws == []


def flaws_of_responses(
    client: Client,
    call: str,
    made: Callable[[], InflatedBroker],
    size_bytes: int,
    usual_response_cost: float,
) -> list[str]:
    """Return the costs that exceed a limit in every call with inflated responses."""
    limit = TIMES_USUAL_MAX * usual_response_cost
    for timeout_ms in (CALL_TIMEOUT_MS, *USUAL_TIMEOUTS_MS):
        met = meet(client, call, made(), timeout_ms)
        flaws = []
        if met.sent_bytes < size_bytes // 20:
            flaws.append(f"only {met.sent_bytes} bytes were sent")
        if met.cpu_s_per_mb > limit:
            flaws.append(f"{met.cpu_s_per_mb:.3f} s of CPU a megabyte, over {limit:.3f}")
        if met.report["growth_kb"] > GROWTH_KB_MAX:
            flaws.append(f"grew by {met.report['growth_kb']} kB")
        if met.report["error"] and len(met.report["text"]) > TEXT_LENGTH_MAX:
            flaws.append(f"a text of {len(met.report['text'])} characters")
        if met.report["error"] and not met.report["is_ours"]:
            flaws.append(f"ended with {met.report['error']}")
        if not flaws:
            break
    return [f"{met.shape}: {each}" for each in flaws]
