"""Options of spark.read: Spark's names and defaults, and a named refusal of everything else."""

from __future__ import annotations

import pickle
import time
from datetime import UTC, datetime

import pytest

from pykclient import TopicPartition
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors import ConfigError
from pykclient.types import IsolationLevel
from spark_connector.limits import OffsetLimit
from spark_connector.offsets import EARLIEST, LATEST
from spark_connector.options import KafkaOptions, StreamLimits, TopicChoice, Use, includes_headers
from tools.spark_options import table

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def read(use: Use = Use.BATCH, /, **options: str) -> KafkaOptions:
    """Options with `_` for `.` in names, on top of what every read needs."""
    given = {"kafka.bootstrap.servers": "h1:9092"}
    if not {"subscribe", "assign", "subscribePattern"} & options.keys():
        given["subscribe"] = "a"
    return KafkaOptions.from_spark(
        given | {key.replace("_", "."): options[key] for key in options}, use
    )


def refusal(**options: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(**options)
    return str(caught.value)


def test_defaults_are_those_of_sparks_own_source() -> None:
    options = read()
    assert options.choice == TopicChoice(topics=("a",))
    assert options.starting == OffsetLimit("startingOffsets", everywhere=EARLIEST)
    assert options.ending == OffsetLimit("endingOffsets", everywhere=LATEST)
    assert options.admin_settings() == {"bootstrap.servers": "h1:9092"}
    assert options.tasks == (None, None, None)
    assert options.poll_timeout_ms == 120_000
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_names_are_not_case_sensitive() -> None:
    assert read(INCLUDEHEADERS="TRUE", failondataloss="False") == read(
        includeHeaders="true", failOnDataLoss="false"
    )


@pytest.mark.parametrize(
    ("option", "value", "choice"),
    [
        ("subscribe", " a , b ,a,", TopicChoice(topics=("a", "b"))),
        ("subscribePattern", "^a.*", TopicChoice(pattern="^a.*")),
        (
            "assign",
            '{"b": [2], "a": [1, 0, 1]}',
            TopicChoice(partitions=(A0, A1, TopicPartition("b", 2))),
        ),
    ],
)
def test_topics_are_chosen_by_name_pattern_or_partition(
    option: str, value: str, choice: TopicChoice
) -> None:
    assert read(**{option: value}).choice == choice


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("subscribe", " , ", "names no topic"),
        ("subscribePattern", "", "is empty"),
        ("subscribePattern", "(", "is no pattern"),
        ("assign", "a", "must be JSON"),
    ],
)
def test_a_choice_of_nothing_is_refused(option: str, value: str, complaint: str) -> None:
    assert complaint in refusal(**{option: value})


def test_topics_must_be_chosen_in_exactly_one_way() -> None:
    assert refusal(subscribe="a", assign='{"a":[0]}').endswith("given: subscribe, assign.")
    with pytest.raises(ConfigError, match=r"given: none\."):
        KafkaOptions.from_spark({"kafka.bootstrap.servers": "h1:9092"}, Use.BATCH)


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ConfigError, match=r"Option 'kafka\.bootstrap\.servers' is missing"):
        KafkaOptions.from_spark({"subscribe": "a"}, Use.BATCH)


def test_settings_of_the_consumer_are_passed_on_without_their_prefix() -> None:
    options = read(kafka_isolation_level="read_committed", kafka_fetch_max_bytes="1000")
    config = ConsumerConfig.from_settings(options.consumer_settings())
    assert config.isolation_level is IsolationLevel.READ_COMMITTED
    assert config.fetch_max_bytes == 1000
    # The planning client has neither.
    assert options.admin_settings() == {"bootstrap.servers": "h1:9092"}


@pytest.mark.parametrize("key", ["acks", "partitioner", "transactional.id"])
def test_settings_of_another_client_have_no_effect(key: str) -> None:
    """They are ignored, built or not: one dictionary of options may serve a whole pipeline."""
    given = {"kafka.bootstrap.servers": "h1:9092", "subscribe": "a", f"kafka.{key}": "x"}
    assert key not in KafkaOptions.from_spark(given, Use.STREAM).consumer_settings()


