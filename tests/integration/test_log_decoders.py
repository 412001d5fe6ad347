"""`pykclient log` shows the records of internal topics as Java's DumpLogSegments does.

What real brokers have written, and messages of every kind with every field, in every version: made
at random, and so with nulls, defaults and text of all sorts.
"""

from __future__ import annotations

import inspect
import json
import random
import re
import shutil
import uuid
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Admin, Consumer, GroupMetadata, NewTopic, Producer, TopicPartition
from pykclient.cli.log.coordinator_records import DECODERS
from pykclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from pykclient.protocol.messages.offset_records import GroupMetadataValue
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from tests.integration.conftest import shared_cluster
from tests.integration.java_tools import java_share_read
from tests.integration.test_log_command import java_dump, our_dump
from tests.records.batches import build
from tests.soak import NEWEST_FIRST, OLDEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.protocol.message import DataMessage, Structure
    from pykclient.testing import KafkaCluster

pytestmark = pytest.mark.kafka

JAVA_OPTIONS = {
    "offsets": "--offsets-decoder",
    "transactions": "--transaction-log-decoder",
    "share": "--share-group-state-decoder",
}
TOPICS = {
    "offsets": "__consumer_offsets",
    "transactions": "__transaction_state",
    "share": "__share_group_state",
}
STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
    *("Dead", "PrepareEpochFence"),
)
"""Kafka's names of the states of transactions, by number."""
SEED = 20261124
ROUNDS = 4
TEXTS = (
    "",
    "t",
    "g-1",
    "caf\N{LATIN SMALL LETTER E WITH ACUTE}",
    'a "b" \\u001f \x1f\n\t',
    "\u2028",
)


# What brokers have written.


@pytest.fixture(scope="module", params=NEWEST_FIRST)
def cluster(request: pytest.FixtureRequest) -> KafkaCluster:
    return shared_cluster(request)


def use_groups_and_transactions(cluster: KafkaCluster) -> None:
    servers = cluster.bootstrap_servers
    is_new = cluster.version != OLDEST
    name = f"decoded-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, 2, 1)])
        with Producer(bootstrap_servers=servers, transactional_id=name) as producer:
            producer.init_transactions()
            for _ in range(2):
                with producer.transaction():
                    producer.send(name, b"v", partition=0)
            producer.begin_transaction()
            for number in range(2):
                producer.send(name, b"aborted", partition=number)
            producer.flush()
            producer.send_offsets_to_transaction(
                {TopicPartition(name, 0): 1}, GroupMetadata(f"{name}-transactional")
            )
            producer.abort_transaction()
        for protocol in ("classic", "consumer") if is_new else ("classic",):
            with Consumer(
                bootstrap_servers=servers,
                group_id=f"{name}-{protocol}",
                group_protocol=protocol,
                auto_offset_reset="earliest",
                client_rack="r1",
            ) as consumer:
                consumer.subscribe([name])
                while not consumer.poll(1.0):
                    pass
                consumer.commit()
        admin.delete_groups([f"{name}-classic"])
    if is_new:
        assert java_share_read(cluster, name, f"{name}-share") > 0


def copies(cluster: KafkaCluster, topic: str, folder: Path) -> Iterator[Path]:
    """Yield copies of the first segments of a topic's partitions that have records."""
    for path in sorted(cluster.data_folder(1).glob(f"{topic}-*/*.log")):
        if path.stat().st_size:
            (folder / path.parent.name).mkdir(exist_ok=True)
            yield Path(shutil.copy(path, folder / path.parent.name))


