"""Wrong arguments of every public call: refused by name before any harm, or a valid result.

Method: each parameter of each public method is given values of every kind. What comes of it is a
result, a `KafkaError`, or a `TypeError` that names the parameter or the call; never an error from
the inside. Bytes are shown by no error: they may be a record's.
"""

from __future__ import annotations

import inspect
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from pykclient import (
    AbortTransactionSpec,
    Admin,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    GroupMetadata,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PreparedTransaction,
    Producer,
    ProducerRecord,
    RebalanceListener,
    TopicPartition,
)
from pykclient.errors import EncodeError, KafkaError, UnsupportedVersionError, UsageError
from pykclient.testing import FakeKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARTITION = TopicPartition("t", 0)
PREPARED = PreparedTransaction("h", 1, 0, 2)
SECRET = b"SECRET VALUE"

VALUES: list[object] = [
    *(None, 5, -1, 1.5, float("nan"), True, 10**30, 10**5_000),
    *("x", "\udc00", "x" * 40_000, SECRET, bytearray(SECRET), memoryview(SECRET)),
    *([], [5], [None], ["x"], [SECRET], (), ("t", 0), {}, {5: 5}, {"x": 5}, {"x": SECRET}),
    *(object(), object, lambda: None, timedelta(seconds=5), datetime(2026, 1, 1)),
    *(PARTITION, TopicPartition("t", "x"), TopicPartition(None, 0), TopicPartition("t", -1)),  # type: ignore[arg-type]
    *({PARTITION: value} for value in cast("list[object]", ["x", None, 1.5, -1, SECRET, []])),
    {PARTITION: datetime(2026, 1, 1)},
    OffsetAndMetadata("x"),  # type: ignore[arg-type]
    {PARTITION: OffsetAndMetadata("x")},  # type: ignore[arg-type]
    {PARTITION: OffsetAndMetadata(1, SECRET)},  # type: ignore[arg-type]
    {PARTITION: OffsetAndMetadata(1, "\udc00")},
    {PARTITION: OffsetAndMetadata(1, "m", "x")},  # type: ignore[arg-type]
    {PARTITION: OffsetAndMetadata(1, "m", -5)},
    {PARTITION: OffsetAndTimestamp(1, 1)},
    [[("a", SECRET, SECRET)]],
    [(SECRET, "a")],
    [("a", 5)],
    PREPARED,
    [tuple(PREPARED)],
    *(
        [PREPARED._replace(**{name: cast("Any", value)})]
        for name in PREPARED._fields
        for value in (None, "\udc00", SECRET, -1, 1.5, True, 10**30)
    ),
    [PREPARED, PREPARED._replace(producer_epoch=1)],
]

GOOD: dict[type[Any], dict[str, tuple[object, ...]]] = {
    Producer: {
        "send": ("t", b"v"),
        "send_batch": ("t", [b"v"]),
        "send_arrow": ([],),
        "partitions_for": ("t",),
        "flush": (),
        "send_offsets_to_transaction": ({PARTITION: 1}, GroupMetadata("g")),
        "purge": (),
        "close": (),
    },
    Consumer: {
        "assign": ([PARTITION],),
        "subscribe": (["t"],),
        "seek": (PARTITION, 0),
        "seek_to_beginning": (),
        "seek_to_end": (),
        "seek_to_time": (0,),
        "pause": ([PARTITION],),
        "resume": ([PARTITION],),
        "current_lag": (PARTITION,),
        "position": (PARTITION,),
        "beginning_offsets": ([PARTITION],),
        "end_offsets": ([PARTITION],),
        "offsets_for_times": ({PARTITION: 0},),
        "partitions_for": ("t",),
        "list_topics": (),
        "commit": ({PARTITION: 1},),
        "commit_async": ({PARTITION: 1},),
        "committed": ([PARTITION],),
        "store_offset": ({PARTITION: 1},),
        "poll": (0.0,),
        "poll_arrow": (0.0,),
        "enforce_rebalance": (),
        "close": (),
    },
    Admin: {
        "create_topics": ([NewTopic("n", 1, 1)],),
        "create_partitions": ({"t": NewPartitions(3)},),
        "delete_topics": (["d"],),
        "list_topics": (),
        "describe_topics": (["t"],),
        "describe_configs": ([ConfigResource(ConfigResourceType.TOPIC, "t")],),
        "incremental_alter_configs": (
            {ConfigResource(ConfigResourceType.TOPIC, "t"): [AlterConfigOp("flush.ms", 1)]},
        ),
        "list_groups": (),
        "describe_groups": (["h"],),
        "find_coordinators": (["h"],),
        "delete_groups": (["h"],),
        "list_group_offsets": ("h",),
        "alter_group_offsets": ("h", {PARTITION: 1}),
        "delete_group_offsets": ("h", [PARTITION]),
        "list_transactions": (),
        "describe_transactions": (["h"],),
        "describe_producers": ([PARTITION],),
        "abort_transaction": (AbortTransactionSpec(PARTITION, 1, 0),),
        "commit_prepared_transactions": ([PREPARED],),
        "abort_prepared_transactions": ([PREPARED],),
        "close": (),
    },
}
"""Good arguments of every public method that takes any: those which must be given."""

