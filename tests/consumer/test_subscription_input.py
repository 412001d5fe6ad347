"""What may be subscribed to."""

from __future__ import annotations

import re

import pytest

from pykclient.arguments import compiled_pattern, subscribed_topics
from pykclient.errors import UsageError


def test_names_of_topics_stay_in_order() -> None:
    assert subscribed_topics(["b", "a.b_c-9"]) == ["b", "a.b_c-9"]


@pytest.mark.parametrize("topics", ["t", [""], ["a b"], ["."], [".."], ["x" * 250], ["ü"], [1]])
def test_what_names_no_topic_is_refused(topics: list[str]) -> None:
    with pytest.raises(UsageError):
        subscribed_topics(topics)


def test_a_pattern_is_text_or_compiled() -> None:
    assert compiled_pattern("a.*").fullmatch("ab")
    compiled = re.compile("A", re.IGNORECASE)
    assert compiled_pattern(compiled) is compiled


@pytest.mark.parametrize("pattern", ["(", re.compile(b"a"), 1])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match=r"pattern|regular expression"):
        compiled_pattern(pattern)
