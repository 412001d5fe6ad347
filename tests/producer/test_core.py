"""ProducerCore: what it builds from each setting, and how it closes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.accel import Gate, SendCore
from pykclient.errors import (
    AuthenticationError,
    BufferExhaustedError,
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from pykclient.network.cluster.cluster import Cluster
from pykclient.producer.producer import Producer
from pykclient.records.batch import iterate_batches
from pykclient.records.compression import Codec
from tests.producer.scripted_producer import ScriptedBulkProducer, ScriptedProducer
from tests.producer.test_interceptors import Failing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.producer.record import RecordMetadata, SerializedRecord


@pytest.fixture
def producer() -> ScriptedProducer:
    producer = ScriptedProducer()
    producer.await_metadata("t")
    return producer


def watched(producer: ScriptedProducer) -> Gate:
    """Return a gate that opens at the next news."""
    gate = Gate()
    producer.core.lifecycle.waiters[gate] = None
    return gate


def codec_and_size(producer: ScriptedProducer) -> tuple[Codec, int]:
    (request,) = producer.produced
    data = request.topic_data[0].partition_data[0]
    assert data.records is not None
    (batch,) = iterate_batches(memoryview(bytes(data.records)), topic="t", partition=0)
    return batch.codec, batch.size_bytes


@pytest.mark.promise("acks 0, 1 and all are supported")
@pytest.mark.parametrize(("acks", "number"), [(0, 0), (1, 1), ("all", -1)])
def test_a_produce_request_has_the_acknowledgements_that_are_set(acks: object, number: int) -> None:
    producer = ScriptedProducer(acks=acks)
    producer.await_metadata("t")
    producer.send("t", b"v")
    producer.turn(3, after_ms=5)
    assert [request.acks for request in producer.produced] == [number]


def test_send_is_the_per_record_cores_own_without_a_layer(producer: ScriptedProducer) -> None:
    assert Producer.send is SendCore.send
    producer.send("t", b"first", partition=0)
    calls: list[object] = []
    accumulator = producer.core.accumulator
    real = accumulator.append

    def append(record: SerializedRecord) -> object:
        calls.append(record.value)
        return real(record)

    accumulator.append = append  # type: ignore[assignment]
    producer.send("t", b"second", partition=0)
    assert calls == []
    producer.send("t", b"third", partition=1)
    assert calls == [b"third"]


@pytest.mark.parametrize(
    "settings",
    [
        {"value_serializer": str.encode},
        {"key_serializer": str.encode},
        {"interceptors": [Failing]},
        {"partitioner": lambda *_: 0},
    ],
)
def test_what_has_to_see_each_record_makes_every_send_slow(settings: dict[str, object]) -> None:
    producer = ScriptedProducer(**settings)
    producer.await_metadata("t")
    assert producer.topics == {}


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_by_the_setting(name: str) -> None:
    producer = ScriptedProducer(compression_type=name)
    producer.await_metadata("t")
    producer.send("t", bytes(5_000), partition=0)
    producer.turn(3, after_ms=5)
    codec, size_bytes = codec_and_size(producer)
    assert codec is Codec[name.upper()]
    assert (size_bytes < 1_000) == (name != "none")


def test_a_topic_may_have_a_codec_of_its_own_and_batches_that_wait_longer() -> None:
    own = {"logs": {"compression.type": "gzip", "compression_gzip_level": "9", "linger_ms": 50}}
    producer = ScriptedProducer(compression_type="lz4", topic_settings=own, linger_ms=5)
    producer.partition_counts["logs"] = 1
    found = {}
    for topic, after_ms in (("t", 5), ("logs", 50)):
        producer.await_metadata(topic)
        producer.send(topic, bytes(5_000), partition=0)
        producer.produced.clear()
        producer.turn(3, after_ms=after_ms - 1)
        assert producer.produced == []
        producer.turn(3, after_ms=1)
        found[topic] = codec_and_size(producer)[0]
    assert found == {"t": Codec.LZ4, "logs": Codec.GZIP}


def test_levels_reach_the_codec() -> None:
    sizes = []
    text = b"".join(b"%d " % (number * number % 9973) for number in range(2_000))
    for level in (1, 9):
        producer = ScriptedProducer(compression_type="gzip", compression_gzip_level=level)
        producer.await_metadata("t")
        producer.send("t", text, partition=0)
        producer.turn(3, after_ms=5)
        sizes.append(codec_and_size(producer)[1])
    assert sizes[0] > sizes[1]


def test_ignored_keys_go_where_records_without_a_key_go() -> None:
    producer = ScriptedProducer(partitioner_ignore_keys=True)
    producer.partition_counts["t"] = 50
    producer.await_metadata("t")
    results = {producer.send("t", b"v", b"%d" % number).batch for number in range(50)}
    assert len(results) == 1


def partitions_chosen(producer: ScriptedProducer, count: int, **rest: object) -> list[int]:
    deliveries = [producer.send("t", b"v", **rest) for _ in range(count)]  # type: ignore[arg-type]
    return [each.batch.partition.partition for each in deliveries]  # type: ignore[union-attr]


@pytest.mark.parametrize("settings", [{}, {"value_serializer": bytes.upper}])
def test_round_robin_takes_partitions_in_turn_as_java_does(settings: dict[str, object]) -> None:
    """Goal: the result is the same with a serializer, which takes the slow path."""
    java = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    producer = ScriptedProducer(partitioner=java, **settings)
    producer.partition_counts["t"] = 4
    producer.await_metadata("t")
    assert bool(producer.topics) == (not settings)
    assert partitions_chosen(producer, 3, key=b"k") == [0, 1, 2]
    assert partitions_chosen(producer, 1, partition=0) == [0]
    assert partitions_chosen(producer, 6) == [3, 0, 1, 2, 3, 0]


def test_round_robin_goes_on_where_a_topic_has_got_more_partitions() -> None:
    producer = ScriptedProducer(partitioner="round_robin")
    producer.await_metadata("t")
    assert partitions_chosen(producer, 4) == [0, 1, 2, 0]
    producer.partition_counts["t"] = 5
    producer.core.metadata.request_update()
    producer.turn(3, after_ms=1_000)
    assert partitions_chosen(producer, 3) == [4, 0, 1]


@pytest.mark.parametrize("settings", [{}, {"key_serializer": bytes.lower}])
def test_random_takes_another_partition_for_each_record(settings: dict[str, object]) -> None:
    producer = ScriptedProducer(partitioner="random", **settings)
    producer.await_metadata("t")
    chosen = partitions_chosen(producer, 90, key=b"k")
    assert all(chosen.count(partition) > 15 for partition in range(3))


@pytest.mark.parametrize("settings", [{}, {"key_serializer": bytes.lower}])
def test_a_named_partitioner_says_where_records_with_and_without_a_key_go(
    settings: dict[str, object],
) -> None:
    producer = ScriptedProducer(partitioner="consistent", **settings)
    producer.partition_counts["t"] = 50
    producer.await_metadata("t")
    crc32 = 0x352441C2  # of b"abc", as many tools print it
    assert partitions_chosen(producer, 2, key=b"abc") == [crc32 % 50] * 2
    assert partitions_chosen(producer, 2) == [0, 0]


def test_a_partitioner_of_ones_own_sees_bytes_and_partitions_and_is_checked() -> None:
    seen: list[tuple[object, ...]] = []

    def choose(
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: tuple[PartitionInfo, ...],
    ) -> int:
        seen.append((topic, key, value, len(partitions)))
        return 2 if key == b"k" else 3

    producer = ScriptedProducer(partitioner=choose, key_serializer=str.encode)
    producer.await_metadata("t")
    producer.send("t", b"v", "k")
    producer.send("t", b"v", "k", partition=0)
    assert seen == [("t", b"k", b"v", 3)]
    with pytest.raises(UsageError, match="partitioner chose 3"):
        producer.send("t", b"v", "other")


@pytest.mark.parametrize(
    "settings",
    [
        {"value_serializer": 5},
        {"interceptors": [5]},
        {"partitioner": 5},
        {"key_serializer": "tests.producer:Missing"},
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_opened(
    settings: dict[str, object],
) -> None:
    producer = ScriptedProducer.__new__(ScriptedProducer)
    with pytest.raises(ConfigError):
        producer.__init__(**settings)  # type: ignore[misc]
    assert producer.port.peers == []


def test_a_record_waits_for_metadata_and_an_update_wakes_its_thread(
    producer: ScriptedProducer,
) -> None:
    with pytest.raises(BufferExhaustedError, match="metadata of topic 'other'"):
        producer.send("other", b"v")
    news = watched(producer)
    producer.partition_counts["other"] = 1
    producer.await_metadata("other")
    assert news.wait(0)
    assert producer.core.has_partition("other", 0)
    assert not producer.core.has_partition("other", 1)
    producer.send("other", b"v")


def test_a_refused_topic_fails_and_an_absent_one_times_out() -> None:
    producer = ScriptedBulkProducer()
    producer.topic_errors = {"forbidden": 29, "absent": 3}
    with pytest.raises(TopicAuthorizationFailedError, match="forbidden"):
        producer.send("forbidden", b"v")
    with pytest.raises(KafkaTimeoutError, match="absent"):
        producer.send("absent", b"v")
    # The request that was rejected then may be allowed now.
    producer.partition_counts["forbidden"] = 1
    producer.send("forbidden", b"v")


def test_a_partitioner_is_called_for_no_topic_that_a_response_has_dropped() -> None:
    seen: list[int] = []

    def choose(
        topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[PartitionInfo]
    ) -> int:
        seen.append(len(partitions))
        return hash(value) % len(partitions)

    producer = ScriptedProducer(partitioner=choose)
    producer.await_metadata("t")
    producer.core.metadata.cluster = Cluster(version=9)  # before the listeners are notified
    assert not producer.core.has_partition("t", None)
    with pytest.raises(BufferExhaustedError, match="metadata of topic 't'"):
        producer.send("t", b"v")
    assert seen == []


def error_of_waiting(
    producer: ScriptedBulkProducer, topic: str, partition: int | None = None
) -> KafkaTimeoutError:
    """Send while the brokers are silent; return the error."""
    producer.makes_turns = False
    with pytest.raises(KafkaTimeoutError) as caught:
        producer.send(topic, b"v", partition=partition)
    return caught.value


def test_the_error_of_a_timeout_names_what_it_waited_for_and_why() -> None:
    producer = ScriptedBulkProducer(max_block_ms=500)
    producer.await_metadata("t")
    producer.await_metadata("absent")
    absent = error_of_waiting(producer, "absent")
    assert "'absent'" in str(absent)
    assert "500 ms (max_block_ms)" in str(absent)
    assert "create the topic" in str(absent)
    assert isinstance(absent.__cause__, UnknownTopicOrPartitionError)
    assert "no partition 7, only 0 to 2" in str(error_of_waiting(producer, "t", 7))
    unreachable = ScriptedBulkProducer(max_block_ms=500)
    unreachable.core.engine.step(1_000)
    for peer in unreachable.port.peers:
        peer.refuse()
    unreachable.port.wait(0)
    unreachable.core.engine.complete(1_000)
    reason = str(error_of_waiting(unreachable, "t"))
    assert "cannot connect to localhost:9092: refused" in reason
    silent = ScriptedBulkProducer(max_block_ms=500)
    assert "not responded yet" in str(error_of_waiting(silent, "t"))


def test_what_all_brokers_refuse_is_raised_by_waiting_calls_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = ScriptedBulkProducer()
    refusal = AuthenticationError("wrong password")

    def refuse(gate: Gate, timeout_s: float, what: str) -> bool:
        producer.core.metadata.on_verdict(refusal)
        return gate.wait(0)

    with monkeypatch.context() as patch:
        patch.setattr(producer.waiting, "await_gate", refuse)
        with pytest.raises(AuthenticationError) as caught:
            producer.send("t", b"v")
    assert repr(caught.value) == repr(refusal)
    # A later call waits for the new result.
    delivery = producer.send("t", b"v")
    producer.turn(5, after_ms=100)
    assert delivery.exception(0) is None


def test_when_the_sender_thread_dies_everything_ends_with_the_cause(
    producer: ScriptedProducer, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[object] = []

    def leave(metadata: RecordMetadata, error: Exception | None) -> None:
        events.append("leaving")
        raise SystemExit

    in_flight = producer.send("t", b"v", partition=0)
    producer.core.engine.step(producer.clock_ms + 5)
    leaving = producer.send("t", b"v", partition=1, on_delivery=leave)
    waiting = producer.send(
        "t", b"v", partition=2, on_delivery=lambda _, error: events.append(error)
    )
    cause = ValueError("a bug")
    producer.core.lifecycle.on_death(cause)
    for delivery in (in_flight, leaving, waiting):
        error = delivery.exception()
        assert isinstance(error, KafkaError)
        assert error.__cause__ is cause
        assert "a bug" in str(error)
    assert events == ["leaving", waiting.exception()]
    with pytest.raises(KafkaError, match="a bug"):
        producer.send("t", b"v")


def test_a_producer_shows_its_client_id_its_addresses_and_its_state() -> None:
    producer = ScriptedProducer(client_id="c")
    addresses = ",".join(f"{host}:{port}" for host, port in producer.core.config.bootstrap_servers)
    assert repr(producer) == f"<ScriptedProducer c at {addresses}: open>"
    producer.core.lifecycle.refusal = TopicAuthorizationFailedError("no")
    assert repr(producer).endswith(": ended by TopicAuthorizationFailedError('no')>")
