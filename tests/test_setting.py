"""Kinds of settings: what they read, what they refuse, and what they say about it."""

from __future__ import annotations

import collections
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.config.setting import (
    INT_MAX,
    REQUIRED,
    Kind,
    Setting,
    address_list,
    boolean,
    choice,
    integer,
    object_list,
    object_or_name,
    optional,
    resolve_class_setting,
    shown,
    string,
)
from pykclient.errors.base import ConfigError


def make_setting(kind: Kind[Any], default: object = REQUIRED) -> Setting[Any]:
    setting = Setting(kind, default, "What it means.")
    setting.__set_name__(object, "some_key")
    return setting


def refusal(kind: Kind[Any], value: object) -> str:
    with pytest.raises(ConfigError) as caught:
        make_setting(kind).read(value, "some.key")
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "number"), [(5, 5), ("5", 5), (" 5 ", 5), ("+5", 5), ("-1", -1), (INT_MAX, INT_MAX)]
)
def test_integers_are_read_from_numbers_and_text(value: object, number: int) -> None:
    assert make_setting(integer(-1)).read(value, "some.key") == number


@pytest.mark.parametrize(
    "value",
    [
        -2,
        INT_MAX + 1,
        5.0,
        True,
        None,
        "",
        "5.0",
        "1_000",
        "0x10",
        "five",
        "\u0665",
        "9" * 5000,
        [5],
    ],
)
def test_other_values_than_integers_in_range_are_refused(value: object) -> None:
    assert "it must be an integer from -1 to 2147483647" in refusal(integer(-1), value)


def test_an_integer_outside_the_range_may_be_allowed_by_itself() -> None:
    level = make_setting(integer(1, 9, also=-1))
    assert level.read(-1, "level") == -1
    with pytest.raises(ConfigError, match="an integer from 1 to 9, or -1"):
        level.read(0, "level")


@pytest.mark.parametrize(
    ("value", "truth"), [(True, True), (False, False), ("true", True), (" FALSE ", False)]
)
def test_booleans_are_read_from_truth_values_and_their_names(value: object, truth: bool) -> None:
    assert make_setting(boolean()).read(value, "some.key") is truth


@pytest.mark.parametrize("value", [1, 0, "yes", "1", "", None])
def test_other_values_than_booleans_are_refused(value: object) -> None:
    assert "it must be true or false" in refusal(boolean(), value)


@pytest.mark.parametrize("value", [None, 5, b"bytes"])
def test_text_must_be_text(value: object) -> None:
    assert "it must be a string" in refusal(string(), value)


@pytest.mark.parametrize(
    ("value", "why"),
    [("x" * 40_000, "40000 bytes, and 32000 is the most"), ("a\udcff", "half of a surrogate pair")],
)
def test_text_that_no_request_can_carry_is_refused(value: str, why: str) -> None:
    assert why in refusal(string(), value)


def test_a_choice_takes_its_words_and_numbers_that_read_alike() -> None:
    acks = make_setting(choice({"all": -1, "-1": -1, "1": 1}))
    assert [acks.read(value, "acks") for value in ("all", "-1", -1, 1, " 1 ")] == [-1, -1, -1, 1, 1]


def test_a_choice_keeps_case_unless_told_otherwise() -> None:
    assert "one of none, gzip" in refusal(choice({"none": 0, "gzip": 1}), "GZIP")
    strategy = make_setting(choice({"none": 0}, is_case_kept=False))
    assert strategy.read("NONE", "some.key") == 0


def test_a_choice_says_what_an_old_word_is_called_now() -> None:
    reset = choice({"earliest": "earliest"}, hints={"smallest": "It is now called earliest."})
    assert refusal(reset, "smallest").endswith("It is now called earliest.")


def test_a_choice_does_not_take_true_for_the_number_one() -> None:
    assert "one of 1" in refusal(choice({"1": 1}), True)


def test_an_optional_setting_takes_none() -> None:
    setting = make_setting(optional(integer(0)))
    assert setting.read(None, "some.key") is None
    assert setting.read("7", "some.key") == 7


@pytest.mark.parametrize(
    ("value", "addresses"),
    [
        ("h1:9092", [("h1", 9092)]),
        ("h1:9092, h2:9093,", [("h1", 9092), ("h2", 9093)]),
        (["h1:9092", "h2:9093,h3:1"], [("h1", 9092), ("h2", 9093), ("h3", 1)]),
        ([("h1", 9092), ("h2", "9093")], [("h1", 9092), ("h2", 9093)]),
        (("h1", 9092), [("h1", 9092)]),
        (("h1:1", "h2:2"), [("h1", 1), ("h2", 2)]),
        ("[::1]:9092,127.0.0.1:65535", [("::1", 9092), ("127.0.0.1", 65535)]),
        ([("fe80::1%eth0", 9092)], [("fe80::1%eth0", 9092)]),
        ("h1:1,h2:2,h1:1", [("h1", 1), ("h2", 2)]),
    ],
)
def test_addresses_are_read_from_text_lists_and_pairs(
    value: object, addresses: list[tuple[str, int]]
) -> None:
    assert make_setting(address_list()).read(value, "some.key") == tuple(addresses)