NAMED = ("Settings", "setting", "bootstrap_servers", r"bootstrap\.servers")
"""Alternative names in errors of constructors that accept settings."""

SEND = ["topic", "value", "key", "partition", "timestamp_ms", "headers", "on_delivery"]
"""The parameters of `send`, whose compiled form has no signature."""


def parameters(kind: type[Any], method: str) -> list[str]:
    if (kind, method) == (Producer, "send"):
        return SEND
    return [name for name in inspect.signature(getattr(kind, method)).parameters if name != "self"]


def test_every_public_method_with_parameters_is_tried() -> None:
    for kind, methods in GOOD.items():
        public = {name for name in dir(kind) if not name.startswith("_")}
        with_parameters = {name for name in public if callable(getattr(kind, name, None))}
        assert {
            name
            for name in with_parameters
            if name != "topics" and (name == "send" or parameters(kind, name))
        } == set(methods)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with FakeKafka(auto_create_topics=False) as fake:
        with fake.control() as cluster:
            cluster.create_topic("t", 2)
        with Producer(bootstrap_servers=fake.bootstrap_servers) as producer:
            producer.send_batch("t", [b"v"] * 3, partition=0).result()
        yield fake.bootstrap_servers


def opened(kind: type[Any], servers: str) -> Any:
    if kind is Producer:
        return Producer(
            bootstrap_servers=servers,
            max_block_ms=50,
            delivery_timeout_ms=1_000,
            request_timeout_ms=500,
            linger_ms=0,
        )
    settings = {"bootstrap_servers": servers, "default_api_timeout_ms": 300}
    if kind is Admin:
        return Admin(settings)
    return Consumer(settings, group_id="g", enable_auto_commit=False)


def complaint(call: Callable[[], object], names: tuple[str, ...]) -> str | None:
    """Return the fault in how a call ended; None if it ended correctly."""
    try:
        call()
    except (KafkaError, TypeError) as error:
        text = str(error)
        if SECRET.decode() in text and "setting" not in names:
            return f"shows bytes: {text}"
        # Of a fake broker that has no transactions: the arguments were fine.
        is_old = isinstance(error, UnsupportedVersionError)
        is_ours = isinstance(error, (UsageError, EncodeError, TypeError)) and not is_old
        if is_ours and not any(re.search(rf"\b{name}\b", text) for name in names):
            return f"names neither call nor parameter: {error!r}"
    except Exception as error:  # noqa: BLE001 - which is what this test is about
        return f"raw: {error!r}"
    return None


@pytest.mark.parametrize(
    ("kind", "method", "parameter"),
    [
        (kind, method, parameter)
        for kind, methods in GOOD.items()
        for method in methods
        for parameter in parameters(kind, method)
    ],
)
def test_a_wrong_argument_is_refused_by_name(
    servers: str, kind: type[Any], method: str, parameter: str
) -> None:
    good = GOOD[kind][method]
    place = parameters(kind, method).index(parameter)
    names = ("subscribe", "unsubscribe") if method == "subscribe" else (method, parameter)
    complaints = []
    client = opened(kind, servers)
    for value in VALUES:
        if kind is Consumer and method != "subscribe":
            client.unsubscribe()
            client.assign([PARTITION])
            client.seek(PARTITION, 0)
        elif kind is Consumer:
            client.unsubscribe()
        if place < len(good):
            arguments, keywords = (*good[:place], value, *good[place + 1 :]), {}
        else:
            arguments, keywords = good, {parameter: value}
        found = complaint(lambda: getattr(client, method)(*arguments, **keywords), names)  # noqa: B023
        if found is not None:
            complaints.append(f"{value!a:.60}: {found}")
        if method == "close":
            client.close(**({} if kind is Admin else {"timeout": 0}))
            client = opened(kind, servers)
    client.close(**({} if kind is Admin else {"timeout": 0}))
    assert complaints == []


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        (NewTopic, {"name": "t"}),
        (NewPartitions, {"total_count": 3}),
        (ProducerRecord, {"topic": "t"}),
        (RebalanceListener, {}),
        (FakeKafka, {}),
        (Admin, {}),
        (Consumer, {}),
        (Producer, {}),
    ],
)
def test_what_is_made_of_a_wrong_argument_is_refused_by_name(
    kind: type[Any], good: dict[str, object]
) -> None:
    complaints = []
    for parameter in inspect.signature(kind).parameters:
        for value in VALUES:
            found = complaint(
                partial(make, kind, good, parameter, value), (kind.__name__, parameter, *NAMED)
            )
            if found is not None:
                complaints.append(f"{parameter}={value!a:.60}: {found}")
    assert complaints == []


