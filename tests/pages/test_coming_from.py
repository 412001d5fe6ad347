"""The pages for users of other clients are complete, and every name on them exists.

A key goes to the partition to which the other client sends it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from pykclient import (
    Admin,
    Consumer,
    ConsumerRecord,
    ConsumerRecords,
    Delivery,
    Producer,
    TopicPartition,
)
from tests.pages.programs import DOCS, programs
from tools.peer_settings import PEERS, main, peers, settings_of

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing import FakeKafka


HEADINGS = {
    "confluent-kafka": {"Producer": "Producer", "Consumer": "Consumer", "AdminClient": "Admin"},
    "kafka-python": {
        "KafkaProducer": "KafkaProducer is Producer",
        "KafkaConsumer": "KafkaConsumer is Consumer",
        "KafkaAdminClient": "KafkaAdminClient is Admin",
    },
}
CLASSES = [(peer, name) for peer, headings in HEADINGS.items() for name in headings]
OURS = (Producer, Consumer, Admin, Delivery, ConsumerRecord, ConsumerRecords)
OTHER_NAMES = {"Consumer", "NewPartitions", "RebalanceListener", "on_delivery"}
CALL = re.compile(r"(?<![\w.])(?:\w+\.)?(\w+)\(")
KEYS = [b"customer-%d" % number for number in range(40)]


def rows(peer: str, class_name: str) -> list[list[str]]:
    """Return the cells of the table of a class."""
    page = (DOCS / f"coming-from-{peer}.md").read_text(encoding="utf-8")
    section = page.split(f"\n## {HEADINGS[peer][class_name]}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [line.strip("| ").split(" | ") for line in lines]


@pytest.mark.parametrize(("peer", "class_name"), CLASSES)
def test_each_method_has_one_row(peer: str, class_name: str) -> None:
    named = [name for there, *_ in rows(peer, class_name) for name in CALL.findall(there)]
    # Of a method with several forms each has a row; that of a class is how it is made.
    assert set(named) - {class_name, "f"} == set(peers()[peer][class_name])


@pytest.mark.parametrize(("peer", "class_name"), CLASSES)
def test_what_a_row_names_here_exists(peer: str, class_name: str) -> None:
    named = {
        name
        for _, here in rows(peer, class_name)
        for code in re.findall(r"`([^`]+)`", here)
        for name in CALL.findall(code)
    }
    there_is = {name for each in OURS for name in dir(each)} | OTHER_NAMES
    assert named
    assert named - there_is == set()


@pytest.mark.parametrize("peer", PEERS)
def test_each_setting_has_a_row_and_is_explained(peer: str) -> None:
    kinds = ("both", "producer", "consumer")
    wanted = {name for kind in kinds for name in peers()[peer][kind]}
    page = (DOCS / f"coming-from-{peer}.md").read_text(encoding="utf-8")
    assert {each.name for each in settings_of(peer)} == wanted
    assert [name for name in wanted if f"`{name}`" not in page] == []


def test_the_tables_are_up_to_date_and_an_edited_one_is_noticed(tmp_path: Path) -> None:
    assert main(["--check"]) == 0
    (tmp_path / "docs").mkdir()
    for peer in PEERS:
        page = (DOCS / f"coming-from-{peer}.md").read_text(encoding="utf-8")
        (tmp_path / "docs" / f"coming-from-{peer}.md").write_text(page, encoding="utf-8")
    into = ["--into", str(tmp_path)]
    assert main([*into, "--check"]) == 0
    edited = tmp_path / "docs" / f"coming-from-{PEERS[0]}.md"
    text = edited.read_text(encoding="utf-8")
    edited.write_text(text.replace("| `5` |", "| `6` |"), encoding="utf-8")
    assert main([*into, "--check"]) == 1
    assert main(into) == 0
    assert edited.read_text(encoding="utf-8") == text


def test_a_key_goes_where_librdkafka_puts_it(fake_kafka: FakeKafka) -> None:
    servers = fake_kafka.bootstrap_servers
    programs()["create_orders.py"].at(servers).run()
    there: dict[object, object] = {}
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for key in KEYS:
        producer.produce(
            "orders",
            b"",
            key,
            on_delivery=lambda _, message: there.update({message.key(): message.partition()}),
        )
    producer.flush(10)
    keys = ", ".join(map(repr, KEYS))
    program = programs()["keys_of_librdkafka.py"].at(servers)
    program = program.with_words({'b"customer-1", b"customer-2", b"customer-3"': keys})
    printed = [line.split() for line in program.run().printed.splitlines()]
    assert {key.encode(): int(place) for key, place in printed} == there
    assert set(there.values()) == {0, 1, 2, 3}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_key_goes_where_kafka_python_puts_it(fake_kafka: FakeKafka) -> None:
    from kafka import KafkaProducer  # which warns of itself

    servers = fake_kafka.bootstrap_servers
    programs()["create_orders.py"].at(servers).run()
    there = KafkaProducer(bootstrap_servers=servers)
    sent = [there.send("orders", key=key, value=b"") for key in KEYS]
    partitions = [each.get(10).partition for each in sent]
    there.close()
    with Producer(bootstrap_servers=servers) as here:
        deliveries = [here.send("orders", b"", key) for key in KEYS]
        assert [each.result(10).partition for each in deliveries] == partitions
    assert set(partitions) == {0, 1, 2, 3}


@pytest.mark.promise("the programs on the pages run unchanged")
def test_the_program_of_afterwards_goes_on_behind_what_it_charged(fake_kafka: FakeKafka) -> None:
    servers, commit = fake_kafka.bootstrap_servers, "consumer.commit(record)"
    program = programs()["charge_orders.py"].at(servers)
    program = program.with_words({commit: f"{commit}; print('charged')"})
    with Producer(bootstrap_servers=servers) as producer:
        for value in (b"1", b"2"):
            producer.send("orders", value).result()
            ended = program.run(stop_when=lambda text: "charged" in text)
            assert (ended.status, ended.said, ended.printed) == (0, "", "charged\n")
    with fake_kafka.control() as cluster:
        assert cluster.partition(TopicPartition("charges", 0)).log.log_end_offset == 2
