"""The connector on executors: how they get the wheel, errors about its version, and secrets.

Each test starts a driver on a cluster whose executors lack the package: `make soak`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient import Producer
from pykclient.testing.cluster.java import MissingPrerequisiteError
from pykclient.testing.fixtures import skip_or_fail
from pykclient.testing.spark_cluster.cluster import SparkCluster
from pykclient.version import __version__
from tests.chaos.spark.canary import SECRET, hide_secret, shown
from tests.spark.redaction import SETTING, advised_pattern
from tests.spark.test_redaction import secret_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[3]
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
PACKAGE_PATH = os.pathsep.join([str(ROOT), str(SITE_PACKAGES)])
"""Path on which Spark's discovery finds this package; an editable install is not found."""
JOB = Path(__file__).with_name("executors_job.py")
FOR_SPARK = (
    *("pyspark", "py4j", "pyarrow*", "numpy*", "pandas*", "dateutil", "six.py", "pytz", "tzdata"),
)
"""PySpark and its dependencies, which a cluster has."""
NO_SOURCE = shutil.ignore_patterns(
    *(".git", ".venv", "build", "dist", "*.egg-info", "*.so", "__pycache__", ".*cache"),
    *(".hypothesis", ".coverage*"),
)
TIMEOUT_S = 600.0
COUNT = 30
FOLDER = "environment"
OTHER_VERSION = "0.0.9"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an executor's Python with PySpark's dependencies and without this package."""
    return spark_python(tmp_path_factory.mktemp("executor"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, target = tmp_path_factory.mktemp("build") / "source", tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, source, ignore=NO_SOURCE)
    pip("wheel", "--no-build-isolation", "--wheel-dir", target, source)
    (found,) = target.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an executor's Python with the wheel installed."""
    python = spark_python(tmp_path_factory.mktemp("installed"))
    pip("install", wheel, python=python)
    add_dependencies(packages_of(python))
    return python


def spark_python(folder: Path) -> Path:
    """Make a virtual environment with PySpark's dependencies only, and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    for pattern in FOR_SPARK:
        for found in SITE_PACKAGES.glob(pattern):
            (packages_of(python) / found.name).symlink_to(found)
    return python


def packages_of(python: Path) -> Path:
    """Return the folder of the packages of a virtual environment."""
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    return packages


def pip(command: str, *arguments: str | Path, python: Path = Path(sys.executable)) -> None:
    """Run pip without a network and without dependencies."""
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--quiet", "--python", python),
            *(command, "--no-index", "--no-deps", *arguments),
        ],
        # With PYTHONPATH, pip would find this work tree, and assume the package is installed.
        env={**os.environ, "PYTHONPATH": "", "PYKCLIENT_BUILD": "pure"},
        check=True,
    )


def add_dependencies(packages: Path) -> None:
    """Copy this package's dependencies to the folder of its wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in (re.split("[<>=~]", wanted)[0] for wanted in project["dependencies"]):
        for file in distribution(name).files or ():
            if ".." not in file.parts:
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), packages / file)


@pytest.fixture(scope="module")
def bare_cluster() -> Iterator[SparkCluster]:
    """Start a cluster whose executors have the package only if the driver sends it."""
    try:
        cluster = SparkCluster(environment={"PYTHONPATH": ""})
    except MissingPrerequisiteError as error:
        skip_or_fail(str(error))
    with cluster:
        yield cluster


