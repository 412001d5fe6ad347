"""The package on a Python like that of Windows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

IMPORT_ALL = """
import importlib, pkgutil
import tests.like_windows
import pykclient
names = [module.name for module in pkgutil.walk_packages(pykclient.__path__, "pykclient.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names) > 100)
"""
ROUND_TRIP = """
import os, socket, selectors
import tests.like_windows
from pykclient import Consumer, Producer
from pykclient.testing import FakeKafka

assert not hasattr(os, "fork") and not hasattr(socket.socket, "sendmsg")
with FakeKafka() as cluster:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, compression_type="lz4") as producer:
        for number in range(1000):
            producer.send("t", b"%d" % number, key=b"k")
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["t"])
        values = []
        while len(values) < 1000:
            values += [int(record.value) for record in consumer.poll(10)]
print(values == list(range(1000)))
"""


@pytest.mark.parametrize("program", [IMPORT_ALL, ROUND_TRIP], ids=["import", "round trip"])
def test_what_windows_lacks_is_not_needed(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
