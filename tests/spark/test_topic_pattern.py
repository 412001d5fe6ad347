"""The pattern of topics is written by others: it takes no time to speak of, or is refused."""

from __future__ import annotations

import re
import time

import pytest

from pykclient.errors import ConfigError
from spark_connector.topic_pattern import checked_pattern, found_in

NAMES = ["", "a", "orders", "orders-v1", "Orders.eu", "__offsets", "a_b", "x" * 249, "b\\"]
PATTERNS = [
    *(
        r".*",
        r"orders.*",
        r"^orders$",
        r"orders|a_b",
        r"(?i)ORDERS",
        r"[a-z]+-v[0-9]+",
        r"\w+\.\w+",
    ),
    *(
        r"^(?!__).*",
        r"(?<=orders)-v\d",
        r"^(dev|orders)(-v\d+)?$",
        r"\p{Upper}\p{Lower}+",
        r"x{249}",
    ),
    *(
        r"\Qa_b\E",
        r"(?<name>a)_b",
        r"(?<x>r)d\w{2}",
        r"(?<x>e)\.\k<x>",
        r"[^\W_]+$",
        r"(a|b)+$",
        r"([a-z]+[._-])*b",
        r"\x61",
        r"b\\",
    ),
    *(r"[.*+?{]", r"(?!__)[*+?{(]*x", r"^[a-z]+_[a-z]+$", r"a??_", r"x{3,}", r"\bv1\b"),
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_finds_what_re_finds(pattern: str) -> None:
    checked = checked_pattern(pattern)
    assert found_in(checked, NAMES) == [name for name in NAMES if re.search(checked, name)]
    assert found_in(checked, []) == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a*)*b",
        r"(a|a)*b",
        r"(a|aa)+$b",
        r"a*a*a*a*a*a*b",
        r"(.*)(.*)(.*)(.*)(.*)[^a]",
        "a?" * 99 + "b",
    ],
)
def test_a_pattern_that_goes_back_and_forth_takes_no_time(pattern: str) -> None:
    """The engine of `re` takes longer than the universe is old for the first one."""
    begun_s = time.process_time()
    assert found_in(checked_pattern(pattern), ["a" * 249] * 100) == []
    assert time.process_time() - begun_s < 5


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(?!x)(a*)*b", r"(?=a)a*a*a*a*b", r"(a*)\1*\1*b", r"(?<x>a*)\k<x>b", r"(?!x)(a|a)+b"),
        *(r"(?!x)(a|aa){9}b", r"(?!x)a?a?a?a?b", r"(?>a*)a*a*a*b"),
    ],
)
def test_a_pattern_that_re2_lacks_is_refused_if_it_may_take_long(pattern: str) -> None:
    with pytest.raises(
        ConfigError, match=r"'subscribePattern' may take long to match.*'subscribe'"
    ):
        checked_pattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["a" * 10_001, "(" * 9_000 + "a" + ")" * 9_000, "a{99999999999}"]
)
def test_a_pattern_that_is_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="'subscribePattern'") as caught:
        checked_pattern(pattern)
    assert len(str(caught.value)) < 1_000
