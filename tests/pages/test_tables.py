"""The programs of docs/admin.md and docs/arrow.md."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest

from pykclient import Consumer, Producer, TopicPartition
from pykclient.errors import MessageTooLargeError
from pykclient.testing import ApiKey, faults
from tests.pages.programs import programs

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing import FakeKafka

pytestmark = pytest.mark.promise("the programs on the pages run unchanged")

ROWS = ("lamp,2", "table,1")


@pytest.fixture
def csv_file(tmp_path: Path) -> str:
    path = tmp_path / "orders.csv"
    path.write_text("\n".join(["item,count", *ROWS]), encoding="utf-8")
    return str(path)


def test_topics_are_set_up_once(fake_kafka: FakeKafka) -> None:
    program = programs()["set_up.py"].at(fake_kafka.bootstrap_servers)
    first = program.run().printed.splitlines()
    assert [line.split()[0] for line in first] == ["orders", "customers"]
    assert program.run().printed.splitlines() == [
        *("orders is there already", "customers is there already"),
        *first,
    ]


def test_what_a_topic_keeps_is_shown_and_altered(fake_kafka: FakeKafka) -> None:
    programs()["set_up.py"].at(fake_kafka.bootstrap_servers).run()
    program = programs()["keep_longer.py"].at(fake_kafka.bootstrap_servers)
    printed = [program.run().printed for _ in range(2)]
    assert printed == [
        f"orders are kept for {days * 24 * 3_600_000} ms, by TOPIC_CONFIG\n" for days in (7, 30)
    ]


def test_a_topic_grows_once(fake_kafka: FakeKafka) -> None:
    programs()["set_up.py"].at(fake_kafka.bootstrap_servers).run()
    program = programs()["grow.py"].at(fake_kafka.bootstrap_servers)
    assert [program.run().printed for _ in range(2)] == ["8 partitions\n"] * 2


def test_a_table_goes_out_and_comes_back_as_files(
    fake_kafka: FakeKafka, csv_file: str, tmp_path: Path
) -> None:
    send, archive = (
        programs()[name].at(fake_kafka.bootstrap_servers)
        for name in ("send_csv.py", "archive_orders.py")
    )
    assert send.run(csv_file).printed == "2 records\n"
    assert archive.run(str(tmp_path)).printed == "2 records\n"
    table = pyarrow.parquet.read_table(sorted(tmp_path.glob("*.parquet")))
    assert sorted(table.column("key").to_pylist()) == [b"lamp", b"table"]
    assert b'{"item": "lamp", "count": 2}' in table.column("value").to_pylist()


def test_the_records_between_two_times_are_read(fake_kafka: FakeKafka) -> None:
    servers, minute_ms = fake_kafka.bootstrap_servers, 60_000
    now_ms = int(time.time() * 1000)
    program = programs()["orders_of_an_hour.py"].at(servers)
    with fake_kafka.control() as cluster:
        cluster.create_topic("orders", 2)  # a partition stays empty
    with Producer(bootstrap_servers=servers) as producer:
        for ago_min in (121, 119, 61):
            at_ms = now_ms - ago_min * minute_ms
            producer.send("orders", b"", partition=0, timestamp_ms=at_ms).result()
        assert program.run().printed == "2 orders in the hour before the last\n"
        producer.send("orders", b"", partition=0, timestamp_ms=now_ms - 59 * minute_ms).result()
    assert program.run().printed == "2 orders in the hour before the last\n"


def test_rows_that_fail_are_named(fake_kafka: FakeKafka, csv_file: str) -> None:
    with fake_kafka.control() as cluster:
        refusal = faults.fail_with(MessageTooLargeError)
        cluster.faults.add(refusal, ApiKey.PRODUCE, times=None)
    ended = programs()["send_csv.py"].at(fake_kafka.bootstrap_servers).run(csv_file)
    assert ended.status == 1
    assert ended.said.startswith("send_csv: 2 rows failed, from row 0 on: ")
    assert ended.said.count("\n") == 1


def test_the_lag_is_what_is_not_committed(fake_kafka: FakeKafka, csv_file: str) -> None:
    servers = fake_kafka.bootstrap_servers
    programs()["send_csv.py"].at(servers).run(csv_file)
    lag = programs()["lag.py"].at(servers)
    assert lag.run("shipping").printed == "shipping has committed nothing\n"
    with Consumer(bootstrap_servers=servers, group_id="shipping") as consumer:
        consumer.commit({TopicPartition("orders", 0): 1})
    assert lag.run("shipping").printed == "shipping {'orders': 1}\n"
