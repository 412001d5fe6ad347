"""The table of how a checkout is arranged counts right."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tools.house_table import Checkout, main

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "pykclient/__init__.py": '''\
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from pykclient.top import Consumer
    from pykclient.errors.base import KafkaError
''',
    "pykclient/top.py": '''\
from pykclient.middle import Middle
class Consumer(Middle):
    def poll(self):
        self._engine.step(0)
        return self._owned, self._asdict()
''',
    "pykclient/middle.py": '''\
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from pykclient.top import Consumer
class Core: ...
class Base(Core): ...
class Middle(Base):
    def __init__(self):
        self._owned = self._engine = 1
''',
    "pykclient/left.py": "import pykclient.right\n",
    "pykclient/right.py": "from pykclient import left\ndef _asdict(): ...\n",
    "pykclient/errors/__init__.py": "",
    "pykclient/errors/base.py": '''\
class A: ...
class B(A): ...
class C(B): ...
class KafkaError(C): ...
''',
    "pykclient/errors/broker.py": "x = 1\n" * 50,
    "pykclient/testing/__init__.py": "",
    "pykclient/testing/clock.py": "a = 1\nb = 2\n",
    "docs/decisions/0001-a.md": "x" * 2048,
    "tests/test_a.py": "def test_a(): ...\ndef other(): ...\n",
}  # fmt: skip


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*git, *command], check=True)
    return Checkout(tmp_path)


def test_it_finds_classes_made_of_many_but_no_errors(checkout: Checkout) -> None:
    assert [(each.name, each.size) for each in checkout.public_classes()] == [("Consumer", 4)]


def test_a_private_name_of_another_file_is_counted_at_each_use(checkout: Checkout) -> None:
    assert checkout.private_names_across() == {"_engine": 1, "_owned": 1}


def test_circles_of_types_are_distinguished_from_those_of_imports(checkout: Checkout) -> None:
    real = {"pykclient.left", "pykclient.right"}
    assert checkout.circles(with_types=False) == [real]
    circles = checkout.circles(with_types=True)
    assert sorted(map(sorted, circles)) == [
        ["pykclient.left", "pykclient.right"],
        ["pykclient.middle", "pykclient.top"],
    ]


def test_the_table_has_a_column_for_each_checkout(
    checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(checkout.root), str(checkout.root)]) == 0
    rows = {
        cells[1].strip(): [cell.strip() for cell in cells[2:-1]]
        for cells in (line.split("|") for line in capsys.readouterr().out.splitlines())
    }
    assert rows["what"] == [checkout.commit] * 2
    by_hand = [text for name, text in FILES.items() if name.startswith("pykclient/")][:7]
    lines = sum(text.count("\n") for text in by_hand)
    package = rows["package: files and lines of `pykclient`, as written by hand"]
    assert package == [f"7, {lines}"] * 2
    assert rows["testing: files and lines of `pykclient/testing/`"] == ["2, 2"] * 2
    assert rows["longest file"] == ["8 (middle.py)"] * 2
    assert rows["longest function"] == ["3 (top.py: poll)"] * 2
    assert rows["MRO: most classes of ours in a public class"] == ["4 (Consumer)"] * 2
    assert rows["places that step an engine"] == ["1", "1"]
    assert rows["documents: decisions"] == ["2 KiB"] * 2
    assert rows["tests: files and lines"] == ["1, 2"] * 2
    assert rows["tests: functions"] == ["1", "1"]