@pytest.mark.parametrize(
    "key",
    [
        "auto.offset.reset",
        "auto.offset_reset",
        "key.deserializer",
        "value.deserializer",
        "enable.auto.commit",
        "interceptor.classes",
        "interceptors",
        "on_record_error",
    ],
)
def test_settings_that_the_connector_decides_are_refused(key: str) -> None:
    given = {"kafka.bootstrap.servers": "h1:9092", "subscribe": "a", f"kafka.{key}": "x"}
    with pytest.raises(ConfigError, match=f"Option 'kafka.{key}' cannot be used"):
        KafkaOptions.from_spark(given, Use.BATCH)


@pytest.mark.parametrize("key", ["allow.auto.create.topics", "allow_auto_create.topics"])
def test_a_setting_that_replaces_the_connectors_own_is_given_once(key: str) -> None:
    given = {"kafka.bootstrap.servers": "h1:9092", "subscribe": "a", f"kafka.{key}": "true"}
    settings = KafkaOptions.from_spark(given, Use.BATCH).consumer_settings()
    assert ConsumerConfig.from_settings(settings).allow_auto_create_topics


def test_reading_makes_no_topics_and_needs_offsets_that_exist() -> None:
    config = ConsumerConfig.from_settings(read().consumer_settings())
    assert not config.allow_auto_create_topics
    assert config.auto_offset_reset == "none"


def test_the_system_sizes_the_receive_buffer_unless_the_user_does() -> None:
    assert ConsumerConfig.from_settings(read().consumer_settings()).receive_buffer_bytes == -1
    given = read(kafka_receive_buffer_bytes="1000").consumer_settings()
    assert ConsumerConfig.from_settings(given).receive_buffer_bytes == 1000


@pytest.mark.parametrize(
    ("offset_count", "fetch_bytes"), [(10_000, 1_048_576), (10_001, 8_388_608)]
)
def test_a_large_range_is_fetched_in_large_parts(offset_count: int, fetch_bytes: int) -> None:
    settings = read().consumer_settings(offset_count=offset_count)
    assert ConsumerConfig.from_settings(settings).max_partition_fetch_bytes == fetch_bytes
    given = read(kafka_max_partition_fetch_bytes="1000")
    settings = given.consumer_settings(offset_count=offset_count)
    assert ConsumerConfig.from_settings(settings).max_partition_fetch_bytes == 1000


@pytest.mark.parametrize("key", ["max.poll.records", "max_poll_records", "max.poll_records"])
def test_records_of_a_poll_make_arrow_batches_larger_but_not_smaller(key: str) -> None:
    given = {"kafka.bootstrap.servers": "h1:9092", "subscribe": "a"}
    assert KafkaOptions.from_spark(given, Use.BATCH).batch_rows == 10_000
    for value, rows in (("500", 10_000), (" 20000 ", 20_000)):
        options = KafkaOptions.from_spark({**given, f"kafka.{key}": value}, Use.BATCH)
        assert options.batch_rows == rows


@pytest.mark.parametrize(
    ("option", "value", "limit"),
    [
        ("startingOffsets", "earliest", OffsetLimit("startingOffsets", everywhere=EARLIEST)),
        (
            "startingOffsets",
            '{"a":{"0":5,"1":-2}}',
            OffsetLimit(
                "startingOffsets",
                by_partition={A0: 5, A1: EARLIEST},
            ),
        ),
        (
            "startingTimestamp",
            "1700000000000",
            OffsetLimit(
                "startingTimestamp", everywhere=1_700_000_000_000, is_timestamp=True, fallback=None
            ),
        ),
        (
            "startingOffsetsByTimestamp",
            '{"a":{"0":7}}',
            OffsetLimit(
                "startingOffsetsByTimestamp",
                by_partition={A0: 7},
                is_timestamp=True,
                fallback=None,
            ),
        ),
    ],
)
def test_a_start_is_an_edge_offsets_or_a_time(option: str, value: str, limit: OffsetLimit) -> None:
    assert read(**{option: value}).starting == limit


@pytest.mark.parametrize(
    ("option", "value", "limit"),
    [
        ("endingOffsets", "LATEST", OffsetLimit("endingOffsets", everywhere=LATEST)),
        (
            "endingOffsets",
            '{"a":{"0":-1}}',
            OffsetLimit("endingOffsets", by_partition={A0: LATEST}),
        ),
        ("endingTimestamp", "5", OffsetLimit("endingTimestamp", everywhere=5, is_timestamp=True)),
    ],
)
def test_an_end_is_an_edge_offsets_or_a_time(option: str, value: str, limit: OffsetLimit) -> None:
    assert read(**{option: value}).ending == limit


