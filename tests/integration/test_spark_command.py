"""``pykclient spark transactions``: what a sink's query has left open, settled, on real brokers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Admin
from pykclient.cli import main
from spark_connector.exactly_once.cluster import SinkCluster
from spark_connector.exactly_once.names import ATOMIC_TASK
from spark_connector.exactly_once.protocol import (
    End,
    Report,
    SinkProtocol,
    SinkTakenOverError,
    Step,
    Steps,
)
from spark_connector.exactly_once.record import Written
from spark_connector.exactly_once.slots import Slots
from tests.integration.confluent_tools import confluent_create_topic
from tests.integration.test_transactions import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import KafkaCluster
    from spark_connector.exactly_once.protocol import Result

pytestmark = pytest.mark.kafka

QUERY = "the-query"


class LeftQuery:
    """A query whose driver has claimed its sink, and then died; and its Python worker."""

    def __init__(
        self, cluster: KafkaCluster, topic: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.cluster = cluster
        self.sink_id = self.topic = topic
        self.stderr = ""
        self._capsys = capsys
        self._settings = {"bootstrap.servers": cluster.bootstrap_servers}
        self.protocol = SinkProtocol(self.sink_id, ATOMIC_TASK)
        self.driver = SinkCluster(
            self.sink_id, topic, producer_settings=self._settings, admin_settings=self._settings
        )
        self.turn = self.driver.run(self.protocol.claim()).turn
        self._slots = Slots(self.sink_id, self._settings)

    def write(self, batch: int, task: int, value: bytes) -> Report:
        """Write a row in a transaction, and leave it open."""
        with self._slots.attempt(self.turn, batch) as attempt:
            attempt.producer.send(self.topic, value).result(30)
            prepared = attempt.prepare()
        return Report(self.turn, QUERY, task, Written(task, 1, *prepared))

    def decide(self, batch: int, *reports: Report) -> None:
        """Decide a batch, and commit nothing of it."""

        def cut(steps: Steps[int]) -> Steps[None]:
            step = next(steps)
            while not isinstance(step, End):
                step = steps.send((yield step))
            steps.close()

        self.driver.run(cut(self.protocol.commit(batch, reports)))

    def command(self, *arguments: str, status: int = 0) -> list[dict[str, Any]]:
        """Return the command's JSON output; `stderr` has its messages."""
        self._capsys.readouterr()
        servers = self.cluster.bootstrap_servers
        assert main(["spark", "transactions", "-b", servers, "-J", *arguments]) == status
        output, self.stderr = self._capsys.readouterr()
        return [json.loads(line) for line in output.splitlines()]

    def visible(self) -> list[bytes]:
        return read(self.cluster, self.topic, is_open=True)

    def close(self) -> None:
        self._slots.close()
        self.driver.close()


@pytest.fixture
def left(
    each_kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> Iterator[LeftQuery]:
    topic = confluent_create_topic(each_kafka_cluster, "settled", partition_count=2)
    found = LeftQuery(each_kafka_cluster, topic, capsys)
    yield found
    found.close()


def test_what_is_undecided_is_aborted(left: LeftQuery) -> None:
    report = left.write(0, 0, b"lost")
    assert report.written is not None
    (row,) = left.command(left.sink_id)
    assert row["transactional_id"] == report.written.transactional_id
    assert (row["turn"], row["is_decided"], row["timeout_ms"]) == (1, "no", 60_000)
    assert row["open_ms"] >= 0
    assert [*row["partitions"]] == [left.topic]
    assert "nothing was changed; if the query will not restart" in left.stderr
    assert len(left.command(left.sink_id)) == 1
    left.command(left.sink_id, "--execute")
    assert "0 transactions were committed, 1 aborted" in left.stderr
    assert left.command(left.sink_id) == []
    assert "no transactions are open" in left.stderr
    assert left.visible() == []
    # A query that is not gone, after all, cannot decide what was aborted.
    with pytest.raises(SinkTakenOverError):
        left.driver.run(left.protocol.commit(0, [report]))


def test_what_is_decided_is_committed(left: LeftQuery) -> None:
    decided = [left.write(0, task, b"%d" % task) for task in (0, 1)]
    left.write(0, 1, b"copy")
    left.decide(0, *decided)
    assert [row["is_decided"] for row in left.command(left.sink_id)].count("yes") == 2
    left.command(left.sink_id, "--execute")
    assert "2 transactions were committed, 1 aborted" in left.stderr
    assert left.visible() == [b"0", b"1"]
    assert left.command(left.sink_id) == []


def test_rows_that_brokers_had_aborted_are_named(left: LeftQuery) -> None:
    decided = [left.write(0, task, b"%d" % task) for task in (0, 1)]
    left.decide(0, *decided)

    def one(step: Step) -> Steps[Result]:
        return (yield step)

    (written,) = (each.written for each in decided[1:])
    assert written is not None
    left.driver.run(one(End((written,), is_commit=False)))
    left.command(left.sink_id, "--execute", status=1)
    assert "1 transactions were committed, 0 aborted" in left.stderr
    assert (
        "rows of the last batch are missing, since brokers aborted them (task 1: 1)" in left.stderr
    )
    assert left.visible() == [b"0"]


def test_sinks_are_listed_and_a_name_that_is_none_is_said(left: LeftQuery) -> None:
    left.write(0, 0, b"lost")
    found = {row["sink"]: row["open"] for row in left.command()}
    assert found[left.sink_id] == 1
    assert left.command(f"no-{left.sink_id}", status=1) == []
    assert f"no query has written to sink 'no-{left.sink_id}'" in left.stderr
    left.command("--execute", status=1)
    assert "name the sink to settle" in left.stderr
    assert left.command("a:b", status=1) == []
    assert "letters, digits, dots, dashes" in left.stderr
    with Admin(bootstrap_servers=left.cluster.bootstrap_servers) as admin:
        admin.delete_groups([f"pykafka-sink:{left.sink_id}"])
    # Its record is gone, and what is open is settled all the same.
    assert len(left.command(left.sink_id)) == 1
    left.command(left.sink_id, "--execute")
    assert "0 transactions were committed, 1 aborted" in left.stderr
