"""Ranges of versions, and code that branches by them."""

from __future__ import annotations

import pytest

from tools.protogen.versions import NONE, Versions, by_version


@pytest.mark.parametrize(
    ("text", "low", "high"), [("3", 3, 3), ("3-5", 3, 5), ("3+", 3, 0x7FFF), ("0", 0, 0)]
)
def test_range_is_read_and_written_as_the_schemas_do(text: str, low: int, high: int) -> None:
    versions = Versions.parse(text)
    assert (versions.low, versions.high) == (low, high)
    assert str(versions) == text
    assert versions


def test_none_is_empty() -> None:
    assert Versions.parse("none") is NONE
    assert not NONE
    assert str(NONE) == "none"
    assert 0 not in NONE


def test_malformed_range_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Versions.parse("new")


def test_both_and_either() -> None:
    assert Versions(1, 5) & Versions(3, 9) == Versions(3, 5)
    assert Versions(1, 2) & Versions(3, 4) is NONE
    assert Versions(1, 2) | Versions(5, 6) == Versions(1, 6)


@pytest.mark.parametrize(
    "codes",
    [
        "aaaa",
        "aabb",
        "aabbcc",
        "abab",
        ".aaa",
        "aaa.",
        "a..a",
        ".aa.",
        "a.b",
        ".a.b.",
        "....",
        "ab",
        "a",
    ],
)
def test_every_version_runs_its_own_code(codes: str) -> None:
    """Goal: branches cover each version once. Method: run what comes out, for every version."""
    versions = Versions(3, 3 + len(codes) - 1)

    def code(version: int) -> list[str]:
        letter = codes[version - versions.low]
        return [] if letter == "." else [f"ran.append({letter!r})"]

    lines = by_version(versions, code)
    for version in versions.each():
        ran: list[str] = []
        exec("\n".join(lines), {"version": version, "ran": ran})
        assert "".join(ran) == codes[version - versions.low].strip(".")


def test_equal_neighbours_share_a_branch_and_the_newest_comes_first() -> None:
    lines = by_version(Versions(0, 5), lambda version: ["new" if version >= 4 else "old"])
    assert lines == ["if version >= 4:", "    new", "else:", "    old"]