@pytest.mark.promise(
    "an unknown or malformed setting is an error before any connection, with a suggestion"
)
@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("", "It holds no address."),
        (" , ", "It holds no address."),
        ([], "It holds no address."),
        ("h1", "'h1' has no port; Kafka usually listens on h1:9092."),
        ("[::1]", "'[::1]' has no port; Kafka usually listens on [::1]:9092."),
        ("::1:9092", "Put the IPv6 address of '::1:9092' in brackets."),
        ("[nonsense:]:9092", "'nonsense:' is no IPv6 address."),
        ("h1:", "The port of 'h1:' is no number from 1 to 65535."),
        ("h1:0", "The port of 'h1:0' is no number from 1 to 65535."),
        ("h1:65536", "The port of 'h1:65536' is no number from 1 to 65535."),
        ("h1:kafka", "The port of 'h1:kafka' is no number from 1 to 65535."),
        (":9092", "'' is no host name."),
        ("a b:9092", "'a b' is no host name."),
        ("a/b:9092", "'a/b' is no host name."),
        ("PLAINTEXT://h1:9092", "Leave out the protocol in 'PLAINTEXT://h1:9092'."),
        (f"{'h' * 300}:9092", "is no host name."),
        (9092, "9092 is neither a string nor a (host, port) pair."),
        (None, "None is neither a string nor a (host, port) pair."),
        ([("h1", 1, 2)], "is neither a string nor a (host, port) pair."),
        ([(b"h1", 1)], "is neither a string nor a (host, port) pair."),
        ([("h1", None)], "The port of 'h1:None' is no number from 1 to 65535."),
    ],
)
def test_malformed_addresses_are_refused_with_the_reason(value: object, complaint: str) -> None:
    text = refusal(address_list(), value)
    assert complaint in text
    assert "'kafka1:9092,kafka2:9092'" in text


@given(st.text(max_size=40))
def test_any_text_is_either_addresses_or_a_config_error(text: str) -> None:
    try:
        addresses = make_setting(address_list()).read(text, "some.key")
    except ConfigError:
        return
    assert addresses
    assert all(host and 1 <= port <= 65535 for host, port in addresses)


def test_objects_are_kept_and_names_are_checked_but_not_imported() -> None:
    setting = make_setting(object_or_name())
    for value in (None, len, collections.OrderedDict, "no.such.module:Name"):
        assert setting.read(value, "some.key") is value


@pytest.mark.parametrize(
    "value", ["", "json", "json.dumps", "json:", ":dumps", "my module:dumps", "a:b:c"]
)
def test_a_name_without_a_colon_before_the_class_is_refused(value: str) -> None:
    assert "as in 'my_package.my_module:MyClass'" in refusal(object_or_name(), value)


def test_a_list_of_objects_is_read_from_a_list_or_from_text() -> None:
    setting = make_setting(object_list())
    assert setting.read([len, "json:dumps"], "some.key") == (len, "json:dumps")
    assert setting.read("json:dumps, json:loads", "some.key") == ("json:dumps", "json:loads")
    assert setting.read("", "some.key") == ()


@pytest.mark.parametrize("value", [None, len, [None], 5])
def test_a_list_of_objects_must_be_a_list_of_objects(value: object) -> None:
    assert "it must be a list, each an object" in refusal(object_list(), value)


def test_a_name_is_imported_when_resolved_and_a_class_is_called() -> None:
    assert resolve_class_setting("key", "os.path:join").__name__ == "join"  # type: ignore[attr-defined]
    assert resolve_class_setting("key", "collections:OrderedDict") == collections.OrderedDict()
    assert resolve_class_setting("key", collections.Counter) == collections.Counter()


def test_an_object_and_none_are_resolved_to_themselves() -> None:
    thing = object()
    assert resolve_class_setting("key", thing) is thing
    assert resolve_class_setting("key", None) is None


@pytest.mark.parametrize("name", ["no_such_module_anywhere:Name", "collections:NoSuchName"])
def test_a_name_that_cannot_be_imported_is_a_config_error_with_its_cause(name: str) -> None:
    with pytest.raises(ConfigError, match=f"key='{name}' cannot be imported") as caught:
        resolve_class_setting("key", name)
    assert isinstance(caught.value.__cause__, (ImportError, AttributeError))


def test_a_class_that_needs_arguments_is_a_config_error_with_its_cause() -> None:
    class NeedsArgument:
        def __init__(self, argument: int) -> None:
            self.argument = argument

    with pytest.raises(ConfigError, match="pass an instance if yours needs some") as caught:
        resolve_class_setting("key", NeedsArgument)
    assert isinstance(caught.value.__cause__, TypeError)


@pytest.mark.parametrize(
    "key",
    [
        "ssl.key.password",
        "sasl.jaas.config",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl_plain_password",
        "SSL.KEY.PASSWORD",
    ],
)
def test_values_of_secret_keys_are_never_shown(key: str) -> None:
    assert shown(key, "hunter2") == "<hidden>"


def test_long_values_are_cut_when_shown() -> None:
    assert len(shown("some.key", "x" * 1_000_000)) < 120


@pytest.mark.parametrize(
    ("kind", "default", "written"),
    [
        (integer(0), 5, "5"),
        (boolean(), True, "true"),
        (choice({"all": -1, "-1": -1}), -1, "all"),
        (optional(integer(0)), None, ""),
        (object_list(), (), ""),
        (address_list(), REQUIRED, ""),
    ],
)
def test_defaults_are_written_as_a_properties_file_holds_them(
    kind: Kind[Any], default: object, written: str
) -> None:
    assert make_setting(kind, default).default_written == written


def test_an_error_names_key_value_what_is_allowed_and_the_default() -> None:
    with pytest.raises(ConfigError) as caught:
        make_setting(integer(0, 9), 5).read("ten", "some.key")
    assert (
        str(caught.value)
        == "some.key='ten' is not valid: it must be an integer from 0 to 9. Default: 5."
    )
