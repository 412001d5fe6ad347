"""Kinds of settings: what they read, what they refuse, and their errors."""

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

H1, H2 = ("h1", 1), ("h2", 2)


def make_setting(kind: Kind[Any], default: object = REQUIRED) -> Setting[Any]:
    setting = Setting(kind, default, "What it means.")
    setting.__set_name__(object, "some_key")
    return setting


def refusal(kind: Kind[Any], value: object) -> str:
    with pytest.raises(ConfigError) as caught:
        make_setting(kind).read(value, "some.key")
    return str(caught.value)


ACKS = choice({"all": -1, "-1": -1, "1": 1})
RESET = choice({"earliest": "earliest"}, hints={"smallest": "It is now called earliest."})


@pytest.mark.parametrize(
    ("kind", "given_values", "read"),
    [
        (integer(-1), [5, "5", " 5 ", "+5"], 5),
        (integer(-1), [-1, "-1"], -1),
        (integer(-1), [INT_MAX], INT_MAX),
        (integer(1, 9, also=-1), [-1], -1),
        (boolean(), [True, "true"], True),
        (boolean(), [False, " FALSE "], False),
        (ACKS, ["all", "-1", -1], -1),
        (ACKS, [1, " 1 "], 1),
        (choice({"none": 0}, is_case_kept=False), ["NONE"], 0),
        (optional(integer(0)), [None], None),
        (optional(integer(0)), ["7"], 7),
        (object_or_name(), [None], None),
        (object_or_name(), [len], len),
        (object_or_name(), ["no.such.module:Name"], "no.such.module:Name"),
        (object_list(), [[len, "json:dumps"]], (len, "json:dumps")),
        (object_list(), ["json:dumps, json:loads"], ("json:dumps", "json:loads")),
        (object_list(), [""], ()),
        (address_list(), ["h1:9092", ("h1", 9092)], (("h1", 9092),)),
        (address_list(), ["h1:1, h2:2,", ("h1:1", "h2:2"), "h1:1,h2:2,h1:1"], (H1, H2)),
        (address_list(), [["h1:1", "h2:2,h3:3"]], (H1, H2, ("h3", 3))),
        (address_list(), [[("h1", 1), ("h2", "2")]], (H1, H2)),
        (address_list(), ["[::1]:9092,127.0.0.1:65535"], (("::1", 9092), ("127.0.0.1", 65535))),
        (address_list(), [[("fe80::1%eth0", 9092)]], (("fe80::1%eth0", 9092),)),
    ],
)
def test_a_kind_reads_its_values_and_the_texts_that_a_properties_file_has(
    kind: Kind[Any], given_values: list[object], read: object
) -> None:
    for value in given_values:
        found = make_setting(kind).read(value, "some.key")
        assert (type(found), found) == (type(read), read)


ANY_INTEGER = "it must be an integer from -1 to 2147483647"
NO_PAIR = "is neither a string nor a (host, port) pair."
NO_COLON = "as in 'my_package.my_module:MyClass'"


@pytest.mark.promise(
    "an unknown or malformed setting is an error before any connection, with a suggestion"
)
@pytest.mark.parametrize(
    ("kind", "values", "complaint"),
    [
        (integer(-1), [-2, INT_MAX + 1, 5.0, True, None, "", [5]], ANY_INTEGER),
        (integer(-1), ["5.0", "1_000", "0x10", "five", "\u0665", "9" * 5000], ANY_INTEGER),
        (integer(1, 9, also=-1), [0], "an integer from 1 to 9, or -1"),
        (boolean(), [1, 0, "yes", "1", "", None], "it must be true or false"),
        (string(), [None, 5, b"bytes"], "it must be a string"),
        (string(), ["x" * 40_000], "40000 bytes; the maximum is 32000"),
        (string(), ["a\udcff"], "half of a surrogate pair"),
        (choice({"none": 0, "gzip": 1}), ["GZIP"], "one of none, gzip"),
        (choice({"1": 1}), [True], "one of 1"),
        (RESET, ["smallest"], "It is now called earliest."),
        (object_or_name(), ["", "json", "json.dumps", "json:", ":dumps", "a:b:c"], NO_COLON),
        (object_or_name(), ["my module:dumps"], NO_COLON),
        (object_list(), [None, len, [None], 5], "it must be a list, each an object"),
        (address_list(), ["", " , ", []], "It contains no address."),
        (address_list(), ["h1"], "'h1' has no port; Kafka usually listens on h1:9092."),
        (address_list(), ["[::1]"], "'[::1]' has no port; Kafka usually listens on [::1]:9092."),
        (address_list(), ["::1:9092"], "Put the IPv6 address of '::1:9092' in brackets."),
        (address_list(), ["[nonsense:]:9092"], "'nonsense:' is not an IPv6 address."),
        (address_list(), ["h1:"], "The port of 'h1:' is not a number from 1 to 65535."),
        (address_list(), ["h1:0"], "The port of 'h1:0' is not a number from 1 to 65535."),
        (address_list(), ["h1:65536"], "The port of 'h1:65536' is not a number from 1 to 65535."),
        (address_list(), ["h1:kafka"], "The port of 'h1:kafka' is not a number from 1 to 65535."),
        (
            address_list(),
            [[("h1", None)]],
            "The port of 'h1:None' is not a number from 1 to 65535.",
        ),
        (address_list(), [":9092"], "'' is not a host name."),
        (address_list(), ["a b:9092"], "'a b' is not a host name."),
        (address_list(), ["a/b:9092"], "'a/b' is not a host name."),
        (address_list(), [f"{'h' * 300}:9092"], "is not a host name."),
        (address_list(), ["PLAINTEXT://h1:1"], "Leave out the protocol in 'PLAINTEXT://h1:1'."),
        (address_list(), [9092], f"9092 {NO_PAIR}"),
        (address_list(), [None], f"None {NO_PAIR}"),
        (address_list(), [[("h1", 1, 2)], [(b"h1", 1)]], NO_PAIR),
    ],
)
def test_what_a_kind_cannot_read_is_refused_with_the_reason(
    kind: Kind[Any], values: list[object], complaint: str
) -> None:
    for value in values:
        text = refusal(kind, value)
        assert complaint in text
        assert kind.allowed in text


@given(st.text(max_size=40))
def test_any_text_is_either_addresses_or_a_config_error(text: str) -> None:
    try:
        addresses = make_setting(address_list()).read(text, "some.key")
    except ConfigError:
        return
    assert addresses
    assert all(host and 1 <= port <= 65535 for host, port in addresses)


def test_a_name_is_imported_and_a_class_called_and_anything_else_is_itself() -> None:
    assert resolve_class_setting("key", "os.path:join").__name__ == "join"  # type: ignore[attr-defined]
    assert resolve_class_setting("key", "collections:OrderedDict") == collections.OrderedDict()
    assert resolve_class_setting("key", collections.Counter) == collections.Counter()
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

    with pytest.raises(ConfigError, match="pass an instance if it needs any") as caught:
        resolve_class_setting("key", NeedsArgument)
    assert isinstance(caught.value.__cause__, TypeError)


@pytest.mark.parametrize(
    "key",
    [
        *("ssl.key.password", "SSL.KEY.PASSWORD", "sasl.jaas.config", "sasl_plain_password"),
        *("ssl.keystore.key", "ssl.keystore.certificate.chain"),
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase",
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
