"""Users install a wheel for every platform, with the packages and nothing else.

The build takes setuptools from this environment, so that it needs no network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from pykclient.version import __version__

ROOT = Path(__file__).parents[1]
PACKAGES = {"pykclient", "spark_connector", "pyspark_pykafka"}
TIMEOUT_S = 240

SHOW_CORE = """
from pykclient import accel
print(accel.implementation, accel.implementation_note, sep="\\n")
"""
PIP = (sys.executable, "-m", "pip")
INSTALL = ("install", "--no-compile")
FROM_SOURCE = ("--no-index", "--no-deps", "--no-build-isolation")

# What builds, tools and tests leave behind; git does not see it, and a build must not either.
LEFT_BEHIND = shutil.ignore_patterns(
    *(".git", ".venv", "build", "dist", "demo-output", "*.egg-info", "*.so", "__pycache__"),
    "build_failure.txt",
    *(".*cache", ".hypothesis", ".coverage*", "spark-warehouse", "metastore_db"),
)


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command and return its output; a failure shows all of it.

    It runs without PYTHONPATH, which the Spark tests set for their workers: through it, pip would
    see this work tree's installation and take the wheel for installed.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    completed = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
        check=False,
        text=True,
    )
    assert completed.returncode == 0, completed.stdout
    return completed.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the folder with the sdist and the pure wheel, which is built from the sdist."""
    source, target = tmp_path_factory.mktemp("build") / "source", tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT, source, ignore=LEFT_BEHIND)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target)]
    run(*command, cwd=source, PYKCLIENT_BUILD="pure")
    return target


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the Python of a fresh environment that has the wheel and none of its dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    run(*PIP, "--python", python, *INSTALL, "--no-index", "--no-deps", wheel, cwd=folder)
    return python


@pytest.fixture(scope="module")
def wheel_without_compiler(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the wheel that an install from the sdist makes where no compiler is.

    Method: the compiler's name leads nowhere, and there is no other program on the PATH.
    """
    (sdist,) = dist.glob("*.tar.gz")
    folder = tmp_path_factory.mktemp("no_compiler")
    no_compiler = {"CC": "no-such-compiler", "CXX": "no-such-compiler", "PATH": ""}
    run(*PIP, "wheel", *FROM_SOURCE, "-w", folder, sdist, cwd=folder, **no_compiler)
    (found,) = folder.glob("*.whl")
    return found


def test_the_pure_build_fits_every_platform(wheel: Path) -> None:
    assert wheel.name == f"pykclient-{__version__}-py3-none-any.whl"


@pytest.mark.soak
@pytest.mark.slow
def test_a_build_with_a_compiler_is_of_its_platform_and_has_the_compiled_core(
    dist: Path, tmp_path: Path
) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    run(
        *PIP, "wheel", *FROM_SOURCE, "-w", tmp_path, sdist, cwd=tmp_path, PYKCLIENT_BUILD="compiled"
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert not wheel.name.endswith("-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    sources = [str(path.relative_to(ROOT)) for path in (ROOT / "pykclient").rglob("*.pyx")]
    assert {name for name in names if name.endswith(suffix)} == {
        name.removesuffix(".pyx") + suffix for name in sources
    }
    assert not {name for name in names if name.endswith((".pyx", ".pxd", ".c", ".txt"))} - {
        f"pykclient-{__version__}.dist-info/{name}"
        for name in ("entry_points.txt", "top_level.txt")
    }
    assert run(sys.executable, "-c", SHOW_CORE, cwd=tmp_path / "site") == "compiled\nNone\n"


def test_the_wheel_holds_the_packages_their_types_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == PACKAGES | {f"pykclient-{__version__}.dist-info"}
    assert {"pykclient/py.typed", "spark_connector/py.typed"} <= set(names)
    in_tree = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    assert {name for name in names if name.endswith(".py")} == in_tree


def test_the_sdist_holds_what_a_build_needs(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "pykclient/py.typed", "setup.py"} <= names
    package = ROOT / "pykclient"
    in_tree = {str(path.relative_to(ROOT)) for path in package.rglob("*.p[yx][xd]")}
    assert in_tree == {name for name in names if name.endswith((".pyx", ".pxd"))}


def test_the_sdist_holds_nothing_that_no_build_needs(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {each.name.partition("/")[2] for each in archive.getmembers() if each.isfile()}
    beside_packages = {name for name in files if name.partition("/")[0] not in PACKAGES}
    assert {name for name in beside_packages if ".egg-info/" not in name} == {
        *("LICENSE", "MANIFEST.in", "PKG-INFO", "README.md"),
        *("pyproject.toml", "setup.cfg", "setup.py"),
    }
    endings = {Path(name).suffix or Path(name).name for name in files - beside_packages}
    assert endings == {".py", ".pyx", ".pxd", ".toml", ".typed", ".sha256"}


def test_an_index_takes_them(dist: Path) -> None:
    packages = sorted(dist.iterdir())
    assert len(packages) == 2
    checked = run(sys.executable, "-m", "twine", "check", "--strict", *packages, cwd=dist)
    assert checked.count("PASSED") == 2


def test_the_wheels_metadata_has_what_it_needs_and_offers(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = f"pykclient-{__version__}.dist-info"
        metadata = message_from_string(archive.read(f"{name}/METADATA").decode())
        license_text = archive.read(f"{name}/licenses/LICENSE").decode()
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Apache License" in license_text
    extras = set(metadata.get_all("Provides-Extra", []))
    assert {"spark", "arrow", "cli", "zstd"} <= extras
    assert not extras & {"bench", "dev", "docs"}
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(line.partition(">")[0] for line in needed) == [
        *("cramjam", "crc32c"),
    ]


@pytest.mark.promise(
    "installing needs no compiler; clients log at INFO why the compiled core is missing"
)
def test_an_install_from_source_needs_no_compiler(
    wheel_without_compiler: Path, tmp_path: Path
) -> None:
    install = (*INSTALL, "--no-index", "--no-deps")
    run(*PIP, *install, "--target", tmp_path, wheel_without_compiler, cwd=tmp_path)
    assert (tmp_path / "pykclient" / "producer" / "producer.py").is_file()
    implementation, note = run(sys.executable, "-c", SHOW_CORE, cwd=tmp_path).splitlines()
    assert implementation == "pure"
    assert "the compiled core was not built" in note
    assert "no-such-compiler" in note


def test_a_wheel_that_is_built_without_a_compiler_fits_every_platform(
    wheel_without_compiler: Path,
) -> None:
    wheel = wheel_without_compiler
    assert wheel.name == f"pykclient-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert (
            "Root-Is-Purelib: true"
            in archive.read(f"pykclient-{__version__}.dist-info/WHEEL").decode()
        )
        assert "pykclient/accel/pure/send.py" in archive.namelist()


def test_the_installed_package_imports_without_its_dependencies(installed: Path) -> None:
    program = "import pykclient.testing, pykclient.errors, sys; print(pykclient.__file__)"
    location = Path(run(installed, "-I", "-c", program, cwd=installed.parent).strip())
    assert location.is_relative_to(installed.parents[1])


def test_the_installed_package_has_its_pytest_plugin(installed: Path) -> None:
    program = (
        "from importlib.metadata import entry_points\n"
        "(plugin,) = entry_points(group='pytest11', name='pykclient')\n"
        "print(plugin.value)\n"
    )
    assert run(installed, "-I", "-c", program, cwd=installed.parent) == (
        "pykclient.testing.fixtures\n"
    )
