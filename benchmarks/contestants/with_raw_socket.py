"""The floor: the same bytes through a bare blocking socket, without a client around it.

The requests are made ready before anything is timed. To consume, Fetch requests are planned by
reading the topic once; then the same requests are sent again, two at a time so that the broker is
never idle, and what comes is thrown away, with or without a checksum over it. To produce, whole
Produce requests are sent as they are and their acknowledgements read, five in flight at most. Their
batches have no sequence numbers, so that the same bytes can be sent again.

Owner: the one thread of the process that does the job.
Source: Kafka protocol guide, APIs Fetch and Produce.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from crc32c import crc32c

from contestants.job import SILENCE_S_MAX, measured
from pykclient.protocol.message import decode_response, encode_request, encode_request_parts
from pykclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from pykclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykclient.records.batch import iterate_batches
from pykclient.records.builder import RecordBatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from contestants.job import Figures, Job
    from pykclient.protocol.primitives import Records

FETCH_VERSION = PRODUCE_VERSION = 12
"""The newest that names a topic by its name."""
FETCH_BYTES_MAX = 50 * 2**20
PARTITION_FETCH_BYTES_MAX = 2**20
FETCHES_IN_FLIGHT = 2
PRODUCES_IN_FLIGHT_MAX = 5
RECEIVE_BYTES = 256 * 1024
TIMEOUT_MS = 30_000
NO_LEADER_EPOCH = -1


def consume(job: Job) -> Figures:
    """Receive and discard the bytes that a consumer would receive."""
    return _replayed(job, lambda _: None)


def consume_with_crc(job: Job) -> Figures:
    """Consume as above, with one checksum over each response."""
    return _replayed(job, crc32c)


def produce(job: Job) -> Figures:
    """Send ready-made Produce requests, each with one full batch, to the partitions in turns."""
    requests = _produce_requests(job)
    unanswered_count = 0
    with _connection(job) as connection, measured(job) as figures:
        for parts in requests:
            if unanswered_count == PRODUCES_IN_FLIGHT_MAX:
                _check_written(_answer(connection))
                unanswered_count -= 1
            for part in parts:
                connection.sendall(part)
            unanswered_count += 1
        for _ in range(unanswered_count):
            _check_written(_answer(connection))
    return figures


def _replayed(job: Job, look_at: Callable[[memoryview], object]) -> Figures:
    requests, sizes = _fetch_plan(job)
    scratch = memoryview(bytearray(RECEIVE_BYTES))
    with _connection(job) as connection, measured(job) as figures:
        for request in requests[:FETCHES_IN_FLIGHT]:
            connection.sendall(request)
        for turn, expected_bytes in enumerate(sizes):
            rest_bytes = _frame_bytes(connection)
            if rest_bytes != expected_bytes:
                raise RuntimeError(f"a response has {rest_bytes} bytes, not {expected_bytes}")
            while rest_bytes:
                received_bytes = connection.recv_into(scratch, min(rest_bytes, RECEIVE_BYTES))
                _check_open(received_bytes, rest_bytes)
                look_at(scratch[:received_bytes])
                rest_bytes -= received_bytes
            for request in requests[turn + FETCHES_IN_FLIGHT : turn + FETCHES_IN_FLIGHT + 1]:
                connection.sendall(request)
    return figures


def _fetch_plan(job: Job) -> tuple[list[bytes], list[int]]:
    """Return the requests that read the whole topic, and the sizes of their responses."""
    requests, sizes = [], []
    positions = dict.fromkeys(range(job.partition_count), 0)
    with _connection(job) as connection:
        while sum(positions.values()) < job.record_count:
            request = bytes(_fetch_request(job, positions))
            connection.sendall(request)
            frame = _answer(connection)
            requests.append(request)
            sizes.append(len(frame))
            found = dict(_positions_after(job, frame))
            job.check_silence(found, sum(positions.values()))
            positions |= found
    return requests, sizes


def _fetch_request(job: Job, positions: dict[int, int]) -> bytearray:
    # The order of the requested partitions changes as a consumer changes it: else the first ones
    # would fill every response.
    first = min(positions, key=positions.__getitem__)
    order = [*range(first, job.partition_count), *range(first)]
    partitions = [
        FetchPartition(
            partition=index,
            current_leader_epoch=NO_LEADER_EPOCH,
            fetch_offset=positions[index],
            partition_max_bytes=PARTITION_FETCH_BYTES_MAX,
        )
        for index in order
    ]
    request = FetchRequest(
        max_wait_ms=int(SILENCE_S_MAX * 1000),
        min_bytes=1,
        max_bytes=FETCH_BYTES_MAX,
        topics=[FetchTopic(topic=job.topic, partitions=partitions)],
    )
    return encode_request(request, FETCH_VERSION, 0, None)


def _positions_after(job: Job, frame: bytes) -> Iterable[tuple[int, int]]:
    """Yield each partition that has records with the offset after its last whole batch."""
    response = decode_response(FetchResponse, FETCH_VERSION, frame)
    for partition in response.responses[0].partitions:
        index = partition.partition_index
        if partition.error_code:
            raise RuntimeError(f"{job.topic}-{index}: error code {partition.error_code}")
        data = memoryview(partition.records or b"")
        for batch in iterate_batches(data, topic=job.topic, partition=index):
            yield index, batch.last_offset + 1


def _produce_requests(job: Job) -> list[Sequence[Records]]:
    """Whole requests; those of the same partition and count are the same object."""
    full = _batch(job, job.record_count)
    counts = [full[1]] * (job.record_count // full[1])
    rest_count = job.record_count - sum(counts)
    batches = {full[1]: full[0]}
    if rest_count:
        counts.append(rest_count)
        batches[rest_count] = _batch(job, rest_count)[0]
    ready: dict[tuple[int, int], Sequence[Records]] = {}
    requests = []
    for turn, count in enumerate(counts):
        partition = turn % job.partition_count
        if (partition, count) not in ready:
            ready[partition, count] = _produce_request(job, partition, batches[count])
        requests.append(ready[partition, count])
    return requests


def _batch(job: Job, count_max: int) -> tuple[bytes, int]:
    """Return a batch with as many records as fit, at most `count_max`, and their number."""
    builder: RecordBatchBuilder[None] = RecordBatchBuilder(batch_size_bytes=job.batch_bytes)
    now_ms = time.time_ns() // 1_000_000
    value = bytes(job.value_bytes)
    count = 0
    while count < count_max and builder.try_append(now_ms, None, value) is not None:
        count += 1
    return bytes(builder.close()), count


def _produce_request(job: Job, partition: int, batch: bytes) -> Sequence[Records]:
    data = PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=TIMEOUT_MS,
        topic_data=[TopicProduceData(name=job.topic, partition_data=[data])],
    )
    return encode_request_parts(request, PRODUCE_VERSION, 0, None)


def _check_written(frame: bytes) -> None:
    response = decode_response(ProduceResponse, PRODUCE_VERSION, frame)
    for partition in response.responses[0].partition_responses:
        if partition.error_code:
            raise RuntimeError(f"partition {partition.index}: error code {partition.error_code}")


def _connection(job: Job) -> socket.socket:
    host, _, port = job.bootstrap_servers.split(",")[0].rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=SILENCE_S_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # With a time-out each call would be two to the system; who started us has one for the whole.
    connection.settimeout(None)
    return connection


def _answer(connection: socket.socket) -> bytes:
    """One whole frame, without its size."""
    frame = bytearray(_frame_bytes(connection))
    _fill(connection, memoryview(frame))
    return bytes(frame)


def _frame_bytes(connection: socket.socket) -> int:
    size = bytearray(4)
    _fill(connection, memoryview(size))
    return int.from_bytes(size, "big")


def _fill(connection: socket.socket, view: memoryview) -> None:
    while view:
        received_bytes = connection.recv_into(view, min(len(view), RECEIVE_BYTES))
        _check_open(received_bytes, len(view))
        view = view[received_bytes:]


def _check_open(received_bytes: int, missing_bytes: int) -> None:
    if received_bytes == 0:
        raise RuntimeError(f"the broker closed the connection, {missing_bytes} bytes missing")
