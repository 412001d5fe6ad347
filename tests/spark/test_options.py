"""Options of spark.read: Spark's names and defaults, and a named refusal of everything else."""

from __future__ import annotations

import pickle

import pytest

from pykclient import TopicPartition
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors import ConfigError
from spark_connector.offsets import EARLIEST, LATEST, OffsetLimit
from spark_connector.options import KafkaOptions, TopicChoice

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def read(**options: str) -> KafkaOptions:
    """Options with `_` for `.` in names, on top of what every read needs."""
    given = {"kafka.bootstrap.servers": "h1:9092"}
    if not {"subscribe", "assign", "subscribePattern"} & options.keys():
        given["subscribe"] = "a"
    return KafkaOptions.from_spark(given | {key.replace("_", "."): options[key] for key in options})


def refusal(**options: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(**options)
    return str(caught.value)


def test_defaults_are_those_of_sparks_own_source() -> None:
    options = read()
    assert options.choice == TopicChoice(topics=("a",))
    assert options.starting == OffsetLimit("startingOffsets", everywhere=EARLIEST)
    assert options.ending == OffsetLimit("endingOffsets", everywhere=LATEST)
    assert options.client_settings == {"bootstrap.servers": "h1:9092"}
    assert (options.partitions_min, options.records_per_partition_max) == (None, None)
    assert options.poll_timeout_ms == 120_000
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_names_are_not_case_sensitive() -> None:
    assert read(INCLUDEHEADERS="TRUE", failondataloss="False") == read(
        includeHeaders="true", failOnDataLoss="false"
    )


@pytest.mark.promise("Spark reads topics by name or by partition")
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
        KafkaOptions.from_spark({"kafka.bootstrap.servers": "h1:9092"})


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ConfigError, match=r"Option 'kafka\.bootstrap\.servers' is missing"):
        KafkaOptions.from_spark({"subscribe": "a"})


@pytest.mark.promise("Spark passes `kafka.*` options to the consumer")
def test_settings_of_the_consumer_are_passed_on_without_their_prefix() -> None:
    options = read(kafka_isolation_level="read_committed", kafka_fetch_max_bytes="1000")
    assert options.client_settings == {
        "bootstrap.servers": "h1:9092",
        "isolation.level": "read_committed",
        "fetch.max.bytes": "1000",
    }


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
        "group.id",
    ],
)
def test_settings_that_the_connector_decides_are_refused(key: str) -> None:
    given = {"kafka.bootstrap.servers": "h1:9092", "subscribe": "a", f"kafka.{key}": "x"}
    with pytest.raises(ConfigError, match=f"Option 'kafka.{key}' cannot be used"):
        KafkaOptions.from_spark(given)


@pytest.mark.parametrize("key", ["allow.auto.create.topics", "allow_auto_create.topics"])
def test_a_setting_that_replaces_the_connectors_own_is_given_once(key: str) -> None:
    given = {"kafka.bootstrap.servers": "h1:9092", "subscribe": "a", f"kafka.{key}": "true"}
    settings = KafkaOptions.from_spark(given).consumer_settings()
    assert ConsumerConfig.from_settings(settings).allow_auto_create_topics


def test_reading_makes_no_topics_and_needs_offsets_that_exist() -> None:
    config = ConsumerConfig.from_settings(read().consumer_settings())
    assert not config.allow_auto_create_topics
    assert config.auto_offset_reset == "none"


@pytest.mark.parametrize("key", ["max.poll.records", "max_poll_records", "max.poll_records"])
def test_the_consumers_records_of_a_poll_are_those_of_a_batch(key: str) -> None:
    given = {"kafka.bootstrap.servers": "h1:9092", "subscribe": "a"}
    assert KafkaOptions.from_spark(given).batch_rows == 10_000
    assert KafkaOptions.from_spark({**given, f"kafka.{key}": " 7 "}).batch_rows == 7


@pytest.mark.promise("Spark reads between the offsets that are given")
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


@pytest.mark.promise("Spark reads between the offsets that are given")
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
        ("startingTimestamp", "yesterday", "must be an integer of at least 0"),
        ("endingOffsetsByTimestamp", '{"a":{"0":-1}}', "needs an integer of at least 0"),
        ("minPartitions", "0", "must be an integer of at least 1"),
        ("minPartitions", "1.5", "must be an integer of at least 1"),
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
    ],
)
def test_malformed_partitions_are_refused(text: str) -> None:
    found = refusal(assign=text)
    assert found.startswith("assign")
    assert len(found) < 400


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
        '{"": {"0": 1}}',
    ],
)
def test_malformed_offsets_are_refused(text: str) -> None:
    assert refusal(startingOffsets=text).startswith("startingOffsets")


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
        ("maxOffsetsPerTrigger", "streaming read, which is not built yet"),
        ("minOffsetsPerTrigger", "streaming read, which is not built yet"),
        ("maxTriggerDelay", "streaming read, which is not built yet"),
        ("groupIdPrefix", "without a consumer group"),
        ("fetchOffset_numRetries", "kafka.default.api.timeout.ms"),
        ("topic", "give subscribe"),
        ("path", "give subscribe"),
    ],
)
def test_a_known_option_that_has_no_use_here_is_refused_by_name(option: str, advice: str) -> None:
    text = refusal(**{option: "1"})
    assert option.replace("_", ".").lower() in text
    assert advice in text


def test_values_of_client_settings_are_not_shown() -> None:
    options = read(kafka_sasl_jaas_config="hunter2", kafka_ssl_key_password="hunter2")
    assert "hunter2" not in repr(options)
    assert "ssl.key.password" in repr(options)


def test_options_survive_pickling() -> None:
    options = read(startingOffsets='{"a":{"0":5}}')
    assert pickle.loads(pickle.dumps(options)) == options
