"""Regular expressions for topic names: RE2's syntax, and bounded time."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pykclient.testing.fake.groups.kip848.regex import (
    NESTING_MAX,
    REPEAT_MAX,
    SIZE_MAX,
    TopicRegexError,
    compile_topic_regex,
)

LONGEST_NAME = "a" * 249


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("a.*", ["a", "abc"], ["b", "ba", ""]),
        ("(foo|bar)-[0-9]{2,3}", ["foo-12", "bar-123"], ["foo-1", "foo-1234", "foo"]),
        ("(?:a|b|)c", ["ac", "bc", "c"], ["dc"]),
        ("(?P<name>a)(?<other>b)", ["ab"], ["a"]),
        ("(?i)ABC", ["abc", "aBc"], ["ab"]),
        ("a(?i:b)c", ["abc", "aBc"], ["Abc", "abC"]),
        ("[^a-c]+", ["xyz"], ["xa"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[a-c-]", ["b", "-"], ["d"]),
        ("[[:alpha:]]+[[:digit:]_]", ["abc1", "ab_"], ["abc", "a1b"]),
        ("[a&&~[]+", ["a&&", "~["], ["b"]),
        (r"\w+\.\d", ["abc.1"], ["abcx1", "abc.x"]),
        (r"\D\S\W", ["a-."], ["1-."]),
        (r"[\d_]+", ["1_2"], ["a"]),
        (r"\Qa.b\E.", ["a.bx"], ["axbx"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"\x41B\103", ["ABC"], ["abc"]),
        (r"\bfoo\b", ["foo"], ["foox"]),
        (r"a\Bb", ["ab"], ["a-b"]),
        (r"^\Aab\z$", ["ab"], ["a"]),
        ("a^b", [], ["ab", "a^b"]),
        ("x*?", ["", "xxx"], ["y"]),
        ("a{0}", [""], ["a"]),
        ("a{2,}", ["aa", "aaaa"], ["a"]),
        ("a{,2}", ["a{,2}"], ["aa"]),
        ("a{\u0663}", [], ["aaa"]),
        ("", [""], ["a"]),
    ],
)
def test_whole_names_match(pattern: str, matching: list[str], other: list[str]) -> None:
    regex = compile_topic_regex(pattern)
    assert [name for name in matching + other if regex.fullmatch(name)] == matching


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", "a)", "[", "[a", "[]", "*a", "a**", "a{1}{2}", "(?=a)", "(?!a)", "(?<=a)", "(?>a)"),
        *(r"(a)\1", "(?P<n>a)(?P<n>b)", "[b-a]", "[[:foo:]]", r"\Z", r"\p{L}", "\\", "(?x)", "(?"),
        *(
            f"a{{{REPEAT_MAX + 1}}}",
            f"a{{{'9' * 5_000}}}",
            f"a{{1,{'9' * 5_000}}}",
            "a{3,2}",
            r"\x{110000}",
            "[\\",
            "a|*",
        ),
        # Python accepts these and RE2 does not, or `re` does not support them.
        *("a*+", "(?=a)", "a(?i)b", "[[:^digit:]]", "[a--b]"),
        f"(a{{{REPEAT_MAX}}}){{{REPEAT_MAX}}}",
        "a" * (SIZE_MAX + 1),
        "(" * (NESTING_MAX + 1) + ")" * (NESTING_MAX + 1),
    ],
)
def test_what_re2_does_not_take_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(TopicRegexError, match=r"at (character|position) \d+"):
        compile_topic_regex(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(a*)*(a*)*b", "(a+a+)+b", "(a|aa)+b", "(.*.*.*)*b", "(a|a|a|a)*b", "(a?){16}b", ".*.*.*.*b"],
)
def test_what_could_take_long_is_refused(pattern: str) -> None:
    with pytest.raises(TopicRegexError, match="too long"):
        compile_topic_regex(pattern)


@pytest.mark.parametrize("pattern", [".*.*.*b", "(a?){11}a{238}b", "(a|a){11}a{238}b", "a+(a*)?b"])
def test_what_is_taken_ends_soon(pattern: str) -> None:
    # A pattern with many more ways to match would not finish.
    assert not compile_topic_regex(pattern).fullmatch(LONGEST_NAME)


@given(st.text("ab.*+?|()[]{}1,^-", max_size=9), st.text("ab1-", max_size=4))
def test_it_agrees_with_python_where_both_take_a_pattern(pattern: str, name: str) -> None:
    # Python has possessive repetitions, and another meaning of {,n}.
    assume(not re.search(r"[*+?}]\+|\{,", pattern))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            expected = re.compile(pattern).fullmatch(name) is not None
        except re.error:
            assume(False)
    try:
        regex = compile_topic_regex(pattern)
    except TopicRegexError:
        assume(False)
    assert (regex.fullmatch(name) is not None) == expected


@given(st.text(max_size=30))
def test_any_text_is_a_pattern_or_refused(pattern: str) -> None:
    try:
        regex = compile_topic_regex(pattern)
    except TopicRegexError:
        return
    regex.fullmatch("some-topic")  # must not warn of syntax that `re` may change