def test_a_time_for_all_goes_before_times_by_partition_and_these_before_offsets() -> None:
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"a":{"0":7}}'}
    assert read(**given).starting.option == "startingOffsetsByTimestamp"
    assert read(**given, startingTimestamp="5").starting.option == "startingTimestamp"


def test_a_start_after_the_youngest_record_may_be_the_end() -> None:
    options = read(startingTimestamp="5", startingOffsetsByTimestampStrategy="LATEST")
    assert options.starting.fallback == LATEST
    assert "must be error or latest" in refusal(startingOffsetsByTimestampStrategy="skip")


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("startingOffsets", "latest", "of a batch read cannot be latest"),
        ("startingOffsets", '{"a":{"0":-1}}', "of a batch read cannot be latest"),
        ("endingOffsets", "earliest", "of a batch read cannot be earliest"),
        ("endingOffsets", '{"a":{"0":-2}}', "of a batch read cannot be earliest"),
        ("startingOffsets", "smallest", "startingOffsets must be JSON such as"),
        ("startingOffsets", "", "startingOffsets must be JSON such as"),
        ("startingTimestamp", "yesterday", "must be milliseconds since 1970, a time with its zone"),
        ("startingTimestamp", "2026-01-31T12:00:00", "a time with its zone"),
        ("startingTimestamp", "1969-01-31T12:00:00Z", "is a time before 1970"),
        ("startingTimestamp", "-P", "a duration back from now"),
        ("startingOffsets", "group:", "names no group"),
        ("subscribePattern", r"\p{Greek}", "is not known here"),
        ("subscribePattern", r"^[\w&&[^b]]+$", "&& within [...] is not known here"),
        ("subscribePattern", "[a[b]]", "[...] within [...] is not known here"),
        ("endingOffsetsByTimestamp", '{"a":{"0":-1}}', "needs an integer of at least 0"),
        ("minPartitions", "0", "must be an integer of at least 1"),
        ("minPartitions", "1.5", "must be an integer of at least 1"),
        ("minPartitions", "9223372036854775808", "must be an integer of at least 1"),
        ("maxPartitions", "0", "must be an integer of at least 1"),
        ("startingTimestamp", "9223372036854775808", "must be milliseconds since 1970"),
        ("maxRecordsPerPartition", "-1", "must be an integer of at least 1"),
        ("kafkaConsumer_pollTimeoutMs", "2m", "must be an integer of at least 1"),
        ("failOnDataLoss", "yes", "must be true or false"),
        ("includeHeaders", "", "must be true or false"),
    ],
)
def test_malformed_values_are_refused_with_what_is_allowed(
    option: str, value: str, complaint: str
) -> None:
    text = refusal(**{option: value})
    assert option.replace("_", ".") in text
    assert complaint in text


@pytest.mark.parametrize(
    ("other", "value", "complaint"),
    [
        ("minPartitions", "3", "minPartitions (3) is larger than maxPartitions (2)"),
        ("maxRecordsPerPartition", "3", "Give one of the options maxPartitions and maxRecords"),
    ],
)
def test_limits_of_tasks_that_contradict_each_other_are_refused(
    other: str, value: str, complaint: str
) -> None:
    assert complaint in refusal(maxPartitions="2", **{other: value})
    read(maxPartitions="3", minPartitions="3")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "[]",
        "{",
        "{}",
        '{"a": 1}',
        '{"a": []}',
        '{"a": [-1]}',
        '{"a": ["0"]}',
        '{"a": [true]}',
        '{"": [0]}',
        "[" * 100_000,
        '{"a": [0]} x',
        '{"a": [0], "a": [1]}',
        '{"a": [1e0]}',
        '{"' + "a" * 5_000 + '": 1}',
        "null",
    ],
)
def test_malformed_partitions_are_refused(text: str) -> None:
    found = refusal(assign=text)
    assert found.startswith("assign")
    assert len(found) < 500


