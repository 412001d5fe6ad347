"""What becomes of a test that needs a Java compiler, on machines without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.java_mirror import java_with_compiler
from tests.testing.test_jvm import fake_java

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.promise(
    "without a Java compiler that comparison is skipped with its cure; in CI it fails"
)
@pytest.mark.parametrize(
    ("ci", "outcome"), [("false", pytest.skip.Exception), ("true", pytest.fail.Exception)]
)
def test_without_a_compiler_it_is_a_skip_or_in_ci_a_failure_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ci: str, outcome: type[BaseException]
) -> None:
    fake_java(tmp_path, "17", "java.base@17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="apt-get install openjdk-17"):
        java_with_compiler()
