"""What the regular expressions of a group's members match by now.

An expression is *unresolved* at first, so that a member joins without its topics; it is resolved
a moment later, outside of any request, and again when there are new topics, or after a while, but
not within ten seconds of the last time.

Owner: the group that has it.
Source: KIP-848; Java classes ``TopicRegexResolver``, ``GroupMetadataManager``, as of 4.3.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors.broker import InvalidRegularExpressionError
from pykclient.testing.fake.groups.topic_regex import TopicRegex, TopicRegexError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pykclient.testing.fake.groups.modern_member import ModernMember
    from pykclient.testing.fake.timers import Timer, TimingWheel
    from pykclient.testing.fake.topics import Topic

__all__ = ["RegexChange", "RegexSubscriptions"]

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

    def change(self, before: str, after: str, members: Iterable[ModernMember]) -> RegexChange:
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

    def forget_unused(self, members: Iterable[ModernMember]) -> None:
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