@pytest.mark.parametrize(
    "text",
    [
        "",
        "23",
        '{"a": [0]}',
        '{"a": {"0": "23"}}',
        '{"a": {"0": 1.5}}',
        '{"a": {"0": true}}',
        '{"a": {"0": null}}',
        '{"a": {"0": -3}}',
        '{"a": {"x": 1}}',
        '{"a": {"-1": 1}}',
        '{"a": {"00": 1}}',
        '{"a": {"2147483648": 1}}',
        '{"a": {"' + "1" * 5_000 + '": 1}}',
        '{"a": {"0": 9223372036854775808}}',
        '{"": {"0": 1}}',
        '{"' + "a" * 5_000 + '": {"0": -3}}',
        '{"' + "a" * 5_000 + '": 1}',
        '{"a": {"0": NaN}}',
        '{"a": {"0": 1}} {"b": {"0": 1}}',
        "{'a': {'0': 1}}",
        '{"a": {"0": 1,}}',
        "[" * 100_000,
    ],
)
@pytest.mark.parametrize(
    "option",
    [
        "startingOffsets",
        "endingOffsets",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
    ],
)
def test_malformed_offsets_are_refused(option: str, text: str) -> None:
    found = refusal(**{option: text})
    assert found.startswith(option)
    assert len(found) < 500


@pytest.mark.parametrize(
    ("option", "text", "twin"),
    [
        ("startingOffsets", '{"a":{"0":1,"1":5,"0":2}}', "'0'"),
        ("endingOffsets", '{"a":{"0":1},"a":{"1":2}}', "'a'"),
        ("startingOffsetsByTimestamp", '{"a":{"0":1,"\\u0030":1}}', "'0'"),
        ("endingOffsetsByTimestamp", '{"a":{"0":1,"0":1}}', "'0'"),
        ("assign", '{"a":[0],"b":[1],"a":[2]}', "'a'"),
    ],
)
def test_a_name_that_stands_twice_in_json_is_refused(option: str, text: str, twin: str) -> None:
    assert refusal(**{option: text}).startswith(f"{option} names {twin} twice: ")


@pytest.mark.parametrize(
    ("option", "guess"),
    [
        ("startingOffset", "startingOffsets"),
        ("includeHeader", "includeHeaders"),
        ("minPartition", "minPartitions"),
        ("bootstrap_servers", "kafka.bootstrap.servers"),
        ("subscribes", "subscribe"),
    ],
)
def test_an_unknown_option_is_refused_with_the_likely_one(option: str, guess: str) -> None:
    assert f"Did you mean {guess!r}?" in refusal(**{option: "1"})


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("path", "give subscribe"),
        ("provider", "CREATE TEMPORARY VIEW"),
    ],
)
def test_an_option_that_makes_no_sense_for_kafka_is_refused_with_the_way_out(
    option: str, advice: str
) -> None:
    text = refusal(**{option: "1"})
    assert f"{option!r} cannot be used here" in text
    assert advice in text


