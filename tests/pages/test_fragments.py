"""Each Python block of README and the pages is run: no block is only read.

A block whose first line names a file is a program, which `programs` has and `test_bad_input` tries.
The others stand in `RUN_BY`, each with the test that runs it; what no other file runs runs here.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Consumer, ConsumerRecord, Producer, RebalanceListener, TopicPartition
from pykclient.errors import WakeupError
from tests.pages.programs import BLOCK, DOCS, Program
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import FakeKafka

pytestmark = pytest.mark.promise("the programs on the pages run unchanged")

ROOT = DOCS.parent
HERE = "tests/pages/test_fragments.py"
GUIDE = "tests/integration/test_consumer_guide.py"
README = "tests/integration/test_readme.py"
SECURITY = "tests/integration/test_security.py"
SPARK = "tests/spark/test_readme.py"
TRANSACTIONS = "tests/integration/test_transactions.py"
EXACTLY_ONCE = "tests/integration/test_exactly_once.py"
RUN_TIMEOUT_S = 60
OF_SPARK = f"{SPARK}::test_the_programs_of_the_connectors_page_run_one_after_the_other"
"""In `make soak`."""

RUN_BY = {
    ("README.md", "Produce"): f"{README}::greeted_kafka",
    ("README.md", "Consume in a group"): (
        f"{README}::test_the_consumer_reads_what_the_producer_sent_and_ends_at_sigterm"
    ),
    ("README.md", "Arrow and Spark"): f"{SPARK}::test_spark_counts_what_the_producer_sent",
    ("README.md", "Test with it"): f"{README}::test_the_cluster_of_the_example_takes_a_record",
    ("docs/coming-from-confluent-kafka.md", "A program before and after"): (
        f"{HERE}::test_the_program_of_before_charges_an_order"
    ),
    ("docs/consumer.md", "Which partitions"): f"{HERE}::test_a_listener_says_what_comes_and_goes",
    ("docs/consumer.md", "An assignor of your own"): (
        f"{GUIDE}::test_an_assignor_of_ones_own_assigns_by_weight"
    ),
    ("docs/consumer.md", "Bad records"): f"{HERE}::test_a_record_that_is_left_out_is_printed",
    ("docs/consumer.md", "Ending in the middle of a batch"): (
        f"{HERE}::test_a_loop_ends_in_the_middle_of_a_batch_at_sigterm"
    ),
    ("docs/operation.md", "Ending"): f"{HERE}::test_the_second_ctrl_c_is_pythons",
    ("docs/producer.md", "Interceptors"): f"{HERE}::test_an_interceptor_marks_each_record",
    ("docs/producer.md", "Transactions"): (
        f"{TRANSACTIONS}::test_the_program_of_the_page_sends_both_records"
    ),
    ("docs/producer.md", "Transactions that another process ends"): (
        "tests/integration/test_prepared_transactions.py"
        "::test_the_program_of_the_page_commits_the_bill"
    ),
    ("docs/producer.md", "Exactly once"): (
        f"{EXACTLY_ONCE}::test_the_program_of_the_page_bills_each_order_once"
    ),
    ("docs/security.md", ""): f"{SECURITY}::test_the_program_of_the_page_sends",
    ("docs/serialization.md", "For type checkers"): f"{HERE}::test_orders_are_added_up",
    ("docs/spark.md", ""): OF_SPARK,
    ("docs/spark.md", "Exactly once"): OF_SPARK,
    ("docs/spark.md", "Lag"): OF_SPARK,
    ("docs/spark.md", "Coming from the official connector"): OF_SPARK,
    (
        "docs/testing.md",
        "Secured listeners",
    ): f"{HERE}::test_a_secured_cluster_starts_and_says_what_its_clients_set",
}
"""Page and heading of each block that is no program, and the test or fixture that runs it."""


def fragments() -> Iterator[tuple[tuple[str, str], str]]:
    """Yield blocks without a file name, by page and heading (empty before the first)."""
    for page in sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")]):
        heading = ""
        for section in re.split(r"^(?=## )", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
            if section.startswith("## "):
                heading = section.partition("\n")[0].removeprefix("## ")
            for name, text in BLOCK.findall(section):
                if not name:
                    yield (page.relative_to(ROOT).as_posix(), heading), text


def fragment(page: str, heading: str) -> Program:
    """Return the block below a heading of a page."""
    (text,) = [text for place, text in fragments() if place == (f"docs/{page}", heading)]
    return Program(page, heading, text)


def test_each_block_is_a_program_or_is_run_by_a_test_of_its_own() -> None:
    assert sorted(place for place, _ in fragments()) == sorted(RUN_BY)
    for place in RUN_BY.values():
        path, _, name = place.partition("::")
        assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), place


def test_a_listener_says_what_comes_and_goes(
    fake_kafka: FakeKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic("orders", 1)
    printed: list[str] = []

    def is_printed(word: str) -> bool:
        consumer.poll(0.1)
        printed.append(capsys.readouterr().out)
        return any(text.startswith(word) for text in printed)

    with Consumer(bootstrap_servers=fake_kafka.bootstrap_servers, group_id="g") as consumer:
        names = {"consumer": consumer, "RebalanceListener": RebalanceListener}
        exec(fragment("consumer.md", "Which partitions").text, names)  # the page is ours
        await_true(lambda: is_printed("came (TopicPartition"), "the partition has come")
    assert capsys.readouterr().out.startswith("go, and can still be committed (TopicPartition")


def test_a_record_that_is_left_out_is_printed(
    fake_kafka: FakeKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = fake_kafka.bootstrap_servers
    names: dict[str, Any] = {}
    exec(fragment("consumer.md", "Bad records").at(servers).text, names)  # the page is ours
    with Producer(bootstrap_servers=servers) as producer:
        for value in (b"1", b"{", b"3"):
            producer.send("orders", value).result()
    found: list[object] = []

    def is_at_the_end() -> bool:
        found.extend(record.value for record in consumer.poll(0.1))
        at_offset: int = consumer.position(partition)
        return at_offset == 3

    partition = TopicPartition("orders", 0)
    with names["consumer"] as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        await_true(is_at_the_end, "all records are read or left out")
    assert found == [1, 3]
    assert re.fullmatch(r"left out 0 1 \S.*\n", capsys.readouterr().out)


def test_a_loop_ends_in_the_middle_of_a_batch_at_sigterm(fake_kafka: FakeKafka) -> None:
    names: dict[str, Any] = {}
    exec(fragment("consumer.md", "Ending in the middle of a batch").text, names)  # the page is ours
    servers = fake_kafka.bootstrap_servers
    partition = TopicPartition("orders", 0)
    with Producer(bootstrap_servers=servers) as producer:
        for value in (b"1", b"2", b"3"):
            producer.send("orders", value, partition=0).result()
    handled: list[bytes | None] = []

    def handle(record: ConsumerRecord) -> None:
        handled.append(record.value)
        if record.value == b"2":
            signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    settings = {"bootstrap_servers": servers, "group_id": "g", "auto_offset_reset": "earliest"}
    try:
        with Consumer(settings) as consumer:
            consumer.subscribe(["orders"])
            names["run"](consumer, handle)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert handled == [b"1", b"2"]
    assert fake_kafka.committed("g")[partition].offset == 2


def test_the_second_ctrl_c_is_pythons(fake_kafka: FakeKafka) -> None:
    names: dict[str, Any] = {}
    exec(fragment("operation.md", "Ending").text, names)  # the page is ours
    before = signal.getsignal(signal.SIGINT)
    try:
        with Consumer(bootstrap_servers=fake_kafka.bootstrap_servers, group_id="g") as consumer:
            names["end_at_ctrl_c"](consumer)
            consumer.subscribe(["t"])
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(WakeupError):
                consumer.poll(RUN_TIMEOUT_S)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interceptor_marks_each_record(fake_kafka: FakeKafka) -> None:
    servers = fake_kafka.bootstrap_servers
    names: dict[str, Any] = {}
    exec(fragment("producer.md", "Interceptors").at(servers).text, names)  # the page is ours
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        record = next(iter(consumer))
    assert (record.value, list(record.headers)) == (b"lamp", [("origin", b"web")])


def test_orders_are_added_up(fake_kafka: FakeKafka) -> None:
    servers = fake_kafka.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        deliveries = [producer.send("orders", value) for value in (b"lamp 2", b"table 1", None)]
    assert [each.exception() for each in deliveries] == [None] * 3
    program = fragment("serialization.md", "For type checkers").at(servers)
    assert program.run().printed == "3\n"


def test_the_program_of_before_charges_an_order(fake_kafka: FakeKafka) -> None:
    servers, commit = fake_kafka.bootstrap_servers, "consumer.commit(message=message, "
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("orders", b"1").result()
    program = fragment("coming-from-confluent-kafka.md", "A program before and after").at(servers)
    program = program.with_words({commit: f"print('charged', flush=True); {commit}"})
    command = [sys.executable, "-c", program.text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "charged\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(RUN_TIMEOUT_S) == 0
    with fake_kafka.control() as cluster:
        assert cluster.partition(TopicPartition("charges", 0)).log.log_end_offset == 1


@pytest.mark.soak
@pytest.mark.kafka
def test_a_secured_cluster_starts_and_says_what_its_clients_set() -> None:
    names: dict[str, Any] = {}
    exec(fragment("testing.md", "Secured listeners").text, names)  # the page is ours
    settings = names["settings"]
    assert (settings["security_protocol"], settings["sasl_mechanism"]) == ("SASL_SSL", "PLAIN")
    assert '"username"="bob" "password"="bob-secret"' in settings["sasl_jaas_config"]
