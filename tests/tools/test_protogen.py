"""The generated files are what the tool writes, and the tool notices when they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykclient.testing.cluster.java import MissingPrerequisiteError
from tests.java_mirror import java_with_compiler
from tests.protocol.schemas import jar_or_skip
from tests.testing.test_jvm import fake_java
from tools.protogen.__main__ import main

jar_or_skip()

ROOT = Path(__file__).parents[2]
FETCH = Path("pykclient/protocol/messages/fetch.py")


@pytest.fixture(scope="module")
def _compiler() -> None:
    """The error codes are read by a Java program in source form."""
    java_with_compiler()


@pytest.mark.promise("the messages are generated; `--check` fails when the output differs")
@pytest.mark.usefixtures("_compiler")
def test_check_names_what_differs_and_writing_cures_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--into", str(tmp_path)]
    assert main(arguments) == 0
    generated = (tmp_path / FETCH).read_bytes()
    assert generated == (ROOT / FETCH).read_bytes()
    (tmp_path / FETCH).write_text("changed")
    (tmp_path / FETCH).with_name("old_api.py").write_text("stale")
    capsys.readouterr()

    assert main([*arguments, "--check"]) == 1
    output = capsys.readouterr().out
    assert f"differs: {FETCH}" in output
    assert "differs: pykclient/protocol/messages/old_api.py" in output
    assert "produce.py" not in output

    assert main(arguments) == 0
    assert (tmp_path / FETCH).read_bytes() == generated
    assert not (tmp_path / FETCH).with_name("old_api.py").exists()


def test_a_java_without_a_compiler_checks_all_but_the_error_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a Java is what `make` installs where there is none, and Kafka runs on it."""
    fake_java(tmp_path, "25", "java.base@25\njava.compiler@25")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["--check"]) == 0, capsys.readouterr().out
    assert "not checked: pykclient/errors/broker.py" in capsys.readouterr().out
    with pytest.raises(MissingPrerequisiteError, match="full JDK"):
        main(["--into", str(tmp_path)])
    assert not (tmp_path / FETCH).exists()
