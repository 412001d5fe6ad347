r"""Regular expressions over topic names, in RE2's syntax and with its promise: linear time.

A pattern is parsed and turned into a small program, which is run over all ways of matching at once,
so no pattern and no name can take long: Python's own ``re`` cannot promise that, and takes syntax
that RE2 does not. Left out are classes of Unicode, since names of topics are ASCII: ``\p{L}`` is
refused although RE2 takes it.

Owner: none; a pattern never changes.
Source: RE2's syntax page; KIP-848 (``SubscribedTopicRegex`` matches whole names).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors.broker import InvalidRegularExpressionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pykclient.testing.fake.groups.kip848.members import ConsumerGroupMember
    from pykclient.testing.fake.timers import Timer, TimingWheel
    from pykclient.testing.fake.topics import Topic

__all__ = ["RegexChange", "RegexSubscriptions", "TopicRegex", "TopicRegexError"]

REPEAT_MAX = 1_000
"""RE2's own limit of ``{n}``."""
PROGRAM_LENGTH_MAX = 5_000
"""Repeats of repeats multiply; RE2 limits the memory of a pattern instead."""
NESTING_MAX = 50
"""Groups inside groups; RE2/J takes a thousand, more than Python's stack would."""

_WORD = frozenset(string.ascii_letters + string.digits + "_")
_ASCII = frozenset(map(chr, range(128)))
_CLASSES = {
    "d": frozenset(string.digits),
    "s": frozenset("\t\n\f\r "),
    "w": _WORD,
}
_CLASSES |= {name.upper(): _ASCII - members for name, members in _CLASSES.items()}
_POSIX = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": _ASCII,
    "blank": frozenset("\t "),
    "cntrl": frozenset(map(chr, range(32))) | {"\x7f"},
    "digit": frozenset(string.digits),
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": frozenset(string.ascii_lowercase),
    "print": frozenset(map(chr, range(32, 127))),
    "punct": frozenset(string.punctuation),
    "space": frozenset(string.whitespace),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_ESCAPES = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_BRACES = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_DIGIT_COUNT_MAX = 9
_GROUP_NAME = re.compile(r"P?<(\w+)>", re.ASCII)
_GROUP_FLAGS = re.compile(r"([imsU]*)(-[imsU]+)?([:)])")
_CODE = re.compile(r"(0[0-7]{0,2}|[1-7][0-7]{1,2})|x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]+)\}")
_POSIX_CLASS = re.compile(r"\[:(\^?)(\w+):\]", re.ASCII)
_RANGE = re.compile(r"-[^\]]")
_EMPTY_WIDTH = {"A": "start", "z": "end", "b": "boundary", "B": "no boundary"}


class TopicRegexError(ValueError):
    """A pattern that RE2 does not take; the text says why and where."""


class TopicRegex:
    """A pattern that matches whole names. Raises `TopicRegexError`."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._program = _Parser(pattern).program()

    def matches(self, name: str) -> bool:
        """Whether the whole name matches; time grows with its length times the pattern's."""
        threads = self._reachable({0}, name, 0)
        for place, character in enumerate(name):
            taken = {
                number + 1
                for number in threads
                if (members := self._program[number].characters) is not None
                and (character in members)
            }
            if not taken:
                return False
            threads = self._reachable(taken, name, place + 1)
        return len(self._program) - 1 in threads

    def _reachable(self, starts: set[int], name: str, place: int) -> set[int]:
        """Where the program may stand before the character at `place`."""
        reached: set[int] = set()
        todo = list(starts)
        while todo:
            number = todo.pop()
            if number in reached:
                continue
            reached.add(number)
            step = self._program[number]
            if step.condition is None or _holds(step.condition, name, place):
                todo.extend(number + offset for offset in step.offsets)
        return reached


class _Step(NamedTuple):
    """Take one of `characters` and go on; or go, if `condition` holds, to any of `offsets`.

    The last step of a program has none of them: who reaches it at the end has matched.
    """

    characters: frozenset[str] | None = None
    offsets: tuple[int, ...] = ()
    condition: str | None = None


_Program = list[_Step]


def _holds(condition: str, name: str, place: int) -> bool:
    if condition == "start":
        return place == 0
    if condition == "end":
        return place == len(name)
    before = place > 0 and name[place - 1] in _WORD
    after = place < len(name) and name[place] in _WORD
    return (before != after) == (condition == "boundary")


