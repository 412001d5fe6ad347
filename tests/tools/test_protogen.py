"""Kafka's message schemas are read, and the generated files are what the tool writes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pykclient.testing.cluster.java import MissingPrerequisiteError
from tests.java_mirror import java_with_compiler
from tests.protocol.schemas import all_schemas, jar_or_skip
from tests.testing.test_jvm import fake_java
from tools.protogen.__main__ import main
from tools.protogen.spec import Message, parse, parse_all, snake_case
from tools.protogen.versions import NONE, Versions

jar_or_skip()

ROOT = Path(__file__).parents[2]
FETCH = Path("pykclient/protocol/messages/fetch.py")


@pytest.fixture(scope="module")
def _compiler() -> None:
    """The error codes are read by a Java program in source form."""
    java_with_compiler()


@pytest.mark.usefixtures("_compiler")
def test_check_names_what_differs_and_writing_cures_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--into", str(tmp_path)]
    assert main(arguments) == 0
    generated = (tmp_path / FETCH).read_bytes()
    assert generated == (ROOT / FETCH).read_bytes()
    (tmp_path / FETCH).write_text("changed")
    (tmp_path / FETCH).with_name("old_api.py").write_text("stale")
    capsys.readouterr()

    assert main([*arguments, "--check"]) == 1
    output = capsys.readouterr().out
    assert f"differs: {FETCH}" in output
    assert "differs: pykclient/protocol/messages/old_api.py" in output
    assert "produce.py" not in output

    assert main(arguments) == 0
    assert (tmp_path / FETCH).read_bytes() == generated
    assert not (tmp_path / FETCH).with_name("old_api.py").exists()


def test_a_java_without_a_compiler_checks_all_but_the_error_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a Java is what `make` installs where there is none, and Kafka runs on it."""
    fake_java(tmp_path, "25", "java.base@25\njava.compiler@25")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["--check"]) == 0, capsys.readouterr().out
    assert "not checked: pykclient/errors/broker.py" in capsys.readouterr().out
    with pytest.raises(MissingPrerequisiteError, match="full JDK"):
        main(["--into", str(tmp_path)])
    assert not (tmp_path / FETCH).exists()


jar_or_skip()


def schema(**changes: object) -> str:
    return json.dumps(
        {
            "apiKey": 99,
            "type": "request",
            "name": "TryRequest",
            "validVersions": "0-3",
            "flexibleVersions": "2+",
            "fields": [{"name": "Id", "type": "int32", "versions": "0+"}],
        }
        | changes
    )


def struct_field(name: str, versions: str, *fields: dict[str, object]) -> dict[str, object]:
    return {"name": name, "type": f"[]{name}", "versions": versions, "fields": list(fields)}


def test_comments_are_passed_over() -> None:
    assert parse("// one\n" + schema().replace("{", "{\n  // two\n", 1)).name == "TryRequest"


def test_the_last_version_is_left_out_while_it_is_unstable() -> None:
    assert parse(schema(latestVersionUnstable=True)).versions == Versions(0, 2)
    assert parse(schema(latestVersionUnstable=False)).versions == Versions(0, 3)


def test_of_some_apis_the_unstable_version_is_generated_beside_the_stable_ones() -> None:
    texts = {
        "TryRequest": schema(latestVersionUnstable=True),
        "TryResponse": schema(name="TryResponse", type="response"),
    }
    for message in parse_all(texts, unstable_apis={"Try"}).values():
        assert (message.versions, message.stable) == (Versions(0, 3), Versions(0, 2))
        assert message.unstable == 3
    stable = parse(schema(), unstable_apis={"Try"})
    assert (stable.versions, stable.stable, stable.unstable) == (*[Versions(0, 3)] * 2, None)


def test_response_has_no_version_that_its_request_lacks() -> None:
    texts = {
        "TryRequest": schema(latestVersionUnstable=True),
        "TryResponse": schema(name="TryResponse", type="response"),
    }
    assert parse_all(texts)["TryResponse"].versions == Versions(0, 2)


@pytest.mark.parametrize(
    "field",
    [
        {"name": "Id", "type": "int128", "versions": "0+"},
        {"name": "Id", "type": "int32", "versions": "0+", "encrypted": True},
    ],
)
def test_what_the_generator_does_not_know_is_refused(field: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"unknown type int128|properties .*'encrypted'"):
        parse(schema(fields=[field]))


def test_unknown_property_of_a_message_is_refused() -> None:
    with pytest.raises(ValueError, match="TryRequest has properties"):
        parse(schema(compression="zstd"))


def test_structures_come_once_and_the_outer_ones_first() -> None:
    number: dict[str, object] = {"name": "Id", "type": "int32", "versions": "0+"}
    inner = struct_field("Inner", "2+", number)
    message = parse(
        schema(fields=[struct_field("Outer", "1+", inner), struct_field("Other", "0+", number)])
    )
    assert [struct.name for struct in message.structs()] == [
        "TryRequest",
        "Outer",
        "Other",
        "Inner",
    ]
    assert used_in(message) == {
        "TryRequest": Versions(0, 3),
        "Outer": Versions(1, 3),
        "Other": Versions(0, 3),
        "Inner": Versions(2, 3),
    }


def used_in(message: Message) -> dict[str, Versions]:
    return {struct.name: message.used_in(struct) for struct in message.structs()}


def test_structure_that_no_stable_version_has_is_left_out() -> None:
    number: dict[str, object] = {"name": "Id", "type": "int32", "versions": "0+"}
    message = parse(schema(fields=[struct_field("Future", "4+", number)]))
    assert [struct.name for struct in message.structs()] == ["TryRequest"]


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("ThrottleTimeMs", "throttle_time_ms"),
        ("ISR", "isr"),
        ("TopicIDs", "topic_i_ds"),
        ("KRaftVersion", "k_raft_version"),
        ("Name", "name"),
    ],
)
def test_names_become_snake_case(name: str, snake: str) -> None:
    assert snake_case(name) == snake


def test_every_schema_of_kafka_can_be_read() -> None:
    kinds = [schema.kind for schema in all_schemas().values()]
    assert kinds.count("request") == kinds.count("response") > 90
    removed = [schema.name for schema in all_schemas().values() if schema.versions is NONE]
    assert sorted(name.removesuffix("Request") for name in removed if name.endswith("Request")) == [
        "ControlledShutdown",
        "LeaderAndIsr",
        "StopReplica",
        "UpdateMetadata",
    ]
