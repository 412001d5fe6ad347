"""Settings in text cost CPU in proportion to their length, and an error about them is short.

Each is large enough to have taken many seconds where the work grew with the square of its length.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.config.client import SUGGESTIONS_MAX, WRONG_SHOWN_MAX
from pykclient.config.given_settings import from_text
from pykclient.config.jaas import parse_jaas
from pykclient.config.properties import FILE_BYTES_MAX, read_properties
from pykclient.config.references import is_reference, references
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

CPU_S_MAX: Final = 1.5
ERROR_LENGTH_MAX: Final = 10_000
COUNT: Final = 20_000
SCRAM: Final = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
PROVIDER: Final = {"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider"}
PATTERN: Final = "config.providers.env.param.allowlist.pattern"
JAVAS_REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}:]*)\}")


def jaas(count: int) -> str:
    options = " ".join(f'option{number}="value"' for number in range(count))
    return f'{MODULE} required username="alice" password="secret" {options};'


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(SCRAM | {"sasl.jaas.config": jaas(COUNT)}, id="options of a login"),
        pytest.param({f"no.such.key.{number}": "1" for number in range(COUNT)}, id="unknown keys"),
        pytest.param({"n" * 1_000_000: "1"}, id="a long key"),
        pytest.param(PROVIDER | {"client.id": "${" * 500_000}, id="references without an end"),
        pytest.param(PROVIDER | {"client.id": "${env:" * 200_000}, id="providers without an end"),
        pytest.param(
            {"config.providers": ",".join(map(str, range(COUNT)))}
            | {f"config.providers.{number}.class": "x" for number in range(COUNT)},
            id="providers",
        ),
        pytest.param(
            PROVIDER | {PATTERN: "(A+)+B", "client.id": "${env:KAFKA_" + "A" * 40 + "}"},
            id="a pattern that repeats itself",
        ),
        pytest.param(
            PROVIDER | {PATTERN: ".*" * 9 + "B", "client.id": "${env:KAFKA_" + "A" * 200 + "}"},
            id="a pattern with many signs that repeat",
        ),
        pytest.param(
            PROVIDER | {PATTERN: "(.|)" * 30 + "!", "client.id": "${env:KAFKA_PASSWORD}"},
            id="a pattern with many alternatives",
        ),
        pytest.param(
            {"interceptor.classes": ",".join(f"a{number}:B" for number in range(COUNT))},
            id="classes",
        ),
        pytest.param(
            {"ssl.enabled.protocols": ",".join(f"TLSv{number}" for number in range(COUNT))},
            id="versions of TLS",
        ),
    ],
)
def test_wrong_settings_of_a_megabyte_are_refused_in_short(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKCLIENT_ALLOWED_CONFIG_PROVIDERS", "EnvVarConfigProvider")
    monkeypatch.setenv("PYKCLIENT_ALLOWED_VARIABLES", "KAFKA_*")
    text = from_text({"bootstrap.servers": "h:9092"} | settings, "a file")
    begun_s = time.process_time()
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.from_settings(text)
    assert time.process_time() - begun_s < CPU_S_MAX
    assert len(str(caught.value)) < ERROR_LENGTH_MAX


def test_a_login_configuration_is_read_in_one_pass() -> None:
    begun_s = time.process_time()
    assert len(parse_jaas(jaas(COUNT)).options) == COUNT + 2
    assert time.process_time() - begun_s < CPU_S_MAX


def test_of_many_unknown_keys_the_first_are_listed_and_have_suggestions() -> None:
    given = {"bootstrap.servers": "h:9092"} | {f"fetch.max.bytess{n}": "1" for n in range(1_000)}
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.from_settings(given)
    first, *lines = str(caught.value).split("\n")
    assert first == "1000 settings are invalid:"
    assert lines[-1] == f"- and {1_000 - WRONG_SHOWN_MAX} more."
    assert len(lines) == WRONG_SHOWN_MAX + 1
    assert sum("Did you mean" in line for line in lines) == SUGGESTIONS_MAX


def test_what_references_mean_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LARGE", "x" * 1_000)
    given = {"bootstrap.servers": "h:9092"} | PROVIDER | {"client.id": "${env:LARGE}" * COUNT}
    with pytest.raises(ConfigError, match=r"client\.id has 20000000 characters once its"):
        ConsumerConfig.from_settings(given)


def test_a_pattern_is_made_once_the_policy_allows_the_variable() -> None:
    refused = PROVIDER | {PATTERN: "(", "client.id": "${env:HOME}"}
    given = from_text({"bootstrap.servers": "h:9092"} | refused, "a file")
    with pytest.raises(ConfigError, match="may not use the config"):
        ConsumerConfig.from_settings(given)


@pytest.mark.parametrize("pattern", ["KAFKA_.*|MY_.*", "[A-Z_]+", r"KAFKA_\*?", "(KAFKA|MY)_X"])
def test_a_pattern_in_text_may_repeat_a_few_times(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKCLIENT_ALLOWED_CONFIG_PROVIDERS", "EnvVarConfigProvider")
    monkeypatch.setenv("PYKCLIENT_ALLOWED_VARIABLES", "KAFKA_*")
    monkeypatch.setenv("KAFKA_X", "found")
    settings = {"bootstrap.servers": "h:9092", PATTERN: pattern, "client.id": "${env:KAFKA_X}"}
    given = from_text(PROVIDER | settings, "a file")
    if re.fullmatch(pattern, "KAFKA_X"):
        assert ConsumerConfig.from_settings(given).client_id == "found"
    else:
        with pytest.raises(ConfigError, match="does not exist"):
            ConsumerConfig.from_settings(given)


@given(st.text("${}:a", max_size=20))
def test_references_are_javas(text: str) -> None:
    found = [(*each[:3], each.start, each.end, str(each)) for each in references(text)]
    assert found == [
        (each[1], each[2] or "", each[3], each.start(), each.end(), each[0])
        for each in JAVAS_REFERENCE.finditer(text)
    ]
    assert is_reference(text) == bool(JAVAS_REFERENCE.fullmatch(text))


def test_a_properties_file_has_a_limit(tmp_path: Path) -> None:
    place = tmp_path / "large.properties"
    with place.open("wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    with pytest.raises(ConfigError, match=f"it has more than {FILE_BYTES_MAX} bytes"):
        read_properties(place)
