"""Settings that only a producer has."""

from __future__ import annotations

import pickle

import pytest

from pykclient.errors.base import ConfigError
from pykclient.producer.config import ProducerConfig


def make_config(**settings: object) -> ProducerConfig:
    return ProducerConfig.from_settings({"bootstrap.servers": "h1:9092"}, **settings)


@pytest.mark.promise("the producer is idempotent by default: every batch has a sequence")
def test_a_producer_is_idempotent_by_default() -> None:
    config = make_config()
    assert config.enable_idempotence
    assert config.acks == -1


@pytest.mark.parametrize(
    "setting",
    [{"acks": 1}, {"acks": "0"}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}],
)
def test_idempotence_is_switched_off_where_it_was_not_set(setting: dict[str, object]) -> None:
    assert not make_config(**setting).enable_idempotence


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ({"acks": 1}, r"acks=1 contradicts enable\.idempotence=true, which needs acks to be all"),
        ({"retries": 0}, "retries=0 contradicts .* to be more than 0"),
        ({"max_in_flight_requests_per_connection": 6}, "=6 contradicts .* to be at most 5"),
    ],
)
def test_idempotence_that_was_set_cannot_be_contradicted(
    setting: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make_config(enable_idempotence=True, **setting)


def test_idempotence_switched_off_contradicts_nothing() -> None:
    config = make_config(enable_idempotence=False, acks=1, retries=0)
    assert (config.enable_idempotence, config.acks, config.retries) == (False, 1, 0)


@pytest.mark.parametrize(("value", "acks"), [("all", -1), (-1, -1), ("1", 1), (0, 0)])
def test_acks_are_kept_as_the_protocols_number(value: object, acks: int) -> None:
    assert make_config(acks=value).acks == acks


def test_acks_of_two_are_refused_with_the_new_way() -> None:
    with pytest.raises(ConfigError) as caught:
        make_config(acks=2)
    assert str(caught.value) == (
        "acks=2 is not valid: it must be one of all, -1, 0, 1. Write all; how many replicas that "
        "means is min.insync.replicas of the topic. Default: all."
    )


def test_a_delivery_timeout_below_linger_and_request_timeout_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"delivery\.timeout\.ms=1000 is shorter than .* = 30005"):
        make_config(delivery_timeout_ms=1_000)


def test_a_delivery_timeout_that_was_not_given_grows_with_the_others() -> None:
    assert make_config(request_timeout_ms=200_000, linger_ms=1).delivery_timeout_ms == 200_001
    assert make_config(linger_ms=2**62).delivery_timeout_ms == 2**31 - 1
    assert make_config().delivery_timeout_ms == 120_000


def test_short_and_kafkas_names_of_class_settings_are_the_same() -> None:
    def choose() -> int:
        return 0

    for key in ("partitioner", "partitioner_class", "partitioner.class"):
        assert make_config(**{key: choose}).partitioner is choose
    for key in ("interceptors", "interceptor_classes", "interceptor.classes"):
        assert make_config(**{key: [choose]}).interceptors == (choose,)


@pytest.mark.parametrize(
    ("given", "partitioner"),
    [
        ("consistent_random", "consistent_random"),
        (" fnv1a ", "fnv1a"),
        ("org.apache.kafka.clients.producer.RoundRobinPartitioner", "round_robin"),
        ("org.apache.kafka.clients.producer.internals.DefaultPartitioner", "murmur2_random"),
        ("my_package.mine:Mine", "my_package.mine:Mine"),
    ],
)
def test_a_partitioner_has_librdkafkas_name_or_javas(given: str, partitioner: str) -> None:
    assert make_config(partitioner=given).partitioner == partitioner


def test_a_named_partitioner_that_is_to_ignore_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ignore\.keys=true contradicts .*=consistent,"):
        make_config(partitioner="consistent", partitioner_ignore_keys=True)
    assert make_config(partitioner=max, partitioner_ignore_keys=True).partitioner is max


def test_settings_of_a_topic_are_read_as_those_of_the_producer_are() -> None:
    own = {"logs": {"compression.type": "zstd", "compression_zstd_level": "6"}, "t": {}}
    config = make_config(topic_settings=own, linger_ms=7)
    logs = config.for_topic("logs")
    assert (logs.compression_type, logs.compression_zstd_level, logs.linger_ms) == ("zstd", 6, 7)
    for other in (config, config.for_topic("t"), config.for_topic("other")):
        assert other.compression_type == "none"
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("logs", "must be a dictionary of topics, each with a dictionary such as"),
        ({"logs": "zstd"}, "Topic 'logs' has 'zstd', not a dictionary"),
        ({"": {}}, "'' is not a topic name"),
        ({5: {}}, "5 is not a topic name"),
        (
            {"logs": {"compresion_type": "zstd"}},
            r"no setting 'compresion_type', as 'logs' .* Did you mean 'compression\.type'\?",
        ),
        ({"logs": {"acks": 1}}, "no setting 'acks', as 'logs' is given here; it has compression"),
        ({"logs": {5: 1}}, "no setting 5"),
        ({"logs": {"compression_type": "zst"}}, "Topic 'logs': compression_type='zst' is not"),
        ({"logs": {"linger_ms": 5, "linger.ms": 6}}, "Topic 'logs' has one setting in two"),
    ],
)
def test_wrong_settings_of_a_topic_are_named(given: object, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make_config(topic_settings=given)


def test_a_delivery_has_time_for_the_longest_linger_of_a_topic() -> None:
    own = {"logs": {"linger_ms": 200_000}}
    assert make_config(topic_settings=own).delivery_timeout_ms == 230_000
    with pytest.raises(ConfigError, match=r"shorter than linger\.ms \+ request.* = 230000"):
        make_config(topic_settings=own, delivery_timeout_ms=120_000)


def test_both_names_of_a_class_setting_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="'partitioner_class' and 'partitioner' are the same"):
        make_config(partitioner="a:b", partitioner_class="a:c")


@pytest.mark.parametrize("value", ["gz", "GZIP", "", None, 1])
def test_an_unknown_codec_is_refused_with_the_known_ones(value: object) -> None:
    with pytest.raises(ConfigError, match="one of none, gzip, snappy, lz4, zstd"):
        make_config(compression_type=value)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ({"acks": 1}, r"acks=1 contradicts transactional\.id='t', which needs acks to be all"),
        ({"retries": 0}, r"retries=0 contradicts transactional\.id='t', .* more than 0"),
        ({"enable_idempotence": False}, r"false contradicts transactional\.id='t': transactions"),
    ],
)
def test_transactions_need_idempotence(setting: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make_config(transactional_id="t", **setting)


def test_an_empty_transactional_id_is_none() -> None:
    assert make_config(transactional_id=" ").transactional_id is None
    assert make_config(transactional_id=" t ").transactional_id == "t"
    assert make_config().transaction_timeout_ms == 60_000


def test_two_phase_commits_have_no_time_out_and_need_an_id() -> None:
    config = make_config(transactional_id="t", transaction_two_phase_commit_enable="true")
    assert config.transaction_timeout_ms == 2**31 - 1
    assert not make_config(transactional_id="t").transaction_two_phase_commit_enable
    with pytest.raises(ConfigError, match=r"transactional\.id is not set\. Set it"):
        make_config(transaction_two_phase_commit_enable=True)
    with pytest.raises(
        ConfigError, match=r"timeout\.ms=5000 contradicts .*enable=true, with which"
    ):
        make_config(
            transactional_id="t",
            transaction_two_phase_commit_enable=True,
            transaction_timeout_ms=5_000,
        )