@pytest.mark.parametrize(
    "option",
    [
        "maxOffsetsPerTrigger",
        "maxBytesPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "topic",
        "timestampColumn",
        "onRecordTooLarge",
        "delivery",
        "sinkId",
        "atomic",
        "batchId",
        "onOldBatch",
        "sinkOwner",
        "commitGroup",
        "offsetPollIntervalMs",
        "groupIdPrefix",
        "kafka.group.id",
        "kafka.transaction.timeout.ms",
    ],
)
def test_an_option_without_effect_is_taken_with_one_warning(
    option: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = read(**{option.replace(".", "_"): "1"})
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"Option {option!r} has no effect" in caplog.text
    assert "group.id" not in options.consumer_settings()


@pytest.mark.parametrize(
    "option", ["topic", "timestampColumn", "onRecordTooLarge", "delivery", "endingTimestamp"]
)
def test_an_option_of_a_sink_or_a_batch_is_taken_with_one_warning_in_a_stream(
    option: str, caplog: pytest.LogCaptureFixture
) -> None:
    read(Use.STREAM, **{option: "1"}, kafka_acks="all")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"Option {option!r} has no effect in a stream" in caplog.text


def test_a_stream_has_its_own_defaults_and_limits() -> None:
    options = read(Use.STREAM)
    assert options.starting == OffsetLimit("startingOffsets", everywhere=LATEST)
    assert options.stream == StreamLimits(None, None, 900_000, 3, 1_000, 50, "")
    limits = read(
        Use.STREAM,
        maxOffsetsPerTrigger="9",
        minOffsetsPerTrigger="5",
        maxTriggerDelay="30s",
        fetchOffset_numRetries="1",
        fetchOffset_retryIntervalMs="0",
        offsetPollIntervalMs="10",
        commitGroup=" watch ",
    ).stream
    assert limits == StreamLimits(9, 5, 30_000, 1, 0, 10, "watch", are_offset_retries_given=True)


def test_a_stream_limits_offsets_of_each_topic() -> None:
    text = '{"a": 1000, "*": 50}'
    limits = read(Use.STREAM, maxOffsetsPerTrigger=text, minOffsetsPerTrigger="2000").stream
    assert limits.offsets_max is None
    assert limits.topic_offsets_max == {"a": 1_000, "*": 50}
    limits = read(Use.STREAM, subscribePattern="^a", maxOffsetsPerTrigger='{"ab": 1}').stream
    assert limits.topic_offsets_max == {"ab": 1}
    limits = read(Use.STREAM, assign='{"a":[0]}', maxOffsetsPerTrigger='{"a": 1}').stream
    assert limits.topic_offsets_max == {"a": 1}


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), (" 67108864 ", 2**26), ("64m", 2**26), ("64 MiB", 2**26), ("1g", 2**30), ("5b", 5)],
)
def test_a_stream_limits_bytes(text: str, size: int) -> None:
    assert read(Use.STREAM, maxBytesPerTrigger=text).stream.bytes_max == size


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"endingOffsets": "latest"}, "has no end: leave out endingOffsets"),
        ({"endingOffsetsByTimestamp": "{}"}, "no end: leave out endingOffsetsByTimestamp"),
        ({"endingTimestamp": "soon"}, "must be milliseconds since 1970"),
        ({"maxTriggerDelay": "soon"}, "must be a time such as 15m"),
        ({"maxOffsetsPerTrigger": "0"}, "must be an integer of at least 1"),
        ({"maxOffsetsPerTrigger": "2", "minOffsetsPerTrigger": "3"}, "is larger than"),
        ({"offsetPollIntervalMs": "-1"}, "must be an integer of at least 0"),
        ({"deadLettersTopic": " "}, "names no topic: give one"),
        ({"deadLettersTopic": "a"}, "names topic 'a', which this query reads: give another"),
        ({"subscribePattern": ".*", "deadLettersTopic": "b"}, "'b', which this query reads"),
        ({"deadLettersTopic": "b", "kafka_batch_size": "x"}, "batch.size"),
        ({"deadLetterTopic": "b"}, "Did you mean 'deadLettersTopic'"),
        ({"maxBytesPerTrigger": "0"}, "at least 1, or a size such as 64m, not '0'"),
        ({"maxBytesPerTrigger": "8388608t"}, "or a size such as 64m"),
        ({"maxBytesPerTrigger": "1.5g"}, "or a size such as 64m"),
        ({"maxBytePerTrigger": "1"}, "Did you mean 'maxBytesPerTrigger'"),
        ({"maxOffsetsPerTrigger": "{}"}, "names no topic"),
        ({"maxOffsetsPerTrigger": '{"a":1'}, "must be JSON such as"),
        ({"maxOffsetsPerTrigger": '{"a":1,"a":2}'}, "names 'a' twice"),
        ({"maxOffsetsPerTrigger": '{"a":0}'}, "'a' needs an integer of at least 1, not 0"),
        ({"maxOffsetsPerTrigger": '{"*":true}'}, "needs an integer of at least 1, not True"),
        (
            {"subscribe": "orders", "maxOffsetsPerTrigger": '{"order":5}'},
            "names topic 'order', which this query does not read. Did you mean 'orders'",
        ),
        (
            {"subscribePattern": "^a", "maxOffsetsPerTrigger": '{"ba":5}'},
            "names topic 'ba', which this query does not read",
        ),
    ],
)
def test_what_a_stream_cannot_do_is_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read(Use.STREAM, **options)