def make(kind: type[Any], good: dict[str, object], parameter: str, value: object) -> None:
    if parameter == "settings":
        made = kind(value)
    elif parameter == "keywords":
        made = kind(bootstrap_servers=value)
    else:
        made = kind(**{**good, parameter: value})
    if hasattr(made, "close"):
        made.close()


@pytest.fixture
def consumer(servers: str) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=servers, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([PARTITION])
        yield consumer


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda consumer: consumer.commit([PARTITION]),
            r"commit: offsets is of type list; give a mapping.*next_",
        ),
        (
            lambda consumer: consumer.seek(0, 6),
            r"seek: 0 is not a partition; give TopicPartition\(topic, n",
        ),
        (
            lambda consumer: consumer.pause(PARTITION),
            r"as in pause\(\[TopicPartition\('t', 0\)\]\)",
        ),
    ],
    ids=["commit", "seek", "pause"],
)
def test_what_is_often_mistaken_is_refused_with_the_cure(
    call: Callable[[Consumer], object], match: str, consumer: Consumer
) -> None:
    with pytest.raises(UsageError, match=match):
        call(consumer)


def test_one_new_topic_for_a_list_is_refused_with_the_cure(servers: str) -> None:
    with (
        Admin(bootstrap_servers=servers) as admin,
        pytest.raises(UsageError, match=r"as in create_topics\(\[NewTopic\('n'\)\]\)"),
    ):
        admin.create_topics(NewTopic("n"))  # type: ignore[arg-type]


def test_times_may_be_datetimes_with_a_zone_and_never_floats(consumer: Consumer) -> None:
    times = consumer.offsets_for_times({PARTITION: datetime(1971, 1, 1, tzinfo=UTC)})
    assert times == consumer.offsets_for_times({PARTITION: 365 * 24 * 3_600 * 1_000})
    with pytest.raises(
        UsageError, match=r"for t-0 is 1700000000\.5 \(seconds\? time.time\(\) returns"
    ):
        consumer.offsets_for_times({PARTITION: 1_700_000_000.5})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match=r"without a time zone; give one with a time zone"):
        consumer.offsets_for_times({PARTITION: datetime(2026, 1, 1)})


def test_a_callback_that_cannot_be_called_is_refused_before_anything_is_sent(servers: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        end = producer.send("t", b"v", partition=1).result().offset
        assert end is not None
        for _ in range(2):  # before a batch is open, and with one
            with pytest.raises(
                UsageError, match="send: on_delivery is of type int, which is not callable"
            ):
                producer.send("t", b"v", partition=1, on_delivery=5)  # type: ignore[call-overload]
            producer.send("t", b"v", partition=1)
        assert producer.send("t", b"v", partition=1).result().offset == end + 3


def test_headers_may_be_a_dict(servers: str) -> None:
    headers = {"trace": b"7", "empty": None}
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        offset = producer.send("t", b"v", partition=0, headers=headers).result().offset
        producer.send(ProducerRecord("t", b"v", partition=0, headers=headers))
        producer.send_batch("t", [b"v"] * 2, partition=0, headers=headers)
        producer.send_batch("t", [b"v"] * 2, partition=0, headers=[headers, headers])
    assert offset is not None
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, offset)
        read = [record.headers for record in consumer.poll(10, max_records=6)]
        while len(read) < 6:
            read += [record.headers for record in consumer.poll(10)]
    assert read == [tuple(headers.items())] * 6
