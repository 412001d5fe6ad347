"""The programs of docs/operation.md, and what the page says of outages and processes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any
from wsgiref.util import setup_testing_defaults

import pytest

from pykclient import Producer
from pykclient.errors import TopicAuthorizationFailedError
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import faults
from pykclient.testing.port import PortReservation
from tests.pages.programs import DOCS, programs

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing import FakeKafka

pytestmark = pytest.mark.promise("the programs on the pages run unchanged")

ORDER_COUNT = 300
RUN_TIMEOUT_S = 60


@pytest.fixture
def ordered(fake_kafka: FakeKafka) -> FakeKafka:
    """Brokers with some orders."""
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        producer.send_batch("orders", [b"%d" % number for number in range(ORDER_COUNT)]).result()
        producer.partitions_for("bills")  # which makes it
    return fake_kafka


def bill_count(fake: FakeKafka) -> int:
    with fake.control() as cluster:
        return sum(each.log.log_end_offset for each in cluster.topics["bills"].partitions)


def run_until_billed(fake: FakeKafka, count: int) -> int:
    """Run the service until there are this many bills with committed orders; return its status."""
    program = programs()["bill_orders.py"].at(fake.bootstrap_servers)
    commit = "consumer.commit(records)"
    program = program.with_words({commit: f'{commit}; log.info("committed")'})
    return program.run(
        stop_when=lambda text: text == "committed" and bill_count(fake) >= count
    ).status


def test_each_order_is_billed_once(ordered: FakeKafka) -> None:
    assert run_until_billed(ordered, ORDER_COUNT) == 0
    with Producer(bootstrap_servers=ordered.bootstrap_servers) as producer:
        producer.send("orders", b"one more").result()
    assert run_until_billed(ordered, ORDER_COUNT + 1) == 0
    assert bill_count(ordered) == ORDER_COUNT + 1


def test_a_bill_that_is_refused_ends_the_service_with_its_orders_uncommitted(
    ordered: FakeKafka,
) -> None:
    with ordered.control() as cluster:
        refusal = faults.fail_with(TopicAuthorizationFailedError)
        cluster.faults.add(refusal, ApiKey.PRODUCE, times=None)
    ended = programs()["bill_orders.py"].at(ordered.bootstrap_servers).run()
    assert ended.status == 1
    assert ended.said.startswith("bill_orders: TOPIC_AUTHORIZATION_FAILED")
    assert ended.said.count("\n") == 1
    with ordered.control() as cluster:
        cluster.faults.clear()
    assert run_until_billed(ordered, ORDER_COUNT) == 0


class Web:
    """A worker of gunicorn, without gunicorn: its hooks, and the application's requests."""

    def __init__(self, servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._web = ModuleType("web")
        exec(programs()["web.py"].at(servers).text, vars(self._web))
        monkeypatch.setitem(sys.modules, "web", self._web)
        hooks: dict[str, Any] = {}
        exec(programs()["gunicorn.conf.py"].text, hooks)
        hooks["post_worker_init"](None)
        self.end = partial(hooks["worker_exit"], None, None)

    def post(self, body: bytes) -> tuple[str, bytes]:
        environ: dict[str, Any] = {}
        setup_testing_defaults(environ)
        environ |= {"CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
        started: list[str] = []
        parts = self._web.application(environ, lambda status, _: started.append(status))
        return started[0], b"".join(parts)


def test_the_web_application_reports_where_the_record_is(
    fake_kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = Web(fake_kafka.bootstrap_servers, monkeypatch)
    assert web.post(b"lamp") == ("201 Created", b"placed: orders-0 at 0\n")
    web.end()
    assert web.post(b"lamp")[0].startswith("503")


def test_the_web_application_says_why_it_placed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reservation = PortReservation()
    web = Web(f"127.0.0.1:{reservation.port}", monkeypatch)
    status, body = web.post(b"lamp")
    web.end()
    reservation.close()
    assert status.startswith("503")
    assert b"connection refused" in body
    assert body.count(b"\n") == 1


def test_the_pool_prices_every_order_and_ends_at_sigterm(
    ordered: FakeKafka, tmp_path: Path
) -> None:
    program = programs()["price_orders.py"].at(ordered.bootstrap_servers)
    (tmp_path / program.name).write_text(program.text, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, program.name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(DOCS.parent)},
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(ORDER_COUNT)]
        process.send_signal(signal.SIGTERM)
        rest, said = process.communicate(timeout=RUN_TIMEOUT_S)
    assert (process.returncode, rest) == (0, "")
    assert "Traceback" not in said
    assert [int(line.split()[1]) for line in lines] == list(range(ORDER_COUNT))
    assert [int(line.split()[2]) for line in lines] == [
        sum(b"%d" % number) for number in range(ORDER_COUNT)
    ]