@pytest.fixture(scope="module")
def packed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with the package and its dependencies, as `pip install --target` does."""
    target = tmp_path_factory.mktemp("packed")
    pip("install", "--target", target, wheel)
    add_dependencies(target)
    return target


@pytest.fixture(scope="module")
def topic(kafka_cluster: KafkaCluster) -> str:
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        for number in range(COUNT):
            producer.send("executors", b"%d" % number)
    return "executors"


def read_options(kafka: KafkaCluster, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic}


@pytest.mark.promise("the wheel reaches executors by spark.archives")
def test_executors_have_the_package_from_an_archive(
    bare_cluster: SparkCluster,
    python: Path,
    packed: Path,
    kafka_cluster: KafkaCluster,
    topic: str,
    tmp_path: Path,
) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", packed))
    driver = bare_cluster.submit(
        JOB,
        json.dumps(read_options(kafka_cluster, topic)),
        settings={
            "spark.archives": f"{archive}#{FOLDER}",
            "spark.executorEnv.PYTHONPATH": FOLDER,
        },
        # Data sources are planned on the driver, by the same Python.
        environment={
            "PYSPARK_PYTHON": str(python),
            "PYTHONPATH": PACKAGE_PATH,
        },
    )
    status, log = driver.wait(TIMEOUT_S), driver.log_text()
    assert status == 0, log[-3_000:]
    count, files, _ = json.loads(log.partition("\nREAD ")[2].partition("\n")[0])
    assert count == COUNT
    assert files
    work = bare_cluster.folder / "work"
    for file in map(Path, files):
        assert file.is_relative_to(FOLDER) or file.is_relative_to(work)
        assert f"{FOLDER}/spark_connector" in str(file)


def test_executors_have_the_package_that_pip_has_installed(
    bare_cluster: SparkCluster, installed_python: Path, kafka_cluster: KafkaCluster, topic: str
) -> None:
    driver = bare_cluster.submit(
        JOB,
        json.dumps(read_options(kafka_cluster, topic)),
        settings={"spark.pyspark.python": str(installed_python)},
        # The process on the driver that plans data sources runs the environment's Python.
        environment={
            "PYSPARK_PYTHON": str(installed_python),
            "PYSPARK_DRIVER_PYTHON": str(installed_python),
            "PYTHONPATH": "",
        },
    )
    status, log = driver.wait(TIMEOUT_S), driver.log_text()
    assert status == 0, log[-3_000:]
    count, files, of_driver = json.loads(log.partition("\nREAD ")[2].partition("\n")[0])
    assert count == COUNT
    assert files == [of_driver]
    assert Path(of_driver).is_relative_to(packages_of(installed_python) / "spark_connector")


def test_another_version_on_the_executors_is_named(
    installed_python: Path, packed: Path, kafka_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    other = shutil.copytree(packed, tmp_path / "other")
    version = other / "pykclient" / "version.py"
    version.write_text(version.read_text().replace(__version__, OTHER_VERSION))
    with SparkCluster(environment={"PYTHONPATH": str(other)}) as cluster:
        driver = cluster.submit(
            JOB,
            json.dumps(read_options(kafka_cluster, topic)),
            environment={
                "PYSPARK_PYTHON": str(installed_python),
                "PYSPARK_DRIVER_PYTHON": str(installed_python),
                "PYTHONPATH": "",
            },
        )
        status, log = driver.wait(TIMEOUT_S), driver.log_text()
    assert status != 0, log[-3_000:]
    named = f"The driver has version {__version__} of pykclient, and this executor {OTHER_VERSION}"
    assert named in log, log[-3_000:]


@pytest.mark.promise("no plan, log, event log or error of a Spark query shows a secret")
def test_a_secret_is_nowhere_to_be_seen(
    spark_cluster: SparkCluster, kafka_cluster: KafkaCluster, topic: str
) -> None:
    folder = spark_cluster.folder
    events = folder / "events"
    events.mkdir(exist_ok=True)
    job = {
        "servers": kafka_cluster.bootstrap_servers,
        "source": topic,
        "sink": "secrets-written",
        "secret": str(hide_secret(folder)),
        "checkpoint": str(folder / "secrets-checkpoint"),
        "options": sorted(secret_options()),
    }
    driver = spark_cluster.submit(
        Path(__file__).with_name("secrets_job.py"),
        json.dumps(job),
        settings={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": str(events),
            SETTING: advised_pattern(),
        },
        environment={"PYTHONPATH": PACKAGE_PATH},
    )
    status, log = driver.wait(TIMEOUT_S), driver.log_text()
    assert status == 0, log[-3_000:]
    assert "\nDONE" in log
    assert log.count("\nFAILED ") == 6
    plans = shown(folder, "SparkListenerSQLExecutionStart")
    # The event log contains the options of the writes by name.
    for option in ("kafka.misspelled", *secret_options()):
        hidden = f"{option}=*********(redacted)"
        assert any(path.is_relative_to(events) for path in shown(folder, hidden)), option
    assert any(path.is_relative_to(events) for path in plans)
    assert shown(folder, SECRET) == []
