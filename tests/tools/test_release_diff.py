"""The report of the changes in a Kafka release, and of those that this package lacks."""

from __future__ import annotations

import json
import tomllib
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from tools import peer_diff, release_diff
from tools.protogen.apis import APIS, LEFT_OUT
from tools.protogen.jar import find_jar, read_schemas
from tools.protogen.spec import parse, parse_all
from tools.release_diff import Release, changes

if TYPE_CHECKING:
    from pathlib import Path

    from tools.protogen.spec import Message

COMMIT_KEY, UNKNOWN_KEY = 28, 9_999


def message(name: str, key: int, versions: str, *fields: str) -> Message:
    schema: dict[str, Any] = {
        "apiKey": key,
        "type": "request",
        "listeners": ["broker"],
        "name": name,
        "validVersions": versions,
        "flexibleVersions": "none",
        "fields": [{"name": field, "type": "int32", "versions": "0+"} for field in fields],
    }
    return parse(json.dumps(schema))


def release(*messages: Message, errors: dict[int, str], **settings: str) -> Release:
    return Release(
        {each.name: each for each in messages},
        errors,
        {("producer", name.replace("_", ".")): value for name, value in settings.items()},
    )


OLD = release(
    message("TxnOffsetCommitRequest", COMMIT_KEY, "0-1", "Kept", "Old"),
    message("PastRequest", UNKNOWN_KEY, "0"),
    errors={134: "GROUP_DELETION_FAILED"},
    linger_ms="0",
    acks="1",
    past_ms="1",
)
NEW = release(
    message("TxnOffsetCommitRequest", COMMIT_KEY, "0-99", "Kept", "New"),
    message("FutureRequest", UNKNOWN_KEY, "0"),
    errors={134: "GROUP_DELETION_FAILED", 9_999: "FUTURE"},
    linger_ms="5",
    acks="0",
    future_ms="1",
    bootstrap_resolve_timeout_ms="0",
    client_rack="",
)


def test_every_difference_is_reported_with_what_is_lacking() -> None:
    found = {change.text: change.lack for change in changes(OLD, NEW)}
    assert found == {
        "FutureRequest: new, versions 0": (
            "the API is neither generated nor left out: see tools/protogen/apis.py"
        ),
        "TxnOffsetCommitRequest: versions 0-1 are 0-99 now": (
            "generated up to version 6: run python -m tools.protogen"
        ),
        "TxnOffsetCommitRequest: TxnOffsetCommitRequest.New: new": "",
        "TxnOffsetCommitRequest: TxnOffsetCommitRequest.Old: gone": "",
        "PastRequest: gone": "",
        "error code 9999, FUTURE: new": "no error class: run python -m tools.protogen",
        "producer: linger.ms: default '0' is '5' now": "",
        "producer: acks: default '1' is '0' now": "the default here is 'all'",
        "producer: future.ms: new, default '1'": (
            "neither a setting nor refused by name: see unknown_keys"
        ),
        "producer: bootstrap.resolve.timeout.ms: new, default '0'": "",
        "producer: client.rack: new, default ''": "",
        "producer: past.ms: gone": "",
    }


def test_the_status_says_whether_anything_is_lacking(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    releases = {"old.jar": OLD, "same.jar": OLD, "new.jar": NEW}
    monkeypatch.setattr(release_diff, "read", lambda jar: releases[jar.name])
    assert release_diff.main(["old.jar", "same.jar"]) == 0
    assert release_diff.main(["old.jar", "new.jar"]) == 1
    output = capsys.readouterr().out
    assert "0 differences; of 0 this package lacks something" in output
    assert "error code 9999, FUTURE: new; LACKS: no error class" in output


@pytest.mark.kafka
def test_every_api_of_brokers_is_generated_or_left_out_with_a_reason() -> None:
    messages = parse_all(read_schemas(find_jar()))
    for_clients = {each.api for each in messages.values() if "broker" in each.listeners}
    assert for_clients <= {*APIS} | LEFT_OUT.keys()
    assert not LEFT_OUT.keys() & {*APIS}


def unusable(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the last line that the tool prints when it ends with status 2."""
    with pytest.raises(SystemExit) as caught:
        release_diff.main(list(arguments))
    assert caught.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_what_is_no_release_is_named_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jar = tmp_path / "kafka-clients-5.0.0.jar"
    assert f"{jar} does not exist" in unusable(capsys, str(jar), "4.4.0")
    jar.write_text("<html>")
    assert f"{jar} is not a jar" in unusable(capsys, str(jar), "4.4.0")
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "")
    assert f"{jar} has no message schemas" in unusable(capsys, str(jar), "4.4.0")
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("common/message/FetchRequest.json", "{}")
    assert "kafka-group-coordinator-5.0.0.jar does not exist" in unusable(capsys, str(jar), "4.4.0")
    renamed = jar.rename(tmp_path / "clients.jar")
    assert "is not named kafka-clients-<version>.jar" in unusable(capsys, str(renamed), "4.4.0")
    assert "OLD and NEW are the same" in unusable(capsys, str(renamed), str(renamed))
    assert "'4.x'" in unusable(capsys, "4.x", "4.4.0")
    assert "'2.8.0'" in unusable(capsys, "2.8.0", "4.4.0")


def test_the_tool_for_other_clients_refuses_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        peer_diff.main(["confluent-kafka"])
    assert caught.value.code == 2
    assert "unrecognized arguments: confluent-kafka" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # kafka-python reads its schemas so
def test_names_of_other_clients_that_are_new_or_gone_are_reported() -> None:
    pytest.importorskip("confluent_kafka")
    known = tomllib.loads(peer_diff.PEERS.read_text("utf-8"))
    del known["confluent-kafka"]["producer"]["queue.buffering.max.ms"]
    known["kafka-python"]["consumer"]["past_ms"] = ""
    known["aiokafka"]["AIOKafkaProducer"].remove("send_and_wait")
    found = list(peer_diff.differences(known))
    assert "librdkafka, producer: queue.buffering.max.ms: new" in found
    assert "kafka-python, consumer: past_ms: gone" in found
    assert "aiokafka: AIOKafkaProducer.send_and_wait: new" in found
