r"""Regular expressions of a group's members: validation, and the topics they match.

An expression is *unresolved* at first, so that a member joins without its topics. It is resolved
shortly afterwards, outside of any request, and again when there are new topics or after a while,
but at most every ten seconds.

A pattern has RE2's syntax and is run by Python's ``re``; patterns that RE2 refuses are refused.
Unlike RE2, ``re`` backtracks, so a pattern with too many ways to match is refused before it is run,
such as ``(a+)+`` or four times ``.*``. RE2 also supports ``\p{L}``, ``\x{10FFFF}``,
``[[:^alpha:]]`` and flags after the start; these are refused here.

Owner: the group.
Source: RE2's syntax page; KIP-848 (``SubscribedTopicRegex`` matches whole names); Java classes
``TopicRegexResolver``, ``GroupMetadataManager``, as of 4.3.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors.broker import InvalidRegularExpressionError
from pykclient.testing.fake.topics import NAME_LENGTH_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pykclient.testing.fake.groups.kip848.members import ConsumerGroupMember
    from pykclient.testing.fake.timers import Timer, TimingWheel
    from pykclient.testing.fake.topics import Topic

REFRESH_INTERVAL_MS_MIN = 10_000
REFRESH_INTERVAL_MS = 600_000
"""Kafka's ``group.consumer.regex.refresh.interval.ms``."""

REPEAT_MAX = 1_000
"""RE2's limit of ``{n}``."""
SIZE_MAX = 5_000
"""Limit of nested repeats, which multiply; RE2 limits a pattern's memory instead."""
NESTING_MAX = 50
"""Limit of nested groups; RE2/J accepts a thousand, more than Python's stack."""
WAYS_MAX = 16_000_000
"""Limit of the ways to match the longest name; the count is an upper bound."""

