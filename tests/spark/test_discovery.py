"""Ways in which Spark finds the format: by the name of a module, or by `register`."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast
from unittest.mock import Mock

import pytest

import spark_connector
from pykclient.errors import UsageError
from pyspark_pykafka import DefaultSource
from spark_connector.source import KafkaDataSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pykclient.testing import KafkaCluster


def printed_by(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_module_that_spark_looks_for_holds_the_source() -> None:
    assert DefaultSource is KafkaDataSource
    assert DefaultSource.name() == "pykafka"


def test_the_module_that_spark_looks_for_never_fails() -> None:
    """One such module that raises makes Spark skip the sources of all of them."""
    program = "import sys; sys.modules['pyspark'] = None; import pyspark_pykafka as found; "
    assert printed_by(f"{program} print(hasattr(found, 'DefaultSource'))") == "False"


def test_a_file_that_hides_the_package_is_named_by_the_first_use_of_the_format(
    tmp_path: Path,
) -> None:
    """As a program of the user's called so does, whose folder comes first."""
    hiding = tmp_path / "spark_connector.py"
    hiding.write_text("")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import pyspark_pykafka as found\n"
        f"print(found.DefaultSource.name())\n"
        f"try: found.DefaultSource({{}})\n"
        f"except ImportError as error: print(error)"
    )
    assert printed_by(program).splitlines() == [
        "pykafka",
        f"Format 'pykafka' cannot be loaded: {hiding} hides the package spark_connector. Rename "
        f"that file.",
    ]


def test_the_module_that_spark_looks_for_loads_nothing_heavy() -> None:
    program = (
        "import pyspark.sql.datasource, sys; before = set(sys.modules); import pyspark_pykafka; "
    )
    loaded = printed_by(f"{program} print(*(set(sys.modules) - before))").split()
    assert {name.split(".")[0] for name in loaded} == {"pyspark_pykafka", "spark_connector"}


def test_an_older_pyspark_is_refused_by_name_with_the_cure() -> None:
    """The module that Spark looks for does not raise it: it has no source then."""
    program = (
        "import pyspark; pyspark.__version__ = '3.5.9'; import pyspark_pykafka\n"
        "print(hasattr(pyspark_pykafka, 'DefaultSource'))\n"
        "try: import spark_connector.source\n"
        "except ImportError as error: print(error)"
    )
    assert printed_by(program).splitlines() == [
        "True",
        "Format 'pykafka' needs PySpark 4.0 or newer, and this is 3.5.9: "
        "pip install --upgrade 'pyspark[connect]'",
    ]


def session_with(python: str) -> SparkSession:
    """Make a session with the attributes that `register` uses."""
    context = SimpleNamespace(pythonExec=python)
    return cast("SparkSession", SimpleNamespace(sparkContext=context, dataSource=Mock()))


def test_workers_without_the_package_are_refused_with_the_cure(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    session = session_with(str(python))
    with pytest.raises(UsageError, match=r"No module named 'spark_connector'.*PYSPARK_PYTHON"):
        spark_connector.register(session)
    assert not session.dataSource.register.mock_calls  # type: ignore[attr-defined]


@pytest.mark.parametrize("python", [sys.executable, "./environment/bin/python"])
def test_workers_that_may_have_the_package_are_not_refused(python: str) -> None:
    session = session_with(python)
    spark_connector.register(session)
    session.dataSource.register.assert_called_once_with(KafkaDataSource)  # type: ignore[attr-defined]


@pytest.mark.kafka
@pytest.mark.spark
def test_a_session_can_register_the_format(
    spark: SparkSession, kafka_cluster: KafkaCluster
) -> None:
    session = spark.newSession()
    spark_connector.register(session)
    records = (
        session.read.format("pykafka")
        .option("kafka.bootstrap.servers", kafka_cluster.bootstrap_servers)
        .option("subscribePattern", "no topic has such a name")
        .load()
    )
    assert records.count() == 0
