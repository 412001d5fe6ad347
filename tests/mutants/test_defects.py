"""The list of planted defects stays alive: each can be planted, and has tests that there are.

Whether these notice it, `make mutants` shows; here is only how it judges that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.mutants.defects import Defect, read_defects, troubles
from tests.mutants.run import Run, why_not_noticed, why_not_sound

if TYPE_CHECKING:
    from pathlib import Path

DEFECT = Defect("a.py", "it adds", "a - b", "a + b", ("test_a.py::test_b", "test_a.py::test_c"))
SOUND = "PASSED test_a.py::test_b[1]\nPASSED test_a.py::test_c\n"
NOTICED = "FAILED test_a.py::test_b[1] - assert 2 == 0\nFAILED test_a.py::test_c\n"


def test_each_defect_can_be_planted_and_has_its_tests() -> None:
    assert list(troubles(read_defects())) == []


def test_there_are_few_and_each_once() -> None:
    defects = read_defects()
    assert len({(defect.file, defect.text, defect.replacement) for defect in defects}) <= 80
    assert len({defect.what for defect in defects}) == len(defects)
    assert [defect.what for defect in defects if not defect.what.endswith(".")] == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({}, ""),
        ({"file": "b.py"}, "there is no such file"),
        ({"text": "a * b"}, "the text occurs 0 times: 'a * b'"),
        ({"text": "a"}, "the text occurs 2 times: 'a'"),
        ({"replacement": "a - b"}, "it changes nothing"),
        ({"replacement": "a -"}, "invalid syntax (<unknown>, line 2)"),
        ({"tests": ()}, "it names no test"),
        ({"tests": ("test_a.py::test_d",)}, "there is no test test_a.py::test_d"),
        ({"tests": ("test_b.py::test_b",)}, "there is no test test_b.py::test_b"),
    ],
)
def test_what_is_out_of_date_is_reported(
    change: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("def f(a, b):\n    return a - b\n")
    (tmp_path / "test_a.py").write_text("def test_b(): ...\n\n\ndef test_c(): ...\n")
    defect = DEFECT._replace(**change)
    expected = [f"{defect.file}: it adds: {complaint}"] if complaint else []
    assert list(troubles([defect], tmp_path)) == expected


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (Run(1, NOTICED), ""),
        (Run(0, SOUND), "pytest ended with status 0"),
        (Run(2, "ERROR test_a.py\n"), "pytest ended with status 2"),
        (Run(None, NOTICED), "its tests ran for more than 300 s"),
        (
            Run(1, "FAILED test_a.py::test_b\nPASSED test_a.py::test_c\n"),
            "test_a.py::test_c did not fail",
        ),
        (
            Run(1, "FAILED test_a.py::test_b\nERROR test_a.py::test_c - KeyError\n"),
            "test_a.py::test_c did not fail",
        ),
        (
            Run(1, "FAILED test_a.py::test_b_too\nFAILED test_a.py::test_c\n"),
            "test_a.py::test_b did not fail",
        ),
        (
            Run(1, "FAILED test_a.py::test_b - NameError: name 'c'\n"),
            "no defect but a mistake: FAILED test_a.py::test_b - NameError: name 'c'",
        ),
    ],
)
def test_a_defect_is_noticed_when_all_its_tests_fail_by_themselves(run: Run, why: str) -> None:
    assert why_not_noticed(DEFECT, run) == why


@pytest.mark.parametrize(
    ("run", "wrong"),
    [
        (Run(0, SOUND), []),
        (Run(0, "PASSED test_a.py::test_b\nSKIPPED [1] test_a.py:3: no Java\n"), ["c"]),
        (Run(1, "PASSED test_a.py::test_b\nFAILED test_a.py::test_c\n"), ["c"]),
        (Run(None, ""), ["b", "c"]),
    ],
)
def test_before_a_defect_all_its_tests_must_have_passed(run: Run, wrong: list[str]) -> None:
    assert why_not_sound(DEFECT.tests, run) == [f"test_a.py::test_{name}" for name in wrong]


def test_any_failure_without_a_defect_counts() -> None:
    run = Run(1, f"{SOUND}FAILED test_a.py::test_b[2] - assert 0\n")
    assert why_not_sound(DEFECT.tests, run) == ["pytest ended with status 1"]


def test_the_core_is_the_one_that_a_defect_is_in() -> None:
    files = ("pykclient/accel/pure/send.py", "pykclient/accel/compiled/send.pyx", "pykclient/a.py")
    assert [DEFECT._replace(file=file).core for file in files] == ["pure", "compiled", ""]