_ESCAPE = r"\\(?:[dDsSwWafnrtv]|[0-7]{3}|x[0-9a-fA-F]{2}|[!-/:-@\[-`{-~])"
_TOKEN = re.compile(
    rf"""(?P<quoted>\\Q(?P<text>.*?)(?:\\E|\Z))
    |(?P<place>\\[bBAz]|[\^$])
    |(?P<set>\[\^?\]?(?:\[:\w+:\]|{_ESCAPE}|[^\]\\])*\])
    |(?P<repeat>(?:[*+?]|\{{(?P<least>[0-9]+)(?:(?P<comma>,)(?P<most>[0-9]*))?\}})\??)
    |(?P<open>\((?:(?!\?)|\?P?<(?P<name>\w+)>|\?(?P<flags>[ims]*(?:-[ims]+)?):))
    |(?P<close>\))
    |(?P<or>\|)
    |(?P<one>{_ESCAPE}|[^\\()\[*+?|])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_FLAGS = re.compile(r"\(\?[imsU]+\)")
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t-\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_IN_SET = re.compile(r"\[:(?P<posix>\w+):\]|\\.|(?P<other>--|\[:|[\[&~|])", re.DOTALL)
_LIMITS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class RegexChange(NamedTuple):
    """Effect of a member's new expression; `is_known` if its topics are known at once."""

    is_change: bool = False
    is_known: bool = False


class RegexSubscriptions:
    """The expressions of a group; `on_resolved()` is called when they match other topics."""

    def __init__(
        self, topics: Mapping[str, Topic], timers: TimingWheel, on_resolved: Callable[[], None]
    ) -> None:
        self._topics = topics
        self._timers = timers
        self._on_resolved = on_resolved
        self._wanted: dict[str, re.Pattern[str]] = {}
        self._resolved: dict[str, frozenset[str]] = {}
        self._resolved_at_ms = 0
        self._seen: frozenset[bytes] = frozenset()
        """Ids of the topics at the last resolution."""
        self._timer: Timer | None = None

    def topics_of(self, regex: str) -> frozenset[str]:
        """Return the topics that an expression matches; none if it is unresolved."""
        return self._resolved.get(regex, frozenset())

    def change(
        self, before: str, after: str, members: Iterable[ConsumerGroupMember]
    ) -> RegexChange:
        """Replace a member's expression; `members` are those before the change.

        Raises:
            InvalidRegularExpressionError: the expression is invalid, and nothing has changed.
        """
        if before == after:
            return RegexChange()
        users = Counter(member.topic_regex for member in members)
        is_known = bool(before)
        if after:
            if after not in self._wanted:
                self._wanted[after] = _compiled(after)
            is_known = after in self._resolved
        if before and users[before] == 1:
            self._forget(before)
        return RegexChange(is_change=True, is_known=is_known)

    def forget_unused(self, members: Iterable[ConsumerGroupMember]) -> None:
        """Forget expressions that no member uses."""
        used = {member.topic_regex for member in members}
        for regex in [each for each in self._wanted if each not in used]:
            self._forget(regex)

    def refresh(self, now_ms: int) -> None:
        """Schedule a resolution if one is needed and the last is long enough ago."""
        if not self._wanted or self._timer is not None:
            return
        age_ms = now_ms - self._resolved_at_ms
        if self._resolved and age_ms <= REFRESH_INTERVAL_MS_MIN:
            return
        has_new_topics = any(each.topic_id not in self._seen for each in self._topics.values())
        is_complete = self._wanted.keys() == self._resolved.keys()
        if not is_complete or has_new_topics or age_ms > REFRESH_INTERVAL_MS:
            self._timer = self._timers.add(now_ms, self._resolve)

    def cancel(self) -> None:
        """Cancel a scheduled resolution; a later heartbeat schedules it again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _resolve(self, now_ms: int) -> None:
        self._timer = None
        before = self._resolved
        self._resolved = {
            regex: frozenset(filter(compiled.fullmatch, self._topics))
            for regex, compiled in self._wanted.items()
        }
        self._resolved_at_ms = now_ms
        self._seen = frozenset(topic.topic_id for topic in self._topics.values())
        if any(names != before.get(regex, frozenset()) for regex, names in self._resolved.items()):
            self._on_resolved()

    def _forget(self, regex: str) -> None:
        del self._wanted[regex]
        self._resolved.pop(regex, None)


def _compiled(regex: str) -> re.Pattern[str]:
    try:
        return compile_topic_regex(regex)
    except TopicRegexError as error:
        raise InvalidRegularExpressionError(
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}"
        ) from error


class TopicRegexError(ValueError):
    """A pattern that cannot be used; the message says why and where."""


def compile_topic_regex(pattern: str) -> re.Pattern[str]:
    """Compile a pattern for whole names. Raises `TopicRegexError`."""
    text = _Translation(pattern).text
    try:
        return re.compile(text, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise TopicRegexError(f"{error} in `{pattern}`") from error


class _Sequence:
    """The part of a group read so far: its size, and the number of ways it can match."""

    def __init__(self) -> None:
        self.size = 1
        self.ways = 0
        """Ways of the completed alternatives."""
        self._ways_now = 1
        self._last: tuple[int, int] | None = None
        """Ways and size of the last item, which a repetition would repeat."""

    def add(self, ways: int, size: int) -> None:
        self._take_last()
        self._last = ways, size

    def end_alternative(self) -> None:
        self._take_last()
        self.ways += self._ways_now + (self.ways > 0)
        self._ways_now = 1

    def repeat(self, least: int, most: int | None) -> bool:
        """Repeat the last item; return False if there is none."""
        if self._last is None:
            return False
        ways, size = self._last
        if most is None:
            ways = NAME_LENGTH_MAX + 1 if ways == 1 else WAYS_MAX + 1
        elif ways > 1:
            ways = (ways + 1) ** min(most, WAYS_MAX.bit_length())
        elif least < most:
            ways = most - least + 2
        self._last = ways, size * max(least, most or 1)
        self._take_last()
        return True

    def _take_last(self) -> None:
        if self._last is not None:
            self._ways_now = min(self._ways_now * self._last[0], WAYS_MAX + 1)
            self.size += self._last[1]
            self._last = None


class _Translation:
    """A pattern, and in `text` its translation for `re`."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._place = 0
        self._groups = [_Sequence()]
        self.text = ""
        flags = _FLAGS.match(pattern)
        if flags is not None:
            self._place = flags.end()
            self.text = flags[0].replace("U", "").replace("(?)", "")
        while self._place < len(pattern):
            token = _TOKEN.match(pattern, self._place)
            if token is None:
                is_set = pattern[self._place] == "["
                raise self._error(
                    "missing closing ]" if is_set else "invalid or unsupported syntax"
                )
            self.text += self._translated(token)
            self._place = token.end()
            if len(self._groups) > NESTING_MAX or self._groups[-1].size > SIZE_MAX:
                raise self._error("expression too large")
        if len(self._groups) > 1:
            raise self._error("missing closing )")
        self._groups[-1].end_alternative()
        if self._groups[-1].ways > WAYS_MAX:
            raise self._error("expression may take too long, which it would not with RE2")

    def _translated(self, token: re.Match[str]) -> str:
        group, text = self._groups[-1], token[0]
        match token.lastgroup:
            case "quoted":
                text = re.escape(token["text"])
                for _ in token["text"]:
                    group.add(1, 1)
            case "repeat":
                self._repeat(token)
            case "open":
                self._groups.append(_Sequence())
                text = text.replace("(?<", "(?P<")
            case "close":
                self._close()
            case "or":
                group.end_alternative()
            case kind:
                group.add(1, 1)
                if kind == "set":
                    text = self._set(text)
                elif text in (r"\z", "{", "}", "]"):
                    text = r"\Z" if text == r"\z" else f"\\{text}"
        return text

    def _repeat(self, token: re.Match[str]) -> None:
        least, most = token["least"], token["most"]
        if least is None:
            limits: tuple[int, int | None] = _LIMITS[token[0][0]]
        elif max(len(least), len(most or "")) > len(str(REPEAT_MAX)):
            raise self._error("invalid repeat count")
        else:
            limits = int(least), int(most) if most else None if token["comma"] else int(least)
            if max(limits[0], limits[1] or 0) > REPEAT_MAX or limits[0] > (limits[1] or REPEAT_MAX):
                raise self._error("invalid repeat count")
        if not self._groups[-1].repeat(*limits):
            raise self._error("missing argument to repetition operator")

    def _close(self) -> None:
        group = self._groups.pop()
        if not self._groups:
            raise self._error("unexpected )")
        group.end_alternative()
        self._groups[-1].add(group.ways, group.size)

    def _set(self, text: str) -> str:
        """Translate a character set; brackets inside mean something else in Python."""

        def part(found: re.Match[str]) -> str:
            name, other = found["posix"], found["other"]
            if other in ("--", "[:") or (name is not None and name not in _POSIX):
                raise self._error("invalid character class range")
            return _POSIX[name] if name is not None else f"\\{other}" if other else found[0]

        start = "[^" if text.startswith("[^") else "["
        return start + _IN_SET.sub(part, text[len(start) :])

    def _error(self, reason: str) -> TopicRegexError:
        return TopicRegexError(f"{reason} at character {self._place} of `{self._pattern}`")
