"""Lists of names: each once, and a single name is no list."""

from __future__ import annotations

import pytest

from pykclient.admin.name_list import name_list
from pykclient.errors import UsageError


def test_each_name_counts_once_in_its_order() -> None:
    assert name_list(["b", "a", "b"], "group") == ["b", "a"]
    assert name_list((), "group") == []


@pytest.mark.parametrize("names", ["abc", [1], [None]])
def test_what_are_no_names_is_refused(names: list[str]) -> None:
    with pytest.raises(UsageError, match="give a list of group names"):
        name_list(names, "group")


def test_a_name_that_no_request_can_carry_is_refused() -> None:
    with pytest.raises(UsageError, match="is no text, so no group has that name"):
        name_list(["\ud800"], "group")