def test_what_brokers_keep_in_internal_topics_is_shown_as_java_shows_it(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    use_groups_and_transactions(cluster)
    is_new = cluster.version != OLDEST
    for option in JAVA_OPTIONS if is_new else ("offsets", "transactions"):
        shown = ""
        for path in copies(cluster, TOPICS[option], tmp_path):
            ours = our_dump(path, f"--{option}")
            shown += "".join(ours)
            theirs = java_dump(cluster.version, path, JAVA_OPTIONS[option])
            if option == "transactions" and not is_new:
                ours, theirs = [in_older_form(line) for line in ours], sorted_partitions(theirs)
            if option == "transactions":
                theirs = [with_names_of_states(line) for line in theirs]
            assert ours == theirs
        assert 'key: {"type":"' in shown
        assert 'payload: {"version":"' in shown
        assert "Error at offset" not in shown
        assert ("payload: <DELETE>" in shown) or option != "offsets"


def in_older_form(line: str) -> str:
    """Rewrite a line as the tool of 3.9 prints it, with its fields and names of states."""
    found = re.fullmatch(r"(.*) key: (\{.*\}) payload: (\{.*\})", line)
    if found is None:
        return line
    key, value = (json.loads(found[number])["data"] for number in (2, 3))
    partitions = ",".join(
        sorted(
            f"{each['topic']}-{number}"
            for each in value["transactionPartitions"] or ()
            for number in each["partitionIds"]
        )
    )
    return (
        f"{found[1]} key: transaction_metadata::transactionalId={key['transactionalId']} payload: "
        f"producerId:{value['producerId']},producerEpoch:{value['producerEpoch']},"
        f"state={value['transactionStatus']},partitions=[{partitions}],"
        f"txnLastUpdateTimestamp={value['transactionLastUpdateTimestampMs']},"
        f"txnTimeoutMs={value['transactionTimeoutMs']}"
    )


def with_names_of_states(line: str) -> str:
    """Replace the number of a transaction's state, which tools before 4.4 print, by its name."""

    def name(found: re.Match[str]) -> str:
        return f'"transactionStatus":"{STATES[int(found[1])]}"'

    return re.sub(r'"transactionStatus":(\d+)', name, line)


def sorted_partitions(lines: list[str]) -> list[str]:
    """Return the lines with the partitions of each transaction in order, which Java has in none."""

    def in_order(found: re.Match[str]) -> str:
        return f"partitions=[{','.join(sorted(found[1].split(',')))}],txnLast"

    return [re.sub(r"partitions=\[(.*)\],txnLast", in_order, line) for line in lines]


# What they may write.


class Maker:
    """Makes messages with values at random."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def message(self, kind: type[Structure], version: int) -> Any:
        fields = {
            name: self._value(kind, name, parameter.annotation, version)
            for name, parameter in inspect.signature(kind).parameters.items()
            if self._has(kind, name, version) and self._random.random() < 0.8
        }
        made: Any = kind(**fields)
        if isinstance(made, GroupMetadataValue) and self._random.random() < 0.8:
            made.protocol_type = "consumer"
            for member in made.members:
                member.subscription = self._protocol(ConsumerProtocolSubscription)
                member.assignment = self._protocol(ConsumerProtocolAssignment)
        return made

    def _has(self, kind: type[Structure], name: str, version: int) -> bool:
        first, last = kind.version_ranges.get(name, (version, version))
        return first <= version <= last

    def _protocol(self, kind: type[DataMessage]) -> bytes:
        if self._random.random() < 0.2:
            return self._random.randbytes(self._random.randrange(12))
        version = self._random.randint(0, kind.max_version)
        return version.to_bytes(2, "big") + encoded(self.message(kind, version), version)

    def _value(self, kind: type[Structure], name: str, annotation: str, version: int) -> object:
        if annotation.endswith(" | None"):
            if self._random.random() < 0.3:
                return None
            annotation = annotation.removesuffix(" | None")
        if annotation.startswith("list["):
            inner = annotation[5:-1]
            number = self._random.randrange(3)
            return [self._value(kind, name, inner, version) for _ in range(number)]
        match annotation:
            case "int":
                return self._random.randrange(100)
            case "bool":
                return self._random.random() < 0.5
            case "str":
                return self._random.choice(TEXTS)
            case "bytes":
                is_id = name.endswith(("_id", "_ids"))
                return self._random.randbytes(16 if is_id else self._random.randrange(5))
        return self.message(getattr(inspect.getmodule(kind), annotation), version)


def encoded(message: Structure, version: int) -> bytes:
    out = bytearray()
    message.write(out, version)
    return bytes(out)


def rows_of(option: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Keys and values of every kind, in every version; deletions, and kinds that are unknown."""
    maker = Maker(SEED)
    for number, key_kind in DECODERS[option].keys.items():
        value_kind = DECODERS[option].values[number]
        versions = range(value_kind.min_version, value_kind.max_version + 1)
        for version in [*versions] * ROUNDS:
            key = number.to_bytes(2, "big") + encoded(maker.message(key_kind, 0), 0)
            value = maker.message(value_kind, version)
            yield key, version.to_bytes(2, "big") + encoded(value, version)
        yield key, None
    yield (500).to_bytes(2, "big") + b"any", b"any"


@pytest.mark.parametrize("option", JAVA_OPTIONS)
def test_every_kind_in_every_version_is_shown_as_java_shows_it(option: str, tmp_path: Path) -> None:
    offsets = count()
    path = tmp_path / f"{0:020}.log"
    rows = [(key, value) for key, value in rows_of(option)]
    path.write_bytes(
        b"".join(
            bytes(build([(1_000, key, value, ())], base_offset=next(offsets)))
            for key, value in rows
        )
    )
    ours = our_dump(path, f"--{option}")
    assert ours == java_dump(KAFKA_VERSIONS[0], path, JAVA_OPTIONS[option])
    text = "\n".join(ours)
    for number in DECODERS[option].keys:
        assert f'key: {{"type":"{number}",' in text
    assert f"key: Unknown record type 500 at offset {len(rows) - 1}, skipping.\n" in text
    assert "Error" not in text
