"""An answer is about the partitions asked for, each once."""

from __future__ import annotations

import pytest

from pykclient.errors import DecodeError
from pykclient.network.manager import check_answered

ASKED = [("t", 0), ("t", 1)]


@pytest.mark.parametrize("answered", [ASKED, ASKED[::-1]])
def test_an_answer_to_all_is_taken_in_any_order(answered: list[tuple[str, int]]) -> None:
    check_answered("Fetch", ASKED, answered)


@pytest.mark.parametrize(
    ("answered", "said"),
    [
        ([("t", 5)], "names t-5, which was not asked for"),
        ([("t", 0), ("t", 0)], "names t-0, which was not asked for, or twice"),
        ([("", 0)], "names -0, which was not asked for"),
        ([("t", 1)], "says nothing of t-0"),
        ([], "says nothing of t-0"),
    ],
)
def test_any_other_answer_is_refused(answered: list[tuple[str, int]], said: str) -> None:
    with pytest.raises(DecodeError) as raised:
        check_answered("Fetch", ASKED, answered)

    assert str(raised.value).startswith(f"the response to Fetch {said}")


def test_partitions_may_be_left_out_where_that_is_allowed_but_not_added() -> None:
    check_answered("Fetch", ASKED, [("t", 1)], needs_all=False)

    with pytest.raises(DecodeError, match="t-2"):
        check_answered("Fetch", ASKED, [("t", 1), ("t", 2)], needs_all=False)
