"""The order of turns."""

from __future__ import annotations

from collections import Counter

import pytest

from measuring.contest import in_turns


@pytest.mark.promise("the clients' order rotates")
def test_each_has_as_many_turns_and_each_goes_first() -> None:
    turns = list(in_turns("abc", 3))
    assert Counter(turns) == {"a": 3, "b": 3, "c": 3}
    assert [turns[start] for start in (0, 3, 6)] == ["a", "b", "c"]


def test_nobody_has_no_turns() -> None:
    assert list(in_turns([], 3)) == []