def test_columns_are_known_before_it_is_known_whether_a_batch_or_a_stream_is_read() -> None:
    given = {"kafka.bootstrap.servers": "h1:9092", "subscribe": "a", "startingOffsets": "latest"}
    assert not includes_headers(given)
    assert includes_headers(given | {"includeHeaders": "true", "maxOffsetsPerTrigger": "5"})
    with pytest.raises(ConfigError, match="Did you mean 'includeHeaders'"):
        includes_headers(given | {"includeHeader": "true"})


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T13:30+01:30", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_a_time_may_be_written_as_iso_8601(text: str, moment: datetime) -> None:
    assert read(startingTimestamp=text).starting.everywhere == moment.timestamp() * 1_000


@pytest.mark.parametrize(
    ("text", "seconds"), [("-PT10M", 600), ("-P1DT2H", 93_600), ("-pt1.5s", 1.5), ("-P7D", 604_800)]
)
def test_a_time_may_be_a_duration_back_from_now(text: str, seconds: float) -> None:
    before = time.time()
    found = read(endingTimestamp=text).ending.everywhere
    assert found is not None
    assert before - 0.001 <= found / 1_000 + seconds <= time.time() + 0.001


def test_a_start_may_be_where_a_group_has_committed() -> None:
    wanted = OffsetLimit("startingOffsets", group="my group")
    assert read(startingOffsets="group:my group").starting == wanted
    assert read(Use.STREAM, startingOffsets="GROUP:my group").starting == wanted


def test_values_of_client_settings_are_not_shown() -> None:
    options = read(kafka_sasl_jaas_config="hunter2", kafka_ssl_key_password="hunter2")
    assert "hunter2" not in repr(options)
    assert "ssl.key.password" in repr(options)


def test_options_survive_pickling() -> None:
    options = read(startingOffsets='{"a":{"0":5}}')
    assert pickle.loads(pickle.dumps(options)) == options


OFFICIAL = (
    *("assign", "subscribe", "subscribePattern", "kafka.bootstrap.servers", "includeHeaders"),
    *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"),
    *("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets", "failOnDataLoss"),
    *("startingOffsetsByTimestampStrategy", "kafkaConsumer.pollTimeoutMs"),
    *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "maxTriggerDelay"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition"),
    *("groupIdPrefix", "kafka.group.id", "topic", "kafka.auto.offset.reset"),
    *("kafka.key.deserializer", "kafka.value.deserializer", "kafka.key.serializer"),
    *("kafka.value.serializer", "kafka.enable.auto.commit", "kafka.interceptor.classes"),
    *("kafka.isolation.level", "kafka.partitioner.class", "kafka.transactional.id"),
    "kafka.transaction.timeout.ms",
)
"""The options of Spark's Structured Streaming + Kafka Integration Guide and of its code."""


def test_the_table_has_every_option_of_the_official_connector_and_what_becomes_of_it() -> None:
    rows = [line.split(" | ") for line in table().splitlines() if line.startswith("| `")]
    shown = {name.strip("| `"): cells for name, *cells in rows}
    assert [name for name in OFFICIAL if name not in shown] == []
    for name, cells in shown.items():
        assert len(cells) == 4, name
        assert set(cells[:3]) <= {"yes", "no effect", "refused"}, name
        assert cells[3], name
    assert shown["endingOffsets"][:3] == ["yes", "refused", "no effect"]


def test_a_configuration_provider_keeps_the_capitals_of_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark hands on the names of options in lower case."""
    monkeypatch.setenv("PYKCLIENT_ALLOWED_CONFIG_PROVIDERS", "EnvVarConfigProvider")
    monkeypatch.setenv("PYKCLIENT_ALLOWED_VARIABLES", "CLIENT_ID")
    monkeypatch.setenv("CLIENT_ID", "named")
    given = {
        "kafka.bootstrap.servers": "localhost:1",
        "subscribe": "t",
        "kafka.client.id": "${MyEnv::CLIENT_ID}",
        "kafka.config.providers": "other, MyEnv",
        "kafka.config.providers.other.class": "EnvVarConfigProvider",
        "kafka.config.providers.myenv.class": "EnvVarConfigProvider",
    }
    settings = KafkaOptions.from_spark(given, Use.BATCH).consumer_settings()
    assert ConsumerConfig.from_settings(settings).client_id == "named"
