"""The machine that figures belong to."""

from __future__ import annotations

from measuring.machine import describe
from pykclient.version import __version__


def test_the_machine_is_told_with_the_versions() -> None:
    told = describe(["pykclient", "rich"])
    assert told["pykclient"] == __version__
    assert {"cores", "memory", "system", "Python", "rich"} <= told.keys()
