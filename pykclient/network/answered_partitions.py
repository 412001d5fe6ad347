"""Answered partitions: whether an answer is about what was asked, each partition once.

Without this a hostile answer could end what nobody asked about, or leave a partition waiting for
ever. It is checked before a manager hears of the answer.

Owner: none; a function.
Source: none in Java, which passes over what it did not ask for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import DecodeError
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["check_answered"]


def check_answered(
    api: str,
    asked: Collection[tuple[str, int]],
    answered: Iterable[tuple[str, int]],
    *,
    needs_all: bool = True,
) -> None:
    """Make sure that `answered` has the partitions of `asked`, none twice, and no other ones.

    `api` is the request's name, for the error. Without `needs_all` some may be left out.

    Raises:
        DecodeError: it has not.
    """
    unanswered = set(asked)
    for partition in answered:
        if partition not in unanswered:
            raise DecodeError(
                f"the answer to {api} names {_name(partition)}, which was not asked for, or twice"
            )
        unanswered.discard(partition)
    if needs_all and unanswered:
        raise DecodeError(f"the answer to {api} says nothing of {_name(min(unanswered))}")


def _name(partition: tuple[str, int]) -> TopicPartition:
    return TopicPartition(*partition)
