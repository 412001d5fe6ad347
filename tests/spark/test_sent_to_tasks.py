"""Executors accept the pickles of drivers of their own version, and no others."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructType

from pykclient.version import __version__
from spark_connector.source import KafkaDataSource
from spark_connector.stream_reader import KafkaStreamReader

if TYPE_CHECKING:
    from collections.abc import Callable


VALUES = StructType().add("value", BinaryType())
READ = {"kafka.bootstrap.servers": "h1:9092", "subscribe": "a"}
WRITE = {"kafka.bootstrap.servers": "h1:9092", "topic": "a"}
OLD_EXECUTOR = """
import pickle, sys
from pykclient import version
version.__version__ = "0.0.9"
pickle.load(sys.stdin.buffer)
"""
OTHER_ENVIRONMENT = """
import pickle, sys
sys.modules["spark_connector"] = None
pickle.load(sys.stdin.buffer)
"""
USED_AGAIN = """
import gc, pickle, sys
pickled = sys.stdin.buffer.read()
for use in range(3):
    pickle.loads(pickled)
    print(gc.get_freeze_count() > 0)
"""


def pickled_by_spark(made: object) -> bytes:
    pickled: bytes = cloudpickle.dumps(made)  # type: ignore[no-untyped-call]
    return pickled


MADE: dict[str, Callable[[], object]] = {
    "source": lambda: KafkaDataSource(READ),
    "reader": lambda: KafkaDataSource(READ).reader(VALUES),
    "streamReader": lambda: KafkaStreamReader(READ, VALUES),
    "writer": lambda: KafkaDataSource(WRITE).writer(VALUES, overwrite=False),
    "streamWriter": lambda: KafkaDataSource(WRITE).streamWriter(VALUES, overwrite=False),
}


@pytest.mark.parametrize("name", MADE)
def test_another_version_is_named_before_anything_else(name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", OLD_EXECUTOR],
        input=pickle.dumps(MADE[name]()),
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 1
    assert (
        f"The driver has version {__version__} of pykclient, and this executor 0.0.9: install"
        in ended.stderr.decode().splitlines()[-1]
    )


@pytest.mark.parametrize("name", MADE)
def test_an_executor_without_the_package_says_what_runs_there_and_what_to_do(name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", OTHER_ENVIRONMENT],
        input=pickled_by_spark(MADE[name]()),
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 1
    last = ended.stderr.decode().splitlines()[-1]
    assert f"run {sys.executable}, which cannot load format 'pykafka'" in last
    assert f"install pykclient {__version__} there" in last
    assert "PYSPARK_PYTHON" in last


@pytest.mark.parametrize("name", MADE)
def test_the_same_version_gets_the_object(name: str) -> None:
    made = MADE[name]()
    for pickled in (pickle.dumps(made), pickled_by_spark(made)):
        again = pickle.loads(pickled)
        assert type(again) is type(made)
        assert repr(again.__dict__) == repr(made.__dict__)


@pytest.mark.parametrize(
    ("environ", "frozen"), [({"SPARK_REUSE_WORKER": "1"}, [False, True, True]), ({}, [False] * 3)]
)
def test_a_process_that_spark_uses_again_keeps_what_it_has_loaded_from_its_collector(
    environ: dict[str, str], frozen: list[bool]
) -> None:
    """Spark collects all garbage after each use: that took ten times as long as a small task."""
    ended = subprocess.run(
        [sys.executable, "-c", USED_AGAIN],
        input=pickle.dumps(MADE["reader"]()),
        env={**os.environ, **environ},
        capture_output=True,
        check=True,
    )
    assert ended.stdout.decode().split() == [str(one) for one in frozen]
