"""The tests of the pages, which are a reader's own: run by pytest, and on a real Kafka."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.pages.programs import DOCS, programs

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = pytest.mark.promise("the programs on the pages run unchanged")

RUN_TIMEOUT_S = 60


def test_the_tests_on_fake_brokers_pass(tmp_path: Path) -> None:
    for name in ("test_orders.py", "test_charges.py", "test_faults.py", "test_settings.py"):
        (tmp_path / name).write_text(programs()[name].text, encoding="utf-8")
    completed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(DOCS.parent)},
        timeout=RUN_TIMEOUT_S,
    )
    assert completed.returncode == 0, completed.stdout
    assert "9 passed" in completed.stdout


@pytest.mark.kafka
def test_the_tests_on_a_real_kafka_pass(kafka_cluster_factory: KafkaClusterFactory) -> None:
    names: dict[str, Any] = {"__name__": "test_real_kafka"}
    exec(programs()["test_real_kafka.py"].text, names)
    with kafka_cluster_factory(proxied=True) as kafka:
        tests = [test for name, test in names.items() if name.startswith("test_")]
        assert len(tests) == 2
        for test in tests:
            test(kafka)
