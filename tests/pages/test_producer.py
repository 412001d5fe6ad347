"""The programs of docs/producer.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient import Producer
from pykclient.errors import MessageTooLargeError, TransactionAbortableError
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import faults
from tests.pages.programs import programs

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing import FakeKafka

pytestmark = pytest.mark.promise("the programs on the pages run unchanged")


def record_count(fake: FakeKafka, topic: str) -> int:
    with fake.control() as cluster:
        return sum(each.log.log_end_offset for each in cluster.topics[topic].partitions)


def test_the_service_delivers_what_it_accepted_before_sigterm(fake_kafka: FakeKafka) -> None:
    program = programs()["measure.py"].at(fake_kafka.bootstrap_servers)
    program = program.with_words({"time.sleep(1.0)": 'log.info("one more")'})
    accepted: list[str] = []

    def is_enough(text: str) -> bool:
        accepted.extend([text] if text == "one more" else [])
        return len(accepted) == 3

    ended = program.run(stop_when=is_enough)
    assert (ended.status, ended.said) == (0, "")
    assert record_count(fake_kafka, "measurements") == 3


def test_the_loader_reports_the_lines_that_failed(fake_kafka: FakeKafka, tmp_path: Path) -> None:
    program = programs()["load_lines.py"].at(fake_kafka.bootstrap_servers)
    file = tmp_path / "lines"
    file.write_bytes(b"first\nsecond\n")
    assert program.run(str(file)).status == 0
    assert record_count(fake_kafka, "lines") == 2
    with fake_kafka.control() as cluster:
        cluster.faults.add(faults.fail_with(MessageTooLargeError), ApiKey.PRODUCE, times=None)
    ended = program.run(str(file))
    assert ended.status == 1
    assert [line.partition(":")[0] for line in ended.said.splitlines()] == ["line 1", "line 2"]


def test_the_loader_says_what_is_wrong_with_its_argument(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        programs()["load_lines.py"].run(str(tmp_path / "missing"))


def test_the_copier_sends_each_order_once_although_a_transaction_is_aborted(
    fake_kafka: FakeKafka,
) -> None:
    values = [b"%d" % number for number in range(10)]
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        for value in values:
            producer.send("orders", value, partition=0)
    with fake_kafka.control() as cluster:
        cluster.faults.add(faults.fail_with(TransactionAbortableError), ApiKey.TXN_OFFSET_COMMIT)
    position = "sum(consumer.position(each) for each in consumer.assignment())"
    program = programs()["copy_orders.py"].at(fake_kafka.bootstrap_servers)
    program.with_words({"while True:": f"while {position} < {len(values)}:"}).run()
    bills = fake_kafka.records("bills", isolation_level="read_committed")
    assert sorted(each.value or b"" for each in bills) == values


def test_the_partitioner_keeps_a_partition_for_what_is_urgent(fake_kafka: FakeKafka) -> None:
    create, urgent = (
        programs()[name].at(fake_kafka.bootstrap_servers)
        for name in ("create_orders.py", "urgent_orders.py")
    )
    create.run()
    assert urgent.run().printed == "urgent 0\nusual 3\n"