class _Parser:
    """Recursive descent over one pattern; each method gives the program of what it has read."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._place = 0
        self._ignores_case = False
        self._depth = 0
        self._names: set[str] = set()

    def program(self) -> _Program:
        program = self._alternatives()
        if self._place < len(self._pattern):
            raise self._error("unexpected )")
        return [*program, _Step()]

    # Pieces, from the loosest to the tightest.

    def _alternatives(self) -> _Program:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        program = branches.pop()
        while branches:
            branch = branches.pop()
            skip = _Step(offsets=(len(program) + 1,))
            program = [_Step(offsets=(1, len(branch) + 2)), *branch, skip, *program]
            self._bounded(program)
        return program

    def _sequence(self) -> _Program:
        program: _Program = []
        while self._place < len(self._pattern) and self._pattern[self._place] not in "|)":
            program = self._bounded(program + self._repeated())
        return program

    def _repeated(self) -> _Program:
        start = self._place
        program = self._atom()
        is_repeated = False
        while (limits := self._limits()) is not None:
            if is_repeated:
                raise self._error("invalid nested repetition operator", start)
            is_repeated = True
            self._take("?")
            program = self._repeat(program, *limits)
        return program

    def _limits(self) -> tuple[int, int | None] | None:
        """The repetition that stands here: at least, and at most or None; None if there is none."""
        for mark, limits in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(mark):
                return limits
        found = _BRACES.match(self._pattern, self._place)
        if found is None:
            return None
        self._place = found.end()
        if max(len(found[1]), len(found[3] or "")) > _DIGIT_COUNT_MAX:
            raise self._error("invalid repeat count", found.start())
        least = int(found[1])
        most = least if found[2] is None else int(found[3]) if found[3] else None
        if max(least, most or 0) > REPEAT_MAX or (most is not None and most < least):
            raise self._error("invalid repeat count", found.start())
        return least, most

    def _repeat(self, program: _Program, least: int, most: int | None) -> _Program:
        if len(program) * max(least, most or 1) > PROGRAM_LENGTH_MAX:
            raise self._error("expression too large")
        repeated = program * least
        if most is None:
            back = _Step(offsets=(-len(program), 1))
            if least:
                return [*repeated, back]
            return [_Step(offsets=(1, len(program) + 2)), *program, back]
        optional = most - least
        for left in range(optional, 0, -1):
            past = left * (len(program) + 1)
            repeated += [_Step(offsets=(1, past)), *program]
        return repeated

    def _atom(self) -> _Program:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return [self._one_of(self._class())]
        if character == ".":
            return [_Step(_ASCII)]
        if character in "^$":
            return [_Step(offsets=(1,), condition="start" if character == "^" else "end")]
        if character in "*+?":
            raise self._error("missing argument to repetition operator", self._place - 1)
        if character == "\\":
            return self._escape()
        return [self._one_of(frozenset(character))]

    def _group(self) -> _Program:
        start = self._place - 1
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._error("expression nests too deeply", start)
        outer = self._ignores_case
        is_open = not self._take("?") or self._group_kind(start)
        if is_open:
            program = self._alternatives()
            if not self._take(")"):
                raise self._error("missing closing )", start)
            self._ignores_case = outer
        else:
            program = []
        self._depth -= 1
        return program

    def _group_kind(self, start: int) -> bool:
        """Read what stands after ``(?``; False when it is flags for the rest of the group."""
        named = _GROUP_NAME.match(self._pattern, self._place)
        if named is not None:
            if named[1] in self._names:
                raise self._error("duplicate capture group name", start)
            self._names.add(named[1])
            self._place = named.end()
            return True
        flags = _GROUP_FLAGS.match(self._pattern, self._place)
        if flags is None:
            raise self._error("invalid or unsupported Perl syntax", start)
        self._place = flags.end()
        if "i" in flags[1]:
            self._ignores_case = True
        if "i" in (flags[2] or ""):
            self._ignores_case = False
        return flags[3] == ":"

    def _escape(self) -> _Program:
        start = self._place - 1
        if self._take("Q"):
            end = self._pattern.find("\\E", self._place)
            text = self._pattern[self._place : end if end >= 0 else None]
            self._place = len(self._pattern) if end < 0 else end + 2
            return [self._one_of(frozenset(character)) for character in text]
        if self._pattern[self._place : self._place + 1] in tuple(_EMPTY_WIDTH):
            return [_Step(offsets=(1,), condition=_EMPTY_WIDTH[self._next()])]
        return [self._one_of(self._escaped(start))]

    def _escaped(self, start: int) -> frozenset[str]:
        """The characters that the escape stands for, whose backslash was read."""
        number = _CODE.match(self._pattern, self._place)
        if number is not None:
            self._place = number.end()
            code = int(number[1], 8) if number[1] else int(number[2] or number[3], 16)
            if code > 0x10FFFF:
                raise self._error("invalid escape sequence", start)
            return frozenset(chr(code))
        character = self._next()
        if character in _CLASSES:
            return _CLASSES[character]
        if character in _ESCAPES:
            return frozenset(_ESCAPES[character])
        if character.isascii() and not character.isalnum():
            return frozenset(character)
        raise self._error("invalid escape sequence", start)

    def _class(self) -> frozenset[str]:
        start = self._place - 1
        is_negated = self._take("^")
        members: set[str] = set()
        is_first = True
        while is_first or not self._take("]"):
            if self._place >= len(self._pattern):
                raise self._error("missing closing ]", start)
            is_first = False
            members |= self._class_part(start)
        return _ASCII - self._cased(frozenset(members)) if is_negated else frozenset(members)

    def _class_part(self, start: int) -> frozenset[str]:
        posix = _POSIX_CLASS.match(self._pattern, self._place)
        if posix is not None:
            if posix[2] not in _POSIX:
                raise self._error("invalid character class range", self._place)
            self._place = posix.end()
            return _ASCII - _POSIX[posix[2]] if posix[1] else _POSIX[posix[2]]
        low = self._class_member(start)
        is_range = _RANGE.match(self._pattern, self._place) is not None
        if len(low) > 1 or not is_range:
            return low
        self._place += 1
        high = self._class_member(start)
        if len(high) > 1 or min(high) < min(low):
            raise self._error("invalid character class range", start)
        # Names are ASCII: a range that goes on beyond it would only take long.
        return frozenset(each for each in _ASCII if min(low) <= each <= min(high))

    def _class_member(self, start: int) -> frozenset[str]:
        if self._place >= len(self._pattern):
            raise self._error("missing closing ]", start)
        character = self._next()
        return self._escaped(self._place - 1) if character == "\\" else frozenset(character)

    def _one_of(self, members: frozenset[str]) -> _Step:
        return _Step(self._cased(members), offsets=())

    def _cased(self, members: frozenset[str]) -> frozenset[str]:
        if not self._ignores_case:
            return members
        return members | {each.lower() for each in members} | {each.upper() for each in members}

    # Characters.

    def _take(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._place):
            return False
        self._place += len(text)
        return True

    def _next(self) -> str:
        if self._place >= len(self._pattern):
            raise self._error("trailing backslash")
        self._place += 1
        return self._pattern[self._place - 1]

    def _bounded(self, program: _Program) -> _Program:
        if len(program) > PROGRAM_LENGTH_MAX:
            raise self._error("expression too large")
        return program

    def _error(self, reason: str, place: int | None = None) -> TopicRegexError:
        where = self._place if place is None else place
        return TopicRegexError(f"{reason} at character {where} of `{self._pattern}`")


REFRESH_INTERVAL_MS_MIN = 10_000
REFRESH_INTERVAL_MS = 600_000
"""Kafka's ``group.consumer.regex.refresh.interval.ms``."""


class RegexChange(NamedTuple):
    """What a member's new expression means: `is_known` when its topics are known at once."""

    is_change: bool = False
    is_known: bool = False


class RegexSubscriptions:
    """The expressions of one group; `on_resolved()` is called when they match other topics."""

    def __init__(
        self, topics: Mapping[str, Topic], timers: TimingWheel, on_resolved: Callable[[], None]
    ) -> None:
        self._topics = topics
        self._timers = timers
        self._on_resolved = on_resolved
        self._wanted: dict[str, TopicRegex] = {}
        self._resolved: dict[str, frozenset[str]] = {}
        self._resolved_at_ms = 0
        self._seen: frozenset[bytes] = frozenset()
        """The topics that there were when it resolved."""
        self._timer: Timer | None = None

    def topics_of(self, regex: str) -> frozenset[str]:
        """The topics that an expression is known to match; none of an unresolved one."""
        return self._resolved.get(regex, frozenset())

    def change(
        self, before: str, after: str, members: Iterable[ConsumerGroupMember]
    ) -> RegexChange:
        """A member has another expression; `members` are those of before.

        Raises:
            InvalidRegularExpressionError: it is none, and nothing has changed.
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
        """Members have gone, and perhaps the last that used an expression."""
        used = {member.topic_regex for member in members}
        for regex in [each for each in self._wanted if each not in used]:
            self._forget(regex)

    def refresh(self, now_ms: int) -> None:
        """Resolve soon, if there is a reason to, and the last time is long enough ago."""
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
        """Do not resolve what was to be resolved; a later heartbeat asks for it again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _resolve(self, now_ms: int) -> None:
        self._timer = None
        before = self._resolved
        self._resolved = {
            regex: frozenset(filter(compiled.matches, self._topics))
            for regex, compiled in self._wanted.items()
        }
        self._resolved_at_ms = now_ms
        self._seen = frozenset(topic.topic_id for topic in self._topics.values())
        if any(names != before.get(regex, frozenset()) for regex, names in self._resolved.items()):
            self._on_resolved()

    def _forget(self, regex: str) -> None:
        del self._wanted[regex]
        self._resolved.pop(regex, None)


def _compiled(regex: str) -> TopicRegex:
    try:
        return TopicRegex(regex)
    except TopicRegexError as error:
        raise InvalidRegularExpressionError(
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}"
        ) from error
