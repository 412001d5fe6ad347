"""Many threads send, flush and read at once; on a free-threaded interpreter, too, if there is one.

``PYKCLIENT_FREE_THREADED_PYTHON`` names it; else a ``python3.14t`` or ``python3.13t`` of the path
is taken. What we depend on has to be installed for it; for the compiled core, build it in place
with ``python3.14t setup.py build_ext --inplace``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient.accel import implementation

if TYPE_CHECKING:
    from pykclient.testing import FakeKafka

ROOT = Path(__file__).parents[2]
COUNT = 200
TIMEOUT_S = 150.0
NAMES = ("python3.14t", "python3.13t")
DESCRIBE = "import sysconfig, crc32c, lz4; print(sysconfig.get_config_var('EXT_SUFFIX'))"

each_core = pytest.mark.parametrize("core", ["compiled", "pure"])


def stress(python: str, fake: FakeKafka, core: str) -> str:
    """Run the program; return what it prints at its end."""
    with fake.control() as cluster:
        cluster.create_topic("stress", 3)
    done = subprocess.run(
        [python, "-m", "tests.stress.program", fake.bootstrap_servers, str(COUNT)],
        env=os.environ | {"PYKCLIENT_ACCEL": core},
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout.strip()


def free_threaded_python(core: str) -> str:
    """Return an interpreter without the GIL that can run us; skip the test where there is none."""
    given = os.environ.get("PYKCLIENT_FREE_THREADED_PYTHON")
    python = given or next(filter(None, map(shutil.which, NAMES)), None)
    if python is None:
        pytest.skip(f"no {' or '.join(NAMES)} on the path; PYKCLIENT_FREE_THREADED_PYTHON is unset")
    described = subprocess.run(
        [python, "-c", DESCRIBE], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if described.returncode != 0:
        pytest.skip(f"{python} lacks what we depend on: {described.stderr.strip()[-200:]}")
    suffix = described.stdout.strip()
    if core == "compiled" and not list((ROOT / "pykclient/accel/compiled").glob(f"*{suffix}")):
        pytest.skip(f"the core is not built for {python}: {python} setup.py build_ext --inplace")
    return python


@pytest.mark.promise(
    "threads that send, flush and read concurrently lose nothing, with the GIL or without"
)
@each_core
def test_threads_that_send_flush_and_read_at_once_lose_nothing(
    core: str, fake_kafka: FakeKafka
) -> None:
    if core == "compiled" and implementation != "compiled":
        pytest.skip("the core is not compiled here")
    stress(sys.executable, fake_kafka, core)


@pytest.mark.promise(
    "threads that send, flush and read concurrently lose nothing, with the GIL or without"
)
@each_core
def test_nor_do_they_without_the_gil(core: str, fake_kafka: FakeKafka) -> None:
    assert stress(free_threaded_python(core), fake_kafka, core) == "no GIL"
